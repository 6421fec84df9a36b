"""The law of a sum over the variables of a Bayesian network, by elimination with weights."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property, reduce

import numpy as np
import numpy.typing as npt

from shoal.core.value import Floats, Ints
from shoal.loss.frameworks import Given
from shoal.loss.mixture import DEEPEST_LINEAR, TooLarge
from shoal.loss.network_influence import joint_law
from shoal.models.bayesnet import BayesNet
from shoal.models.bayesnet_elimination import (
    Factor,
    elimination,
    possible_joint,
    weighted_joint,
)

MAX_WIDTH = 2**20  # values a coded sum may have
MAX_WORK = 2e9  # multiplications, about half a minute
OVERHEAD = 3000  # multiplications that take as long as one step takes anyway
SMALLEST = 1e-250  # a less likely secret has lost digits to underflow


class NetworkComponent:
    """The variables of one connected component and what each value of theirs adds to a sum.

    `contributions[v]` is (values, labels) in lattice steps, for every variable of the network. A
    vector is coded as one number, digit by digit in bases no digit reaches, so that its law comes
    out of one elimination in which factors are multiplied by convolution along the code.
    """

    def __init__(self, net: BayesNet, nodes: Sequence[int], contributions: Sequence[Ints]) -> None:
        self.net = net
        self.nodes = tuple(nodes)
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
        this probability they are that much larger, and the density is at least e^-span.
        """
        outcomes = sum(math.log(self.net.sizes[v]) for v in self.nodes)
        return min(DEEPEST_LINEAR, 660.0 - outcomes + math.log(probability))

    @cached_property
    def roundings(self) -> float:
        scopes = tuple(factor.scope for factor in self._factors)
        order = elimination(scopes, self.net.sizes, (), self.net.elimination_order)
        return float(2 * order.roundings + (len(scopes) + 2) * self.width)

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """For every value of every variable: law of the sum, probability, variable and name."""
        self._affordable()
        tables = [self.with_variable(v) for v in self.nodes]
        weight = np.concatenate(tables)
        prior = weight.sum(axis=1)
        if self.lossy:
            known = [joint_law(self.net, (v,)).possible for v in self.nodes]
            refuse_lost(prior, np.concatenate(known))
        laws = weight / np.where(prior > 0, prior, 1.0)[:, None]
        owner = np.repeat(self.nodes, [len(table) for table in tables])
        names = tuple(
            f"{self.net.variables[v]} = {value}"
            for v in self.nodes
            for value in self.net.domains[v]
        )
        return laws, prior, owner, names

    def given(self, seen: Mapping[int, Floats]) -> Given:
        """The law of the sum given the values that `seen` allows some variables."""
        weight = self._weight((), seen)
        total = float(weight.sum())
        if self.lossy:
            factors = [
                *self.net.factors(self.nodes),
                *(Factor((v,), row) for v, row in seen.items()),
            ]
            possible = possible_joint(factors, self.net.sizes, (), self.net.elimination_order)
            refuse_lost(np.array([total]), np.array([bool(possible)]))
        return Given(weight / total if total > 0 else weight, total)

    def with_variable(self, v: int, seen: Mapping[int, Floats] | None = None) -> Floats:
        """P(X_v = x, sum = code) times the likelihoods in `seen`, (values of v, codes)."""
        return self._weight((v,), seen or {})

    def _affordable(self) -> None:
        """Refuse what would take minutes: one elimination for every variable."""
        scopes = tuple(factor.scope for factor in self._factors)
        chosen = elimination(scopes, self.net.sizes, (), self.net.elimination_order)
        terms = sum(step.terms * self.width + OVERHEAD for step in chosen.steps)
        work = terms * len(self.nodes)
        if work > MAX_WORK:
            raise TooLarge(
                f"the laws of a sum over {len(self.nodes)} tied variables take about {work:.1g} "
                f"multiplications; at most {MAX_WORK:.0e} are tried: use group, or a coarser model"
            )

    @cached_property
    def _factors(self) -> list[Factor]:
        """The table of each variable, spread along the code by what its values add."""
        return [
            Factor(factor.scope, _spread(factor.table, self._codes[v]))
            for v, factor in zip(self.nodes, self.net.factors(self.nodes), strict=True)
        ]

    def _weight(self, keep: tuple[int, ...], seen: Mapping[int, Floats]) -> Floats:
        factors = [*self._factors, *(Factor((v,), row[:, None]) for v, row in seen.items())]
        found = weighted_joint(
            factors, self.net.sizes, keep, self.width, self.net.elimination_order
        )
        padded = np.zeros((*found.shape[:-1], self.width))
        padded[..., : found.shape[-1]] = found
        return padded


def refuse_lost(probability: Floats, possible: npt.NDArray[np.bool_]) -> None:
    """Refuse when something possible is too unlikely to be computed: it must not be left out."""
    if (possible & (probability < SMALLEST)).any():
        raise TooLarge(
            f"some secret has a probability below {SMALLEST:g}, too small to be followed; "
            "leave such values out of the model, or use group"
        )


def _spread(table: Floats, codes: Ints) -> Floats:
    out = np.zeros((*table.shape, int(codes.max()) + 1))
    for value, code in enumerate(codes.tolist()):
        out[..., value, code] = table[..., value]
    return out


def _common(rows: object) -> int:
    """The greatest common divisor of all differences, 1 when nothing differs."""
    numbers = [int(n) for several in rows for n in several.ravel()]  # type: ignore[attr-defined]
    return reduce(math.gcd, numbers, 0) or 1
