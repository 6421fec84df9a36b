"""The facts secrets speak about when the data is a table of named variables."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.errors import Refused
from shoal.core.task import Secrets
from shoal.models.table import JointTable
from shoal.secrets.entries import EachEntry
from shoal.secrets.pairs import SecretPairs


class Fact(NamedTuple):
    """A name, where it holds (outcomes of the table), and how likely it is."""

    name: str
    where: dict[str, tuple[str, ...]]
    holds: npt.NDArray[np.bool_]
    probability: float


def table_facts(table: JointTable, secrets: Secrets) -> list[tuple[Fact, Fact]]:
    """The pairs of facts to keep indistinguishable, each once; impossible facts are left out."""
    if isinstance(secrets, SecretPairs):
        pairs = [
            (_fact(table, a.name, a.mapping()), _fact(table, b.name, b.mapping()))
            for a, b in secrets.pairs
        ]
    elif isinstance(secrets, EachEntry):
        pairs = []
        for variable, domain in zip(table.variables, table.domains, strict=True):
            own = [_fact(table, f"{variable} = {v}", {variable: (v,)}) for v in domain]
            pairs += [(a, b) for i, a in enumerate(own) for b in own[i + 1 :]]
    else:
        raise Refused(f"a table has no secrets of the kind {type(secrets).__name__}")
    return [(a, b) for a, b in pairs if a.probability > 0 and b.probability > 0]


def table_secrets(table: JointTable, secrets: Secrets) -> list[Fact]:
    """Every fact the secrets speak about, each once and in their order; no impossible ones."""
    if isinstance(secrets, SecretPairs):
        events = dict.fromkeys(event for pair in secrets.pairs for event in pair)
        facts = [_fact(table, event.name, event.mapping()) for event in events]
    else:
        facts = [
            _fact(table, f"{variable} = {value}", {variable: (value,)})
            for variable, domain in zip(table.variables, table.domains, strict=True)
            for value in domain
        ]
    return [fact for fact in facts if fact.probability > 0]


def _fact(table: JointTable, name: str, where: dict[str, tuple[str, ...]]) -> Fact:
    holds = table.event(where)
    return Fact(name, where, holds, float(table.probability[holds].sum()))
