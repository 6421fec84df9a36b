"""Many location streams stepped together: one matrix product and one batch of noise for all.

Streams at the same step with the same states possible share their stage, which is all that
depends on the policy: hull, repair and noise. What differs are beliefs, one column each. The law
of every output is that of `LocationMachine.step`; beliefs agree with it up to the last bits, and
beliefs steer estimates (and, on δ-location sets, who is protected), never how noise is drawn.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.rng import Rng, SystemRng
from shoal.noise.emission import LatticeEmission
from shoal.places.location_set import LocationSet
from shoal.places.machine import LocationMachine, LocationState
from shoal.places.runtime import REACH, carried, remapped
from shoal.places.step import StepNoise

SKIPPED = -1  # in the place of a state

Bits = npt.NDArray[np.uint8]
Scene = tuple[StepNoise, Bools]  # of a step: the stage, and which hidden states are possible
Draw = Callable[[Sequence[int]], Ints]  # outputs of the streams at these places
Etas = list[Fraction | None]  # what the output of each tells between any two states
Decide = Callable[[Sequence[int], Etas, Draw], tuple[list[int], Ints]]  # who got which output


class Shown(NamedTuple):
    """One step of some streams: who they are, their outputs (None: nothing drawn), estimates.

    `now` and `ever` bound what all outputs so far tell, between current states and sequences.
    """

    streams: list[int]
    outputs: Ints | None
    estimates: Floats
    spreads: Floats
    possible: int
    now: Floats
    ever: Floats


class StepGroup(NamedTuple):
    """Streams that share a stage, with the hidden states possible for each, and their outputs."""

    streams: list[int]
    stage: StepNoise
    supports: list[Bools]
    outputs: Ints | None


class Fleet:
    """Streams of one machine that begin together; step t is the t-th reading of each."""

    def __init__(self, machine: LocationMachine, size: int) -> None:
        first = machine.init()
        self._machine = machine
        self._motion = machine.runtime.motion
        self.time = 0
        self._beliefs = np.repeat(first.belief[None, :], size, axis=0)
        self._supports: list[Bits] = [first.support] * size
        self._now = np.zeros(size)
        self._ever = np.zeros(size)

    def step(
        self, streams: Sequence[int], places: Ints, rngs: Sequence[Rng] | None, decide: Decide
    ) -> list[Shown]:
        """Move these streams one step on; `places[k]` is the state of streams[k].

        SKIPPED is a step at which nothing was observed: nothing is drawn, and the belief moves on.
        `decide` is given the places in `streams` that draw, with the η of each, and may hold some
        back: those do not move. Without `rngs` all draw from the operating system at once.
        """
        groups: dict[tuple[int, bool], list[int]] = defaultdict(list)
        scenes = self._scenes(streams)
        skipped = (places == SKIPPED).tolist()
        for at, (stage, _) in enumerate(scenes):
            groups[id(stage), skipped[at]].append(at)
        silent = {
            (stage, skips)
            for (stage, skips), several in groups.items()
            if skips or _count(scenes, several) < 2
        }
        drawing = sorted(at for name in groups.keys() - silent for at in groups[name])
        etas = [scenes[at][0].eta for at in drawing]
        chosen, outputs = decide(drawing, etas, lambda some: _outputs(some, scenes, places, rngs))
        by_place = dict(zip(chosen, outputs, strict=True))
        moved = []
        for name, several in groups.items():
            stage = scenes[several[0]][0]
            moving = [at for at in several if name in silent or at in by_place]
            if not moving:
                continue
            zs = None if name in silent else np.array([by_place[at] for at in moving])
            supports = [scenes[at][1] for at in moving]
            moved.append(StepGroup([streams[at] for at in moving], stage, supports, zs))
        shown = self._absorbed(moved) if moved else []
        self.time += 1
        return shown

    def _scenes(self, streams: Sequence[int]) -> list[Scene]:
        """The stage and the support of each stream's next step.

        Under a policy both follow from what was possible before, so streams that share that array
        share them; a δ-location set is each stream's own.
        """
        if isinstance(self._machine.places, LocationSet):
            states = [
                LocationState(self.time, self._beliefs[stream], self._supports[stream])
                for stream in streams
            ]
            found = [self._machine.scene(state) for state in states]
            return [(scene.stage, scene.support) for scene in found]
        known: dict[int, Scene] = {}
        for stream in streams:
            packed = self._supports[stream]
            if id(packed) not in known:
                support = self._reach(packed)
                members = self._motion.states_possible(self.time, support)
                known[id(packed)] = self._machine.runtime.stage(members), support
        return [known[id(self._supports[stream])] for stream in streams]

    def _reach(self, packed: Bits) -> Bools:
        before = np.unpackbits(packed, count=self._motion.hidden).astype(np.bool_)
        return self._motion.reach(self.time, before) if self.time else before

    def _absorbed(self, groups: list[StepGroup]) -> list[Shown]:
        """The streams of all groups after their outputs: new beliefs, supports and bounds."""
        streams = [stream for group in groups for stream in group.streams]
        before = self._beliefs[streams].astype(np.float64)
        prior = self._motion.predict(self.time, before.T).T if self.time else before
        beliefs, etas, supports = np.ascontiguousarray(prior), np.zeros(len(streams)), []
        places, first = [], 0
        for group in groups:
            rows = slice(first, first + len(group.streams))
            possible = group.supports
            if group.outputs is not None:
                beliefs[rows], possible = self._updated(group, group.outputs, beliefs[rows])
                etas[rows] = group.stage.spread
            supports += possible
            places.append(rows)
            first = rows.stop
        self._settle(streams, beliefs, supports, etas)
        estimates, spreads = self._estimates(beliefs)
        now, ever = self._now[streams], self._ever[streams]
        return [
            Shown(
                streams=group.streams,
                outputs=group.outputs,
                estimates=estimates[rows],
                spreads=spreads[rows],
                possible=group.stage.count,
                now=now[rows],
                ever=ever[rows],
            )
            for group, rows in zip(groups, places, strict=True)
        ]

    def _settle(
        self, streams: list[int], beliefs: Floats, supports: list[Bools], etas: Floats
    ) -> None:
        """Keeps what the streams are after a step; `etas` bound what its outputs told."""
        runtime = self._machine.runtime
        with np.errstate(under="ignore"):
            self._beliefs[streams] = beliefs.astype(np.float32)
        distinct = {id(support): support for support in supports}
        packed = {name: runtime.packed(support) for name, support in distinct.items()}
        for stream, support in zip(streams, supports, strict=True):
            self._supports[stream] = packed[id(support)]
        factor = runtime.forgetting.factor(self.time)
        known = {g: carried(g, factor) for g in np.unique(self._now[streams]).tolist()}
        self._now[streams] = np.array([known[g] for g in self._now[streams].tolist()]) + etas
        self._ever[streams] += etas

    def _updated(
        self, group: StepGroup, outputs: Ints, priors: Floats
    ) -> tuple[Floats, list[Bools]]:
        """Bayes' rule for each row, in logarithms where products underflow, and what is possible.

        States count alike where the floats have lost every state that is left.
        """
        motion, stage, supports = self._motion, group.stage, group.supports
        beliefs, left = np.empty_like(priors), np.arange(len(priors))
        if motion.memory == 1 and stage.polygon is not None and within_reach(outputs):
            from shoal.places.kernels.step import TINY, updated_rows

            points, rate = self._machine.query.points, self._machine.runtime.rate
            beliefs, totals = updated_rows(
                priors, points, stage.answering, stage.polygon, rate, outputs
            )
            left = np.flatnonzero(totals < TINY)
        if not len(left):
            return beliefs, supports
        weights = _likelihoods(stage, outputs[left])[:, motion.at(self.time)]
        beliefs[left] = posteriors(priors[left], weights)
        if stage.tells:
            ruled = weights > -np.inf
            supports = [one & row for one, row in zip(supports, ruled, strict=True)]
        for row in np.flatnonzero(~beliefs.any(axis=1)):
            beliefs[row] = supports[row] / supports[row].sum()
        return beliefs, supports

    def _estimates(self, beliefs: Floats) -> tuple[Floats, Floats]:
        values, error = self._machine.runtime.values, self._machine.query.estimate
        if self._motion.memory > 1:
            beliefs = np.array([self._motion.on_states(self.time, row) for row in beliefs])
        if error != "squared":
            both = [remapped(row, values, error) for row in beliefs]
            return np.array([one for one, _ in both]), np.array([two for _, two in both])
        means = beliefs @ values
        squares = beliefs @ (values**2).sum(axis=1) - (means**2).sum(axis=1)
        return means, np.sqrt(np.maximum(squares, 0.0))


def posteriors(priors: Floats, log_weights: Floats) -> Floats:
    """`models.filter.posterior` of each row; all zeros where no state is left."""
    possible = (priors > 0) & (log_weights > -np.inf)
    highest = np.where(possible, log_weights, -np.inf).max(axis=1, keepdims=True)
    with np.errstate(under="ignore", invalid="ignore"):
        scaled = np.exp(np.minimum(log_weights - highest, 0.0))
        product = np.where(possible, priors * scaled, 0.0)
    totals = product.sum(axis=1)
    for row in np.flatnonzero((totals < 1e-250) & possible.any(axis=1)):
        mine = possible[row]
        logs = np.full(priors.shape[1], -np.inf)
        logs[mine] = np.log(priors[row, mine]) + log_weights[row, mine]
        with np.errstate(under="ignore"):
            product[row] = np.exp(logs - logs.max())
        totals[row] = product[row].sum()
    result: Floats = product / np.where(totals > 0, totals, 1.0)[:, None]
    return result


def within_reach(outputs: Ints) -> bool:
    """Whether compiled norms decide all differences between outputs and answers."""
    return outputs.dtype != object and bool(((outputs > -REACH) & (outputs < REACH)).all())


def _count(scenes: list[Scene], group: list[int]) -> int:
    """How many states the stage of a group protects."""
    return scenes[group[0]][0].count


def _outputs(
    some: Sequence[int], scenes: list[Scene], places: Ints, rngs: Sequence[Rng] | None
) -> Ints:
    """One output for each of these streams, drawn together where they share a law."""
    if rngs is not None:
        return np.array([scenes[at][0].law.draw(int(places[at]), rngs[at]) for at in some])
    found: dict[int, Any] = {}
    groups: dict[int, list[int]] = defaultdict(list)
    for at in some:
        groups[id(scenes[at][0])].append(at)
    system = SystemRng()
    for several in groups.values():
        law = scenes[several[0]][0].law
        if isinstance(law, LatticeEmission):
            drawn = law.points[places[several]] + law.noise.draws(len(several), system)
        else:
            drawn = np.array([law.draw(int(places[at]), system) for at in several])
        found |= dict(zip(several, drawn, strict=True))
    return np.array([found[at] for at in some])


def _likelihoods(stage: StepNoise, outputs: Ints) -> Floats:
    """log q(z | s) up to a constant, one row an output, one column a state."""
    law = stage.law
    if not isinstance(law, LatticeEmission) or outputs.dtype == object:
        return np.array([law.log_likelihood(tuple(z)) for z in outputs.tolist()])
    shifts = outputs[:, None, :] - law.points[None, :, :]
    weights = law.noise.log_weights(shifts.reshape(-1, shifts.shape[2]))
    return weights.reshape(len(outputs), -1)
