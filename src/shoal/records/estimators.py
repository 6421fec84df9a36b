"""Private estimators with scikit-learn's interface; they need the `learn` extra."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.core.charge import Rng, SystemRng
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.numbers import Number
from shoal.core.plan import UselessRelease
from shoal.core.task import EachEntry, Model, Query
from shoal.mechanisms.choice import calibrate
from shoal.noise.primitives import SeededRng
from shoal.records.classifier import linear_classifier
from shoal.records.kmeans import centroids, numbers_in_rows
from shoal.records.pairwise import RecordGroups
from shoal.records.queries import numbers_or_missing
from shoal.records.schema import RecordSchema, refuse_text

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin, TransformerMixin
    from sklearn.utils import check_random_state, column_or_1d
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as missing:
    raise InputError(
        "the private estimators need scikit-learn, which is not installed; "
        "install it with `pip install 'shoal[learn]'`"
    ) from missing


class _Private(BaseEstimator):  # type: ignore[misc]  # scikit-learn has no types
    """What all private estimators share: the adversary, the budget, and one charged release.

    `dependence` says which records may depend on each other: None for independent records, a
    number for groups of at most that many, or a model of theirs. `random_state` seeds the noise,
    for tests only; without it the noise is the operating system's. `schema` declares columns of
    text, and ranges of numbers: see `shoal.records.RecordSchema`.

    Nothing but the shape of the data (rows and columns) is taken from it unprotected: ranges,
    norms and classes are given. A record that is not as declared is clipped or left out as the
    query says; it neither raises nor warns, which would tell that it is there.
    """

    epsilon: Number
    schema: RecordSchema | None
    dependence: Model | int | None
    mechanism: str
    random_state: Any

    def _release(self, query: Query, data: Any) -> Any:
        """Return one release of `data`; `plan_` and `release_` keep what was promised and
        published.
        """
        known = self.dependence
        if known is None or isinstance(known, int | np.integer):
            known = RecordGroups(1 if known is None else int(known))
        self.plan_ = calibrate(
            query, EachEntry(), known, epsilon=self.epsilon, mechanism=self.mechanism
        )
        self.release_ = self.plan_.release(data, rng=self._rng())
        return self.release_.answer

    def _table(self, X: npt.ArrayLike) -> Floats:
        """X as a table of doubles, NaN where a cell is not as declared.

        Refused for its shape and the types of its columns, never for one cell.
        """
        listed = self._encode(X)
        rows = validate_data(self, listed, dtype=None, ensure_all_finite=False)
        return numbers_in_rows(rows, rows.shape[1])

    def _encode(self, X: Any) -> Any:
        """X by the schema; without one as it is, refused where a column of a frame is of text."""
        if self.schema is not None:
            return self.schema.encode(X)
        refuse_text(X)
        return numbers_or_missing(X) if isinstance(X, list | tuple) else X

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        return tags

    def _rng(self) -> Rng:
        if self.random_state is None:
            return SystemRng()
        return SeededRng(int(check_random_state(self.random_state).randint(2**31 - 1)))


class DeclaredEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Encode a table by a declared schema, as a step of a pipeline: it learns nothing from data.

    Numbers become their position in the declared range, from 0 to 1, and a category one column
    each (`RecordSchema.encode`). An encoder that learned categories or ranges would tell about the
    records it saw, outside every budget.
    """

    def __init__(self, schema: RecordSchema) -> None:
        """Store the schema as it is, as scikit-learn requires."""
        self.schema = schema

    def fit(self, X: Any, y: object = None) -> Self:
        """Check that the table has the declared columns; no cell of it is kept."""
        self.schema.encode(X)
        self.n_features_in_ = len(self.schema.names)
        self.feature_names_in_ = np.array(self.schema.names, dtype=object)
        return self

    def transform(self, X: Any) -> Floats:
        """Return a row of numbers from 0 to 1 per record, NaN where a cell is not as declared."""
        check_is_fitted(self)
        return self.schema.encode(X)

    def get_feature_names_out(self, input_features: object = None) -> npt.NDArray[np.object_]:
        """Return the names of the encoded columns."""
        return np.array(self.schema.features, dtype=object)


class PrivateKMeans(ClusterMixin, _Private):  # type: ignore[misc]
    """K-means with noise in every round; `cluster_centers_` may be published.

    low, high: public range of the columns, one number or one per column; values are clipped to
    it. `init` holds the first centres, which must not come from the data; by default they are
    spread over the range. A row with something that is no number is left out. One record moves
    the answers of all rounds by rounds · (d + 2w), see `shoal.records.centroids`. `labels_`, the
    clusters of the training records (-1: left out), are *not* private. `clamped_` counts the
    coordinates of centres that noise put on the edge of the range.
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        epsilon: Number = 1,
        low: Any = 0.0,
        high: Any = 1.0,
        rounds: int = 5,
        init: npt.ArrayLike | None = None,
        schema: RecordSchema | None = None,
        dependence: Model | int | None = None,
        mechanism: str = "best",
        random_state: Any = None,
    ) -> None:
        """Store the parameters as they are, as scikit-learn requires; `fit` checks them."""
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.low = low
        self.high = high
        self.rounds = rounds
        self.init = init
        self.schema = schema
        self.dependence = dependence
        self.mechanism = mechanism
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """Release the centroids of X once; y is ignored."""
        rows = self._table(X)
        self.query_ = centroids(
            [f"x{j}" for j in range(rows.shape[1])],
            low=self.low,
            high=self.high,
            clusters=self.n_clusters,
            rounds=self.rounds,
            start=self.init,
        )
        answer = self._release(self.query_, rows)
        self.cluster_centers_ = self.query_.centroids(answer)
        self.clamped_ = self.query_.clamped(answer)
        if self.clamped_:  # of the release alone
            warnings.warn(
                f"{self.clamped_} of {self.cluster_centers_.size} coordinates of the centres lie "
                "on the edge of the range, where noise put them; ask for fewer clusters or rounds, "
                "or allow a larger epsilon",
                UselessRelease,
                stacklevel=2,
            )
        self.n_iter_ = self.rounds
        self.labels_ = self._nearest(rows)
        return self

    def predict(self, X: npt.ArrayLike) -> Ints:
        """Return the nearest released centre of each row; -1 for a row with a missing number."""
        check_is_fitted(self)
        rows = validate_data(
            self, self._encode(X), dtype=np.float64, reset=False, ensure_all_finite=False
        )
        return self._nearest(rows)

    def _nearest(self, rows: Floats) -> Ints:
        ends = self.query_.low, self.query_.high
        low, high = (np.array([float(end) for end in side]) for side in ends)
        gaps = np.clip(rows, low, high)[:, None, :] - self.cluster_centers_[None, :, :]
        near = (gaps**2).sum(axis=2).argmin(axis=1)
        return np.asarray(np.where(np.isnan(rows).any(axis=1), -1, near), dtype=np.int64)


class _PrivateLinear(ClassifierMixin, _Private):  # type: ignore[misc]
    """A linear classifier of two classes by output perturbation; its weights may be published.

    classes: the two classes, public and in order; `predict` answers with them, the second being
    the positive side. They are never read off the data, where one record could decide them.
    alpha: strength λ of the regularisation. norm: public; longer rows are scaled down to it.
    One record moves the weights by about 2√p R/(nλ) together, see
    `shoal.records.linear_classifier`; the number of records is public. A record of another class,
    or with a feature that is no finite number, is left out and counts in n all the same.
    """

    _loss = ""

    def __init__(
        self,
        *,
        classes: Sequence[Any],
        epsilon: Number = 1,
        alpha: Number = 0.01,
        norm: Number = 1,
        fit_intercept: bool = True,
        schema: RecordSchema | None = None,
        dependence: Model | int | None = None,
        mechanism: str = "best",
        random_state: Any = None,
    ) -> None:
        """Store the parameters as they are, as scikit-learn requires; `fit` checks them."""
        self.classes = classes
        self.epsilon = epsilon
        self.alpha = alpha
        self.norm = norm
        self.fit_intercept = fit_intercept
        self.schema = schema
        self.dependence = dependence
        self.mechanism = mechanism
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """Release once the weights that separate the two `classes` in y."""
        rows = self._table(X)
        sides = self._sides(y)
        self.query_ = linear_classifier(
            [f"x{j}" for j in range(rows.shape[1])],
            records=len(rows),
            loss=self._loss,
            regularisation=self.alpha,
            norm=self.norm,
            intercept=self.fit_intercept,
        )
        weights, intercept = self.query_.weights(self._release(self.query_, (rows, sides)))
        self.coef_, self.intercept_ = weights[None, :], np.array([intercept])
        return self

    def _sides(self, y: npt.ArrayLike) -> list[float]:
        """Return -1 and 1 for the first and the second class, NaN for any other label; sets
        classes_.
        """
        names = list(self.classes)
        if len(names) != 2 or names[0] == names[1]:
            raise InputError(
                f"classes is {names}; name the two classes, which are public and not read off y"
            )
        self.classes_ = np.array(names)
        if y is None:
            raise InputError("fit requires y to be passed, but the target y is None: give a label")
        if not any(isinstance(name, str) for name in names):
            refuse_text_labels(y, names)
        # label by label: an array of all of them would take its type from the oddest
        side = {names[0]: -1.0, names[1]: 1.0}
        return [_side_of_label(label, side) for label in column_or_1d(y, dtype=object, warn=True)]

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """Return how far each row is on the side of classes_[1]; a missing feature counts as 0."""
        check_is_fitted(self)
        rows = validate_data(
            self, self._encode(X), dtype=np.float64, reset=False, ensure_all_finite="allow-nan"
        )
        return np.asarray(np.nan_to_num(rows) @ self.coef_[0] + self.intercept_[0])

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the class of each row."""
        chosen = (self.decision_function(X) > 0).astype(np.int64)
        return np.asarray(self.classes_[chosen])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


def refuse_text_labels(y: Any, classes: list[Any]) -> None:
    """Refuse a typed column of text as labels of classes that are numbers, by its type."""
    kind = str(getattr(y, "dtype", "")).lower()
    if not isinstance(y, np.ndarray) and kind.startswith(("str", "utf8", "categor", "enum")):
        raise InputError(
            f"the labels are of type {kind}, and classes is {classes}; declare the two classes as "
            "the labels write them, such as classes=['no', 'yes']"
        )


def _side_of_label(label: Any, side: dict[Any, float]) -> float:
    try:
        return side.get(label, np.nan)
    except TypeError:  # a list or the like is no class
        return np.nan


class PrivateLinearSVC(_PrivateLinear):
    """A linear support vector machine with the hinge rounded at its corner (Huber's loss).

    Liu, Chakraborty & Mittal 2016, Section VII-B.2; Chaudhuri, Monteleoni & Sarwate 2011.
    """

    _loss = "huber"


class PrivateLogisticRegression(_PrivateLinear):
    """Logistic regression, L2-regularised. Chaudhuri, Monteleoni & Sarwate 2011."""

    _loss = "logistic"

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """Return the probability of each class, 1 / (1 + e^(∓decision))."""
        upper = 0.5 * (1.0 + np.tanh(0.5 * self.decision_function(X)))
        return np.stack([1.0 - upper, upper], axis=1)
