"""Named facts joined by "or", and named facts about the slots of a series."""

from __future__ import annotations

import numpy as np
import pytest

import shoal
from shoal.core.errors import DataError, InputError, Refused

TABLE = shoal.JointTable.of(
    [[0.6, 0.1], [0.1, 0.2]], variables=["ann", "bob"], domains=[["well", "ill"], ["well", "ill"]]
)
ANN, BOB = (
    shoal.Event.of("ann is ill", {"ann": "ill"}),
    shoal.Event.of("bob is ill", {"bob": "ill"}),
)
NOBODY = shoal.Event.of("nobody is ill", {"ann": "well", "bob": "well"})
ILL = shoal.count(["well", "ill"], "ill")
CHAIN = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], initial=[0.8, 0.2], length=6)


def test_or_holds_where_either_does() -> None:
    either = ANN | BOB
    assert either.name == "ann is ill or bob is ill"
    assert either.holds(TABLE).tolist() == [[False, True], [True, True]]
    assert (either | NOBODY).holds(TABLE).all()
    assert shoal.loads(shoal.dumps(either)) == either
    assert "others" not in shoal.dumps(ANN)  # documents of earlier versions stay as they are


def test_somebody_is_ill_against_nobody_by_all_outcomes() -> None:
    secrets = shoal.SecretPairs.of([(ANN | BOB, NOBODY)])
    plan = shoal.calibrate(ILL, secrets, TABLE, epsilon="0.5", mechanism="exact")
    scale = plan.scale or 0.0

    kernel = np.exp(-np.abs(np.arange(3)[:, None] - np.arange(3)) / scale)  # output, answer
    losses = np.abs(np.log((0.2 * kernel[:, 1] + 0.2 * kernel[:, 2]) / 0.4 / kernel[:, 0]))
    assert losses.max() == pytest.approx(0.5, abs=1e-9)
    found = shoal.audit(plan)
    assert (found.verdict, found.exact) == ("kept", True)


def test_a_network_refuses_or_with_the_way_out() -> None:
    net = shoal.BayesNet(
        variables=("ann", "bob"),
        domains=(("well", "ill"), ("well", "ill")),
        parents=((), ("ann",)),
        tables=(np.array([0.8, 0.2]), np.array([[0.9, 0.1], [0.4, 0.6]])),
    )
    secrets = shoal.SecretPairs.of([(ANN | BOB, NOBODY)])
    with pytest.raises(InputError, match="as_table"):
        shoal.calibrate(ILL, secrets, net, epsilon=1)
    assert shoal.calibrate(ILL, secrets, net.as_table(), epsilon=1).mechanism == "exact"


def test_named_facts_about_slots_are_events() -> None:
    late = shoal.Event.of("ill at 4", {"4": "1"}) | shoal.Event.of("ill at 5", {"5": "1"})
    both = shoal.Event.of("well at 4 and 5", {"4": "0", "5": "0"})
    secrets = shoal.SecretPairs.of([(late, both)])
    same = shoal.Events.of(shoal.visit("1", between=(4, 5)))
    query = shoal.count(CHAIN.states, "1")
    for row in ("exact", "wasserstein", "lift", "group"):
        ours = shoal.calibrate(query, secrets, CHAIN, epsilon="0.5", mechanism=row)
        theirs = shoal.calibrate(query, same, CHAIN, epsilon="0.5", mechanism=row)
        assert ours.scale == pytest.approx(theirs.scale)
        assert shoal.audit(ours).verdict == "kept"
    assert shoal.leakage(CHAIN, "0.1", secrets=secrets).value == pytest.approx(
        shoal.leakage(CHAIN, "0.1", secrets=same).value
    )
    plan = shoal.calibrate(query, secrets, CHAIN, epsilon="0.5")
    with pytest.raises(DataError, match="another length"):
        plan.release([0, 1, 1], rng=shoal.SeededRng(1))


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"noon": "1"}, "the variables of a series are its slots"),
        ({"9": "1"}, "begins at slot 9"),
        ({"2": "3"}, "names '3'"),
        ({}, "names no slot"),
    ],
)
def test_facts_a_series_does_not_have_are_refused(where: dict[str, str], said: str) -> None:
    secrets = shoal.SecretPairs.of([(shoal.Event.of("a", where), shoal.Event.of("b", {"0": "0"}))])
    with pytest.raises(InputError, match=said):
        shoal.calibrate(shoal.count(CHAIN.states, "1"), secrets, CHAIN, epsilon=1)


def test_a_black_box_is_not_tried_on_one_of_several_facts() -> None:
    from shoal.audit.fact_pairs import laws

    either = shoal.SecretPairs.of([(ANN | BOB, NOBODY)])
    with pytest.raises(Refused, match="is not drawn"):
        laws((TABLE,), either, ("well", "ill"))
