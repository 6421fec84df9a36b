"""How far an adversary's own belief is from a family, given each secret, for any finite law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.task import Model, Secrets
from shoal.core.value import Floats, Value
from shoal.models.bayesnet import BayesNet, allowed
from shoal.models.bayesnet_elimination import Factor, largest_sum
from shoal.models.contagion import Contagion
from shoal.models.table import JointTable
from shoal.secrets.entries import EachEntry
from shoal.secrets.pairs import SecretPairs

SLACK = 2.0**-44  # relative; covers the roundings of a sum of logarithms
Finite = JointTable | BayesNet | Contagion


@dataclass(frozen=True, slots=True, eq=False)
class SecretCloseness(Value):
    """Δ = the largest log-ratio between two laws of the whole data given one secret, both ways.

    `secret` says which one, `member` which model of the family is closest. An adversary who holds
    the other law gets at most epsilon + 2Δ from a release that is epsilon-private under the family.
    """

    value: float
    secret: str
    member: int

    def describe(self) -> str:
        if not math.isfinite(self.value):
            return (
                "the two laws are infinitely far apart: one allows an outcome the other excludes, "
                "so a guarantee under one says nothing under the other"
            )
        return (
            "an adversary who holds the other law gains at most "
            f"2 × {significant(self.value)} in epsilon (worst given {self.secret!r})"
        )


def secret_closeness(
    family: Model | Sequence[Model], other: Model, secrets: Secrets | None = None
) -> SecretCloseness:
    """min over the family of max over secrets s of D∞ between the laws given s, both ways.

    D∞(θ|s ‖ θ'|s) = max over outcomes x with s of log θ(x | s) - log θ'(x | s). Tables by
    enumeration, networks by elimination with maxima instead of sums, contagion group by group.
    Rounds up. inf when an outcome is possible under one only. A secret that neither law allows
    is none. Song, Wang & Chaudhuri 2017, Theorem 2.4 (for the exact value of its example see
    ERRATA: log 90.9474).
    """
    members = (family,) if isinstance(family, Model) else tuple(family)
    asked = EachEntry() if secrets is None else secrets
    found = [_between(member, other, asked, index) for index, member in enumerate(members)]
    return min(found, key=lambda closeness: closeness.value)


def _between(model: Model, other: Model, secrets: Secrets, index: int) -> SecretCloseness:
    kinds = JointTable, BayesNet, Contagion
    if (
        not isinstance(model, kinds)
        or not isinstance(other, kinds)
        or type(model) is not type(other)
    ):
        raise InputError("closeness compares two tables, two networks or two contagion models")
    if (model.variables, model.domains) != (other.variables, other.domains):
        raise InputError("the two laws are about different variables or values")
    worst = SecretCloseness(0.0, "", index)
    for name, where in _facts(model, secrets):
        seen = allowed(where, model.variables, model.domains)
        for one, two in ((model, other), (other, model)):
            value = _given(one, two, seen)
            if value > worst.value:
                worst = SecretCloseness(value, name, index)
    return worst


def _facts(model: Finite, secrets: Secrets) -> Iterator[tuple[str, dict[str, tuple[str, ...]]]]:
    if isinstance(secrets, SecretPairs):
        for event in dict.fromkeys(event for pair in secrets.pairs for event in pair):
            yield event.name, event.mapping()
        return
    for variable, domain in zip(model.variables, model.domains, strict=True):
        for value in domain:
            yield f"{variable} = {value}", {variable: (value,)}


def _given(model: Finite, other: Finite, seen: dict[int, Floats]) -> float:
    """D∞(model | seen ‖ other | seen), rounded up; 0 when the secret is impossible under model."""
    if isinstance(model, JointTable):
        assert isinstance(other, JointTable)
        apart, own, theirs = _tables(model.probability, other.probability, seen)
    elif isinstance(model, BayesNet):
        assert isinstance(other, BayesNet)
        apart, own, theirs = _networks(model, other, seen)
    else:
        assert isinstance(other, Contagion)
        apart, own, theirs = _crowds(model, other, seen)
    if own <= 0:
        return 0.0
    if theirs <= 0 or not math.isfinite(apart):
        return math.inf
    shift = math.log(own) - math.log(theirs)
    value = apart - shift
    return value + SLACK * (1.0 + abs(apart) + abs(shift))


def _tables(law: Floats, other: Floats, seen: dict[int, Floats]) -> tuple[float, float, float]:
    """The largest log-ratio where `seen` holds, and the probability of it under both laws."""
    holds = np.ones(law.shape, dtype=bool)
    for axis, row in seen.items():
        shape = [1] * law.ndim
        shape[axis] = -1
        holds &= (row > 0).reshape(shape)
    ratio = log_ratio(law[holds], other[holds])
    return float(ratio.max(initial=-math.inf)), float(law[holds].sum()), float(other[holds].sum())


def _networks(
    net: BayesNet, other: BayesNet, seen: dict[int, Floats]
) -> tuple[float, float, float]:
    with np.errstate(divide="ignore"):
        factors = [Factor(f.scope, np.log(f.table)) for f in net.factors()]
        factors += [Factor(f.scope, -np.log(f.table)) for f in other.factors()]
        factors += [Factor((v,), np.log(row)) for v, row in seen.items()]
    where = {net.variables[v]: _values(net, v, row) for v, row in seen.items()}
    return largest_sum(factors, net.sizes), net.probability(where), other.probability(where)


def _crowds(
    model: Contagion, other: Contagion, seen: dict[int, Floats]
) -> tuple[float, float, float]:
    """Independent groups: log-ratios add, probabilities multiply."""
    if model.groups != other.groups:
        raise InputError("the two contagion models have different groups; compare equal ones")
    apart, own, theirs = 0.0, 1.0, 1.0
    for g, group in enumerate(model.groups):
        inside = {group.index(v): row for v, row in seen.items() if model.group_of[v] == g}
        if model.exchangeable(g) and other.exchangeable(g):
            found = _alike(model.law_of(g), other.law_of(g), inside)
        else:
            found = _tables(model.written(g), other.written(g), inside)
        apart, own, theirs = apart + found[0], own * found[1], theirs * found[2]
    return apart, own, theirs


def _alike(law: Floats, other: Floats, seen: dict[int, Floats]) -> tuple[float, float, float]:
    """A group in which only the number of people ill matters."""
    size = len(law) - 1
    well = sum(bool(row[0]) and not row[1] for row in seen.values())
    ill = sum(bool(row[1]) and not row[0] for row in seen.values())
    free = size - well - ill
    counts = range(ill, ill + free + 1)
    share = np.array([math.comb(free, n - ill) / math.comb(size, n) for n in counts])
    ratio = log_ratio(law[ill : ill + free + 1], other[ill : ill + free + 1])
    own, theirs = (side[ill : ill + free + 1] * share for side in (law, other))
    return float(ratio.max(initial=-math.inf)), float(own.sum()), float(theirs.sum())


def _values(net: BayesNet, v: int, row: Floats) -> tuple[str, ...]:
    return tuple(value for value, holds in zip(net.domains[v], row, strict=True) if holds)


def log_ratio(law: Floats, other: Floats) -> Floats:
    """log law - log other where law > 0 (inf when other is 0); -inf where law is 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(law) - np.log(other)
    return np.where(law > 0, np.where(other > 0, ratio, np.inf), -np.inf)
