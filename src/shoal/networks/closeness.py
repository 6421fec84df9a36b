"""How far an adversary's own belief is from a family, given each secret, for any finite law."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.chains.closeness import Closeness, chain_closeness
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats, Value
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.task import EachEntry, Model, Secrets
from shoal.core.walk import Wide
from shoal.events.pairs import named_pairs
from shoal.mechanisms.mixture import largest_finite
from shoal.networks.bayesnet import BayesNet, allowed
from shoal.networks.contagion import Contagion
from shoal.networks.elimination import Factor, largest_sum
from shoal.networks.table import JointTable

SLACK = 2.0**-44  # relative; covers the roundings of a sum of logarithms
Finite = JointTable | BayesNet | Contagion


@dataclass(frozen=True, slots=True, eq=False)
class SecretCloseness(Value):
    """Δ = the largest log-ratio between two laws of the whole data given one secret, both ways.

    `secret` says which one, `member` which model of the family is closest. An adversary who holds
    the other law gets at most epsilon + 2Δ from a release that is epsilon-private under the family.
    """

    kind = "secret-closeness"

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


def closeness(
    chain: MarkovChain | Model | Sequence[Model],
    other: MarkovChain | Model,
    length: int | None = None,
    *,
    secrets: Secrets | None = None,
) -> Closeness | SecretCloseness:
    """How much an adversary outside a family gains: epsilon + 2Δ instead of epsilon.

    Δ for two chains of some length (`chain_closeness`), or for a family of tables, networks or
    contagion models and the secrets (`secret_closeness`, every single entry by default).
    Song, Wang & Chaudhuri 2017, Theorem 2.4.
    """
    if isinstance(chain, MarkovChain) and isinstance(other, MarkovChain):
        return chain_closeness(chain, other, length)
    return secret_closeness(chain, other, secrets)


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
    named = named_pairs(secrets)
    if named is not None:
        for event in dict.fromkeys(event for pair in named.pairs for event in pair):
            yield event.name, event.mapping()
        return
    for variable, domain in zip(model.variables, model.domains, strict=True):
        for value in domain:
            yield f"{variable} = {value}", {variable: (value,)}


class _Apart(NamedTuple):
    """How far two laws are apart where a secret holds.

    `ratio` is the largest log-ratio of two outcomes, `shift` that of the probabilities of the
    secret (inf when only the second law excludes it), `size` that of the numbers that were added,
    `possible` whether the first law allows the secret.
    """

    ratio: float
    shift: float
    size: float
    possible: bool


def _given(model: Finite, other: Finite, seen: dict[int, Floats]) -> float:
    """D∞(model | seen ‖ other | seen), rounded up; 0 when the secret is impossible under model."""
    if isinstance(model, JointTable):
        assert isinstance(other, JointTable)
        found = _tables(Wide.of(model.probability), Wide.of(other.probability), seen)
    elif isinstance(model, BayesNet):
        assert isinstance(other, BayesNet)
        found = _networks(model, other, seen)
    else:
        assert isinstance(other, Contagion)
        found = _crowds(model, other, seen)
    if not found.possible:
        return 0.0
    value = found.ratio - found.shift
    return value + SLACK * (1.0 + found.size) if math.isfinite(value) else math.inf


def _tables(law: Wide, other: Wide, seen: dict[int, Floats]) -> _Apart:
    """By enumeration of the outcomes where `seen` holds."""
    holds = np.ones(law.shape, dtype=bool)
    for axis, row in seen.items():
        shape = [1] * len(law.shape)
        shape[axis] = -1
        holds &= (row > 0).reshape(shape)
    own, theirs = (one.arranged(lambda table: table[holds]) for one in (law, other))
    ratio = float(own.log_over(theirs).max(initial=-math.inf))
    return _compared(ratio, own.total(), theirs.total(), abs(ratio))


def _compared(ratio: float, own: Wide, theirs: Wide, size: float) -> _Apart:
    shift = float(own.log_over(theirs))
    return _Apart(ratio, shift, size + abs(shift), bool(own.possible))


def _networks(net: BayesNet, other: BayesNet, seen: dict[int, Floats]) -> _Apart:
    """By elimination: of logarithms with maxima, and of probabilities that never underflow."""
    with np.errstate(divide="ignore"):
        factors = [Factor(f.scope, np.log(f.table)) for f in net.factors()]
        factors += [Factor(f.scope, -np.log(f.table)) for f in other.factors()]
        factors += [Factor((v,), np.log(row)) for v, row in seen.items()]
    size = sum(largest_finite(factor.table) for factor in factors) * (1 + len(factors) / 256)
    ratio = largest_sum(factors, net.sizes)
    return _compared(ratio, net.weight((), seen), other.weight((), seen), size)


def _crowds(model: Contagion, other: Contagion, seen: dict[int, Floats]) -> _Apart:
    """Independent groups: log-ratios add."""
    if model.groups != other.groups:
        raise InputError("the two contagion models have different groups; compare equal ones")
    found = []
    for g, group in enumerate(model.groups):
        inside = {group.index(v): row for v, row in seen.items() if model.group_of[v] == g}
        if model.exchangeable(g) and other.exchangeable(g):
            found.append(_alike(model.law_of(g), other.law_of(g), inside))
        else:
            found.append(_tables(model.written(g), other.written(g), inside))
    ratios, shifts, sizes, possible = zip(*found, strict=True)
    if not all(possible):
        return _Apart(0.0, 0.0, 0.0, possible=False)
    if not all(map(math.isfinite, (*ratios, *shifts))):
        return _Apart(math.inf, 0.0, 0.0, possible=True)
    return _Apart(sum(ratios), sum(shifts), sum(sizes), possible=True)


def _alike(law: Floats, other: Floats, seen: dict[int, Floats]) -> _Apart:
    """A group in which only the number of people ill matters, with shares in whole numbers."""
    size = len(law) - 1
    well = sum(bool(row[0]) and not row[1] for row in seen.values())
    ill = sum(bool(row[1]) and not row[0] for row in seen.values())
    counts = range(ill, size - well + 1)
    if not all(row.any() for row in seen.values()) or not counts:
        return _Apart(0.0, 0.0, 0.0, possible=False)
    # P(known | n ill) = [n]_ill [size - n]_well over a number that cancels
    share = Wide.whole(math.perm(n, ill) * math.perm(size - n, well) for n in counts)
    own, theirs = (Wide.of(side[ill : size - well + 1]) for side in (law, other))
    ratio = float(own.log_over(theirs).max())
    return _compared(ratio, own.times(share).total(), theirs.times(share).total(), abs(ratio))
