"""A linear classifier as a query: the minimiser of a regularised loss, on a public lattice."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, positive, whole
from shoal.core.release import Answer
from shoal.core.value import Floats, Value, locked
from shoal.noise.lattice import lattice_step, round_up, snap
from shoal.queries.centroids import numbers_in_rows
from shoal.queries.classifier_solver import LOSSES, Objective, hidden_gradient, minimise
from shoal.queries.learning_records import numbers_or_missing

TOLERANCE_SHARE = 1024  # the solver may be off by this share of what one record moves the answer
CERTAIN = 4  # how far above the gradient's rounding a tolerance must be for the solver to reach it
WITHIN = 1 - 2.0**-40  # rows are scaled to just inside their norm: the division rounds


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """Rows of features, none longer than the public norm, and a class of -1 or +1 each.

    A row of zeros, the intercept's included, pulls no weight anywhere: a record left out.
    """

    rows: Floats
    classes: Floats

    def __len__(self) -> int:
        """How many records there are: a public number."""
        return len(self.rows)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LinearClassifier(Value):
    """The weights v that minimise J(v) = (1/n) Σ loss(y_i v·x_i) + (λ/2)|v|², rounded to `lattice`.

    n = records (public), λ = regularisation, |x_i| ≤ R: longer rows are scaled down to `norm`, and
    an intercept adds a column of ones (regularised as the others), so R² = norm² + 1 then. A
    record with another class or with a feature that is no finite number is left out of the sum;
    n stays.
    loss: "logistic" log(1 + e^-z), or "huber", the hinge with its corner rounded over
    1 - h … 1 + h, h = 1/2. Both are convex, with slope at most 1.

    **Sensitivity**, in the l1 norm over the p weights:  √p (2R/(nλ) + 2·tolerance) + p·lattice.
    One record changes the gradient of J by at most 2R/n anywhere, and J is λ-strongly convex, so
    the minimiser moves by at most 2R/(nλ) in the l2 norm. The solver's answer is certified to be
    within `tolerance` of the minimiser; rounding adds one step to each weight. √p rounds up.
    Chaudhuri, Monteleoni & Sarwate 2011, Corollary 8; proof: mechanisms/erm.md.
    """

    features: tuple[str, ...]
    records: int
    loss: str
    regularisation: Fraction
    norm: Fraction
    intercept: bool
    tolerance: Fraction
    lattice: Fraction

    def __post_init__(self) -> None:
        object.__setattr__(self, "records", whole(self.records, "records"))
        if not self.features:
            raise InputError("features is empty; name at least one column")
        if self.loss not in LOSSES:
            raise InputError(f"loss is {self.loss!r}; it must be one of {sorted(LOSSES)}")
        for field in ("regularisation", "norm", "tolerance", "lattice"):
            positive(getattr(self, field), field)
        least = certifiable(self)
        if self.tolerance < least:
            raise InputError(
                f"tolerance is {float(self.tolerance):.3g}; in double precision the solver can "
                f"certify {least:.3g} for this many records, this norm and this regularisation: "
                "raise it or the regularisation, or lower the norm"
            )

    @property
    def states(self) -> tuple[str, ...]:
        return ()

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.features, "intercept") if self.intercept else self.features

    @property
    def unit(self) -> str:
        return "weight"

    @property
    def moved(self) -> Fraction:
        """2R/(nλ), the most one record moves the exact minimiser in the l2 norm. Rounds up."""
        longest = root_above(self.norm**2 + int(self.intercept))
        solved = Fraction(float(self.regularisation))  # the λ of the problem that is solved
        return 2 * longest / (self.records * solved)

    @property
    def lipschitz(self) -> Fraction:
        """√p (2R/(nλ) + 2·tolerance) + p·lattice: see the class. Rounds up."""
        size = len(self.labels)
        moved = root_above(Fraction(size)) * (self.moved + 2 * self.tolerance)
        return round_up(moved + size * self.lattice)

    def describe(self) -> str:
        kind = {"huber": "support vector machine", "logistic": "logistic regression"}[self.loss]
        return (
            f"the {len(self.labels)} weights of a linear {kind} on {self.records} records "
            f"(one record moves them by at most {float(self.lipschitz):.4g} together)"
        )

    def read(self, data: Any) -> LabelledRows:
        """A pair (rows, classes): rows scaled into the norm, classes -1 and +1 (or 0 and 1).

        Refused for its shape only; records that are not as declared become rows of zeros.
        """
        if isinstance(data, LabelledRows):
            return data
        try:
            rows, classes = data
        except (TypeError, ValueError):
            raise DataError("the data is not a pair (rows, classes); hand over both") from None
        values = numbers_in_rows(rows, len(self.features))
        if len(values) != self.records:
            raise DataError(
                f"the data has {len(values)} rows, the query's public number of records is "
                f"{self.records}; make the query for this many"
            )
        signs = _signs(classes, len(values))
        known = np.isfinite(values).all(axis=1) & (signs != 0)
        inside = self._scaled(np.where(known[:, None], values, 0.0))
        return LabelledRows(locked(inside * known[:, None]), locked(np.where(known, signs, 1.0)))

    def evaluate(self, records: LabelledRows) -> tuple[int, ...]:
        """The minimiser, within `tolerance`, in multiples of `lattice`."""
        objective = Objective(
            rows=records.rows,
            classes=records.classes,
            loss=self.loss,
            regularisation=float(self.regularisation),
        )
        weights = minimise(objective, float(self.tolerance) * (1 - 2.0**-50))
        return tuple(snap([Fraction(float(weight)) for weight in weights], self.lattice))

    def weights(self, answer: Answer) -> tuple[Floats, float]:
        """The coefficients and the intercept (0 without one) of a release."""
        values = np.array(answer.values)
        if not self.intercept:
            return values, 0.0
        return values[:-1], float(values[-1])

    def _scaled(self, values: Floats) -> Floats:
        largest = np.maximum(np.abs(values).max(axis=1), 1e-300)  # squares might overflow
        with np.errstate(over="ignore"):  # an infinite length makes a row of zeros
            lengths = largest * np.sqrt(((values / largest[:, None]) ** 2).sum(axis=1))
        factors = np.minimum(1.0, float(self.norm) * WITHIN / np.maximum(lengths, 1e-300))
        inside = values * factors[:, None]
        if self.intercept:
            inside = np.hstack([inside, np.ones((len(inside), 1))])
        return np.asarray(inside)


def linear_classifier(
    features: Sequence[str],
    *,
    records: int,
    loss: str = "huber",
    regularisation: Number = Fraction(1, 100),
    norm: Number = 1,
    intercept: bool = True,
) -> LinearClassifier:
    """A linear classifier over `records` rows of `features`, its tolerance and lattice chosen.

    Solver and lattice add about a thousandth each to what one record moves; the solver more where
    double precision certifies no less (some millions of records).
    """
    names = tuple(str(name) for name in features)
    strength, longest = positive(regularisation, "regularisation"), positive(norm, "norm")
    reach = root_above(longest**2 + int(intercept))
    moved = 2 * reach / (whole(records, "records") * strength)
    asked = LinearClassifier(
        features=names,
        records=records,
        loss=loss,
        regularisation=strength,
        norm=longest,
        intercept=intercept,
        tolerance=moved,
        lattice=lattice_step(moved, None).step / 8,
    )
    share = round_up(moved / TOLERANCE_SHARE)
    return replace(asked, tolerance=max(share, Fraction(2 * certifiable(asked))))


def certifiable(query: LinearClassifier) -> float:
    """A tolerance that the solver can certify on *every* data set of the query: public.

    CERTAIN times what rounding can hide at weights as long as a minimiser can be,
    |v*| ≤ min(R/λ, √(2/λ)): the first since slopes are at most 1, the second since
    (λ/2)|v*|² ≤ J(0) ≤ 1. Infinite where it overflows.
    """
    strength = float(query.regularisation)
    try:
        longest = float(root_above(query.norm**2 + int(query.intercept)))
        length = min(longest / strength, math.sqrt(2 / strength)) + float(query.tolerance)
        hidden = hidden_gradient(
            LOSSES[query.loss], (query.records, len(query.labels)), longest, length, strength
        )
        return CERTAIN * hidden / strength
    except (OverflowError, ZeroDivisionError):
        return math.inf


def root_above(value: Fraction) -> Fraction:
    """A rational at least √value, within 2^-40 of it (relative)."""
    scale = 1 << 40
    numerator = value.numerator * value.denominator * scale**2
    return Fraction(math.isqrt(numerator - 1) + 1, value.denominator * scale)


def _signs(classes: npt.ArrayLike, count: int) -> Floats:
    """Classes as -1.0 and +1.0; 0.0 for what is none of -1, 0 and 1."""
    values = numbers_or_missing(classes)
    if values.shape != (count,):
        raise DataError(f"the data has {count} rows and classes of shape {values.shape}; pair them")
    return np.where(values == 1.0, 1.0, np.where((values == -1.0) | (values == 0.0), -1.0, 0.0))
