"""Steps of many planar location streams over one model, compiled from the prior to the estimate.

What the plain machine does, without the release's words, warnings and accounts: for simulations and
fleets. A step that needs an exact sum, a repair or a flat body is handed back as None before
anything is released, for the plain machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.numbers import positive
from shoal.core.rng import Rng
from shoal.core.value import Floats, Ints
from shoal.geometry.body import body_of
from shoal.geometry.layers import HullIndex
from shoal.geometry.nearest import lexicographic
from shoal.noise.knorm import LatticeKNorm
from shoal.noise.knorm_exact import exact_attempt

Bools = npt.NDArray[np.bool_]
ATTEMPTS = 24  # at an acceptance of 1/4 all fail once in a thousand steps


class Stepped(NamedTuple):
    """The output z in lattice steps, the belief and support after it, the posterior mean."""

    z: Ints
    belief: Floats
    support: Bools
    estimate: Floats


@dataclass(frozen=True, slots=True, eq=False)
class PlanarSteps:
    """K-norm steps under one chain, one policy and one ε, on the support or on a δ-location set."""

    moves: tuple[Any, ...]
    graph: tuple[Any, ...]
    share: float
    epsilon: Fraction

    @classmethod
    def of(
        cls, forward: Any, index: HullIndex, epsilon: Fraction, delta: Fraction | None = None
    ) -> PlanarSteps:
        """From the transposed chain in sparse rows and the index of the policy's hulls.

        The policy is one clique of all states, or edges and no clique.
        """
        complete = len(index.cliques) == 1 and len(index.cliques[0]) == len(index.points)
        if (len(index.cliques) and not complete) or (complete and len(index.vectors)):
            raise InputError("the policy mixes cliques and edges; use the plain machine")
        moves = (forward.indptr, forward.indices, forward.data)
        graph = (
            complete,
            index.points,
            lexicographic(index.points),
            *(index.layers, index.starts, index.first, index.second, index.ranks),
            *(index.vectors, index.pointers, index.others, index.group_of),
        )
        share = 2.0 if delta is None else float(1 - delta)
        return cls(moves, graph, share, positive(epsilon, "epsilon"))

    def step(self, belief: Floats, support: Bools, place: int, rng: Rng) -> Stepped | None:
        """One step of a stream whose true state is `place`; None: leave it to the plain machine.

        Whether it is left depends on what is public, never on the state or the noise.
        """
        from shoal.loss.location_step_kernels import READY, whole_step
        from shoal.noise.knorm_kernels import ACCEPTED

        words = rng.words(3 * ATTEMPTS).reshape(ATTEMPTS, 3)
        status, verdict, attempt, z, after, possible, mean = whole_step(
            self.moves, self.graph, belief, support, self.share, float(self.epsilon), place, words
        )
        if status != READY:
            return None
        if verdict != ACCEPTED:
            return self._finished_exactly(belief, support, place, words[attempt:].tolist(), rng)
        return Stepped(z, after, possible, mean)

    def _finished_exactly(
        self, belief: Floats, support: Bools, place: int, left: list[list[int]], rng: Rng
    ) -> Stepped:
        """The same step when floats did not settle the draw.

        The undecided attempt is finished with its own words: drawing anew instead would leave out
        exactly the cases that are hard to decide. After it, and after rejections, fresh words.
        """
        from shoal.loss.location_step_kernels import finished, prepared

        _, prior, possible, members, vertices = prepared(
            self.moves, self.graph, belief, support, self.share
        )
        noise = LatticeKNorm(body=body_of(vertices), epsilon=self.epsilon)
        row = None
        if left:
            row = exact_attempt(left[0], noise.body, self.epsilon, noise.proposal, rng)
        x, y = noise.draw(rng) if row is None else row
        z, after, mean = finished(
            self.graph, prior, members, vertices, float(self.epsilon), place, x, y
        )
        return Stepped(z, after, possible, mean)
