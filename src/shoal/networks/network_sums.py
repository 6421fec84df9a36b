"""The law of a sum over variables whose joint law is a product of tables, by elimination."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.progress import doing
from shoal.core.walk import LEAST_NORMAL, Wide
from shoal.mechanisms.mixture import DEEPEST_LINEAR, TooLarge
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import (
    Factor,
    plan_elimination,
    support_of_product,
    weighted_sum_product,
    wide_weighted_sum_product,
)
from shoal.networks.laws import GivenSum, NamedSum, contribution_steps
from shoal.networks.parts import SumParts


@dataclass(frozen=True)
class SumSettings:
    """What following a sum over tied variables may cost."""

    max_width: int = 2**20  # values a coded sum may have
    max_multiplications: float = 2e9  # multiplications, about half a minute
    step_overhead: int = 3000  # multiplications that take as long as one step takes anyway
    min_secret_probability: float = 1e-250  # a less likely secret is followed in wide numbers
    wide_work_factor: int = 6  # how much longer wide numbers take, measured


SUMS = SumSettings()


# The law of a sum over variables whose joint law is a product of tables, by elimination with
# weights.


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
        """Return one for each of the variables, in their order, and then any others."""
        ...


class NetworkComponent:
    """The variables of one connected component and what each value of theirs adds to a sum.

    `contributions[v]` is (values, labels) in lattice steps, for every variable of the network. A
    vector is coded as one number, digit by digit in bases no digit reaches, so that its law comes
    out of one elimination in which factors are multiplied by convolution along the code.
    """

    def __init__(self, net: Factored, nodes: Sequence[int], contributions: Sequence[Ints]) -> None:
        """Code what the values add as one number each; refused when the sum has too many values."""
        self.net = net
        self.nodes = tuple(nodes)
        self.asked = self.nodes  # the variables that are secrets; of several alike one is enough
        self._low = sum(contributions[v].min(axis=0) for v in self.nodes)
        digits = {v: contributions[v] - contributions[v].min(axis=0) for v in self.nodes}
        self._unit = math.gcd(*(int(n) for rows in digits.values() for n in rows.ravel())) or 1
        extent = sum(rows.max(axis=0) for rows in digits.values()) // self._unit
        self._shape = tuple(int(top) + 1 for top in extent)
        self.width = math.prod(self._shape)
        if self.width > SUMS.max_width:
            raise TooLarge(
                f"the sum over {len(self.nodes)} tied variables has {self.width} values; at most "
                f"{SUMS.max_width} are handled: ask for fewer numbers at once, or for coarser "
                "weights"
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
        """Return how many scales apart answers may lie given an event before what was lost decides.

        Joint masses below e^-708 may be lost, of as many outcomes as there are. Given an event of
        this probability they are that much larger, and the density is at least e^-span. Below
        SMALLEST they are followed in numbers that never underflow, and lost only by division.
        """
        if probability < SUMS.min_secret_probability:
            return DEEPEST_LINEAR
        outcomes = sum(math.log(self.net.sizes[v]) for v in self.nodes)
        return min(DEEPEST_LINEAR, 660.0 - outcomes + math.log(probability))

    @cached_property
    def roundings(self) -> float:
        scopes = tuple(factor.scope for factor in self._factors)
        order = plan_elimination(scopes, self.net.sizes, (), self.net.elimination_order)
        once = float(2 * order.roundings + (len(scopes) + 2) * self.width)
        return 2.0 * once if self.lossy else once  # wide numbers are added with two

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """Return, for every value of every variable, the law of the sum, its probability, variable
        and name.
        """
        self._refuse_long_work()
        laws, prior = self._laws()
        owner = np.repeat(self.asked, [self.net.sizes[v] for v in self.asked])
        names = tuple(
            f"{self.net.variables[v]} = {value}"
            for v in self.asked
            for value in self.net.domains[v]
        )
        return laws, prior, owner, names

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """Return the law of the sum given the values that `seen` allows some variables."""
        weight = self._joint_weights((), seen)
        total = float(weight.sum())
        if self.lossy and total < SUMS.min_secret_probability:
            return self._given_wide(seen)
        return GivenSum(weight / total if total > 0 else weight, total)

    def _laws(self) -> tuple[Floats, Floats]:
        """Return the laws given each value of each variable, and how likely it is."""
        rows, what = [], f"the search for laws of a sum over {len(self.nodes)} variables"
        for number, v in enumerate(self.asked):
            doing(what, number, len(self.asked))
            rows.append(self.with_variable(v))
        weight = np.concatenate(rows)
        prior = weight.sum(axis=1)
        if self.lossy:
            factors, order = self.net.factors(self.nodes), self.net.elimination_order
            known = [support_of_product(factors, self.net.sizes, (v,), order) for v in self.asked]
            if (np.concatenate(known) & (prior < SUMS.min_secret_probability)).any():
                return self._wide_laws()
        return weight / np.where(prior > 0, prior, 1.0)[:, None], prior

    def _wide_laws(self) -> tuple[Floats, Floats]:
        """Return `_laws` without underflow."""
        self._refuse_long_work(SUMS.wide_work_factor)
        found = [self._wide_joint_weights((v,), {}) for v in self.asked]
        everything = found[0].total()
        totals = [table.total(-1, keepdims=True) for table in found]
        laws = [table.over(total) for table, total in zip(found, totals, strict=True)]
        prior = [
            np.where(total.possible, np.maximum(total.over(everything), LEAST_NORMAL), 0.0)[:, 0]
            for total in totals
        ]
        return np.concatenate(laws), np.concatenate(prior)

    def _given_wide(self, seen: Mapping[int, Floats]) -> GivenSum:
        """Return `given` without underflow."""
        table, everything = (
            self._wide_joint_weights((), seen),
            self._wide_joint_weights((), {}).total(),
        )
        total = table.total()
        chance = max(float(total.over(everything)), LEAST_NORMAL) if total.possible else 0.0
        return GivenSum(table.over(total), chance)

    def with_variable(self, v: int, seen: Mapping[int, Floats] | None = None) -> Floats:
        """Return P(X_v = x, sum = code) times the likelihoods in `seen`, (values of v, codes)."""
        return self._joint_weights((v,), seen or {})

    @cached_property
    def work(self) -> int:
        """The multiplications of one elimination for every variable, about."""
        scopes = tuple(factor.scope for factor in self._factors)
        chosen = plan_elimination(scopes, self.net.sizes, (), self.net.elimination_order)
        terms = sum(step.terms * self.width + SUMS.step_overhead for step in chosen.steps)
        return terms * len(self.asked)

    def _refuse_long_work(self, times: int = 1) -> None:
        """Refuse what would take minutes."""
        work = self.work * times
        if work > SUMS.max_multiplications:
            raise TooLarge(
                f"the laws of a sum over {len(self.nodes)} tied variables take about {work:.1g} "
                f"multiplications; at most {SUMS.max_multiplications:.0e} are tried: use group, or "
                "a coarser model"
            )

    @cached_property
    def _factors(self) -> list[Factor]:
        """The factor of each variable, spread along the code by what its values add."""
        factors = self.net.factors(self.nodes)
        spread = [
            Factor(factor.scope, _spread_along_code(factor.table, self._codes[v]))
            for v, factor in zip(self.nodes, factors, strict=False)
        ]
        return spread + [Factor(f.scope, f.table[..., None]) for f in factors[len(spread) :]]

    def _joint_weights(self, keep: tuple[int, ...], seen: Mapping[int, Floats]) -> Floats:
        """Return P(keep, sum = code) times the likelihoods in `seen`, (values.., codes)."""
        factors = [*self._factors, *(Factor((v,), row[:, None]) for v, row in seen.items())]
        found = weighted_sum_product(
            factors, self.net.sizes, keep, self.width, self.net.elimination_order
        )
        padded = np.zeros((*found.shape[:-1], self.width))
        padded[..., : found.shape[-1]] = found
        return padded

    def _wide_joint_weights(self, keep: tuple[int, ...], seen: Mapping[int, Floats]) -> Wide:
        """Return `_weight` in numbers that never underflow."""
        factors = [*self._factors, *(Factor((v,), row[:, None]) for v, row in seen.items())]
        return wide_weighted_sum_product(
            factors, self.net.sizes, keep, self.width, self.net.elimination_order
        )


def network_parts(net: BayesNet, query: NamedSum) -> SumParts:
    """Return the connected components of a network."""
    added = contribution_steps(query, net.variables, net.domains)
    return single_parts([NetworkComponent(net, part, added) for part in net.parts])


def single_parts(components: Sequence[NetworkComponent]) -> SumParts:
    """Return components that occur once each, as parts of a sum."""
    home = {v: c for c, component in enumerate(components) for v in component.nodes}
    return SumParts(tuple(components), (1,) * len(components), home)


def can_convolve(net: BayesNet, query: NamedSum) -> bool:
    """Return whether the laws of a sum given every value of every variable are found by
    convolution.
    """
    added = contribution_steps(query, net.variables, net.domains)
    try:
        return all(
            NetworkComponent(net, part, added).work <= SUMS.max_multiplications
            for part in net.parts
        )
    except TooLarge:
        return False


def _spread_along_code(table: Floats, codes: Ints) -> Floats:
    """Return a factor with one more axis, along which each value's entry lies at what it adds."""
    out = np.zeros((*table.shape, int(codes.max()) + 1))
    for value, code in enumerate(codes.tolist()):
        out[..., value, code] = table[..., value]
    return out
