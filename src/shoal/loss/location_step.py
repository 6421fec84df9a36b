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
from shoal.geometry.nearest import lexicographic, nearest_members
from shoal.models.filter import posterior
from shoal.noise.emission import LatticeEmission
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
            return self._drawn_exactly(belief, support, place, words[attempt:].tolist(), rng)
        if np.isnan(mean[0]):
            return self._absorbed(belief, support, z.tolist())
        return Stepped(z, after, possible, mean)

    def _drawn_exactly(
        self, belief: Floats, support: Bools, place: int, left: list[list[int]], rng: Rng
    ) -> Stepped:
        """The same step when floats did not settle the draw.

        The undecided attempt is finished with its own words: drawing anew instead would leave out
        exactly the cases that are hard to decide. After it, and after rejections, fresh words.
        """
        _, _, members, noise = self._before(belief, support)
        row = None
        if left:
            row = exact_attempt(left[0], noise.body, self.epsilon, noise.proposal, rng)
        x, y = noise.draw(rng) if row is None else row
        points = self.graph[1]
        answer = points[nearest_members(points, members, self.graph[2])[place]]
        return self._absorbed(belief, support, [int(answer[0]) + x, int(answer[1]) + y])

    def _absorbed(self, belief: Floats, support: Bools, z: list[int]) -> Stepped:
        """Bayes' rule after output z however large, in logarithms where products underflow.

        The support counts alike when the floats have lost every state, as in the plain machine.
        """
        prior, possible, members, noise = self._before(belief, support)
        points = self.graph[1]
        answers = points[nearest_members(points, members, self.graph[2])]
        after = posterior(prior, LatticeEmission(points=answers, noise=noise).log_likelihood(z))
        if not after.any():
            after = possible / possible.sum()
        fits = all(abs(value) < 2**62 for value in z)
        return Stepped(np.array(z, np.int64 if fits else object), after, possible, after @ points)

    def _before(self, belief: Floats, support: Bools) -> tuple[Floats, Bools, Bools, LatticeKNorm]:
        """Prior, support, members and the noise of a step."""
        from shoal.loss.location_step_kernels import prepared

        _, prior, possible, members, vertices = prepared(
            self.moves, self.graph, belief, support, self.share
        )
        return prior, possible, members, LatticeKNorm(body=body_of(vertices), epsilon=self.epsilon)
