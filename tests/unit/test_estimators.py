"""The private estimators: scikit-learn's own checks, their promise, and what noise does to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from shoal.core.errors import Refused
from shoal.mechanisms.estimators import PrivateKMeans, PrivateLinearSVC, PrivateLogisticRegression
from shoal.models.groups import RecordGroups

# the checks ask for near perfect answers on a few dozen rows, so noise is next to none here
PLENTY = 10**6
ESTIMATORS = [
    PrivateKMeans(3, epsilon=PLENTY, low=-4, high=4, rounds=10, random_state=0),
    PrivateLinearSVC(epsilon=PLENTY, alpha=0.001, norm=10, random_state=0),
    PrivateLogisticRegression(epsilon=PLENTY, alpha=0.001, norm=10, random_state=0),
]


@parametrize_with_checks(ESTIMATORS)
def test_scikit_learns_own_checks(estimator: Any, check: Any) -> None:
    """Each check asserts, by itself, that the estimator keeps one of scikit-learn's rules."""
    check(estimator)


def blobs(count: int = 400) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    draw = np.random.default_rng(0)
    classes = np.repeat([0, 1], count // 2)
    centres = np.array([[0.3, 0.3], [0.7, 0.6]])
    return np.clip(draw.normal(centres[classes], 0.08), 0, 1), classes


@pytest.mark.parametrize("kind", [PrivateLinearSVC, PrivateLogisticRegression])
def test_a_classifier_learns_at_a_usual_budget(kind: Any) -> None:
    rows, classes = blobs(4000)
    fitted = kind(epsilon=2, alpha=0.01, norm=1, random_state=1).fit(rows, classes)
    assert fitted.score(rows, classes) > 0.9
    assert fitted.plan_.guarantee.proved
    assert not fitted.release_.secure
    assert fitted.release_.values == (*fitted.coef_[0], *fitted.intercept_)


def test_tied_records_need_as_much_more_noise() -> None:
    rows, classes = blobs()
    alone: Any = PrivateLinearSVC(epsilon=1, random_state=0).fit(rows, classes)
    tied: Any = PrivateLinearSVC(epsilon=1, dependence=5, random_state=0).fit(rows, classes)
    model = PrivateLinearSVC(epsilon=1, dependence=RecordGroups(5), random_state=0).fit(
        rows, classes
    )
    ratio = tied.plan_.body.noise.scale / alone.plan_.body.noise.scale
    assert float(ratio) == pytest.approx(5, rel=1e-9)
    assert model.plan_ == tied.plan_
    with pytest.raises(Refused, match="lift does not apply"):
        PrivateLinearSVC(mechanism="lift").fit(rows, classes)


def test_fresh_noise_differs_and_is_the_systems() -> None:
    rows, classes = blobs()
    one, two = (PrivateLogisticRegression().fit(rows, classes) for _ in range(2))
    assert one.release_.secure
    assert (one.coef_ != two.coef_).any()


def test_kmeans_finds_the_blobs_and_keeps_its_centres_in_the_box() -> None:
    rows, classes = blobs(4000)
    fitted = PrivateKMeans(2, epsilon=1, random_state=3).fit(rows)
    found = fitted.predict(rows)
    assert max((found == classes).mean(), (found != classes).mean()) > 0.95
    assert ((fitted.cluster_centers_ >= 0) & (fitted.cluster_centers_ <= 1)).all()
    assert fitted.labels_.tolist() == found.tolist()


def test_more_than_two_classes_are_refused() -> None:
    rows, _ = blobs(30)
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        PrivateLinearSVC().fit(rows, np.arange(30) % 3)
    with pytest.raises(ValueError, match="holds one class"):
        PrivateLinearSVC().fit(rows, np.zeros(30))
