"""Two facts, and data drawn from the model given each: what a black-box audit sets side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.audit.chains import admitted
from shoal.audit.facts import table_facts
from shoal.audit.families import members
from shoal.audit.sampling import outcomes_given, paths_given
from shoal.audit.walk import Walk, walk
from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.core.task import Model, Query, Secrets
from shoal.core.value import Ints
from shoal.models.bayesnet import BayesNet
from shoal.models.chain import MarkovChain
from shoal.models.contagion import Contagion
from shoal.models.family import AnyInitialLaw
from shoal.models.order import OrderChain
from shoal.models.table import JointTable

LENGTHS = (1, 2, 3, 5, 8, 12)  # short data tells more about one entry, long data brings the rest

Draw = Callable[[int, np.random.Generator], Ints]  # how many, randomness -> rows of state indices


class Pool(NamedTuple):
    """Data given one fact."""

    fact: str
    draw: Draw


class Contrast(NamedTuple):
    """Facts to tell apart, any two of `pools` unless `pairs` names them."""

    model: int
    law: str
    subject: str
    pools: tuple[Pool, ...]
    pairs: tuple[tuple[int, int], ...]


def contrasts(
    family: Sequence[Model],
    secrets: Secrets,
    states: tuple[str, ...],
    lengths: Sequence[int] | None = None,
    query: Query | None = None,
) -> list[Contrast]:
    """What to compare: for chains the first, middle and last entry of data of several lengths.

    Never longer than a `query` with a public length takes.
    """
    found: list[Contrast] = []
    for index, model in enumerate(family):
        for member in members(model, states):
            if isinstance(member, JointTable | BayesNet | Contagion):
                written = member if isinstance(member, JointTable) else member.as_table()
                found += _of_table(written, secrets, index, states)
            else:
                found += _of_chain(member, index, lengths, query)
    if not found:
        raise InputError("no entry can take two values, so there is nothing to tell apart")
    return found


def _of_chain(
    model: Model, index: int, lengths: Sequence[int] | None, query: Query | None
) -> list[Contrast]:
    if not isinstance(model, MarkovChain | AnyInitialLaw | OrderChain):
        raise InputError(
            f"data cannot be drawn from {model.describe()}; choose two data sets yourself and use "
            "audit_neighbours"
        )
    path = walk(model) if query is None else admitted(walk(model), query)
    if path.initial is None:
        path = path.starting(np.full(path.size, 1 / path.size))
    more = path.order - 1
    wanted = LENGTHS if lengths is None else [whole(n, "a length") for n in lengths]
    fitting = {path.at_most(n - more) + more for n in wanted if n > more}
    if not fitting:
        raise InputError(
            f"lengths is {list(wanted)}; {model.describe()} needs data of {path.order} entries or "
            "more"
        )
    return [
        contrast
        for entries in sorted(fitting)
        for entry in sorted({0, entries // 2, entries - 1})
        if (contrast := _of_entry(model, path, index, entries, entry)) is not None
    ]


def _of_entry(model: Model, path: Walk, index: int, entries: int, entry: int) -> Contrast | None:
    nodes = entries - path.order + 1
    node, shown = path.place(entry)
    possible = np.unique(shown[path.laws(nodes)[node] > 0]).tolist()
    pools = tuple(
        Pool(repr(path.values[value]), _entry_draw(path, nodes, entry, value)) for value in possible
    )
    if len(pools) < 2:
        return None
    law = f"{model.describe()}, with data of {entries} entries"
    pairs = tuple(combinations(range(len(pools)), 2))
    return Contrast(index, law, f"entry {entry + 1}", pools, pairs)


def _entry_draw(path: Walk, nodes: int, entry: int, value: int) -> Draw:
    return lambda count, rng: paths_given(path, nodes, entry, value, count, rng)


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
            tuple(Pool(f"'{fact.name}'", _event_draw(table, fact.where, places)) for fact in pair),
            ((0, 1),),
        )
        for pair in table_facts(table, secrets)
    ]


def _places(table: JointTable, states: tuple[str, ...]) -> list[Ints]:
    """Which of `states` each value of each variable is: by place where all share them."""
    if table.states is not None and len(table.states) == len(states):
        return [np.arange(len(states))] * len(table.variables)
    for variable, domain in zip(table.variables, table.domains, strict=True):
        lacking = [value for value in domain if value not in states]
        if lacking:
            raise InputError(
                f"states is {list(states)}; variable {variable!r} also takes {lacking[0]!r}"
            )
    return [np.array([states.index(value) for value in domain]) for domain in table.domains]


def _event_draw(table: JointTable, where: dict[str, tuple[str, ...]], places: list[Ints]) -> Draw:
    def draw(count: int, rng: np.random.Generator) -> Ints:
        columns = outcomes_given(table, where, count, rng).T
        return np.stack([place[column] for place, column in zip(places, columns, strict=True)], 1)

    return draw
