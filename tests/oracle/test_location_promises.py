"""Promises about places that were once false, each against a count written here, by hand."""

from __future__ import annotations

import itertools
import math
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.core.errors import PromiseBroken
from shoal.core.motion import motion_of
from shoal.noise.primitives import SeededRng
from shoal.places.runtime import Forgetting, propagate_loss

NOISES = {
    "location-knorm": "k-norm",
    "location-laplace": "laplace",
    "location-staircase": "staircase",
    "location-graph-exponential": "graph-exponential",
}
ROWS = tuple(NOISES)


def line(size: int) -> Any:
    """Places 0, 1, … on a line, told by their number."""
    return shoal.measurement([str(k) for k in range(size)], [[k] for k in range(size)])


def plan_of(matrix: Any, initial: Any, query: Any, secrets: Any, epsilon: Any, row: str) -> Any:
    chain = shoal.MarkovChain.of(matrix, initial=initial, states=query.states)
    return shoal.calibrate(query, secrets, chain, epsilon=epsilon, mechanism=row)


def told_by_left_outputs(stay: float, steps: int, epsilon: float) -> list[float]:
    """log P(z | X_t = 0) - log P(z | X_t = 1) for outputs left of both places, step after step.

    State 0 is left for good with chance 1 - stay; every output favours it by e^epsilon. Joint and
    own law of both states, in logarithms, by the recursion of their definition.
    """
    go, found = math.log(1 - stay), []
    joint, own = [math.log(0.5) + epsilon, math.log(0.5)], [math.log(0.5)] * 2
    for _ in range(steps):
        found.append((joint[0] - own[0]) - (joint[1] - own[1]))
        joint = [
            joint[0] + math.log(stay) + epsilon,
            float(np.logaddexp(joint[0] + go, joint[1])),
        ]
        own = [own[0] + math.log(stay), float(np.logaddexp(own[0] + go, own[1]))]
    return found


def test_a_place_that_is_almost_surely_left_is_followed_for_ever() -> None:
    """Its probability is no float after 1,074 steps; what outputs tell about it grows on."""
    query = line(2)
    secrets = shoal.PolicyGraph.complete(query.states)
    plan = plan_of([[0.5, 0.5], [0, 1]], [0.5, 0.5], query, secrets, 1, "location-knorm")
    truth = told_by_left_outputs(0.5, 1100, 1.0)
    state = plan.body.init()
    for t in range(1100):
        state, release = plan.body.absorb(state, ((plan.body, (-3,)),))
        assert release.loss_here >= truth[t] * (1 - 1e-12), t
    assert truth[-1] > 330
    assert release.loss_here <= 1100


def test_whole_streams_follow_such_a_place_too() -> None:
    query = line(2)
    secrets = shoal.PolicyGraph.complete(query.states)
    matrix, initial = [[1e-30, 1 - 1e-30], [0, 1]], [0.5, 0.5]
    plan = plan_of(matrix, initial, query, secrets, 1, "location-knorm")
    found = shoal.places.sequence_leakage(plan, [(-3,)] * 14)
    truth = told_by_left_outputs(1e-30, 14, 1.0)
    assert found.learned_any_two[-1] == pytest.approx(truth[-1], rel=1e-9)
    for t in range(14):
        assert found.any_two[t] >= truth[t] * (1 - 1e-9)


def test_what_carries_over_a_step_rounds_up() -> None:
    """log(1 + τ(e^g - 1)), attained by laws of which one has no mass on the heavier state."""
    digits = Context(prec=400)
    for bound, share in itertools.product(
        [1e-12, 1e-3, 1 / 3, 0.7, 1.0, 30.0, 369.3, 699.9, 700.1, 900.0],
        [1e-300, 1e-16, 1e-3, 0.1, 1 / 3, 0.999, 1 - 2**-53],
    ):
        grown = digits.multiply(Decimal(share), digits.subtract(digits.exp(Decimal(bound)), 1))
        exact = digits.ln(digits.add(1, grown))
        found = propagate_loss(bound, share)
        assert Decimal(found) >= min(exact, Decimal(bound))
        assert found <= float(exact) * (1 + 1e-8) + 1e-300


def test_how_much_a_step_forgets_rounds_up() -> None:
    """The distance of reversed laws as floats and as exact fractions, also far below the floats."""
    for seed, size in itertools.product(range(6), (2, 3, 5)):
        rng = np.random.default_rng(seed)
        weights = rng.random((size, size)) * (rng.random((size, size)) < 0.8) + 1e-3 * np.eye(size)
        if seed % 2:
            weights[0, 1:] *= 1e-200
        matrix = weights / weights.sum(axis=1, keepdims=True)
        initial = np.full(size, 1 / size)
        chain = shoal.MarkovChain.of(matrix, initial=initial)
        forgetting = Forgetting(motion_of(chain))
        exact = [[Fraction(float(value)) for value in row] for row in chain.transition]
        own = [Fraction(float(value)) for value in chain.initial]
        for step in range(1, 8):
            after = [
                sum((own[x] * exact[x][y] for x in range(size)), Fraction(0)) for y in range(size)
            ]
            rows = [
                [own[x] * exact[x][y] / after[y] for x in range(size)]
                for y in range(size)
                if after[y]
            ]
            apart = max(
                sum(abs(a - b) for a, b in zip(one, two, strict=True)) / 2
                for one in rows
                for two in rows
            )
            found = forgetting.factor(step)
            assert Fraction(found) >= min(apart, Fraction(1))
            assert found <= float(apart) + 1e-12
            own = after


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("epsilon", ["1000", "1000000", "1/1000000"])
def test_extreme_epsilons_end(row: str, epsilon: str) -> None:
    points = [(1, 0), (2, 1), (3, 0), (0, 1), (4, 2), (1, 2)]
    query = shoal.measurement("abcdef", points)
    secrets = shoal.PolicyGraph.categories(query.states, [("a",), ("b", "c"), ("d", "e", "f")])
    matrix = np.full((6, 6), 1 / 6)
    plan_of(matrix, [1 / 6] * 6, query, secrets, 1, row)  # loops are compiled once
    begin = time.perf_counter()
    plan = plan_of(matrix, [1 / 6] * 6, query, secrets, Fraction(epsilon), row)
    _, release = shoal.LocationStream.begin(plan).read("e", rng=SeededRng(3))
    if float(Fraction(epsilon)) > 1:
        assert release.z == (4, 2)
    assert time.perf_counter() - begin < 10  # on a busy computer; alone it is well below a second


def spent(path: Path, plan: Any, start: Any, readings: Sequence[str]) -> tuple[Any, Any, Any]:
    """What a ledger says after these readings, its bound for any two sequences, the last step."""
    with shoal.open_ledger(path / "budget.db") as ledger:
        stream = shoal.LocationStream.begin(plan, start)
        for reading in readings:
            stream, release = stream.read(reading, ledger=ledger, subject="ann")
        total = ledger.spent("ann")
        assert ledger.verify().intact
    assert total is not None
    found = re.search(r"any position, differ by at most ([\d.,]+)", total.explanation)
    return total, found and float(found[1].rstrip(".,").replace(",", "")), release


def path_matrix(size: int) -> Any:
    """One goes on by one place at most, or back to anywhere: supports grow place by place."""
    matrix = np.tril(np.ones((size, size)), 1)
    return matrix / matrix.sum(axis=1, keepdims=True)


def test_the_ledger_counts_the_constraints_of_a_stream_that_starts_elsewhere(
    tmp_path: Path,
) -> None:
    """Places 2 to 12 tell their ends apart by 10 ε a step; the first law knows 0 and 1 only."""
    query = line(13)
    matrix = np.zeros((13, 13))
    matrix[:2, :2], matrix[2:, 2:] = 1 / 2, 1 / 11
    policy = shoal.PolicyGraph.within(query, 1)
    initial = [0.5, 0.5] + [0] * 11
    plan = plan_of(matrix, initial, query, policy, 1, "location-knorm")
    assert plan.certificate.eta == pytest.approx(1)  # and says that it is for the first law
    assert "begins with the chain's first law" in plan.certificate.theorem
    _, claimed, release = spent(tmp_path, plan, "2", ["7"] * 3)
    assert claimed == pytest.approx(30)
    assert release.loss_path == pytest.approx(30)


def test_the_ledger_counts_constraints_that_grow(tmp_path: Path) -> None:
    """After t steps places 0 to t are possible and their ends t ε apart: 0 + 1 + … + 69."""
    query = line(70)
    policy = shoal.PolicyGraph.within(query, 1)
    initial = [1] + [0] * 69
    plan = plan_of(path_matrix(70), initial, query, policy, 1, "location-knorm")
    assert plan.certificate.eta is None  # the constraints have not come round
    total, claimed, _ = spent(tmp_path, plan, None, ["0"] * 70)
    assert total.amount == 69  # nothing is released where one place alone is possible
    assert 2415 <= claimed <= 2415 * 1.001


def test_the_ledger_speaks_about_pairs_inside_a_location_set_only(tmp_path: Path) -> None:
    """Neighbours 5 and 6, outside {0, 1, 10, 11}, answer as 1 and 10: 9 ε a step."""
    query = line(12)
    likely = [0, 1, 10, 11]
    initial = np.full(12, 0.01 / 8)
    initial[likely] = 0.99 / 4
    matrix = np.tile(initial, (12, 1))
    places = shoal.LocationSet(policy=shoal.PolicyGraph.within(query, 1), delta=Fraction(1, 20))
    plan = plan_of(matrix, initial, query, places, 1, "location-knorm")
    total, claimed, _ = spent(tmp_path, plan, None, ["5"] * 2)
    assert total.amount == 2
    assert "joined states in the set" in total.explanation
    logs = shoal.places.stream.output_log_likelihoods(plan, [(30,)])[0]
    assert logs[6] - logs[5] == pytest.approx(9)
    assert claimed >= 2 * 11 * (1 - 1e-9)  # 0 and 11 are members themselves


def test_what_an_old_plan_says_beforehand_is_not_believed(tmp_path: Path) -> None:
    query = line(13)
    matrix = np.full((13, 13), 1 / 13)
    policy = shoal.PolicyGraph.within(query, 1)
    plan = plan_of(matrix, [1 / 13] * 13, query, policy, 1, "location-knorm")
    rule = replace(plan.composition[0], eta=Fraction(1))
    assert shoal.verify_promise(replace(plan, composition=(rule,))) == math.inf
    less = replace(rule, epsilon=Fraction(1, 10))
    with pytest.raises(PromiseBroken, match="it was changed; calibrate it again"):
        spent(tmp_path, replace(plan, composition=(less,)), None, ["0"] * 2)


def radius(values: Sequence[int], edges: Sequence[tuple[int, ...]]) -> int:
    """The half-width of the hull of one-dimensional answers."""
    return max(abs(values[a] - values[b]) for a, b in edges)


@pytest.mark.parametrize("rows", list(itertools.product(ROWS[:2], ROWS)), ids=str)
def test_questions_of_one_step_leave_nobody_without_a_common_protector(
    rows: tuple[str, str],
) -> None:
    """0 is alone; nearest to it is 1 by the first answer and 3 by the second.

    Each question by itself would join 0 to its own nearest: 1 + 20/1 and 10/1 + 1, so that every
    other state is told from 0 by more than 2.
    """
    states = "01234"
    answers = [0, 3, 4, 10, 11], [0, 10, 11, 3, 4]
    edges = [(1, 2), (3, 4)]
    policy = shoal.PolicyGraph.categories(states, [("1", "2"), ("3", "4")])
    matrix, initial = np.full((5, 5), 0.2), [0.2] * 5
    plans = [
        plan_of(matrix, initial, shoal.measurement(states, [[v] for v in own]), policy, 1, row)
        for own, row in zip(answers, rows, strict=True)
    ]
    stream = shoal.LocationStream.begin(plans[0])
    _, release = stream.ask("0", plans[1:], rng=SeededRng(1))
    assert release.guarantee is not None
    assert release.guarantee.amount == 2
    added = [tuple(map(int, pair)) for pair in release.added]
    stages = plans[0].body.noises(stream.state, [plan.body for plan in plans])
    losses = np.zeros((5, 5))
    for own, row, stage in zip(answers, rows, stages, strict=True):
        logs = np.array([stage.law.log_likelihood((z,)) for z in range(-40, 60)])
        if row in ("location-knorm", "location-laplace"):
            half = radius(own, [*edges, *added])
            law = np.array([[-abs(z - v) / half for v in own] for z in range(-40, 60)])
            assert logs == pytest.approx(law)
        seen = logs[np.isfinite(logs).any(axis=1)]
        with np.errstate(invalid="ignore"):
            gaps = np.abs(seen[:, :, None] - seen[:, None, :])
        losses += np.where(np.isnan(gaps), 0, gaps).max(axis=0)
    for a, b in edges:
        assert losses[a, b] <= 2 + 1e-9
    for state in range(5):
        assert min(losses[state, other] for other in range(5) if other != state) <= 2 + 1e-9
    assert release.degree >= 2


def test_warnings_of_every_question_are_kept() -> None:
    """The second answer has noise on a line of the plane, and the release says so."""
    states = "abcd"
    policy = shoal.PolicyGraph.categories(states, [("a", "b"), ("c", "d")])
    wide = shoal.measurement(states, [[0], [1], [2], [3]])
    flat = shoal.measurement(states, [(0, 0), (1, 0), (0, 5), (1, 5)])
    matrix, initial = np.full((4, 4), 1 / 4), [1 / 4] * 4
    first, second = (
        plan_of(matrix, initial, query, policy, 1, "location-knorm") for query in (wide, flat)
    )
    stream = shoal.LocationStream.begin(first)
    assert stream.read("a", rng=SeededRng(1))[1].warnings == ()
    for one, other in ((first, second), (second, first)):
        _, both = shoal.LocationStream.begin(one).ask("a", [other], rng=SeededRng(1))
        assert any("all noise lies on a line" in warning for warning in both.warnings)
        assert both.loss_path == math.inf


def test_an_output_of_another_step_is_not_taken_for_one_of_this(tmp_path: Path) -> None:
    """The key of a first step used again: its output lies where this step never goes."""
    query = shoal.measurement("abcd", [(0, 0), (1, 0), (0, 5), (1, 5)])
    policy = shoal.PolicyGraph.categories("abcd", [("a", "b"), ("c", "d")])
    matrix = np.zeros((4, 4))
    matrix[:2, 2:] = matrix[2:, :2] = 1 / 2
    plan = plan_of(matrix, [0.5, 0.5, 0, 0], query, policy, 1, "location-knorm")
    with shoal.open_ledger(tmp_path / "budget.db") as ledger:
        account: Any = {"ledger": ledger, "subject": "ann", "key": "8:00"}
        stream, _ = shoal.LocationStream.begin(plan).read("a", **account)
        with pytest.raises(shoal.InputError, match="cannot come from this step"):
            stream.read("c", **account)


def forgeries(plan: Any) -> dict[str, Any]:
    """The plan with one thing in its document changed, by what was changed."""
    machine, query, policy = plan.body, plan.body.query, plan.body.places
    other = next(noise for noise in NOISES.values() if noise != machine.noise)
    fewer = replace(policy, edges=policy.edges[1:])
    near = replace(query, points=query.points // 2)
    guarantee, rule = plan.guarantee, plan.composition[0]
    return {
        "epsilon": replace(plan, body=replace(machine, epsilon=2 * machine.epsilon)),
        "epsilon of the machine and the steps": replace(
            plan,
            body=replace(machine, epsilon=2 * machine.epsilon),
            composition=(replace(rule, epsilon=2 * rule.epsilon),),
        ),
        "noise": replace(plan, body=replace(machine, noise=other)),
        "policy": replace(plan, body=replace(machine, places=fewer)),
        "answers": replace(plan, body=replace(machine, query=near)),
        "model": replace(
            plan, body=replace(machine, chain=replace(machine.chain, initial=[1, 0, 0, 0]))
        ),
        "amount": replace(plan, guarantee=replace(guarantee, amount=guarantee.amount / 2)),
        "notion": replace(plan, guarantee=replace(guarantee, notion="pufferfish")),
        "over": replace(plan, guarantee=replace(guarantee, over="anything at all")),
        "steps": replace(plan, composition=(replace(rule, epsilon=rule.epsilon / 2),)),
        "eta of steps": replace(plan, composition=(replace(rule, eta=rule.epsilon),)),
        "no rule": replace(plan, composition=()),
        "certified loss": replace(plan, certificate=replace(plan.certificate, loss=0.1)),
        "certified eta": replace(plan, certificate=replace(plan.certificate, eta=0.1)),
    }


@pytest.mark.parametrize("row", ROWS)
def test_a_forged_plan_is_caught(row: str) -> None:
    query = shoal.measurement("abcd", [(0, 0), (2, 1), (4, 0), (6, 8)])
    policy = shoal.PolicyGraph.within(query, 3)
    matrix, initial = np.full((4, 4), 1 / 4), [1 / 4] * 4
    plan = plan_of(matrix, initial, query, policy, 1, row)
    assert shoal.verify_promise(plan) <= 1 + 1e-9
    assert shoal.verify_promise(shoal.loads(shoal.dumps(plan))) <= 1 + 1e-9
    for what, forged in forgeries(plan).items():
        stored = shoal.loads(shoal.dumps(forged))
        promised = float(stored.guarantee.amount)
        assert shoal.verify_promise(stored) > promised * (1 + 1e-9), what
