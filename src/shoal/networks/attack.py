"""Entries that are named variables, each with values of its own: one table of beliefs for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Generic, NamedTuple, TypeVar

import numpy as np

from shoal.attacks.beliefs import (
    Beliefs,
    EntriesSeen,
    Seen,
    SumSeen,
    VariableColumns,
    VariablesSeen,
    entries_seen,
    log_likelihood,
)
from shoal.attacks.codes import (
    MOST_STEPS,
    best_split,
    encode_sums,
    likelihoods_of_summands,
    total_law,
)
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.progress import doing
from shoal.mechanisms.mixture import DEEPEST_LINEAR
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.network_sums import NetworkComponent
from shoal.networks.table import MAX_OUTCOMES, JointTable

Named = BayesNet | JointTable | Contagion
NamedModel = TypeVar("NamedModel", BayesNet, JointTable, Contagion)


def columns_of(model: Named) -> VariableColumns:
    """Return the columns of beliefs about the variables of a network, table or contagion model."""
    values = tuple(dict.fromkeys(value for domain in model.domains for value in domain))
    index = {value: place for place, value in enumerate(values)}
    return VariableColumns(
        values,
        tuple(np.array([index[value] for value in domain]) for domain in model.domains),
    )


def released_weights(model: Named, seen: Sequence[Seen]) -> list[Ints]:
    """Return what each value of each variable adds to all released numbers side by side.

    (values, numbers) for each variable; one number that is always 0 when no sum was seen.
    """
    tables: list[list[Ints]] = [[] for _ in model.variables]
    for one in seen:
        if isinstance(one, EntriesSeen):
            continue
        for v, rows in enumerate(_weights_of_release(model, one)):
            tables[v].append(rows)
    return [
        np.hstack(rows) if rows else np.zeros((len(model.domains[v]), 1), dtype=np.int64)
        for v, rows in enumerate(tables)
    ]


def _weights_of_release(model: Named, one: SumSeen | VariablesSeen) -> Sequence[Ints]:
    """Return what each value of each variable adds to one released sum, (values, numbers) each."""
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


# The posterior of every person of a contagion model given what was released, in logarithms.


def contagion_beliefs(model: Contagion, seen: Sequence[Seen]) -> Beliefs:
    """Return the beliefs about every person of an adversary who holds a contagion model.

    Exact, in logs. Groups are independent, so what the output tells about the sum over one group
    is what it tells about the whole sum with the other groups averaged out. Within a group people
    are independent but for a factor of their number ill, and the same is done person by person
    over (number ill, sum). Weights may differ from person to person.
    """
    groups, likelihood = _groups_and_likelihood(model, seen)
    observed = likelihoods_of_summands([group.law() for group in groups], likelihood)
    before, joint = np.zeros((len(model.variables), 2)), np.zeros((len(model.variables), 2))
    for g, people in enumerate(model.groups):
        doing("the attack on groups", g, len(model.groups))
        before[list(people)] = _group_prior(model, g)
        joint[list(people)] = groups[g].joint(observed[g])
    with np.errstate(divide="ignore"):
        return Beliefs.from_joint(model.states, np.log(before), joint)


def likeliest_states(model: Contagion, seen: Sequence[Seen]) -> tuple[str, ...]:
    """Return the states of all people that are likeliest as a whole given `seen`.

    The same with the largest term in place of the sum: first the likeliest sum, then how it is
    shared among groups, and among the people of each.
    """
    groups, likelihood = _groups_and_likelihood(model, seen)
    laws = [group.law(best=True) for group in groups]
    whole = total_law(laws, best=True) + likelihood
    if whole.max() == -math.inf:
        raise InputError("what was seen is impossible under the model")
    states = np.zeros(len(model.variables), dtype=np.int64)
    for g, code in enumerate(best_split(laws, int(np.argmax(whole)))):
        states[list(model.groups[g])] = groups[g].likeliest(code)
    return tuple(model.states[int(state)] for state in states)


def _groups_and_likelihood(
    model: Contagion, seen: Sequence[Seen]
) -> tuple[list[_ExchangeableGroup | _ListedGroup], Floats]:
    """Return the groups with what was seen of their people, and the likelihood of each sum over
    all.
    """
    looks = entries_seen(seen, columns_of(model))
    likely = np.zeros((len(model.variables), 2)) if looks is None else looks
    code = encode_sums(np.array(released_weights(model, seen)))
    groups = [_observed_group(model, g, code.added, likely) for g in range(len(model.groups))]
    width = int(code.added.max(axis=1).sum()) + 1
    steps = 0.5 * (float(width) ** 2 + sum(float(group.width) ** 2 for group in groups))
    if steps > MOST_STEPS:
        raise Refused(
            f"the attack on so many weights would take {steps:.1g} steps; release a coarser sum, "
            "or look at fewer people"
        )
    return groups, log_likelihood(seen, code.numbers()[:width])


class _ExchangeableGroup(NamedTuple):
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
        """Return log P(sum of the group, what was seen of its people), by code of the sum."""
        logs = total_law(self._people(), best=best) + self._shares()
        return _sum_by_code(logs, self.place, best=best)

    def joint(self, observed: Floats) -> Floats:
        """Return log P(state of a person, everything seen), (people, 2)."""
        found = likelihoods_of_summands(self._people(), observed[self.place] + self._shares())
        ends = self.extra + np.array([0, self.stride])
        return np.array([row[end] for row, end in zip(found, ends, strict=True)]) + self.likely

    def likeliest(self, code: int) -> Ints:
        """Return the states of its people that are likeliest when their sum has this code."""
        people = self._people()
        logs = total_law(people, best=True) + self._shares()
        place = int(np.argmax(np.where(self.place == code, logs, -math.inf)))
        parts = np.array(best_split(people, place))
        return np.asarray(parts == self.extra[:, 1] + self.stride, dtype=np.int64)

    def _people(self) -> list[Floats]:
        """Return the log-likelihood of what was seen of each person, by what they add."""
        rows = []
        for extra, likely in zip(self.extra, self.likely, strict=True):
            row = np.full(self.stride + int(extra.max()) + 1, -math.inf)
            row[extra + np.array([0, self.stride])] = likely
            rows.append(row)
        return rows

    def _shares(self) -> Floats:
        return np.repeat(self.share, self.stride)


class _ListedGroup(NamedTuple):
    """A group whose joint law is written out: the log-probability and the code of every outcome."""

    states: Ints
    logs: Floats
    place: Ints

    @property
    def width(self) -> int:
        return 0

    def law(self, *, best: bool = False) -> Floats:
        return _sum_by_code(self.logs, self.place, best=best)

    def joint(self, observed: Floats) -> Floats:
        whole = self.logs + observed[self.place]
        return np.array(
            [[np.logaddexp.reduce(whole[row == state]) for state in (0, 1)] for row in self.states]
        )

    def likeliest(self, code: int) -> Ints:
        place = int(np.argmax(np.where(self.place == code, self.logs, -math.inf)))
        return np.asarray(self.states[:, place])


def _observed_group(
    model: Contagion, group: int, added: Ints, likely: Floats
) -> _ExchangeableGroup | _ListedGroup:
    """Return one group with the code of each of its sums and what was seen of its people."""
    people = list(model.groups[group])
    law, own, looks = model.law_of(group), added[people], likely[people]
    with np.errstate(divide="ignore"):
        logs = np.log(law)
    if not model.exchangeable(group):
        states = np.indices(law.shape).reshape(len(people), -1)
        seen = sum(looks[p][row] for p, row in enumerate(states))
        place = sum(own[p][row] for p, row in enumerate(states))
        return _ListedGroup(states, np.asarray(logs.ravel() + seen), np.asarray(place))
    size = len(people)
    share = logs - np.array([math.log(math.comb(size, n)) for n in range(size + 1)])
    steps = own[:, 1] - own[:, 0]
    if (steps == steps[0]).all():
        place = own[:, 0].sum() + np.arange(size + 1) * steps[0]
        return _ExchangeableGroup(share, np.zeros_like(own), 1, place, looks)
    stride = int(own.max(axis=1).sum()) + 1
    return _ExchangeableGroup(share, own, stride, np.tile(np.arange(stride), size + 1), looks)


def _group_prior(model: Contagion, group: int) -> Floats:
    """Return P(state) of every person of a group, (people, 2)."""
    law, size = model.law_of(group), len(model.groups[group])
    if model.exchangeable(group):
        ill = np.arange(size + 1) / size
        return np.tile([law @ (1 - ill), law @ ill], (size, 1))
    axes = range(size)
    return np.array([law.sum(axis=tuple(a for a in axes if a != axis)) for axis in axes])


def _sum_by_code(logs: Floats, place: Ints, *, best: bool) -> Floats:
    """Return log-probabilities added up by the code each belongs to, from code 0 to the largest.

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


SMALLEST_LOG_PRODUCT = (
    -700.0
)  # log of a product that may have been rounded to 0, and of what is left of it
LOG_EVIDENCE_MISSING = -30.0  # log of the part of the evidence that may be missing


def network_beliefs(net: BayesNet, seen: Sequence[Seen]) -> Beliefs:
    """Return the beliefs about every variable of an adversary who holds a Bayesian network.

    Exact, by elimination: P(X_v = x, sums) with one more axis for all released sums together, and
    what was seen of single variables as factors of its own. Variables may differ in their values:
    beliefs have a column for each value of any of them, 0 where a variable does not take it, and
    what is seen of entries has the same columns. Where doubles cannot hold every outcome
    (`too_deep`) a belief below about 1e-13 may come out as 0; more than that is refused.
    """
    columns = columns_of(net)
    tilts, shift, depth = _entry_likelihoods(seen, columns)
    whole = NetworkComponent(net, range(len(net.variables)), released_weights(net, seen))
    likelihood = log_likelihood(seen, whole.values)
    evidence = {} if tilts is None else {v: tilts[v, p] for v, p in enumerate(columns.places)}
    rows = []
    for v in range(len(net.variables)):
        with np.errstate(divide="ignore"):
            joint = np.log(whole.with_variable(v, evidence)) + likelihood
        rows.append(np.logaddexp.reduce(joint, axis=1))
    _refuse_underflow(net, depth, float(likelihood.max()), rows)
    before = [net.weight((v,), {}).log() for v in range(len(net.variables))]
    found = Beliefs.from_joint(
        columns.values, columns.spread(before, -math.inf), columns.spread(rows, -math.inf)
    )
    return replace(found, log_evidence=found.log_evidence + shift)


def may_underflow(net: BayesNet, seen: Sequence[Seen]) -> bool:
    """Return whether products of probabilities and likelihoods may be too small for a double."""
    return net.depth + _entry_likelihoods(seen, columns_of(net))[2] > DEEPEST_LINEAR


def _refuse_underflow(
    net: BayesNet, depth: float, likeliest: float, rows: Sequence[Floats]
) -> None:
    """Refuse when products of probabilities too small for a double may decide a belief.

    Every outcome that was lost is less likely than SMALLEST, and no output is likelier given one
    than `likeliest`; where what was kept outweighs all of them together nothing is missing.
    """
    if net.depth + depth <= DEEPEST_LINEAR:
        return
    lost = likeliest + SMALLEST_LOG_PRODUCT + sum(math.log(size) for size in net.sizes)
    kept = min(float(np.logaddexp.reduce(row)) for row in rows)
    if lost > kept + LOG_EVIDENCE_MISSING:
        raise Refused(
            "what was seen is so unlikely under the network that doubles cannot follow it; use "
            "more noise, or a network without values that are next to impossible"
        )


def _entry_likelihoods(
    seen: Sequence[Seen], columns: VariableColumns
) -> tuple[Floats | None, float, float]:
    """Return the likelihood of what was seen of each entry (at most 1), the logs taken out, and the
    depth.

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


# Adversaries who hold the law of named variables.


MAX_LISTED_OUTCOMES = 2**20  # outcomes of a network that is listed where doubles would lose some


class NamedAdversary(Generic[NamedModel]):
    """An adversary who holds a table, a network or a contagion model."""

    def __init__(self, model: NamedModel, entries: object = None) -> None:
        self._model: NamedModel = model

    @property
    def columns(self) -> VariableColumns:
        return columns_of(self._model)

    def added(self, seen: Sequence[Seen]) -> Ints:
        """Return what every column of every variable adds to all released numbers."""
        columns, own = self.columns, released_weights(self._model, seen)
        rows = np.zeros((len(own), len(columns.values), own[0].shape[1]), dtype=np.int64)
        for v, places in enumerate(columns.places):
            rows[v] = own[v][0]  # a value that is not the variable's own weighs nothing of its own
            rows[v, places] = own[v]
        return rows

    def over_time(self, seen: Sequence[Seen]) -> Floats:
        """Refuse: named variables do not move in time."""
        raise Refused(f"{self._model.describe()} does not move in time; use attack")

    def log_probability(self, rows: Ints) -> Floats:
        """Return log P(data) for each row of values; -inf where a value is not the variable's
        own.
        """
        columns = self.columns
        own = np.zeros_like(rows)
        possible = np.ones(len(rows), dtype=bool)
        for v, places in enumerate(columns.places):
            number = np.full(len(columns.values), -1)
            number[places] = np.arange(len(places))
            own[:, v] = np.maximum(number[rows[:, v]], 0)
            possible &= number[rows[:, v]] >= 0
        with np.errstate(divide="ignore"):
            return np.where(possible, self._log_probability(own), -math.inf)

    def _log_probability(self, own: Ints) -> Floats:
        """Return log P(data) for rows of numbers of the variables' own values."""
        raise NotImplementedError


class ListedAdversary(NamedAdversary[NamedModel]):
    """An adversary who looks at every outcome."""

    def beliefs(self, seen: Sequence[Seen]) -> Beliefs:
        """Return the beliefs about every variable before and after what was seen."""
        columns, axes = self.columns, range(len(self._model.domains))

        def by_variable(logs: Floats) -> Floats:
            laws = [
                np.logaddexp.reduce(logs, axis=tuple(a for a in axes if a != axis)) for axis in axes
            ]
            return columns.spread(laws, -math.inf)

        prior = by_variable(self.log_outcomes())
        return Beliefs.from_joint(columns.values, prior, by_variable(self._outcome_logs(seen)))

    def likeliest(self, seen: Sequence[Seen]) -> tuple[str, ...]:
        """Return the likeliest outcome given what was seen; refused when it is impossible."""
        weight = self._outcome_logs(seen)
        if weight.max() == -math.inf:
            raise InputError("what was seen is impossible under the model")
        best = np.unravel_index(int(np.argmax(weight)), weight.shape)
        return tuple(domain[int(i)] for domain, i in zip(self._model.domains, best, strict=True))

    def log_outcomes(self) -> Floats:
        """Return log P(outcome), one axis per variable."""
        raise NotImplementedError

    def _outcome_logs(self, seen: Sequence[Seen]) -> Floats:
        """Return log P(outcome, output), one axis per variable."""
        columns, prior = self.columns, self.log_outcomes()
        places = np.indices(prior.shape).reshape(prior.ndim, -1)
        rows = released_weights(self._model, seen)
        answers = sum(row[own] for row, own in zip(rows, places, strict=True))
        out = prior.ravel() + log_likelihood(seen, np.asarray(answers))
        logs = entries_seen(seen, columns)
        if logs is not None:
            looks = [logs[v, own][places[v]] for v, own in enumerate(columns.places)]
            out = out + np.sum(looks, axis=0)
        return np.asarray(out.reshape(prior.shape))


class TableAdversary(ListedAdversary[JointTable]):
    """An adversary who holds a joint law that is written out."""

    def log_outcomes(self) -> Floats:
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(self._model.probability))

    def _log_probability(self, own: Ints) -> Floats:
        return np.asarray(np.log(self._model.probability[tuple(own.T)]))


class NetworkAdversary(ListedAdversary[BayesNet]):
    """An adversary who holds a Bayesian network."""

    def beliefs(self, seen: Sequence[Seen]) -> Beliefs:
        """Return the beliefs by elimination, or by listing outcomes where doubles would lose
        some.
        """
        if math.prod(self._model.sizes) <= MAX_LISTED_OUTCOMES and may_underflow(self._model, seen):
            return super().beliefs(seen)
        return network_beliefs(self._model, seen)

    def log_outcomes(self) -> Floats:
        """Return log P(outcome), one axis per variable, summed in logarithms from the start."""
        sizes = self._model.sizes
        outcomes = math.prod(sizes)
        if outcomes > MAX_OUTCOMES:
            raise Refused(
                f"the network has {outcomes:.3g} outcomes, and the likeliest of them is found by "
                f"looking at each; at most {MAX_OUTCOMES} are tried: attack() believes without that"
            )
        out = np.zeros(sizes)
        with np.errstate(divide="ignore"):
            for scope, table in self._model.factors():
                order = np.argsort(scope)
                shape = [size if v in scope else 1 for v, size in enumerate(sizes)]
                out = out + np.log(table).transpose(order).reshape(shape)
        return out

    def _log_probability(self, own: Ints) -> Floats:
        """Return log P(data) for rows of numbers of the variables' own values."""
        logs = np.zeros(len(own))
        for v, (above, table) in enumerate(zip(self._model.above, self._model.tables, strict=True)):
            logs += np.log(table[(*(own[:, p] for p in above), own[:, v])])
        return logs


class ContagionAdversary(NamedAdversary[Contagion]):
    """An adversary who holds a contagion model, evaluated group by group and person by person."""

    def beliefs(self, seen: Sequence[Seen]) -> Beliefs:
        """Return the beliefs about every person before and after what was seen."""
        return contagion_beliefs(self._model, seen)

    def likeliest(self, seen: Sequence[Seen]) -> tuple[str, ...]:
        return likeliest_states(self._model, seen)

    def _log_probability(self, own: Ints) -> Floats:
        """Return log P(data) for rows of states, group by group."""
        logs = np.zeros(len(own))
        for g, group in enumerate(self._model.groups):
            states, law = own[:, list(group)], self._model.law_of(g)
            if self._model.exchangeable(g):
                ill = states.sum(axis=1)
                sets = np.array([math.log(math.comb(len(group), n)) for n in ill.tolist()])
                logs += np.log(law[ill]) - sets
            else:
                logs += np.log(law[tuple(states.T)])
        return logs
