"""What a location machine works out once and keeps: not stored, the same after every restart."""

from __future__ import annotations

from collections import OrderedDict
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.guarantee import Guarantee
from shoal.core.value import Floats
from shoal.mechanisms.location_leakage import Forgetting
from shoal.mechanisms.location_place import Atlas
from shoal.mechanisms.location_planar import planar_stages
from shoal.mechanisms.location_stage import Question, Stage, policy_of, stages_of
from shoal.models.filter import Truths, motion_of
from shoal.secrets.location import LocationSet, location_set
from shoal.secrets.policy_index import PolicyIndex

if TYPE_CHECKING:
    from shoal.mechanisms.location_machine import LocationMachine

KEPT = 64  # stages and supports kept, the ones used last

Bytes = npt.NDArray[np.uint8]
Belief = npt.NDArray[np.float32]


class Scene(NamedTuple):
    """A step before its output: the prior and support of the hidden states, and the stage.

    `packed` is the support eight states to a byte.
    """

    prior: Floats
    support: Truths
    packed: Bytes
    stage: Stage


class Reached(NamedTuple):
    """A support that a step leads to, and its stage when that follows from the support alone."""

    support: Truths
    packed: Bytes
    stage: Stage | None


class Latest(NamedTuple):
    """The scene made last, and what it was made from."""

    time: int
    belief: Belief
    packed: Bytes
    scene: Scene

    def is_of(self, time: int, belief: Belief, packed: Bytes) -> bool:
        """Whether these are the very arrays, which are locked, at the same step."""
        return self.time == time and self.belief is belief and self.packed is packed


class Runtime:
    """The moving parts of a machine: beliefs, stages by constraint, supports by support."""

    def __init__(self, machine: LocationMachine) -> None:
        self._machine = machine
        self.motion = motion_of(machine.chain)
        self.atlas = Atlas(machine.chain)
        self.forgetting = Forgetting(self.motion)
        self.values = machine.query.values
        self.rate = float(machine.epsilon)
        self.index = PolicyIndex(policy_of(machine.places), machine.query.points)
        self.question = Question(self.index, machine.epsilon, machine.noise)
        self._planar = planar_stages(machine.places, self.index, machine.epsilon, machine.noise)
        delta = machine.places.delta if isinstance(machine.places, LocationSet) else Fraction(0)
        self.graph = None if self._planar is None else self._planar.graph
        self.share = float(1 - delta)
        self.promise = machine.promise(machine.epsilon)
        self._latest: Latest | None = None
        self._stages: OrderedDict[bytes, Stage] = OrderedDict()
        self._together: OrderedDict[Any, tuple[list[Question], list[Stage]]] = OrderedDict()
        self._reached: OrderedDict[tuple[int, bytes], Reached] = OrderedDict()
        self._packed: OrderedDict[bytes, Bytes] = OrderedDict()
        self._promises: dict[tuple[Fraction, ...], Guarantee] = {}

    def scene(self, time: int, belief: Belief, packed: Bytes) -> Scene:
        """Prior, support and stage of step `time`, from the belief and support before it.

        A step asks for its scene more than once, so the one made last is kept.
        """
        latest = self._latest
        if latest is not None and latest.is_of(time, belief, packed):
            return latest.scene
        prior = self._predicted(time, belief)
        reached = self.reach(time, packed)
        stage = reached.stage
        if stage is None:
            stage = self.stage(self._members(time, prior, reached.support))
        scene = Scene(prior, reached.support, reached.packed, stage)
        if not belief.flags.writeable and not packed.flags.writeable:
            self._latest = Latest(time, belief, packed, scene)
        return scene

    def _predicted(self, time: int, belief: Belief) -> Floats:
        moves = self.motion.matrix(time)
        if moves is None or self.index.edges is None:
            return self.motion.predict(time, belief.astype(np.float64))
        from shoal.loss.location_step_kernels import predict

        return np.asarray(predict(moves.indptr, moves.indices, moves.data, belief))

    def _members(self, time: int, prior: Floats, support: Truths) -> Truths:
        """C: the states possible, of a location set those likely enough.

        By a partition where the sums are clear, exactly where they are not.
        """
        from shoal.loss.location_kernels import likely

        possible = self.motion.states_possible(time, support)
        places = self._machine.places
        if not isinstance(places, LocationSet):
            return possible
        states = self.motion.on_states(time, prior)
        clear, members = likely(states, possible, self.share)
        return members if clear else possible & location_set(states, places.delta)

    def stage(self, members: Truths) -> Stage:
        """The stage of a constraint; made once for those used last."""
        key = np.packbits(members).tobytes()
        found = self._stages.get(key)
        if found is None:
            found = None if self._planar is None else self._planar.stage(members)
            if found is None:
                found = stages_of(self._machine.places, members, [self.question])[0]
            _keep(self._stages, key, found)
        return found

    def stages(self, members: Truths, questions: list[Question]) -> list[Stage]:
        """The stages of the questions of one step, repaired together; this machine's one first."""
        if len(questions) == 1 and questions[0] is self.question:
            return [self.stage(members)]
        # questions are kept with what was found, so that nothing else gets their ids
        key = (np.packbits(members).tobytes(), *map(id, questions))
        if key not in self._together:
            found = stages_of(self._machine.places, members, questions)
            _keep(self._together, key, (questions, found))
        return self._together[key][1]

    def packed(self, support: Truths) -> Bytes:
        """A support eight states to a byte; equal ones are one array, shared by all streams."""
        bits = np.packbits(support)
        key = bits.tobytes()
        kept = self._packed.get(key)
        if kept is None:
            bits.setflags(write=False)
            kept = bits
            _keep(self._packed, key, kept)
        return kept

    def guarantee(self, epsilons: tuple[Fraction, ...]) -> Guarantee | None:
        """The promise of a step at which these budgets are spent; None when nothing is."""
        if not epsilons:
            return None
        if len(epsilons) == 1 and epsilons[0] is self._machine.epsilon:
            return self.promise
        if epsilons not in self._promises:
            self._promises[epsilons] = self._machine.promise(sum(epsilons, Fraction(0)))
        return self._promises[epsilons]

    def reach(self, time: int, packed: Bytes) -> Reached:
        """The support at step `time`; steps that move alike share what was found."""
        motion = self.motion
        moves = time if time < motion.memory or not motion.homogeneous else motion.memory
        key = (moves, packed.tobytes())
        found = self._reached.get(key)
        if found is None:
            before = np.unpackbits(packed, count=motion.hidden).astype(np.bool_)
            support = motion.reach(time, before) if time else before
            stage = None
            if not isinstance(self._machine.places, LocationSet):
                stage = self.stage(motion.states_possible(time, support))
            found = Reached(support, self.packed(support), stage)
            _keep(self._reached, key, found)
        return found


def _keep(kept: OrderedDict[Any, Any], key: Any, item: Any) -> None:
    """Remembers an item and forgets the oldest beyond KEPT."""
    kept[key] = item
    if len(kept) > KEPT:
        kept.popitem(last=False)
