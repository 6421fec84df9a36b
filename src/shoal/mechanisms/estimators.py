"""Private estimators with scikit-learn's interface; they need the `learn` extra."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.numbers import Number
from shoal.core.rng import Rng, SystemRng
from shoal.core.task import Model, Query
from shoal.core.value import Floats, Ints
from shoal.mechanisms.calibration import calibrate
from shoal.models.groups import RecordGroups
from shoal.noise.bits import SeededRng
from shoal.queries.centroids import centroids
from shoal.queries.classifier import linear_classifier
from shoal.secrets.entries import EachEntry

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, ClusterMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets, type_of_target
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
    for tests only; without it the noise is the operating system's.
    """

    epsilon: Number
    dependence: Model | int | None
    mechanism: str
    random_state: Any

    def _released(self, query: Query, data: Any) -> Any:
        """One release of `data`; `plan_` and `release_` keep what was promised and published."""
        known = self.dependence
        if known is None or isinstance(known, int | np.integer):
            known = RecordGroups(1 if known is None else int(known))
        self.plan_ = calibrate(
            query, EachEntry(), known, epsilon=self.epsilon, mechanism=self.mechanism
        )
        self.release_ = self.plan_.release(data, rng=self._rng())
        return self.release_.answer

    def _rng(self) -> Rng:
        if self.random_state is None:
            return SystemRng()
        return SeededRng(int(check_random_state(self.random_state).randint(2**31 - 1)))


class PrivateKMeans(ClusterMixin, _Private):  # type: ignore[misc]
    """K-means with noise in every round; `cluster_centers_` may be published.

    low, high: public range of the columns, one number or one per column; values are clipped to
    it. `init` holds the first centres, which must not come from the data; by default they are
    spread over the range. One record moves the answers of all rounds by rounds · (d + 2w), see
    `shoal.centroids`. `labels_`, the clusters of the training records, are *not* private.
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
        dependence: Model | int | None = None,
        mechanism: str = "best",
        random_state: Any = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.epsilon = epsilon
        self.low = low
        self.high = high
        self.rounds = rounds
        self.init = init
        self.dependence = dependence
        self.mechanism = mechanism
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: object = None) -> Self:
        """One release of the centroids of X; y is ignored."""
        rows = validate_data(self, X, dtype=np.float64)
        self.query_ = centroids(
            [f"x{j}" for j in range(rows.shape[1])],
            low=self.low,
            high=self.high,
            clusters=self.n_clusters,
            rounds=self.rounds,
            start=self.init,
        )
        self.cluster_centers_ = self.query_.centroids(self._released(self.query_, rows))
        self.n_iter_ = self.rounds
        self.labels_ = self.predict(rows)
        return self

    def predict(self, X: npt.ArrayLike) -> Ints:
        """The nearest released centre of each row."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        gaps = rows[:, None, :] - self.cluster_centers_[None, :, :]
        return np.asarray((gaps**2).sum(axis=2).argmin(axis=1), dtype=np.int64)


class _PrivateLinear(ClassifierMixin, _Private):  # type: ignore[misc]
    """A linear classifier of two classes by output perturbation; its weights may be published.

    alpha: strength λ of the regularisation. norm: public; longer rows are scaled down to it.
    One record moves the weights by about 2√p R/(nλ) together, see `shoal.linear_classifier`; the
    number of records is public.
    """

    _loss = ""

    def __init__(
        self,
        *,
        epsilon: Number = 1,
        alpha: Number = 0.01,
        norm: Number = 1,
        fit_intercept: bool = True,
        dependence: Model | int | None = None,
        mechanism: str = "best",
        random_state: Any = None,
    ) -> None:
        self.epsilon = epsilon
        self.alpha = alpha
        self.norm = norm
        self.fit_intercept = fit_intercept
        self.dependence = dependence
        self.mechanism = mechanism
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> Self:
        """One release of the weights that separate the two classes of y."""
        rows, targets = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(targets)
        kind = type_of_target(targets, input_name="y", raise_unknown=True)
        if kind != "binary":
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {kind}."
            )
        self.classes_ = np.unique(targets)
        if len(self.classes_) < 2:
            raise ValueError(f"y holds one class, {self.classes_[0]}; a classifier needs two")
        self.query_ = linear_classifier(
            [f"x{j}" for j in range(rows.shape[1])],
            records=len(rows),
            loss=self._loss,
            regularisation=self.alpha,
            norm=self.norm,
            intercept=self.fit_intercept,
        )
        answer = self._released(self.query_, (rows, targets == self.classes_[1]))
        weights, intercept = self.query_.weights(answer)
        self.coef_, self.intercept_ = weights[None, :], np.array([intercept])
        return self

    def decision_function(self, X: npt.ArrayLike) -> Floats:
        """How far each row is on the side of classes_[1]."""
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        return np.asarray(rows @ self.coef_[0] + self.intercept_[0])

    def predict(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """The class of each row."""
        chosen = (self.decision_function(X) > 0).astype(np.int64)
        return np.asarray(self.classes_[chosen])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_class = False
        return tags


class PrivateLinearSVC(_PrivateLinear):
    """A linear support vector machine with the hinge rounded at its corner (Huber's loss).

    Liu, Chakraborty & Mittal 2016, Section VII-B.2; Chaudhuri, Monteleoni & Sarwate 2011.
    """

    _loss = "huber"


class PrivateLogisticRegression(_PrivateLinear):
    """Logistic regression, L2-regularised. Chaudhuri, Monteleoni & Sarwate 2011."""

    _loss = "logistic"

    def predict_proba(self, X: npt.ArrayLike) -> Floats:
        """The probability of each class, 1 / (1 + e^(∓decision))."""
        upper = 0.5 * (1.0 + np.tanh(0.5 * self.decision_function(X)))
        return np.stack([1.0 - upper, upper], axis=1)
