"""What is possible stays a secret, however unlikely, where laws of fields and networks underflow.

Truth by closed forms in logarithms, or in whole numbers, written here.
"""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

import shoal
from tests.oracle.tree_enumeration import count_laws, noisy_loss

BITS = ["0", "1"]
TIE = [[0.98, 0.02], [0.02, 0.98]]
COUNT = shoal.count(BITS, "1")


def star(
    leaves: int, own: tuple[float, float], tie: list[list[float]]
) -> shoal.records.PairwiseField:
    rows = np.vstack([[1.0, 1.0], np.tile(own, (leaves, 1))])
    return shoal.records.PairwiseField.of(
        shoal.records.RecordDomain.named(BITS),
        leaves + 1,
        [(0, leaf + 1) for leaf in range(leaves)],
        tie,
        own=rows,
    )


def truth(leaves: int, own: tuple[float, float], tie: list[list[float]], scale: float) -> float:
    """About the hub and one leaf, which stands for all."""
    records = [(1.0, 1.0), *[own] * leaves]
    ties = {(0, leaf + 1): tie for leaf in range(leaves)}
    return max(noisy_loss(count_laws(records, ties, record), scale) for record in (0, 1))


def scale_of(plan: shoal.Plan) -> float:
    return float(plan.body.noise.scale)  # type: ignore[union-attr]


def test_the_hub_of_a_star_of_195_ties_keeps_its_secret() -> None:
    """It takes 1 with probability 5e-326."""
    own = (0.999, 0.001)
    assert truth(195, own, TIE, 1.0) == pytest.approx(16.06, abs=0.01)
    field = star(195, own, TIE)
    for name in ("best", "exact", "wasserstein", "group", "lift", "dependent-field"):
        plan = shoal.calibrate(COUNT, shoal.EachEntry(), field, epsilon=1, mechanism=name)
        assert truth(195, own, TIE, scale_of(plan)) <= 1.0
        assert shoal.verify_promise(plan) <= 1.0 + 1e-9
        if name == "exact":
            assert truth(195, own, TIE, 0.999 * scale_of(plan)) > 1.0
            assert truth(195, own, TIE, scale_of(plan)) <= shoal.audit(plan).upper <= 1.0 + 1e-9


def test_the_ledger_adds_counts_of_a_star(tmp_path: Path) -> None:
    """Two noisy counts at outputs beyond all answers tell what one tells with half the noise."""
    own, tie = (1 - 1e-9, 1e-9), [[1 - 1e-9, 1e-9], [1e-9, 1 - 1e-9]]
    plan = shoal.calibrate(COUNT, shoal.EachEntry(), star(39, own, tie), epsilon=1)
    with shoal.Session(tmp_path / "budget.db", subject="everybody") as session:
        for _ in range(2):
            session.release(plan, ["0"] * 40)
        total = session.spent()
    assert total is not None
    assert float(total.amount) >= truth(39, own, tie, scale_of(plan) / 2) - 1e-9


@pytest.mark.parametrize("rare", [1e-9, 1e-12, 1e-200])
def test_leakage_of_a_hub_of_near_copies(rare: float) -> None:
    own, tie = (1 - rare, rare), [[1 - rare, rare], [rare, 1 - rare]]
    field = star(39, own, tie)
    for eta in (0.1, 0.5):
        assert shoal.leakage(field, eta).value >= truth(39, own, tie, 1 / eta)


def test_a_field_with_loops_does_not_lose_outcomes() -> None:
    """Twelve records in a ring: all different from their neighbours with probability 1e-600."""
    tie = [[1.0, 1e-50], [1e-50, 1.0]]
    ring = shoal.records.PairwiseField.of(
        shoal.records.RecordDomain.named(BITS), 12, [(i, (i + 1) % 12) for i in range(12)], tie
    )
    with pytest.raises(shoal.InputError, match="possible outcome has a probability below 2"):
        ring.table()
    plan = shoal.calibrate(COUNT, shoal.EachEntry(), ring, epsilon=1)
    assert scale_of(plan) > 11  # nearly copies, so nearly the group


def test_networks_and_crowds_are_not_written_out_without_what_is_rare() -> None:
    rare = {f"X{i}": [1 - 1e-80, 1e-80] for i in range(4)}
    crowd = shoal.Contagion.cliques([1, 1, 1, 1], [1 - 1e-80, 1e-80])
    for model in (shoal.BayesNet.of(rare), crowd):
        with pytest.raises(shoal.InputError, match="no table holds"):
            model.as_table()


def test_closeness_of_laws_too_large_to_be_listed_is_refused() -> None:
    people = shoal.Contagion.cliques([21], [1 / 22] * 22)
    with pytest.raises(shoal.InputError, match="a table holds at most 20"):
        shoal.closeness(people, people)
    tables = {f"v{v}": [0.5, 0.5] for v in range(25)}
    net = shoal.BayesNet.of(tables)
    with pytest.raises(shoal.InputError, match="a table holds at most 16777216"):
        shoal.closeness(net, net)


def test_closeness_of_chains_that_leave_a_value_behind() -> None:
    """Entry 1,200 is still 0 with probability 2^-1199: a path that is possible under both."""
    one, two = (
        shoal.MarkovChain.of([[0.5, 0.5], [0.0, 1.0]], initial=[1 - p, p], length=1200)
        for p in (0.5, 1e-3)
    )
    # given that the last entry is 1 the start decides most; given 0 both laws are one path
    assert shoal.closeness(one, two, 1200).value == pytest.approx(
        max(_chain_truth(one, two), _chain_truth(two, one)), abs=1e-9
    )


def _chain_truth(one: shoal.MarkovChain, two: shoal.MarkovChain) -> float:
    """A path is (1, …) or falls from 0 to 1 at some time or never: all are listed."""
    logs = []
    for chain in (one, two):
        start, length = chain.initial, 1200
        falls = [math.log(start[1])]
        falls += [math.log(start[0]) + t * math.log(0.5) for t in range(1, length)]
        logs.append([*falls, math.log(start[0]) + (length - 1) * math.log(0.5)])
    worst = 0.0
    for entry in (0, 1, 600, 1199):
        for value in (0, 1):
            paths = range(entry + 1, 1201) if value == 0 else range(entry + 1)
            totals = []
            for law in logs:
                top = max(law[p] for p in paths)
                totals.append(top + math.log(math.fsum(math.exp(law[p] - top) for p in paths)))
            worst = max(worst, *(logs[0][p] - totals[0] - logs[1][p] + totals[1] for p in paths))
    return worst


def test_the_lift_of_a_network_with_joints_that_have_no_digits_left() -> None:
    """P(B = 1) = 1e-323; given it eight children take 1 with .7, otherwise with .5."""
    children = {f"C{i}": [[0.5, 0.5], [0.3, 0.7]] for i in range(8)}
    net = shoal.BayesNet.of(
        {
            "A": [1 - 1e-162, 1e-162],
            "B": [[1.0, 0.0], [1 - 1e-161, 1e-161]],
            **children,
        },
        parents={"B": ["A"], **{child: ["B"] for child in children}},
    )
    for eta in (0.1, 0.4):
        # the count of children at outputs above all answers, and what B itself adds
        told = eta + 8 * math.log((0.3 + 0.7 * math.exp(eta)) / (0.5 + 0.5 * math.exp(eta)))
        assert shoal.leakage(net, eta).value >= told


def test_the_lift_of_a_crowd_with_weights_that_have_no_digits_left() -> None:
    """Nobody ill almost surely; of the rest, all but one are ill as likely as all."""
    law = np.zeros(12)
    law[0], law[1], law[2], law[11] = 1.0, 5e-324, 5e-324, 1e-322
    crowd = shoal.Contagion.cliques([11], law)
    whole = {1: 1, 2: 1, 11: 20}  # multiples of 2^-1074
    ill = {n - 1: mass * n for n, mass in whole.items()}
    for eta in (0.2, 1.0):
        # the count at outputs above all answers: well means nobody, up to 1e-320
        seen = math.fsum(mass * math.exp(eta * o) for o, mass in ill.items()) / sum(ill.values())
        assert shoal.leakage(crowd, eta).value >= eta + math.log(seen) - 1e-12


def test_a_stationary_law_that_no_double_holds_is_refused() -> None:
    """A ladder of 120 states, each step up 1e-3 as likely as down: the top has 1e-357."""
    ladder = np.zeros((120, 120))
    for state in range(119):
        ladder[state, state + 1], ladder[state + 1, state] = 1e-3, 1.0 - 1e-3
    ladder += np.diag(1.0 - ladder.sum(axis=1))
    with pytest.raises(shoal.InputError, match="the stationary law of a state is below 2"):
        shoal.MarkovChain.of(ladder)
    start = [1.0, *[0.0] * 119]
    assert shoal.MarkovChain.of(ladder, initial=start).gap == 0.0


def test_the_law_of_a_variable_does_not_lose_a_value() -> None:
    steps = {f"X{i}": [[1.0, 0.0], [1 - 1e-100, 1e-100]] for i in range(1, 5)}
    net = shoal.BayesNet.of(
        {"X0": [1 - 1e-100, 1e-100], **steps}, parents={f"X{i}": [f"X{i - 1}"] for i in range(1, 5)}
    )
    assert net.law("X2")[1] == pytest.approx(1e-300)
    assert net.law("X3", where={"X2": "1"})[1] == pytest.approx(1e-100)
    with pytest.raises(shoal.InputError, match="the law of X4 has a possible value below 2"):
        net.law("X4")
    assert net.probability({"X4": "1"}) > 0


def test_pairwise_laws_whose_weights_no_double_holds_are_refused() -> None:
    """A hub that is 1 with 1e-6: with 60 ties its value 0 weighs 1e-354 of that."""
    pair = [[1 - 1.5e-6, 5e-7], [5e-7, 5e-7]]
    star = [(0, leaf + 1) for leaf in range(60)]
    ties = shoal.Dependence.of(shoal.records.RecordDomain.named(BITS), 61, star, pair)
    with pytest.raises(shoal.InputError, match="record 0 has 60 ties"):
        shoal.records.field_of_pairs(ties)


@pytest.mark.parametrize("query", [shoal.histogram(BITS), COUNT], ids=["histogram", "count"])
def test_impossible_pairs_have_nothing_to_tell(query: shoal.mechanisms.LinearQuery) -> None:
    table = shoal.JointTable.of([[0.5, 0.0], [0.0, 0.5]])
    never = shoal.Event.of("differ", {"X1": 0, "X2": 1}), shoal.Event.of("other", {"X1": [1]})
    pair = shoal.SecretPairs.of([never])
    for name in ("best", "exact", "wasserstein", "group"):
        plan = shoal.calibrate(query, pair, table, epsilon=1, mechanism=name)
        assert shoal.verify_promise(plan) <= 1.0


def test_events_take_values_as_models_do() -> None:
    plain = shoal.Event.of("a", {"X1": 0, "X2": [0, 1.0]})
    assert plain.mapping() == {"X1": ("0",), "X2": ("0", "1")}
