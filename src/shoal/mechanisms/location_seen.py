"""What the outputs of a step say about the state: beliefs, support, the best answer to show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.value import Floats, Ints
from shoal.geometry.integers import POINT_LIMIT, VECTOR_LIMIT
from shoal.mechanisms.location_remap import remapped
from shoal.mechanisms.location_runtime import Runtime, Scene
from shoal.mechanisms.location_stage import Stage
from shoal.models.filter import Truths, posterior
from shoal.queries.measurement import Measurement

SHOWN = 3  # most probable states that a release names
REACH = VECTOR_LIMIT - POINT_LIMIT  # outputs within it differ from any answer by what int64 decides


class Seen(NamedTuple):
    """A step after its outputs; `top` are the most probable states with their probabilities.

    `degree` is the degree of protection of the first of them, 0 when it is no member; `best` the
    log-likelihood of the member that explains the outputs best, 0 at most.
    """

    belief: npt.NDArray[np.float32]
    support: Truths
    estimate: tuple[float, ...]
    spread: float
    top: tuple[tuple[int, float], ...]
    degree: int
    best: float


def seen(
    runtime: Runtime,
    query: Measurement,
    time: int,
    scene: Scene,
    given: Sequence[tuple[Stage, Sequence[int]]],
) -> Seen:
    """What outputs, each with the stage it was drawn at, say at step `time` (from 0).

    One output of planar K-norm noise goes through compiled code, which agrees with the plain way
    up to the last bits of floats; supports are exact in both.
    """
    if len(given) == 1 and runtime.motion.memory == 1:
        stage, z = given[0]
        if stage is scene.stage and stage.polygon is not None and _near(z):
            found = _compiled(runtime, query, scene, stage.polygon, z)
            if found is not None:
                return found
    return _plain(runtime, query, time, scene, given)


def _compiled(
    runtime: Runtime, query: Measurement, scene: Scene, polygon: Ints, z: Sequence[int]
) -> Seen | None:
    """None when products underflow: the plain way forms them in logarithms."""
    from shoal.loss.location_step_kernels import TINY, absorbed

    stage = scene.stage
    belief, single = np.empty(len(scene.prior)), np.empty(len(scene.prior), dtype=np.float32)
    total, best, east, north, spread, degree, shown = absorbed(
        scene.prior,
        runtime.values,
        stage.members,
        stage.law.points,
        polygon,
        runtime.rate,
        int(z[0]),
        int(z[1]),
        belief,
        single,
    )
    if total < TINY:
        return None
    estimate = (east, north)
    if query.estimate != "squared":
        answer, spread = remapped(belief, runtime.values, query.estimate)
        estimate = (float(answer[0]), float(answer[1]))
    single.setflags(write=False)
    top = shown if len(belief) >= SHOWN else shown[: len(belief)]
    return Seen(single, scene.support, estimate, spread, top, degree, best)


def _plain(
    runtime: Runtime,
    query: Measurement,
    time: int,
    scene: Scene,
    given: Sequence[tuple[Stage, Sequence[int]]],
) -> Seen:
    """Any number of outputs, any law, any chain."""
    motion, stage = runtime.motion, scene.stage
    shown = motion.at(time)
    weights = np.zeros(motion.size)
    for other, z in given:
        weights = weights + other.law.log_likelihood(z)
    support = scene.support & (weights[shown] > -np.inf)
    if not support.any():
        raise InputError(
            "the outputs cannot come from this step: no possible state gives them; a key that was "
            "used at another step brings its output back, so give each step its own"
        )
    if not any(other.tells for other, _ in given):
        support = scene.support
    belief = scene.prior
    if given:
        belief = posterior(scene.prior, weights[shown])
        if not belief.any():  # the floats lost every state that is left: all count alike
            belief = support / support.sum()
    states = motion.on_states(time, belief)
    estimate, spread = remapped(states, runtime.values, query.estimate)
    top = _largest(states, SHOWN)
    most = int(top[0])
    near = stage.members.copy()  # those who protect the most probable state in every answer
    for other in [other for other, _ in given] or [stage]:
        near &= other.near(most) if stage.members[most] else False
    return Seen(
        belief=single_precision(belief),
        support=support,
        estimate=tuple(float(value) for value in estimate),
        spread=spread,
        top=tuple((int(place), float(states[place])) for place in top),
        degree=int(near.sum()),
        best=float(weights[stage.members].max()),
    )


def single_precision(belief: Floats) -> npt.NDArray[np.float32]:
    """Beliefs in single precision, locked."""
    with np.errstate(under="ignore"):
        short = belief.astype(np.float32)
    short.setflags(write=False)
    return short


def _near(z: Sequence[int]) -> bool:
    return -REACH < z[0] < REACH and -REACH < z[1] < REACH


def _largest(values: Floats, count: int) -> npt.NDArray[np.int64]:
    """The places of the largest values, the largest first, ties by index."""
    if len(values) <= count:
        return np.argsort(-values, kind="stable")
    least = np.partition(values, -count)[-count]
    top = np.flatnonzero(values >= least)  # in index order, so that ties at the end go by index
    return top[np.argsort(-values[top], kind="stable")][:count]
