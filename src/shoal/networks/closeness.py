"""How far an adversary's own belief is from a family, given each secret: by listing outcomes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.chains.closeness import Closeness, chain_closeness
from shoal.chains.model import MarkovChain
from shoal.core.codec import Bools, Value
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.task import EachEntry, Model, Secrets
from shoal.core.walk import Wide
from shoal.events.pairs import named_pairs
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable

SLACK = 2.0**-42  # relative; covers the roundings of products, and of sums over 2^24 outcomes


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
        """Return in a sentence what an adversary who holds the other law gains."""
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
    family: MarkovChain | Model | Sequence[Model],
    other: MarkovChain | Model,
    length: int | None = None,
    *,
    secrets: Secrets | None = None,
) -> Closeness | SecretCloseness:
    """Return Δ: an adversary outside the family gets at most epsilon + 2Δ instead of epsilon.

    Δ = min over the family of max over secrets s of D∞ between the two laws given s, both ways,
    D∞(θ|s ‖ θ'|s) = max over outcomes x with s of log θ(x | s) - log θ'(x | s). For two chains
    of `length` entries by dynamic programming; for tables, networks and contagion models by
    listing at most 2^24 outcomes. `secrets` is every single entry by default. Rounds up; inf when
    an outcome is possible under one law only. Song, Wang & Chaudhuri 2017, Theorem 2.4 (for the
    exact value of its example see ERRATA: log 90.9474).
    """
    if isinstance(family, MarkovChain) and isinstance(other, MarkovChain):
        return chain_closeness(family, other, length)
    members = (family,) if isinstance(family, Model) else tuple(family)
    found = [
        _table_closeness(member, other, secrets or EachEntry(), index)
        for index, member in enumerate(members)
    ]
    return min(found, key=lambda closeness: closeness.value)


def _table_closeness(model: Model, other: Model, secrets: Secrets, member: int) -> SecretCloseness:
    """Return the closeness of two models of one kind with the same variables and values."""
    kinds = JointTable, BayesNet, Contagion
    if (
        not isinstance(model, kinds)
        or not isinstance(other, kinds)
        or type(model) is not type(other)
    ):
        raise InputError("closeness compares two tables, two networks or two contagion models")
    if (model.variables, model.domains) != (other.variables, other.domains):
        raise InputError("the two laws are about different variables or values")
    tables = model.written_out(), other.written_out()
    worst = SecretCloseness(0.0, "", member)
    for name, holds in _secret_masks(tables[0], secrets):
        for one, two in (tables, tables[::-1]):
            own, theirs = (Wide.of(table.probability[holds]) for table in (one, two))
            if not own.possible.any():
                continue
            ratio = float(own.log_over(theirs).max())
            shift = float(own.total().log_over(theirs.total()))
            value = ratio - shift if math.isfinite(ratio) else math.inf
            value += SLACK * (1.0 + abs(ratio) + abs(shift))
            if value > worst.value:
                worst = SecretCloseness(value, name, member)
    return worst


def _secret_masks(table: JointTable, secrets: Secrets) -> Iterator[tuple[str, Bools]]:
    """Yield each secret's name and its outcomes, a mask with an axis per variable."""
    named = named_pairs(secrets)
    if named is not None:
        for event in dict.fromkeys(event for pair in named.pairs for event in pair):
            yield event.name, np.asarray(event.holds(table))
        return
    for variable, domain in zip(table.variables, table.domains, strict=True):
        for value in domain:
            yield f"{variable} = {value}", table.event({variable: value})
