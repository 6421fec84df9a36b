"""Linear classifiers with noise: a loss minimised, and how far the answer is from the minimum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, ClassVar, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats, Value, as_read_only
from shoal.core.errors import DataError, InputError, PromiseBroken
from shoal.core.numbers import Number, positive, whole
from shoal.core.plan import Answer
from shoal.noise.primitives import lattice_step, round_up, snap
from shoal.records.kmeans import numbers_in_rows
from shoal.records.queries import numbers_or_missing
from shoal.records.schema import RecordSchema, column_names


@dataclass(frozen=True)
class SolverSettings:
    """The steps of the solver, and its tolerance."""

    newton_max_steps: int = 60  # Newton's method needs a few; then gradient descent goes on
    backtrack_max_halvings: int = 40  # a shorter step moves less than rounding does
    tolerance_fraction: int = 1024  # of what one record moves: the error the solver may have
    tolerance_margin: int = 4  # how far above the gradient's rounding a tolerance must be
    norm_shrink: float = 1 - 2.0**-40  # rows end just inside their norm: the division rounds


SOLVER = SolverSettings()


ROUNDING = 2.0**-52  # of one operation, twice the unit roundoff: bounds below double it again
HUBER_WIDTH = 0.5  # h: the hinge is rounded between 1 - h and 1 + h


class MarginLoss(NamedTuple):
    """A convex loss of the margin z: value, slope in [-1, 0], curvature, and its largest value."""

    value: Callable[[Floats], Floats]
    slope: Callable[[Floats], Floats]
    curvature: Callable[[Floats], Floats]
    most_curved: float


def _huber_value(z: Floats) -> Floats:
    h = HUBER_WIDTH
    bend = (1 + h - z) ** 2 / (4 * h)
    return np.asarray(np.where(z > 1 + h, 0.0, np.where(z < 1 - h, 1 - z, bend)))


def _huber_slope(z: Floats) -> Floats:
    return np.asarray(-np.clip((1 + HUBER_WIDTH - z) / (2 * HUBER_WIDTH), 0.0, 1.0))


def _huber_curvature(z: Floats) -> Floats:
    return np.asarray((np.abs(1 - z) <= HUBER_WIDTH) / (2 * HUBER_WIDTH))


def _logistic_slope(z: Floats) -> Floats:
    return np.asarray(-0.5 * (1.0 - np.tanh(0.5 * z)))  # -1 / (1 + e^z), without overflow


def _logistic_curvature(z: Floats) -> Floats:
    return np.asarray(0.25 * (1.0 - np.tanh(0.5 * z) ** 2))


LOSSES: dict[str, MarginLoss] = {
    "huber": MarginLoss(_huber_value, _huber_slope, _huber_curvature, 1 / (2 * HUBER_WIDTH)),
    "logistic": MarginLoss(
        lambda z: np.asarray(np.logaddexp(0.0, -z)), _logistic_slope, _logistic_curvature, 0.25
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Objective:
    """J(v) = (1/n) Σ loss(y_i v·x_i) + (λ/2)|v|², with x_i = rows, y_i = classes, λ given."""

    rows: Floats
    classes: Floats
    loss: str
    regularisation: float

    def margins(self, weights: Floats) -> Floats:
        return np.asarray(self.classes * (self.rows @ weights))

    def value(self, weights: Floats) -> float:
        mean = LOSSES[self.loss].value(self.margins(weights)).mean()
        return float(mean + self.regularisation / 2 * (weights @ weights))

    def gradient(self, weights: Floats) -> Floats:
        pull = self.classes * LOSSES[self.loss].slope(self.margins(weights))
        return np.asarray(self.rows.T @ pull / len(self.rows) + self.regularisation * weights)

    def hessian(self, weights: Floats) -> Floats:
        bend = LOSSES[self.loss].curvature(self.margins(weights))
        curved = (self.rows * bend[:, None]).T @ self.rows / len(self.rows)
        return np.asarray(curved + self.regularisation * np.eye(len(weights)))

    def distance(self, weights: Floats) -> float:
        """Return a bound of the l2 distance to the minimiser of J: |gradient| / λ. Rounds up.
        Rounds up.

        J is λ-strongly convex, so λ|v - v*| ≤ |gradient of J at v|. To the computed gradient the
        most its rounding can hide is added.
        """
        longest = float(np.sqrt((self.rows**2).sum(axis=1).max()))
        length = float(np.sqrt(weights @ weights))
        count, size = self.rows.shape
        hidden = hidden_gradient(
            LOSSES[self.loss], (count, size), longest, length, self.regularisation
        )
        found = float(np.sqrt(np.sum(self.gradient(weights) ** 2)))
        total = found * (1 + (size + 4) * ROUNDING) + hidden
        return float(total / self.regularisation * (1 + 2.0**-40))


def hidden_gradient(
    loss: MarginLoss, shape: tuple[int, int], longest: float, length: float, regularisation: float
) -> float:
    """Return the most that rounding can hide of the gradient at weights v with |v| = length.

    Each margin is off by p·u·R|v|, each slope by the loss's curvature times that plus 8u, the sum
    over n rows by n·u (any order of adding), the rest by 4u, with (n, p) = shape, R = longest, u
    twice the unit roundoff and everything doubled once more.
    """
    count, size = shape
    slope = loss.most_curved * (size + 2) * ROUNDING * longest * length
    summed = longest * math.sqrt(size) * (slope + (8 + count) * ROUNDING)
    return 2 * (summed + 4 * regularisation * length * ROUNDING)


def minimise(objective: Objective, tolerance: float) -> Floats:
    """Return weights certified to lie within `tolerance` of the minimiser of J, in the l2 norm.

    Newton's steps with backtracking reach it in a few rounds; should they not, an accelerated
    gradient descent, whose rate is proved, goes on from there.
    """
    weights = np.zeros(objective.rows.shape[1])
    for _ in range(SOLVER.newton_max_steps):
        if objective.distance(weights) <= tolerance:
            return weights
        try:
            step = np.linalg.solve(objective.hessian(weights), objective.gradient(weights))
        except np.linalg.LinAlgError:  # singular in doubles, though never in truth
            break
        moved = _backtrack(objective, weights, np.asarray(step, dtype=np.float64))
        if moved is None:
            break
        weights = moved
    return _accelerated_descent(objective, weights, tolerance)


def _backtrack(objective: Objective, weights: Floats, step: Floats) -> Floats | None:
    """Return weights - t·step for the first t = 1, 1/2, 1/4 … that lowers J enough, or None."""
    here = objective.value(weights)
    fall = float(objective.gradient(weights) @ step)
    share = 1.0
    for _ in range(SOLVER.backtrack_max_halvings):
        moved = np.asarray(weights - share * step)
        # the allowance lets the last, tiny steps pass, where J changes by less than its rounding
        if objective.value(moved) <= here - 1e-4 * share * fall + 8 * ROUNDING * (1 + abs(here)):
            return moved
        share /= 2
    return None


def _accelerated_descent(objective: Objective, weights: Floats, tolerance: float) -> Floats:
    """Return weights by Nesterov's descent for strongly convex J, once the certificate holds."""
    curved = LOSSES[objective.loss].most_curved * float((objective.rows**2).sum(axis=1).max())
    condition = (curved + objective.regularisation) / objective.regularisation
    momentum = (np.sqrt(condition) - 1) / (np.sqrt(condition) + 1)
    step = 1 / (curved + objective.regularisation)
    ahead = weights
    for turn in range(int(200 * np.sqrt(condition)) + 200):
        if turn % 16 == 0 and objective.distance(weights) <= tolerance:
            return weights
        moved = ahead - step * objective.gradient(ahead)
        ahead = moved + momentum * (moved - weights)
        weights = np.asarray(moved)
    if objective.distance(weights) <= tolerance:
        return weights
    raise PromiseBroken(
        "the solver's tolerance is below what double precision can certify; "
        "raise the query's tolerance or its regularisation"
    )


# A linear classifier as a query: the minimiser of a regularised loss, on a public lattice.


@dataclass(frozen=True, slots=True, eq=False)
class LabelledRows:
    """Rows of features, none longer than the public norm, and a class of -1 or +1 each.

    A row of zeros, the intercept's included, pulls no weight anywhere: a record left out.
    """

    rows: Floats
    classes: Floats

    def __len__(self) -> int:
        """Return how many records there are: a public number."""
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
    Chaudhuri, Monteleoni & Sarwate 2011, Corollary 8; proof: records/erm.md.
    """

    kind = "linear-classifier"

    features: tuple[str, ...]
    records: int
    loss: str
    regularisation: Fraction
    norm: Fraction
    intercept: bool
    tolerance: Fraction
    lattice: Fraction
    schema: RecordSchema | None = field(default=None, metadata={"later": True})
    states: ClassVar[tuple[str, ...]] = ()
    unit: ClassVar[str] = "weight"

    def __post_init__(self) -> None:
        """Check the fields; refuse a tolerance that the solver cannot certify."""
        object.__setattr__(self, "records", whole(self.records, "records"))
        if not self.features:
            raise InputError("features is empty; name at least one column")
        if self.loss not in LOSSES:
            raise InputError(f"loss is {self.loss!r}; it must be one of {sorted(LOSSES)}")
        for name in ("regularisation", "norm", "tolerance", "lattice"):
            positive(getattr(self, name), name)
        least = certifiable_tolerance(self)
        if self.tolerance < least:
            raise InputError(
                f"tolerance is {float(self.tolerance):.3g}; in double precision the solver can "
                f"certify {least:.3g} for this many records, this norm and this regularisation: "
                "raise it or the regularisation, or lower the norm"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        return (*self.features, "intercept") if self.intercept else self.features

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
        """Return a pair (rows, classes): rows scaled into the norm, classes -1 and +1 (or 0 and 1).

        A data frame is read by the query's schema, where it has one. Refused for its shape only;
        records that are not as declared become rows of zeros.
        """
        if isinstance(data, LabelledRows):
            return data
        if self.schema is not None and column_names(data) is not None:
            data = self.schema.encode(data), self.schema.sides(data)
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
        signs = _class_signs(classes, len(values))
        known = np.isfinite(values).all(axis=1) & (signs != 0)
        inside = self._scaled(np.where(known[:, None], values, 0.0))
        return LabelledRows(
            as_read_only(inside * known[:, None]), as_read_only(np.where(known, signs, 1.0))
        )

    def evaluate(self, records: LabelledRows) -> tuple[int, ...]:
        """Return the minimiser, within `tolerance`, in multiples of `lattice`."""
        objective = Objective(
            rows=records.rows,
            classes=records.classes,
            loss=self.loss,
            regularisation=float(self.regularisation),
        )
        weights = minimise(objective, float(self.tolerance) * (1 - 2.0**-50))
        return tuple(snap([Fraction(float(weight)) for weight in weights], self.lattice))

    def weights(self, answer: Answer) -> tuple[Floats, float]:
        """Return the coefficients and the intercept (0 without one) of a release."""
        values = np.array(answer.values)
        if not self.intercept:
            return values, 0.0
        return values[:-1], float(values[-1])

    def _scaled(self, values: Floats) -> Floats:
        """Return the rows scaled to just inside the norm, with a column of ones for an
        intercept.
        """
        largest = np.maximum(np.abs(values).max(axis=1), 1e-300)  # squares might overflow
        with np.errstate(over="ignore"):  # an infinite length makes a row of zeros
            lengths = largest * np.sqrt(((values / largest[:, None]) ** 2).sum(axis=1))
        factors = np.minimum(
            1.0, float(self.norm) * SOLVER.norm_shrink / np.maximum(lengths, 1e-300)
        )
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
    schema: RecordSchema | None = None,
) -> LinearClassifier:
    """Return a linear classifier over `records` rows of `features`, its tolerance and lattice
    chosen.

    Solver and lattice add about a thousandth each to what one record moves; the solver more where
    double precision certifies no less (some millions of records). With a `schema` the features are
    its own, and a data frame is read by it.
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
        schema=schema,
    )
    share = round_up(moved / SOLVER.tolerance_fraction)
    return replace(asked, tolerance=max(share, Fraction(2 * certifiable_tolerance(asked))))


def certifiable_tolerance(query: LinearClassifier) -> float:
    """Return a tolerance that the solver can certify on *every* data set of the query: public.

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
        return SOLVER.tolerance_margin * hidden / strength
    except (OverflowError, ZeroDivisionError):
        return math.inf


def root_above(value: Fraction) -> Fraction:
    """Return a rational at least √value, within 2^-40 of it (relative)."""
    scale = 1 << 40
    numerator = value.numerator * value.denominator * scale**2
    return Fraction(math.isqrt(numerator - 1) + 1, value.denominator * scale)


def _class_signs(classes: npt.ArrayLike, count: int) -> Floats:
    """Return classes as -1.0 and +1.0; 0.0 for what is none of -1, 0 and 1."""
    values = numbers_or_missing(classes)
    if values.shape != (count,):
        raise DataError(f"the data has {count} rows and classes of shape {values.shape}; pair them")
    return np.where(values == 1.0, 1.0, np.where((values == -1.0) | (values == 0.0), -1.0, 0.0))
