"""The commonest sampler: the query's answer plus independent noise on its lattice."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.release import Answer, Error
from shoal.core.rng import Rng
from shoal.core.task import Query
from shoal.core.value import Value


@runtime_checkable
class Noise(Protocol):
    """A law on a lattice, drawn exactly."""

    @property
    def step(self) -> Fraction:
        """The lattice: every draw is an integer multiple of this."""
        ...

    @property
    def scale(self) -> Fraction:
        """The scale of the noise, in the query's own units."""
        ...

    def draw(self, count: int, rng: Rng) -> Any: ...
    def expected_error(self) -> float: ...
    def quantile(self, confidence: float) -> Fraction: ...


@dataclass(frozen=True, slots=True, eq=False)
class Additive(Value):
    """query(data) + noise, coordinate by coordinate, in integers."""

    query: Query
    noise: Noise

    def __post_init__(self) -> None:
        if (self.query.lattice / self.noise.step).denominator != 1:
            raise InputError(
                f"noise step is {self.noise.step}; it must divide the query's lattice "
                f"{self.query.lattice}"
            )

    @property
    def eta(self) -> Fraction:
        """Entry-level DP of the release: Lipschitz constant over scale."""
        return self.query.lipschitz / self.noise.scale

    def draw(self, records: Any, rng: Rng) -> Answer:
        """One answer. Charge the ledger before calling this."""
        ratio = int(self.query.lattice / self.noise.step)
        truth = self.query.evaluate(records)
        noise = self.noise.draw(len(truth), rng)
        multiples = tuple(ratio * t + int(z) for t, z in zip(truth, noise, strict=True))
        return Answer(self.query.labels, multiples, self.noise.step, self.query.unit)

    def error(self, confidence: float) -> Error:
        """How far one coordinate may be off: expected, and within a bound at `confidence`."""
        return Error(
            expected=self.noise.expected_error(),
            bound=float(self.noise.quantile(confidence)),
            confidence=confidence,
            unit=self.query.unit,
        )

    def describe(self) -> str:
        kind = type(self.noise).__name__
        names = {"LatticeLaplace": "discrete Laplace", "ZeroSumLaplace": "zero-sum Laplace"}
        name = names.get(kind, kind)
        return (
            f"{name} noise of scale {significant(self.noise.scale)} {self.query.unit} "
            f"on the lattice {self.noise.step}, drawn for each of "
            f"{len(self.query.labels)} value(s)"
        )
