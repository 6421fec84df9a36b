"""The parts of the experiments on tied people that run in a moment."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from shoal.records.published import published_scale
from studies.dependent_attack import adversaries, targets_of
from studies.dependent_degrees import bins_of, record_plans
from studies.dependent_kmeans import matched, models_for
from studies.dependent_plans import all_plans, counts_as, standing
from studies.dependent_sources import graphs, people, profiles
from studies.dependent_svm import star_of


@pytest.fixture(autouse=True)
def _without_real_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOAL_DATA", raising=False)


def test_clusters_are_matched_before_counting() -> None:
    one = np.array([0, 0, 1, 1, 2, 2])
    assert matched(one, np.array([2, 2, 0, 0, 1, 1]), 3) == 1
    assert matched(one, np.array([2, 2, 0, 0, 1, 0]), 3) == pytest.approx(5 / 6)


def test_bins_double() -> None:
    place, names = bins_of(np.array([0, 1, 2, 3, 4, 5, 8, 9, 4096, 9999]))
    assert place.tolist() == [0, 1, 2, 3, 3, 4, 4, 5, 13, 13]
    assert len(names) == 14
    assert names[3:6] == ("3-4", "5-8", "9-16")


def test_a_star_stands_for_all_ties_of_the_published_rows() -> None:
    """The coefficients look at the record with most ties only."""
    from shoal.core.task import EachEntry, Task
    from shoal.records.domain import RecordDomain
    from shoal.records.queries import number_mean
    from studies.dependent_svm import FRIENDSHIP

    domain = RecordDomain.interval(0, 1, cells=20)
    ring = [(i, (i + 1) % 12) for i in range(12)]
    scales = []
    for model, records in ((star_of(3), 4), (FRIENDSHIP.ties(domain, 12, [*ring, (0, 6)]), 12)):
        query = number_mean(low=0, high=records, records=records)  # one record moves it by 1
        task = Task(query=query, secrets=EachEntry(), family=(model,))
        scales.append(published_scale(task, Fraction(1), printed=False))
    assert scales[0] == pytest.approx(scales[1], rel=1e-9)


def test_every_mechanism_says_what_it_is_worth() -> None:
    ((_, data),) = graphs()
    plans = record_plans(data, Fraction(1))
    worth = {title: standing(title, plan) for title, plan in plans.items()}
    assert worth["no dependence (laplace)"] == "for independent records only"
    assert worth["published, Eq. 14"] == worth["Zhu et al."] == "not proved"
    assert worth["group over components"] == worth["conditional means"] == "proved"
    assert counts_as(plans["group over components"]) == pytest.approx(5)
    assert counts_as(plans["no dependence (laplace)"]) == 1
    assert counts_as(plans["conditional means"]) <= 5 * (1 + 1e-9)


def test_sources_and_adversaries() -> None:
    ((_, town),) = people()
    ((_, rows),) = profiles()
    assert rows.rows.shape == rows.test_rows.shape
    assert set(rows.classes.tolist()) == {0, 1}
    targets = targets_of(town)
    assert len(targets) == 60
    for adversary in adversaries(town, targets).values():
        others = adversary.values(int(targets[0]))
        assert int(targets[0]) not in others
    pairs, fields = models_for(town, np.arange(50))
    assert pairs.states is None
    query = town.city.query(rounds=1)
    found = all_plans(query, pairs, fields, Fraction(1))
    assert {"group over components", "field, weak ties"} <= set(found)
    assert counts_as(found["field, weak ties"]) < counts_as(found["group over components"])
