"""The private estimators: scikit-learn's own checks, their promise, and what noise does to them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from shoal.core.errors import InputError, Refused
from shoal.records.estimators import PrivateKMeans, PrivateLinearSVC, PrivateLogisticRegression
from shoal.records.pairwise import RecordGroups

# the checks ask for near perfect answers on a few dozen rows, so noise is next to none here
PLENTY = 10**6
ESTIMATORS = [
    PrivateKMeans(3, epsilon=PLENTY, low=-4, high=4, rounds=10, random_state=0),
    PrivateLinearSVC(classes=[0, 1], epsilon=PLENTY, alpha=0.001, norm=10, random_state=0),
    PrivateLogisticRegression(classes=[0, 1], epsilon=PLENTY, alpha=0.001, norm=10, random_state=0),
]

# rules that are broken on purpose: each asks for an answer that one record's value would decide
READ_OFF_RECORDS = {
    "check_dtype_object": "refusing a table because one cell is no number tells of that record",
    "check_supervised_y_no_nan": "refusing labels because one is missing tells of that record",
    "check_classifiers_regression_target": "the kind of target is read off the labels",
    "check_classifier_not_supporting_multiclass": "the number of classes is read off the labels",
    "check_classifiers_classes": "classes_ is what was declared, not what the labels hold",
}


def expected_failures(estimator: Any) -> dict[str, str]:
    wanted = READ_OFF_RECORDS if hasattr(estimator, "classes") else {}
    return {**wanted, "check_dtype_object": READ_OFF_RECORDS["check_dtype_object"]}


@parametrize_with_checks(ESTIMATORS, expected_failed_checks=expected_failures)
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
    fitted = kind(classes=[0, 1], epsilon=2, alpha=0.01, norm=1, random_state=1).fit(rows, classes)
    assert fitted.score(rows, classes) > 0.9
    assert fitted.plan_.guarantee.proved
    assert not fitted.release_.secure
    assert fitted.release_.values == (*fitted.coef_[0], *fitted.intercept_)


def test_tied_records_need_as_much_more_noise() -> None:
    rows, classes = blobs()
    alone: Any = PrivateLinearSVC(classes=[0, 1], epsilon=1, random_state=0).fit(rows, classes)
    tied: Any = PrivateLinearSVC(classes=[0, 1], epsilon=1, dependence=5, random_state=0).fit(
        rows, classes
    )
    model = PrivateLinearSVC(
        classes=[0, 1], epsilon=1, dependence=RecordGroups(5), random_state=0
    ).fit(rows, classes)
    ratio = tied.plan_.body.noise.scale / alone.plan_.body.noise.scale
    assert float(ratio) == pytest.approx(5, rel=1e-9)
    assert model.plan_ == tied.plan_
    with pytest.raises(Refused, match="lift does not apply"):
        PrivateLinearSVC(classes=[0, 1], mechanism="lift").fit(rows, classes)


def test_fresh_noise_differs_and_is_the_systems() -> None:
    rows, classes = blobs()
    one, two = (PrivateLogisticRegression(classes=[0, 1]).fit(rows, classes) for _ in range(2))
    assert one.release_.secure
    assert (one.coef_ != two.coef_).any()


def test_kmeans_finds_the_blobs_and_keeps_its_centres_in_the_box() -> None:
    rows, classes = blobs(4000)
    fitted = PrivateKMeans(2, epsilon=1, random_state=3).fit(rows)
    found = fitted.predict(rows)
    assert max((found == classes).mean(), (found != classes).mean()) > 0.95
    assert ((fitted.cluster_centers_ >= 0) & (fitted.cluster_centers_ <= 1)).all()
    assert fitted.labels_.tolist() == found.tolist()


@pytest.mark.parametrize("classes", [[0], [0, 1, 2], [1, 1], []])
def test_two_classes_are_named_before_the_data_is_seen(classes: list[int]) -> None:
    rows, labels = blobs(30)
    with pytest.raises(InputError, match="name the two classes, which are public"):
        PrivateLinearSVC(classes=classes).fit(rows, labels)
    with pytest.raises(TypeError, match="classes"):
        PrivateLinearSVC()  # type: ignore[call-arg]


def test_classes_are_those_declared_whatever_the_labels_hold() -> None:
    rows, labels = blobs(400)
    names = np.array(["no", "yes"])[labels]
    fitted = PrivateLogisticRegression(classes=["no", "yes"], epsilon=PLENTY).fit(rows, names)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert fitted.score(rows, names) > 0.9
    turned = PrivateLogisticRegression(classes=["yes", "no"], epsilon=PLENTY).fit(rows, names)
    assert turned.score(rows, names) > 0.9
    assert turned.coef_ == pytest.approx(-fitted.coef_, abs=0.05)
    with pytest.raises(InputError, match="the target y is None"):
        PrivateLogisticRegression(classes=["no", "yes"]).fit(rows, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [PrivateLinearSVC, PrivateLogisticRegression])
@pytest.mark.parametrize("odd", [2, 0.5, "x", None, float("nan"), float("inf"), 1j, [1]])
def test_a_record_of_no_declared_class_is_left_out(kind: Any, odd: Any) -> None:
    """One odd label among ones, or one odd row, changes the weights by no more than one record."""
    rows, _ = blobs(200)
    answers = []
    for label in (1, 0, odd):
        labels: list[Any] = [1] * 199 + [label]
        fitted = kind(classes=[0, 1], epsilon=1, random_state=0).fit(rows, labels)
        query = fitted.query_
        answers.append(np.array(query.evaluate(query.read((rows, fitted._sides(labels))))))
        assert fitted.classes_.tolist() == [0, 1]
    most = float(query.lipschitz / query.lattice)
    for one in answers:
        for other in answers:
            assert np.abs(one - other).sum() <= most


def test_a_missing_number_is_left_out_of_clusters_and_labels() -> None:
    rows, _ = blobs(50)
    holes: Any = rows.tolist()
    holes[3][1] = "?"
    fitted = PrivateKMeans(2, random_state=0).fit(holes)
    assert fitted.labels_[3] == -1
    assert (fitted.labels_[:3] >= 0).all()
    whole = PrivateKMeans(2, random_state=0).fit(np.delete(rows, 3, axis=0))
    # the same noise on the same sums: a record left out is as one that was never there
    assert fitted.release_.values == whole.release_.values
