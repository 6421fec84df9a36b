"""How far two laws are given a secret, against listing every outcome."""

from __future__ import annotations

import math

import numpy as np
import pytest

from shoal.core.errors import InputError
from shoal.events.pairs import Event, SecretPairs
from shoal.networks.closeness import SecretCloseness, closeness
from shoal.networks.contagion import Contagion, exponential_law
from shoal.networks.table import JointTable
from tests.contract.network_tasks import crowd, household
from tests.networks.models import joint_of, random_network


def by_hand(one: np.ndarray, two: np.ndarray) -> float:
    worst = 0.0
    places = np.indices(one.shape)
    for axis, size in enumerate(one.shape):
        for value in range(size):
            holds = places[axis] == value
            for p, q in ((one, two), (two, one)):
                if p[holds].sum() <= 0:
                    continue
                with np.errstate(divide="ignore", invalid="ignore"):
                    ratio = np.log(p[holds] / p[holds].sum()) - np.log(q[holds] / q[holds].sum())
                worst = max(worst, float(np.where(p[holds] > 0, ratio, -np.inf).max()))
    return worst


@pytest.mark.parametrize("seed", range(6))
def test_networks_of_different_structure(seed: int) -> None:
    one, two = random_network(seed, 4, density=0.7), random_network(seed + 9, 4, density=0.4)
    expected = by_hand(joint_of(one), joint_of(two))
    assert closeness(one, two).value == pytest.approx(expected, rel=1e-9)
    first, second = (JointTable.of(joint_of(net)) for net in (one, two))
    assert closeness(first, second).value == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("seed", range(4))
def test_zeros_on_one_side_are_infinitely_far(seed: int) -> None:
    one, two = random_network(seed, 3, zeros=0.5), random_network(seed + 9, 3)
    with np.errstate(divide="ignore"):
        expected = by_hand(joint_of(one), joint_of(two))
    assert closeness(one, two).value == pytest.approx(expected, rel=1e-9)
    assert closeness(one, one).value == pytest.approx(0.0, abs=1e-11)


def test_crowds() -> None:
    one = Contagion.cliques([3, 2], exponential_law(1))
    two = Contagion.cliques([3, 2], exponential_law(0.5))
    assert closeness(one, two).value == pytest.approx(by_hand(joint_of(one), joint_of(two)))
    a, b, c, d, e = one.variables
    table = Contagion.from_edges(
        one.variables,
        [(a, b), (b, c), (d, e)],
        exponential_law(1),
        tables={one.variables[3]: [[0.4, 0.2], [0.2, 0.2]]},
    )
    assert closeness(one, table).value == pytest.approx(by_hand(joint_of(one), joint_of(table)))


def test_the_closest_member_of_a_family_counts() -> None:
    far, near, other = (random_network(seed, 3, density=0.8) for seed in (1, 2, 3))
    both = closeness([far, near], other)
    each = [closeness(net, other).value for net in (far, near)]
    assert both.value == min(each)
    assert isinstance(both, SecretCloseness)
    assert both.member == each.index(min(each))
    assert "gains at most 2 ×" in both.describe()


def test_secrets_may_be_events_and_other_kinds_are_refused() -> None:
    net = household()
    sure = Event.of("anything", {"mother": ("well", "ill")})
    same = closeness(net, net, secrets=SecretPairs.of([(sure, sure)]))
    assert same.value == pytest.approx(0.0, abs=1e-11)
    with pytest.raises(InputError, match="two tables, two networks or two contagion models"):
        closeness(net, crowd())
    with pytest.raises(InputError, match="different variables"):
        closeness(net, random_network(1, 3))
    assert math.isfinite(same.value)
