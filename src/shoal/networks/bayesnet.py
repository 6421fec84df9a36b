"""Bayesian networks: variables with finite ranges, each drawn given its parents."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import checked_rows, numbers
from shoal.core.charge import Rng, uniforms
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.records import Sequences, checked_states, label, labels
from shoal.core.task import AnswerLaws, EntryLift, Influences, Law, Query, Quilts, Secrets
from shoal.core.walk import LEAST_NORMAL, TooUnlikely, Wide, is_exact_in_doubles
from shoal.networks.elimination import (
    Factor,
    greedy_summing_order,
    safe_sum_product,
    wide_sum_product,
)
from shoal.networks.graph import (
    ancestors,
    connected_components,
    d_separated,
    moral_graph,
    topological_order,
)
from shoal.networks.table import JointTable, admit_variables, normalised_table

if TYPE_CHECKING:
    from shoal.networks.laws import NamedSum
    from shoal.networks.parts import SumParts

MAX_TABLE = 2**22  # numbers in the table of one variable
Where = Mapping[str, str | Sequence[str]]


@dataclass(frozen=True, kw_only=True, eq=False)
class BayesNet(Law):
    """P(x) = Π_v tables[v][values of v's parents, x_v].

    `parents[v]` names the variables that v is drawn from, in the order of the axes of `tables[v]`;
    its last axis is v itself. When all domains are equal the variables are the entries of one
    record each, and counts, sums and histograms over entries apply.
    """

    kind = "bayes-net"

    variables: tuple[str, ...]
    domains: tuple[tuple[str, ...], ...]
    parents: tuple[tuple[str, ...], ...]
    tables: tuple[Floats, ...]

    def __post_init__(self) -> None:
        """Check names, domains, parents and tables, and store them in their own types."""
        variables = checked_states(self.variables, "variables")
        for field in ("domains", "parents", "tables"):
            if len(getattr(self, field)) != len(variables):
                raise InputError(
                    f"{field} has {len(getattr(self, field))} items for {len(variables)} "
                    "variables; give each variable its own"
                )
        domains = tuple(
            checked_states(domain, f"the domain of {name!r}")
            for name, domain in zip(variables, self.domains, strict=True)
        )
        parents = tuple(tuple(map(str, own)) for own in self.parents)
        object.__setattr__(self, "variables", variables)
        object.__setattr__(self, "domains", domains)
        object.__setattr__(self, "parents", parents)
        self._check_parents()
        tables = tuple(self._checked_table(v, table) for v, table in enumerate(self.tables))
        object.__setattr__(self, "tables", tables)

    @classmethod
    def of(
        cls,
        tables: Mapping[str, npt.ArrayLike],
        *,
        parents: Mapping[str, Sequence[str]] | None = None,
        domains: Mapping[str, Sequence[Any]] | None = None,
    ) -> Self:
        """Return a network from a table per variable; values are 0, 1, … unless `domains` names
        them.

        {"rain": [.8, .2], "wet": [[.9, .1], [.2, .8]]} with parents {"wet": ["rain"]}: the last
        level of a table is the variable's own law, one list of it per value of its parents.
        """
        above, named = parents or {}, domains or {}
        for field, keys in (("parents", above), ("domains", named)):
            unknown = sorted(set(keys) - set(tables))
            if unknown:
                raise InputError(f"{field} names {unknown[0]!r}, which has no table; add its table")
        arrays = {name: numbers(table, f"the table of {name!r}") for name, table in tables.items()}
        ranges = (
            named.get(name, range(array.shape[-1] if array.ndim else 0))
            for name, array in arrays.items()
        )
        return cls(
            variables=tuple(arrays),
            domains=tuple(tuple(label(value) for value in several) for several in ranges),
            parents=tuple(tuple(above.get(name, ())) for name in arrays),
            tables=tuple(arrays.values()),
        )

    @classmethod
    def from_bif(cls, path: str | Path) -> BayesNet:
        """Return the network of a BIF file (plain or .gz), with every digit it holds."""
        from shoal.networks.interchange import read_bif

        return read_bif(Path(path))

    @classmethod
    def from_object(cls, network: Any) -> BayesNet:
        """Return the network of a pgmpy or pyAgrum object, recognised by its methods."""
        from shoal.networks.interchange import network_from_object

        return network_from_object(network)

    @cached_property
    def above(self) -> tuple[tuple[int, ...], ...]:
        """The parents of each variable, as numbers."""
        number = {name: v for v, name in enumerate(self.variables)}
        return tuple(tuple(number[name] for name in own) for own in self.parents)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """How many values each variable has."""
        return tuple(map(len, self.domains))

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The variables, parents before children."""
        found = topological_order(self.above)
        assert found is not None  # checked when the network was made
        return found

    @cached_property
    def elimination_order(self) -> tuple[int, ...]:
        """A good order in which to sum the variables out."""
        scopes = tuple((*above, v) for v, above in enumerate(self.above))
        return greedy_summing_order(scopes, self.sizes)

    @cached_property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The connected components: sets of variables independent of each other."""
        return tuple(tuple(part) for part in connected_components(moral_graph(self.above)))

    @cached_property
    def depth(self) -> float:
        """-log of the least probability a product of table entries can have when it is not 0."""
        return -sum(math.log(float(table[table > 0].min())) for table in self.tables)

    @property
    def states(self) -> tuple[str, ...] | None:
        """The values of an entry when all variables share them."""
        return self.domains[0] if len(set(self.domains)) == 1 else None

    @property
    def tied(self) -> int | None:
        """The size of the largest connected component."""
        return max(map(len, self.parts))

    @property
    def records(self) -> int:
        """How many entries the data has: one per variable."""
        return len(self.variables)

    def number(self, name: str) -> int:
        """Return which variable `name` is, from 0."""
        if name not in self.variables:
            raise InputError(
                f"variable {name!r} is not one of the network's {len(self.variables)} variables"
            )
        return self.variables.index(name)

    def check_fact(self, fact: Any) -> None:
        """Refuse an event about a variable or a value the model does not have, or about an "or"."""
        self.evidence(fact.mapping())

    def evidence(self, where: Where) -> dict[int, Floats]:
        """Return, for every variable an event names, 1 at the values it allows and 0 elsewhere."""
        return allowed_values(where, self.variables, self.domains)

    def factors(self, among: Iterable[int] | None = None) -> list[Factor]:
        """Return the tables of some variables (all by default), as factors over their scopes."""
        chosen = range(len(self.variables)) if among is None else sorted(among)
        return [Factor((*self.above[v], v), self.tables[v]) for v in chosen]

    def law(self, *names: str, where: Where | None = None) -> Floats:
        """Return the joint law of some variables, axes in the order named, given an event.

        By elimination over the variables that matter. Refused when the event is impossible, a
        table on the way would be too large, or values are possible but below 2.2e-308.
        """
        keep = tuple(self.number(name) for name in names)
        if len(set(keep)) < len(keep):
            raise InputError(f"names holds {names}; name each variable once")
        table = self.weight(keep, self.evidence(where or {}))
        total = table.total()
        if not total.possible:
            raise InputError(f"the event {dict(where or {})} has probability 0")
        law = table.over(total)
        if not is_exact_in_doubles(law, table.possible):
            raise TooUnlikely(
                f"the law of {', '.join(names)} has a possible value below "
                f"{LEAST_NORMAL:.2g}, which no "
                "double holds; leave such values out of the model, or ask about fewer variables"
            )
        return law

    def probability(self, where: Where) -> float:
        """Return the probability of an event; the least double above 0 when it is smaller but
        possible.
        """
        found = self.weight((), self.evidence(where))
        return max(float(found.doubles()), math.ulp(0.0)) if found.possible else 0.0

    def d_separated(self, one: Iterable[str], other: Iterable[str], given: Iterable[str]) -> bool:
        """Return whether `given` d-separates the variables of `one` from those of `other`."""
        first, second, third = ([self.number(n) for n in group] for group in (one, other, given))
        return d_separated(self.above, first, second, third)

    def as_table(self) -> JointTable:
        """Return the joint law written out; refused when it has more outcomes than a table may."""
        outcomes = math.prod(self.sizes)
        if outcomes > 2**24:
            raise InputError(
                f"the network has {outcomes:.3g} outcomes; a table holds at most {2**24}"
            )
        law = wide_sum_product(self.factors(), self.sizes, tuple(range(len(self.sizes))))
        return normalised_table(law, self.variables, self.domains)

    def sample(self, rng: Rng, count: int | None = None) -> Any:
        """Return one random outcome, a value per variable; with `count`, a list of them."""
        rows = 1 if count is None else count
        values = np.zeros((rows, len(self.variables)), dtype=np.int64)
        chance = uniforms(rows * len(self.variables), rng).reshape(rows, -1)
        for v in self.order:
            laws = self.tables[v][tuple(values[:, p] for p in self.above[v])]
            levels = np.cumsum(np.broadcast_to(laws, (rows, self.sizes[v])), axis=1)
            drawn = (chance[:, v, None] * levels[:, -1:] >= levels).sum(axis=1)
            values[:, v] = np.minimum(drawn, _last_possible(laws, rows))
        named = [
            tuple(self.domains[v][int(i)] for v, i in enumerate(row)) for row in values.tolist()
        ]
        return named[0] if count is None else named

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        from shoal.networks.exact import network_answers

        return network_answers(self, query, secrets)

    def sum_parts(self, query: NamedSum, *, alike: bool) -> SumParts:
        from shoal.networks.network_sums import network_parts

        return network_parts(self, query)

    def lift(self, query: Query | None) -> EntryLift:
        from shoal.networks.entry_lift import network_lift

        return network_lift(self, query)

    def quilts(self, reach: int | None = None) -> Quilts:
        from shoal.networks.quilts import NetworkQuilts

        return NetworkQuilts(self)

    def influences(self) -> Influences:
        from shoal.networks.influence import network_influence_matrix

        return network_influence_matrix(self)

    def written_out(self) -> JointTable:
        return self.as_table()

    def admit(self, records: Sequences) -> None:
        admit_variables(records, self.variables, self.domains)

    def describe(self) -> str:
        return (
            f"a Bayesian network of {len(self.variables)} variables, "
            f"at most {self.tied} of them tied together"
        )

    def weight(self, keep: tuple[int, ...], seen: Mapping[int, Floats]) -> Wide:
        """Return P(keep, evidence) over the values of `keep`, in wide numbers.

        `seen` gives a likelihood of at most 1 for each value of some variables. 0 exactly where
        it is impossible, also where doubles would underflow.
        """
        factors = self.factors(ancestors(self.above, [*keep, *seen]))
        factors += [Factor((v,), vector) for v, vector in seen.items()]
        if not factors:
            return Wide.of(np.ones(()))
        return safe_sum_product(factors, self.sizes, keep, self.elimination_order)

    def _check_parents(self) -> None:
        """Refuse unknown or repeated parents, and cycles."""
        for name, own in zip(self.variables, self.parents, strict=True):
            unknown = [parent for parent in own if parent not in self.variables]
            if unknown:
                raise InputError(
                    f"{name!r} has the parent {unknown[0]!r}, which is no variable; name one that "
                    "has a table of its own"
                )
            if len(set(own)) < len(own) or name in own:
                raise InputError(f"{name!r} has parents {list(own)}; each other variable once")
        if topological_order(self.above) is None:
            raise InputError("parents form a cycle; a variable must not depend on itself")

    def _checked_table(self, v: int, table: npt.ArrayLike) -> Floats:
        """Return one variable's table, locked; refused when it is too large or no law."""
        shape = (*(self.sizes[p] for p in self.above[v]), self.sizes[v])
        if math.prod(shape) > MAX_TABLE:
            raise InputError(
                f"the table of {self.variables[v]!r} has {math.prod(shape)} numbers; at most "
                f"{MAX_TABLE} are handled: give the variable fewer parents"
            )
        return checked_rows(table, f"the table of {self.variables[v]!r}", shape)


def allowed_values(
    where: Where, variables: tuple[str, ...], domains: tuple[tuple[str, ...], ...]
) -> dict[int, Floats]:
    """Return, for every variable an event names, 1 at the values it allows and 0 elsewhere."""
    found: dict[int, Floats] = {}
    for name, values in where.items():
        if name not in variables:
            shown = ", ".join(variables[:8]) + (", …" if len(variables) > 8 else "")
            raise InputError(f"variable {name!r} is not one of {shown}")
        v = variables.index(name)
        chosen = set(labels(values))
        unknown = chosen - set(domains[v])
        if unknown:
            raise InputError(
                f"variable {name!r} has no value {min(unknown)!r}; its values are "
                f"{list(domains[v])}"
            )
        found[v] = np.array([float(value in chosen) for value in domains[v]])
    return found


def _last_possible(laws: Floats, rows: int) -> npt.NDArray[np.int64]:
    """Return the last value of positive probability in each row: rounding must not draw beyond
    it.
    """
    several = np.broadcast_to(laws, (rows, laws.shape[-1]))
    return np.asarray(laws.shape[-1] - 1 - np.argmax(several[:, ::-1] > 0, axis=1))
