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
from shoal.mechanisms.location_stage import Stage, policy_of, stage_of
from shoal.models.filter import Truths, motion_of
from shoal.secrets.location import LocationSet, location_set
from shoal.secrets.policy_index import PolicyIndex

if TYPE_CHECKING:
    from shoal.mechanisms.location_machine import LocationMachine

KEPT = 64  # stages and supports kept, the ones used last

Bytes = npt.NDArray[np.uint8]


class Scene(NamedTuple):
    """A step before its output: the prior and support of the hidden states, and the stage."""

    prior: Floats
    support: Truths
    stage: Stage


class Runtime:
    """The moving parts of a machine: beliefs, stages by constraint, supports by support."""

    def __init__(self, machine: LocationMachine) -> None:
        self._machine = machine
        self.motion = motion_of(machine.chain)
        self.atlas = Atlas(machine.chain)
        self.forgetting = Forgetting(self.motion)
        self.values = machine.query.values
        self.index = PolicyIndex(policy_of(machine.places), machine.query.points)
        self._stages: OrderedDict[bytes, Stage] = OrderedDict()
        self._reached: OrderedDict[tuple[int, bytes], Truths] = OrderedDict()
        self._packed: OrderedDict[bytes, Bytes] = OrderedDict()
        self._promises: dict[tuple[Fraction, ...], Guarantee] = {}

    def scene(self, time: int, belief: npt.NDArray[np.float32], packed: Bytes) -> Scene:
        """Prior, support and stage of step `time`, from the belief and support before it."""
        motion = self.motion
        before = belief.astype(np.float64)
        prior = motion.predict(time, before) if time else before
        support = self._reach(time, packed)
        states = motion.on_states(time, prior)
        members = motion.states_possible(time, support)
        if isinstance(self._machine.places, LocationSet) and states.any():
            members = members & _likely(states, self._machine.places.delta)
        return Scene(prior, support, self.stage(members))

    def stage(self, members: Truths) -> Stage:
        """The stage of a constraint; made once for those used last."""
        key = np.packbits(members).tobytes()
        found = self._stages.get(key)
        if found is None:
            machine = self._machine
            found = stage_of(machine.places, self.index, members, machine.epsilon, machine.noise)
            _keep(self._stages, key, found)
        return found

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
        if epsilons not in self._promises:
            self._promises[epsilons] = self._machine.promise(sum(epsilons, Fraction(0)))
        return self._promises[epsilons]

    def _reach(self, time: int, packed: Bytes) -> Truths:
        """The support at step `time`; steps that move alike share what was found."""
        motion = self.motion
        moves = time if time < motion.memory or not motion.homogeneous else motion.memory
        key = (moves, packed.tobytes())
        found = self._reached.get(key)
        if found is None:
            before = np.unpackbits(packed, count=motion.hidden).astype(np.bool_)
            found = motion.reach(time, before) if time else before
            _keep(self._reached, key, found)
        return found


def _likely(prior: Floats, delta: Fraction) -> Truths:
    """`location_set`, by a partition where the sums are clear and exactly where they are not."""
    from shoal.loss.location_kernels import threshold

    least, clear = threshold(prior, float(1 - delta))
    return (prior >= least) & (prior > 0) if clear else location_set(prior, delta)


def _keep(kept: OrderedDict[Any, Any], key: Any, item: Any) -> None:
    """Remembers an item and forgets the oldest beyond KEPT."""
    kept[key] = item
    if len(kept) > KEPT:
        kept.popitem(last=False)
