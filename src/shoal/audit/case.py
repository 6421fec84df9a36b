"""What an audit of noise is about: a query, noise, secrets, one model; losses of small tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from itertools import permutations
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.additive.queries import LinearQuery
from shoal.audit.result import TOLERANCE
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Noise
from shoal.core.task import Model, Secrets, each_entry
from shoal.networks.pairs import Event, named_pairs
from shoal.networks.queries import VariableSum
from shoal.networks.table import JointTable
from shoal.noise.laplace import is_zero_sum


class Fact(NamedTuple):
    """A name, where it holds (outcomes of the table), and how likely it is.

    `where` are the values of each variable; None for one fact or another.
    """

    name: str
    where: dict[str, tuple[str, ...]] | None
    holds: npt.NDArray[np.bool_]
    probability: float


def table_facts(table: JointTable, secrets: Secrets) -> list[tuple[Fact, Fact]]:
    """The pairs of facts to keep indistinguishable, each once; impossible facts are left out."""
    named = named_pairs(secrets)
    if named is not None:
        pairs = [(_named(table, a), _named(table, b)) for a, b in named.pairs]
    elif each_entry(secrets):
        pairs = []
        for variable, domain in zip(table.variables, table.domains, strict=True):
            own = [_fact(table, f"{variable} = {v}", {variable: (v,)}) for v in domain]
            pairs += [(a, b) for i, a in enumerate(own) for b in own[i + 1 :]]
    else:
        raise Refused(f"a table has no secrets of the kind {type(secrets).__name__}")
    return [(a, b) for a, b in pairs if a.probability > 0 and b.probability > 0]


def table_secrets(table: JointTable, secrets: Secrets) -> list[Fact]:
    """Every fact the secrets speak about, each once and in their order; no impossible ones."""
    named = named_pairs(secrets)
    if named is not None:
        events = dict.fromkeys(event for pair in named.pairs for event in pair)
        facts = [_named(table, event) for event in events]
    else:
        facts = [
            _fact(table, f"{variable} = {value}", {variable: (value,)})
            for variable, domain in zip(table.variables, table.domains, strict=True)
            for value in domain
        ]
    return [fact for fact in facts if fact.probability > 0]


def _named(table: JointTable, event: Event) -> Fact:
    holds = event.holds(table)
    where = None if event.others else event.mapping()
    return Fact(event.name, where, holds, float(table.probability[holds].sum()))


def _fact(table: JointTable, name: str, where: dict[str, tuple[str, ...]]) -> Fact:
    holds = table.event(where)
    return Fact(name, where, holds, float(table.probability[holds].sum()))


# What was released, in the numbers an audit works with.


CLOSE = 1.01  # an upper bound this close above the promise is worth a second look
WIDEST = 2**40  # lattice steps one entry may add where sums are counted one by one


@dataclass(frozen=True, slots=True, eq=False)
class AuditCase:
    """One member of a family, and noise on a linear query about data it may describe.

    `known` is an upper bound on the loss that somebody has certified already (inf: none), and
    `promised` the claim, which only decides how hard to look. `curve` asks for the densities.
    """

    query: LinearQuery | VariableSum
    noise: Noise
    secrets: Secrets
    model: Model
    index: int = 0
    known: float = math.inf
    promised: float | None = None
    curve: bool = False

    def close(self, upper: float) -> bool:
        """Whether an upper bound is so little above the promise that a second look is worth it."""
        promised = self.promised
        return promised is not None and promised * (1 + TOLERANCE) < upper <= CLOSE * promised

    @property
    def finer(self) -> int:
        """Outputs to look at between two neighbouring answers, and one more.

        1 for independent noise, whose worst outputs are answers. Noise that keeps a total may be
        worst anywhere on its own lattice.
        """
        zero_sum = is_zero_sum(self.noise)
        return int(self.query.lattice / self.noise.step) if zero_sum else 1

    @property
    def step(self) -> Fraction:
        """The lattice that answers and outputs are counted on."""
        return self.query.lattice / self.finer

    @property
    def wide(self) -> bool:
        """Whether sums of the weights, in lattice steps, would leave the integers of a machine."""
        widest = max(abs(step) for row in self.query.multiples() for step in row)
        return widest * self.finer > WIDEST

    @property
    def weights(self) -> Floats:
        """`multiples` as numbers, however large."""
        rows = [[float(step) for step in row] for row in self.query.multiples()]
        return self.finer * np.array(rows, dtype=np.float64)

    @property
    def multiples(self) -> Ints:
        """What each value of an entry adds, (values, labels), in lattice steps."""
        return self.finer * np.array(self.query.multiples(), dtype=np.int64)

    @property
    def scale(self) -> float:
        """The scale of the noise in lattice steps."""
        return float(self.noise.scale / self.step)

    @property
    def eta(self) -> Fraction:
        """Entry-level DP: Lipschitz constant over scale."""
        return Fraction(self.query.lipschitz / self.noise.scale)

    def output(self, steps: Floats, entries: int) -> tuple[float, ...]:
        """Codes counted from the least possible answer, as answers in the query's own units.

        `steps` are multiples of the lattice above the least answer of `entries` entries.
        """
        least = self.weights.min(axis=0) * entries
        return tuple(float(value) for value in (steps + least) * float(self.step))


def coprime(weights: Ints) -> tuple[Ints, int]:
    """Weights less their least, divided by their greatest common divisor, and that divisor."""
    low: Ints = weights - weights.min()
    divisor = reduce(math.gcd, low.ravel().tolist(), 0) or 1
    return low // divisor, divisor


# The loss of any release with finitely many outputs, about data whose joint law is written out.


class FiniteLoss(NamedTuple):
    """The largest log-ratio over outputs and pairs of secrets, and where it is reached."""

    value: float
    facts: tuple[str, str]
    output: int
    before: tuple[float, float]
    after: tuple[float, float]


def finite_loss(table: JointTable, release: npt.ArrayLike, secrets: Secrets) -> FiniteLoss:
    """max over pairs (s, s') and outputs z of log P(z | s) / P(z | s'), by enumeration.

    `release` (…outcomes, outputs) is P(z | outcome): randomised response, several releases at
    once (outputs are then tuples, numbered), anything finite. 0/0 is no constraint, c/0 is
    infinite; secrets of probability 0 are left out.
    """
    law = _checked(table, release)
    chances = table.probability.ravel()
    whole = chances @ law
    best = FiniteLoss(0.0, ("", ""), 0, (0.0, 0.0), (0.0, 0.0))
    for one, two in table_facts(table, secrets):
        joint = [np.where(fact.holds.ravel(), chances, 0.0) @ law for fact in (one, two)]
        for (top, over), (bottom, under) in permutations(zip((one, two), joint, strict=True)):
            with np.errstate(divide="ignore", invalid="ignore"):
                gap = np.log(over / top.probability) - np.log(under / bottom.probability)
            gap = np.where(np.isnan(gap), -math.inf, gap)
            place = int(np.argmax(gap))
            if gap[place] > best.value:
                best = FiniteLoss(
                    float(gap[place]),
                    (top.name, bottom.name),
                    place,
                    (top.probability, bottom.probability),
                    (float(over[place] / whole[place]), float(under[place] / whole[place])),
                )
    return best


def _checked(table: JointTable, release: npt.ArrayLike) -> Floats:
    law = np.asarray(release, dtype=np.float64)
    if law.shape[:-1] != table.probability.shape:
        raise InputError(
            f"release has shape {law.shape}; it must be {table.probability.shape} and the outputs"
        )
    flat = law.reshape(-1, law.shape[-1])
    if not ((flat >= 0).all() and np.abs(flat.sum(axis=1) - 1).max() <= 1e-9):
        raise InputError("release must hold a law of the outputs for every outcome")
    return flat
