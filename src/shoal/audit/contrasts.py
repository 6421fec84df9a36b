"""Two facts, and data drawn from the model given each: what a black-box audit sets side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.audit.chains import admitted
from shoal.audit.facts import table_facts
from shoal.audit.families import members
from shoal.audit.lengths import Place
from shoal.audit.sampling import GivenEntry, GivenEvent, Pool, Route, route
from shoal.audit.walk import Walk, walk
from shoal.core.errors import InputError
from shoal.core.task import Model, Query, Secrets
from shoal.core.value import Ints
from shoal.models.bayesnet import BayesNet
from shoal.models.chain import MarkovChain
from shoal.models.contagion import Contagion
from shoal.models.family import AnyInitialLaw
from shoal.models.order import OrderChain
from shoal.models.table import JointTable


class Contrast(NamedTuple):
    """Facts to tell apart, any two of `pools` unless `pairs` names them."""

    model: int
    law: str
    subject: str
    pools: tuple[Pool, ...]
    pairs: tuple[tuple[int, int], ...]


class Chain(NamedTuple):
    """A chain of the family, by its place there, and as the auditor walks it from one start."""

    number: int
    model: Model
    walk: Walk

    def route(self, entries: int, entry: int) -> Route:
        """How data of so many entries is drawn given one of them."""
        return route(self.walk, entries - self.walk.order + 1, entry)


class Laws(NamedTuple):
    """What data is drawn from: chains, and what there is to tell apart in tables."""

    chains: list[Chain]
    tables: list[Contrast]


def laws(
    family: Sequence[Model],
    secrets: Secrets,
    states: tuple[str, ...],
    query: Query | None = None,
) -> Laws:
    """The laws of a family, where need be some of its members.

    Chains are never longer than a `query` with a public length takes.
    """
    found = Laws([], [])
    for index, model in enumerate(family):
        for member in members(model, states):
            if isinstance(member, JointTable | BayesNet | Contagion):
                written = member if isinstance(member, JointTable) else member.as_table()
                found.tables.extend(_of_table(written, secrets, index, states))
            else:
                found.chains.append(_chain(member, index, query))
    return found


def contrasts(found: Laws, places: Sequence[Place]) -> list[Contrast]:
    """What to compare: the values of some entries of chains, and the facts of tables."""
    entries = [_of_entry(found.chains[place.chain], place) for place in places]
    compared = [*found.tables, *(one for one in entries if one is not None)]
    if not compared:
        raise InputError("no entry can take two values, so there is nothing to tell apart")
    return compared


def _chain(model: Model, index: int, query: Query | None) -> Chain:
    if not isinstance(model, MarkovChain | AnyInitialLaw | OrderChain):
        raise InputError(
            f"data cannot be drawn from {model.describe()}; choose two data sets yourself and use "
            "audit_neighbours"
        )
    path = walk(model) if query is None else admitted(walk(model), query)
    if path.initial is None:
        path = path.starting(np.full(path.size, 1 / path.size))
    return Chain(index, model, path)


def _of_entry(chain: Chain, place: Place) -> Contrast | None:
    way = chain.route(place.entries, place.entry)
    pools = tuple(
        Pool(repr(chain.walk.values[value]), GivenEntry(way, value), place.entries)
        for value in np.unique(way.values[way.law > 0]).tolist()
    )
    if len(pools) < 2:
        return None
    law = f"{chain.model.describe()}, with data of {place.entries} entries"
    pairs = tuple(combinations(range(len(pools)), 2))
    return Contrast(chain.number, law, f"entry {place.entry + 1}", pools, pairs)


def _of_table(
    table: JointTable, secrets: Secrets, index: int, states: tuple[str, ...]
) -> list[Contrast]:
    """One contrast per pair of facts."""
    places = _places(table, states)
    return [
        Contrast(
            index,
            table.describe(),
            "the data",
            tuple(
                Pool(f"'{fact.name}'", GivenEvent(table, fact.where, places), len(places))
                for fact in pair
            ),
            ((0, 1),),
        )
        for pair in table_facts(table, secrets)
    ]


def _places(table: JointTable, states: tuple[str, ...]) -> tuple[Ints, ...]:
    """Which of `states` each value of each variable is: by place where all share them."""
    if table.states is not None and len(table.states) == len(states):
        return (np.arange(len(states)),) * len(table.variables)
    for variable, domain in zip(table.variables, table.domains, strict=True):
        lacking = [value for value in domain if value not in states]
        if lacking:
            raise InputError(
                f"states is {list(states)}; variable {variable!r} also takes {lacking[0]!r}"
            )
    return tuple(np.array([states.index(value) for value in domain]) for domain in table.domains)
