"""The law of a sum over the variables of a Bayesian network, by elimination with weights."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, reduce
from typing import Protocol

import numpy as np

from shoal.core.value import Floats, Ints
from shoal.core.wide import LEAST, Wide
from shoal.loss.frameworks import Given
from shoal.loss.mixture import DEEPEST_LINEAR, TooLarge
from shoal.models.bayesnet_elimination import (
    Factor,
    elimination,
    possible_joint,
    weighted_joint,
    wide_weighted_joint,
)
from shoal.models.dependence_network import FieldFactors

MAX_WIDTH = 2**20  # values a coded sum may have
MAX_WORK = 2e9  # multiplications, about half a minute
OVERHEAD = 3000  # multiplications that take as long as one step takes anyway
SMALLEST = 1e-250  # a less likely secret has lost digits to underflow, and is followed anew
WIDER = 6  # how much longer numbers that never underflow take, measured


class Factored(Protocol):
    """Variables whose joint law is proportional to a product of factors."""

    @property
    def variables(self) -> tuple[str, ...]: ...
    @property
    def domains(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def elimination_order(self) -> tuple[int, ...]: ...
    @property
    def depth(self) -> float: ...
    def factors(self, among: Iterable[int]) -> list[Factor]:
        """One for each of the variables, in their order, and then any others."""
        ...


class NetworkComponent:
    """The variables of one connected component and what each value of theirs adds to a sum.

    `contributions[v]` is (values, labels) in lattice steps, for every variable of the network. A
    vector is coded as one number, digit by digit in bases no digit reaches, so that its law comes
    out of one elimination in which factors are multiplied by convolution along the code.
    """

    def __init__(self, net: Factored, nodes: Sequence[int], contributions: Sequence[Ints]) -> None:
        self.net = net
        self.nodes = tuple(nodes)
        self.asked = self.nodes  # the variables that are secrets; of several alike one is enough
        self._low = sum(contributions[v].min(axis=0) for v in self.nodes)
        digits = {v: contributions[v] - contributions[v].min(axis=0) for v in self.nodes}
        self._unit = _common(digits.values())
        extent = sum(rows.max(axis=0) for rows in digits.values()) // self._unit
        self._shape = tuple(int(top) + 1 for top in extent)
        self.width = math.prod(self._shape)
        if self.width > MAX_WIDTH:
            raise TooLarge(
                f"the sum over {len(self.nodes)} tied variables has {self.width} values; at most "
                f"{MAX_WIDTH} are handled: ask for fewer numbers at once, or for coarser weights"
            )
        base = [math.prod(self._shape[axis + 1 :]) for axis in range(len(self._shape))]
        self._codes = {v: (rows // self._unit) @ np.array(base) for v, rows in digits.items()}

    @cached_property
    def values(self) -> Ints:
        """Every value of the code as a vector, in lattice steps."""
        grid = np.stack(np.unravel_index(np.arange(self.width), self._shape), axis=1)
        return np.asarray(grid * self._unit + self._low, dtype=np.int64)

    @property
    def lossy(self) -> bool:
        """Whether products of table entries may underflow."""
        return self.net.depth > DEEPEST_LINEAR

    def deepest(self, probability: float) -> float:
        """How many scales apart answers may lie given an event before what was lost decides.

        Joint masses below e^-708 may be lost, of as many outcomes as there are. Given an event of
        this probability they are that much larger, and the density is at least e^-span. Below
        SMALLEST they are followed in numbers that never underflow, and lost only by division.
        """
        if probability < SMALLEST:
            return DEEPEST_LINEAR
        outcomes = sum(math.log(self.net.sizes[v]) for v in self.nodes)
        return min(DEEPEST_LINEAR, 660.0 - outcomes + math.log(probability))

    @cached_property
    def roundings(self) -> float:
        scopes = tuple(factor.scope for factor in self._factors)
        order = elimination(scopes, self.net.sizes, (), self.net.elimination_order)
        once = float(2 * order.roundings + (len(scopes) + 2) * self.width)
        return 2.0 * once if self.lossy else once  # wide numbers are added with two

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """For every value of every variable: law of the sum, probability, variable and name."""
        self._affordable()
        laws, prior = self._laws()
        owner = np.repeat(self.asked, [self.net.sizes[v] for v in self.asked])
        names = tuple(
            f"{self.net.variables[v]} = {value}"
            for v in self.asked
            for value in self.net.domains[v]
        )
        return laws, prior, owner, names

    def given(self, seen: Mapping[int, Floats]) -> Given:
        """The law of the sum given the values that `seen` allows some variables."""
        weight = self._weight((), seen)
        total = float(weight.sum())
        if self.lossy and total < SMALLEST:
            return self._followed_given(seen)
        return Given(weight / total if total > 0 else weight, total)

    def _laws(self) -> tuple[Floats, Floats]:
        """The laws given each value of each variable, and how likely it is."""
        weight = np.concatenate([self.with_variable(v) for v in self.asked])
        prior = weight.sum(axis=1)
        if self.lossy:
            factors, order = self.net.factors(self.nodes), self.net.elimination_order
            known = [possible_joint(factors, self.net.sizes, (v,), order) for v in self.asked]
            if (np.concatenate(known) & (prior < SMALLEST)).any():
                return self._followed()
        return weight / np.where(prior > 0, prior, 1.0)[:, None], prior

    def _followed(self) -> tuple[Floats, Floats]:
        """`_laws` without underflow."""
        self._affordable(WIDER)
        found = [self._wide_weight((v,), {}) for v in self.asked]
        everything = found[0].total()
        totals = [table.total(-1, keepdims=True) for table in found]
        laws = [table.over(total) for table, total in zip(found, totals, strict=True)]
        prior = [
            np.where(total.possible, np.maximum(total.over(everything), LEAST), 0.0)[:, 0]
            for total in totals
        ]
        return np.concatenate(laws), np.concatenate(prior)

    def _followed_given(self, seen: Mapping[int, Floats]) -> Given:
        """`given` without underflow."""
        table, everything = self._wide_weight((), seen), self._wide_weight((), {}).total()
        total = table.total()
        chance = max(float(total.over(everything)), LEAST) if total.possible else 0.0
        return Given(table.over(total), chance)

    def with_variable(self, v: int, seen: Mapping[int, Floats] | None = None) -> Floats:
        """P(X_v = x, sum = code) times the likelihoods in `seen`, (values of v, codes)."""
        return self._weight((v,), seen or {})

    def _affordable(self, times: int = 1) -> None:
        """Refuse what would take minutes: one elimination for every variable."""
        scopes = tuple(factor.scope for factor in self._factors)
        chosen = elimination(scopes, self.net.sizes, (), self.net.elimination_order)
        terms = sum(step.terms * self.width + OVERHEAD for step in chosen.steps)
        work = terms * len(self.asked) * times
        if work > MAX_WORK:
            raise TooLarge(
                f"the laws of a sum over {len(self.nodes)} tied variables take about {work:.1g} "
                f"multiplications; at most {MAX_WORK:.0e} are tried: use group, or a coarser model"
            )

    @cached_property
    def _factors(self) -> list[Factor]:
        """The factor of each variable, spread along the code by what its values add."""
        factors = self.net.factors(self.nodes)
        spread = [
            Factor(factor.scope, _spread(factor.table, self._codes[v]))
            for v, factor in zip(self.nodes, factors, strict=False)
        ]
        return spread + [Factor(f.scope, f.table[..., None]) for f in factors[len(spread) :]]

    def _weight(self, keep: tuple[int, ...], seen: Mapping[int, Floats]) -> Floats:
        factors = [*self._factors, *(Factor((v,), row[:, None]) for v, row in seen.items())]
        found = weighted_joint(
            factors, self.net.sizes, keep, self.width, self.net.elimination_order
        )
        padded = np.zeros((*found.shape[:-1], self.width))
        padded[..., : found.shape[-1]] = found
        return padded

    def _wide_weight(self, keep: tuple[int, ...], seen: Mapping[int, Floats]) -> Wide:
        """`_weight` in numbers that never underflow."""
        factors = [*self._factors, *(Factor((v,), row[:, None]) for v, row in seen.items())]
        return wide_weighted_joint(
            factors, self.net.sizes, keep, self.width, self.net.elimination_order
        )


class FieldComponent(NetworkComponent):
    """The same for a component of a field that no network holds: in wide numbers throughout.

    Weights are not normalised, so that an event is as likely as its share of all of them.
    """

    def __init__(
        self, net: FieldFactors, nodes: Sequence[int], contributions: Sequence[Ints]
    ) -> None:
        super().__init__(net, nodes, contributions)
        self.asked = tuple({net.alike[v]: v for v in reversed(self.nodes)}.values())[::-1]

    def deepest(self, probability: float) -> float:
        return DEEPEST_LINEAR

    def _laws(self) -> tuple[Floats, Floats]:
        return self._followed()

    def given(self, seen: Mapping[int, Floats]) -> Given:
        return self._followed_given(seen)


def _spread(table: Floats, codes: Ints) -> Floats:
    out = np.zeros((*table.shape, int(codes.max()) + 1))
    for value, code in enumerate(codes.tolist()):
        out[..., value, code] = table[..., value]
    return out


def _common(rows: object) -> int:
    """The greatest common divisor of all differences, 1 when nothing differs."""
    numbers = [int(n) for several in rows for n in several.ravel()]  # type: ignore[attr-defined]
    return reduce(math.gcd, numbers, 0) or 1
