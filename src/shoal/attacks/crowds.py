"""The posterior of every person of a crowd given what was released: groups and people in logs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.attacks.beliefs import Beliefs
from shoal.attacks.codes import MOST_STEPS, best_split, coded, told_about_each, total_law
from shoal.attacks.seen import Seen
from shoal.attacks.variables import added_by, columns_of, entries_seen, log_likelihood
from shoal.core.errors import InputError, Refused
from shoal.core.value import Floats, Ints
from shoal.models.contagion import Contagion


def crowd_beliefs(model: Contagion, seen: Sequence[Seen]) -> Beliefs:
    """What somebody who holds a contagion model believes about every person.

    Exact, in logs. Groups are independent, so what the output tells about the sum over one group
    is what it tells about the whole sum with the other groups averaged out. Within a group people
    are independent but for a factor of their number ill, and the same is done person by person
    over (number ill, sum). Weights may differ from person to person.
    """
    groups, likelihood = _observed(model, seen)
    told = told_about_each([group.law() for group in groups], likelihood)
    before, joint = np.zeros((len(model.variables), 2)), np.zeros((len(model.variables), 2))
    for g, people in enumerate(model.groups):
        before[list(people)] = _prior(model, g)
        joint[list(people)] = groups[g].joint(told[g])
    with np.errstate(divide="ignore"):
        return Beliefs.from_joint(model.states, np.log(before), joint)


def likeliest_crowd(model: Contagion, seen: Sequence[Seen]) -> tuple[str, ...]:
    """The states of everybody that are likeliest as a whole given `seen`.

    The same with the largest term in place of the sum: first the likeliest sum, then how it is
    shared among groups, and among the people of each.
    """
    groups, likelihood = _observed(model, seen)
    laws = [group.law(best=True) for group in groups]
    whole = total_law(laws, best=True) + likelihood
    if whole.max() == -math.inf:
        raise InputError("what was seen is impossible under the model")
    states = np.zeros(len(model.variables), dtype=np.int64)
    for g, code in enumerate(best_split(laws, int(np.argmax(whole)))):
        states[list(model.groups[g])] = groups[g].likeliest(code)
    return tuple(model.states[int(state)] for state in states)


def _observed(model: Contagion, seen: Sequence[Seen]) -> tuple[list[_Counted | _Listed], Floats]:
    """The groups with what was seen of their people, and the likelihood of each sum over all."""
    looks = entries_seen(seen, columns_of(model))
    likely = np.zeros((len(model.variables), 2)) if looks is None else looks
    code = coded(np.array(added_by(model, seen)))
    groups = [_group(model, g, code.added, likely) for g in range(len(model.groups))]
    width = int(code.added.max(axis=1).sum()) + 1
    steps = 0.5 * (float(width) ** 2 + sum(float(group.width) ** 2 for group in groups))
    if steps > MOST_STEPS:
        raise Refused(
            f"the attack on so many weights would take {steps:.1g} steps; release a coarser sum, "
            "or look at fewer people"
        )
    return groups, log_likelihood(seen, code.numbers()[:width])


class _Counted(NamedTuple):
    """A group of which every set of n people ill has the log-probability `share[n]`.

    What is followed is n·stride + Σ extra[p, state of p]; `place` is the code that each of these
    stands for. People who all weigh alike add nothing but to n.
    """

    share: Floats
    extra: Ints
    stride: int
    place: Ints
    likely: Floats

    @property
    def width(self) -> int:
        return len(self.share) * self.stride

    def law(self, *, best: bool = False) -> Floats:
        """log P(sum of the group, what was seen of its people), by code."""
        logs = total_law(self._people(), best=best) + self._shares()
        return _by_code(logs, self.place, best=best)

    def joint(self, told: Floats) -> Floats:
        """log P(state of a person, everything seen), (people, 2)."""
        found = told_about_each(self._people(), told[self.place] + self._shares())
        ends = self.extra + np.array([0, self.stride])
        return np.array([row[end] for row, end in zip(found, ends, strict=True)]) + self.likely

    def likeliest(self, code: int) -> Ints:
        """The states of its people that are likeliest when their sum has this code."""
        people = self._people()
        logs = total_law(people, best=True) + self._shares()
        place = int(np.argmax(np.where(self.place == code, logs, -math.inf)))
        parts = np.array(best_split(people, place))
        return np.asarray(parts == self.extra[:, 1] + self.stride, dtype=np.int64)

    def _people(self) -> list[Floats]:
        """The log-likelihood of what was seen of each person, by what they add."""
        rows = []
        for extra, likely in zip(self.extra, self.likely, strict=True):
            row = np.full(self.stride + int(extra.max()) + 1, -math.inf)
            row[extra + np.array([0, self.stride])] = likely
            rows.append(row)
        return rows

    def _shares(self) -> Floats:
        return np.repeat(self.share, self.stride)


class _Listed(NamedTuple):
    """A group whose joint law is written out: the log-probability and the code of every outcome."""

    states: Ints
    logs: Floats
    place: Ints

    @property
    def width(self) -> int:
        return 0

    def law(self, *, best: bool = False) -> Floats:
        return _by_code(self.logs, self.place, best=best)

    def joint(self, told: Floats) -> Floats:
        whole = self.logs + told[self.place]
        return np.array(
            [[np.logaddexp.reduce(whole[row == state]) for state in (0, 1)] for row in self.states]
        )

    def likeliest(self, code: int) -> Ints:
        place = int(np.argmax(np.where(self.place == code, self.logs, -math.inf)))
        return np.asarray(self.states[:, place])


def _group(model: Contagion, group: int, added: Ints, likely: Floats) -> _Counted | _Listed:
    people = list(model.groups[group])
    law, own, looks = model.law_of(group), added[people], likely[people]
    with np.errstate(divide="ignore"):
        logs = np.log(law)
    if not model.exchangeable(group):
        states = np.indices(law.shape).reshape(len(people), -1)
        seen = sum(looks[p][row] for p, row in enumerate(states))
        place = sum(own[p][row] for p, row in enumerate(states))
        return _Listed(states, np.asarray(logs.ravel() + seen), np.asarray(place))
    size = len(people)
    share = logs - np.array([math.log(math.comb(size, n)) for n in range(size + 1)])
    steps = own[:, 1] - own[:, 0]
    if (steps == steps[0]).all():
        place = own[:, 0].sum() + np.arange(size + 1) * steps[0]
        return _Counted(share, np.zeros_like(own), 1, place, looks)
    stride = int(own.max(axis=1).sum()) + 1
    return _Counted(share, own, stride, np.tile(np.arange(stride), size + 1), looks)


def _prior(model: Contagion, group: int) -> Floats:
    """P(state) of every person of a group, (people, 2)."""
    law, size = model.law_of(group), len(model.groups[group])
    if model.exchangeable(group):
        ill = np.arange(size + 1) / size
        return np.tile([law @ (1 - ill), law @ ill], (size, 1))
    axes = range(size)
    return np.array([law.sum(axis=tuple(a for a in axes if a != axis)) for axis in axes])


def _by_code(logs: Floats, place: Ints, *, best: bool) -> Floats:
    """Log-probabilities added up by the code each belongs to, from code 0 to the largest.

    With `best` only the largest of each code.
    """
    top = np.full(int(place.max()) + 1, -math.inf)
    np.maximum.at(top, place, logs)
    if best:
        return top
    base = np.where(top > -math.inf, top, 0.0)
    mass = np.bincount(place, np.exp(logs - base[place]), minlength=len(top))
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(mass) + base)
