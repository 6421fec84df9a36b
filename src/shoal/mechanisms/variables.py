"""Sums over named variables, each with weights of its own: for networks of unlike variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from typing import Any

from shoal.core.codec import Value
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, common_step, exact
from shoal.core.records import Sequences, checked_states, label, sequences
from shoal.core.task import Query


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class VariableSum(Value):
    """F = Σ over variables v of weights[v][value of v], in one number.

    `domains[v]` lists the values of variable v and `weights[v]` one rational for each, so every
    answer is an integer multiple of `lattice`. A variable whose weights are all equal does not
    move the answer.
    """

    kind = "variable-sum"

    variables: tuple[str, ...]
    domains: tuple[tuple[str, ...], ...]
    weights: tuple[tuple[Fraction, ...], ...]
    unit: str = "units"

    def __post_init__(self) -> None:
        """Refuse weights without one number per value of every variable, or alike for all
        values.
        """
        checked_states(self.variables, "variables")
        if not len(self.variables) == len(self.domains) == len(self.weights):
            raise InputError("variables, domains and weights differ in length; one item each")
        for name, domain, row in zip(self.variables, self.domains, self.weights, strict=True):
            if len(domain) != len(row):
                raise InputError(
                    f"weights of {name!r} has {len(row)} numbers for {len(domain)} values"
                )
        if self.lipschitz == 0:
            raise InputError(
                "all values of every variable have the same weight, so the answer does not depend "
                "on the data; publish it as it is"
            )

    @property
    def states(self) -> tuple[str, ...]:
        """Every value any variable may take, in order of first appearance."""
        return tuple(dict.fromkeys(value for domain in self.domains for value in domain))

    @property
    def labels(self) -> tuple[str, ...]:
        return ("sum",)

    @property
    def lipschitz(self) -> Fraction:
        """The widest gap between two weights of one variable."""
        gaps = (abs(a - b) for row in self.weights for a, b in combinations(row, 2))
        return max(gaps, default=Fraction(0))

    @property
    def lattice(self) -> Fraction:
        return common_step(weight for row in self.weights for weight in row)

    def multiples(self) -> tuple[tuple[int, ...], ...]:
        """The weights as integers, in units of `lattice`."""
        step = self.lattice
        return tuple(tuple(int(weight / step) for weight in row) for row in self.weights)

    def read(self, data: Any) -> Sequences:
        """`data` as one value per variable: in their order, or a mapping from names to values."""
        if isinstance(data, Mapping):
            lacking = [name for name in self.variables if name not in data]
            if lacking or len(data) != len(self.variables):
                raise DataError(f"the data must hold exactly the variables {list(self.variables)}")
            data = [data[name] for name in self.variables]
        return sequences(data, self.states)

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        """The true answer in multiples of `lattice`, in exact integers."""
        values = (records.states[int(i)] for i in records.chains[0])
        rows = zip(values, self.domains, self.multiples(), strict=True)
        return (sum(row[domain.index(value)] for value, domain, row in rows),)

    def describe(self) -> str:
        count = sum(len(set(row)) > 1 for row in self.weights)
        return (
            f"the sum of a weight per variable, over {count} of {len(self.variables)} variables "
            f"(in {self.unit}; one variable moves it by at most {self.lipschitz})"
        )


def per_variable(query: Query | None) -> VariableSum | None:
    """`query` where it is a sum with weights per variable; None for any other."""
    return query if isinstance(query, VariableSum) else None


def variable_sum(
    model: Any, weights: Mapping[str, Mapping[Any, Number]], *, unit: str = "units"
) -> VariableSum:
    """Σ of weights[variable][value] over the variables of a table or network.

    Variables and values that are not named count 0.
    """
    names: Sequence[str] = model.variables
    for name in weights:
        if name not in names:
            shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
            raise InputError(
                f"weights names {name!r}, which is not a variable of the model; its variables are "
                f"{shown}"
            )
    rows = []
    for name, domain in zip(names, model.domains, strict=True):
        own = {label(k): exact(v, f"weight of {name!r}") for k, v in weights.get(name, {}).items()}
        unknown = [value for value in own if value not in domain]
        if unknown:
            raise InputError(
                f"weights of {name!r} names {unknown[0]!r}; its values are {list(domain)}"
            )
        rows.append(tuple(own.get(value, Fraction(0)) for value in domain))
    return VariableSum(
        variables=tuple(names), domains=tuple(model.domains), weights=tuple(rows), unit=unit
    )
