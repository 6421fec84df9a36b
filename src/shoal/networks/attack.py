"""Entries that are named variables, each with values of its own: one table of beliefs for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from shoal.additive.mixture import DEEPEST_LINEAR
from shoal.attacks.beliefs import Beliefs
from shoal.attacks.codes import MOST_STEPS, best_split, coded, told_about_each, total_law
from shoal.attacks.seen import EntriesSeen, Seen, SumSeen, VariablesSeen
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.laws import NetworkComponent
from shoal.networks.table import JointTable


class VariableColumns(NamedTuple):
    """Every value any variable may take, and which of them are each variable's own.

    In order of first appearance, as `VariableSum.states`; `places[v]` are columns of a table of
    beliefs.
    """

    values: tuple[str, ...]
    places: tuple[Ints, ...]

    def spread(self, rows: Sequence[Floats], empty: float) -> Floats:
        """A row of numbers per variable as one table, `empty` where a value is not the variable's.

        Each row holds a number for each value of its variable.
        """
        found = np.full((len(rows), len(self.values)), empty)
        for v, row in enumerate(rows):
            found[v, self.places[v]] = row
        return found


def columns_of(model: BayesNet | JointTable | Contagion) -> VariableColumns:
    """The columns of beliefs about the variables of a network, table or crowd."""
    values = tuple(dict.fromkeys(value for domain in model.domains for value in domain))
    index = {value: place for place, value in enumerate(values)}
    return VariableColumns(
        values,
        tuple(np.array([index[value] for value in domain]) for domain in model.domains),
    )


def added_by(model: BayesNet | JointTable | Contagion, seen: Sequence[Seen]) -> list[Ints]:
    """What each value of each variable adds to all released numbers side by side.

    (values, numbers) for each variable; one number that is always 0 when no sum was seen.
    """
    tables: list[list[Ints]] = [[] for _ in model.variables]
    for one in seen:
        if isinstance(one, EntriesSeen):
            continue
        for v, rows in enumerate(_weights(model, one)):
            tables[v].append(rows)
    return [
        np.hstack(rows) if rows else np.zeros((len(model.domains[v]), 1), dtype=np.int64)
        for v, rows in enumerate(tables)
    ]


def log_likelihood(seen: Sequence[Seen], answers: Ints) -> Floats:
    """log P(released | true numbers), for rows of all numbers side by side as in `added_by`."""
    out = np.zeros(len(answers))
    place = 0
    for one in seen:
        if isinstance(one, EntriesSeen):
            continue
        weights = one.weights if isinstance(one, SumSeen) else one.weights[0]
        count = weights.shape[1]
        out += one.log_likelihood(answers[:, place : place + count])
        place += count
    return out


def entries_seen(seen: Sequence[Seen], columns: VariableColumns) -> Floats | None:
    """The log-likelihood of all that was seen of single variables, by column; None if nothing."""
    logs = [one.log_likelihood for one in seen if isinstance(one, EntriesSeen)]
    shape = (len(columns.places), len(columns.values))
    for rows in logs:
        if not (rows < np.inf).all():
            raise InputError("what was seen of entries holds a likelihood that is no number")
        if len(rows) != shape[0]:
            raise InputError(f"something was seen of a number of entries other than {shape[0]}")
        if rows.shape != shape:
            raise InputError(
                f"what was seen of entries has {rows.shape[1]} columns; there is one for each of "
                f"{list(columns.values)}"
            )
    return np.asarray(np.sum(logs, axis=0)) if logs else None


def added_in_chain(states: tuple[str, ...], entries: int, seen: Sequence[Seen]) -> Ints:
    """What each value of each entry of a chain adds to all released numbers side by side.

    (entries, values, numbers). The variables of a sum with weights of their own are the entries in
    their order; each takes the states of the chain.
    """
    tables = []
    for one in seen:
        if isinstance(one, VariablesSeen):
            if len(one.variables) != entries or any(own != states for own in one.domains):
                raise InputError(
                    f"the release is about {len(one.variables)} variables of their own; the chain "
                    f"has {entries} entries with the values {list(states)}"
                )
            tables.append(np.stack(one.weights))
        elif isinstance(one, SumSeen):
            weights = one.weights_of(states)
            tables.append(np.broadcast_to(weights, (entries, *weights.shape)))
    if not tables:
        return np.zeros((entries, len(states), 1), dtype=np.int64)
    return np.concatenate(tables, axis=2)


def _weights(
    model: BayesNet | JointTable | Contagion, one: SumSeen | VariablesSeen
) -> Sequence[Ints]:
    if isinstance(one, VariablesSeen):
        if (one.variables, one.domains) != (model.variables, model.domains):
            raise InputError("the release is about other variables or values than the model")
        return one.weights
    if model.states is None or len(one.weights) != len(model.states):
        raise Refused(
            f"a sum with {len(one.weights)} weights for all entries alike needs variables that "
            "share as many values; release a variable_sum where they differ"
        )
    return [one.weights_of(model.states)] * len(model.variables)


# The posterior of every person of a crowd given what was released: groups and people in logs.


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


# The posterior of every variable of a network given what was released.


SMALLEST = -700.0  # log of a product that may have been rounded to 0, and of what is left of it
NEGLIGIBLE = -30.0  # log of the part of the evidence that may be missing


def network_beliefs(net: BayesNet, seen: Sequence[Seen]) -> Beliefs:
    """What somebody who holds a Bayesian network believes about every variable.

    Exact, by elimination: P(X_v = x, sums) with one more axis for all released sums together, and
    what was seen of single variables as factors of its own. Variables may differ in their values:
    beliefs have a column for each value of any of them, 0 where a variable does not take it, and
    what is seen of entries has the same columns. Where doubles cannot hold every outcome
    (`too_deep`) a belief below about 1e-13 may come out as 0; more than that is refused.
    """
    columns = columns_of(net)
    tilts, shift, depth = _tilts(seen, columns)
    whole = NetworkComponent(net, range(len(net.variables)), added_by(net, seen))
    likelihood = log_likelihood(seen, whole.values)
    evidence = {} if tilts is None else {v: tilts[v, p] for v, p in enumerate(columns.places)}
    rows = []
    for v in range(len(net.variables)):
        with np.errstate(divide="ignore"):
            joint = np.log(whole.with_variable(v, evidence)) + likelihood
        rows.append(np.logaddexp.reduce(joint, axis=1))
    _refuse_lost(net, depth, float(likelihood.max()), rows)
    before = [net.weight((v,), {}).log() for v in range(len(net.variables))]
    found = Beliefs.from_joint(
        columns.values, columns.spread(before, -math.inf), columns.spread(rows, -math.inf)
    )
    return replace(found, log_evidence=found.log_evidence + shift)


def too_deep(net: BayesNet, seen: Sequence[Seen]) -> bool:
    """Whether products of probabilities and likelihoods may be too small for a double."""
    return net.depth + _tilts(seen, columns_of(net))[2] > DEEPEST_LINEAR


def _refuse_lost(net: BayesNet, depth: float, likeliest: float, rows: Sequence[Floats]) -> None:
    """Refuse when products of probabilities too small for a double may decide a belief.

    Every outcome that was lost is less likely than SMALLEST, and no output is likelier given one
    than `likeliest`; where what was kept outweighs all of them together nothing is missing.
    """
    if net.depth + depth <= DEEPEST_LINEAR:
        return
    lost = likeliest + SMALLEST + sum(math.log(size) for size in net.sizes)
    kept = min(float(np.logaddexp.reduce(row)) for row in rows)
    if lost > kept + NEGLIGIBLE:
        raise Refused(
            "what was seen is so unlikely under the network that doubles cannot follow it; use "
            "more noise, or a network without values that are next to impossible"
        )


def _tilts(seen: Sequence[Seen], columns: VariableColumns) -> tuple[Floats | None, float, float]:
    """The likelihood of what was seen of each entry, at most 1, and the logs taken out.

    Last the depth: -log of the least product of these likelihoods that is not 0.
    """
    logs = entries_seen(seen, columns)
    if logs is None:
        return None, 0.0, 0.0
    own = [logs[v, places] for v, places in enumerate(columns.places)]
    top = np.array([row.max() for row in own])
    if not np.isfinite(top).all():
        raise InputError("what was seen is impossible under the model")
    depth = sum(float(row.max() - row[row > -math.inf].min()) for row in own)
    # a value that is not the variable's own may look likelier, and is not read
    with np.errstate(over="ignore"):
        return np.exp(logs - top[:, None]), float(top.sum()), depth
