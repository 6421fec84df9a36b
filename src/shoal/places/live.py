"""Steps of planar K-norm streams in one compiled call, where nothing must be decided exactly."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shoal.core.rng import Rng
from shoal.noise.knorm import SPARE
from shoal.noise.primitives import Unread
from shoal.places.queries import Measurement
from shoal.places.runtime import SHOWN, Belief, Posterior, Reached, Runtime

# what `compiled_draws` reads for one draw: a step taken again, the plain way, reads the same
WORDS = 3 * (3 + SPARE)


class StepResult(NamedTuple):
    """A step after its output z: what is believed, and of its stage |C|, `joined`, η, repairs."""

    seen: Posterior
    z: tuple[int, int]
    possible: int
    joined: bool
    eta: float
    added: list[list[int]]


class LiveSteps:
    """The steps of one machine that compiled code can take from beginning to end.

    Nothing is kept from one step to the next: a step follows from its arguments alone.
    """

    def __init__(self, runtime: Runtime) -> None:
        from shoal.places.kernels.step import step_among_likely, step_at

        self._step_at: Any = step_at
        self._step_among_likely: Any = step_among_likely
        self._motion, self._values = runtime.motion, runtime.values
        self._graph, self._rate, self._share = runtime.graph, runtime.rate, runtime.share

    def step(
        self,
        time: int,
        belief: Belief,
        reached: Reached,
        place: int,
        rng: Rng,
    ) -> tuple[StepResult | None, Rng]:
        """Step `time` of a stream at state `place`, and the source as it is after it.

        None told: the step must be taken the plain way, with the source returned, which gives the
        words that were read here once more.
        """
        moves, stage = self._motion.matrix(time), reached.stage
        parts = self._graph if stage is None else stage.planar
        if moves is None or parts is None:
            return None, rng
        words = rng.words(WORDS)
        single = np.empty(len(belief), dtype=np.float32)
        given = belief, moves.indptr, moves.indices, moves.data, self._values
        drawn = self._rate, place, words, single
        if stage is None:
            edges = np.empty((len(belief), 2), dtype=np.int64)
            possible, joined, repairs, eta, told = self._step_among_likely(
                *given, reached.support, self._share, parts, *drawn, edges
            )
            added = edges[:repairs].tolist() if repairs else []
        else:
            possible, joined, eta = stage.count, stage.joined, stage.spread
            added = stage.added
            told = self._step_at(*given, *parts, *drawn)
        done, x, y, best, east, north, spread, degree, shown = told
        if not done:
            return None, Unread(words, rng)
        single.setflags(write=False)
        top = shown if len(belief) >= SHOWN else shown[: len(belief)]
        seen = Posterior(single, reached.support, (east, north), spread, top, degree, best)
        return StepResult(seen, (x, y), possible, joined, eta, added), rng


def live_steps(runtime: Runtime, query: Measurement) -> LiveSteps | None:
    """The compiled steps of a machine; None when it never has any.

    They are for answers in the plane, estimates of least squared error, and chains of memory 1.
    """
    planar = query.points.shape[1] == 2 and runtime.motion.memory == 1
    return LiveSteps(runtime) if planar and query.estimate == "squared" else None
