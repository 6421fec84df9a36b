"""Location streams step by step: storage, silence, skips, several questions, charges, drift."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError, StoredError
from shoal.core.numbers import significant
from shoal.core.plan import Plan
from shoal.core.registry import dumps, loads
from shoal.core.task import Task
from shoal.ledger.store import open_ledger
from shoal.mechanisms.choice import choose
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.noise.primitives import SeededRng
from shoal.places.machine import FAR_OFF, NOTHING_LEFT, ON_A_LINE, POLICY_SILENT, LocationMachine
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement, coordinates, measurement
from shoal.places.stream import LocationStream
from tests.locations import SIX, running_policy, running_query, running_task, town, walk

PATH = ["s1", "s2", "s2", "s4", "s5", "s6", "s1"]


def knorm(task: Task, epsilon: str = "1") -> Plan:
    return calibrate_and_check(MECHANISMS["location-knorm"], task, Fraction(epsilon))


def task_on(chain: MarkovChain, query: Measurement, policy: PolicyGraph) -> Task:
    return Task(query=query, secrets=policy, family=(chain,))


@pytest.mark.parametrize("delta", [None, Fraction(1, 5)])
def test_a_stream_taken_up_again_equals_one_that_never_stopped(delta: Fraction | None) -> None:
    plan = knorm(running_task(delta=delta))
    straight, rng = LocationStream.begin(plan), SeededRng(4)
    shown = []
    for place in PATH:
        straight, release = straight.read(place, rng=rng)
        shown.append(release)
    stopping, rng = LocationStream.begin(loads(dumps(plan))), SeededRng(4)
    for place, before in zip(PATH, shown, strict=True):
        stopping, release = stopping.read(place, rng=rng)
        assert release == before
        stopping = loads(dumps(stopping))
    assert stopping == straight
    assert stopping.state.belief.tobytes() == straight.state.belief.tobytes()


def test_a_large_map_is_taken_up_again_too() -> None:
    chain = town(18, 18, start=100)
    query = coordinates(chain)
    plan = knorm(task_on(chain, query, PolicyGraph.within(query, 1)))  # type: ignore[arg-type]
    stream, rng = LocationStream.begin(plan), SeededRng(4)
    again, other = LocationStream.begin(plan), SeededRng(4)
    for x in chain.sample(4, SeededRng(1)):
        stream, release = stream.read(chain.states[x], rng=rng)
        again, same = loads(dumps(again)).read(chain.states[x], rng=other)
        assert release == same
    assert loads(dumps(stream)) == again


def test_a_stored_stream_that_was_changed_is_refused_in_words() -> None:
    stream = LocationStream.begin(knorm(running_task()))
    state: Any = stream.state
    spoilt: list[Any] = [None, replace(state, time="noon"), replace(state, loss_path="1")]
    for changed in spoilt:
        with pytest.raises(StoredError, match="was it changed"):
            replace(stream, state=changed)


def test_with_one_possible_state_nothing_is_released_and_it_is_said() -> None:
    chain = walk(initial=[1, 0, 0, 0, 0, 0])
    stream = LocationStream.begin(knorm(task_on(chain, running_query(), running_policy())))
    stream, release = stream.read("s1", rng=SeededRng(1))
    assert (release.z, release.point, release.possible) == (None, None, 1)
    assert release.warnings == (NOTHING_LEFT,)
    assert release.guarantee is None
    assert (release.loss_here, release.loss_path) == (0, 0)
    assert release.estimate == (1, 0)
    stream, release = stream.read("s2", rng=SeededRng(1))
    assert release.z is not None
    assert release.possible == 3


def test_equal_answers_are_released_as_they_are() -> None:
    query = measurement("abc", [[3, 4]] * 3, labels=("x", "y"))
    chain = walk(("a", "b", "c"))
    plan = knorm(task_on(chain, query, PolicyGraph.complete("abc")))
    _, release = LocationStream.begin(plan).read("b", rng=SeededRng(1))
    assert release.point == (3, 4)
    assert (release.degree, release.possible) == (3, 3)
    assert release.loss_path == 0
    assert release.warnings == ()


def test_noise_on_a_line_says_that_parallel_lines_are_told_apart() -> None:
    query = measurement("abcd", [[0, 0], [1, 0], [0, 5], [1, 5]], labels=("x", "y"))
    policy = PolicyGraph.of("abcd", [("a", "b"), ("c", "d")])
    plan = knorm(task_on(walk(tuple("abcd")), query, policy))
    stream, release = LocationStream.begin(plan).read("c", rng=SeededRng(2))
    assert release.point is not None
    assert release.point[1] == 5
    assert ON_A_LINE in release.warnings
    assert release.loss_path == float("inf")
    assert release.as_dict()["loss_path"] is None
    support = np.unpackbits(stream.state.support, count=4)
    assert support.tolist() == [0, 0, 1, 1]  # exactly the states on the line of z


def test_a_policy_without_an_edge_left_is_repaired_and_it_is_said() -> None:
    chain = walk(initial=[0, 0, 0.5, 0, 0.5, 0])
    plan = knorm(task_on(chain, running_query(), running_policy()))
    _, release = LocationStream.begin(plan).read("s3", rng=SeededRng(3))
    assert release.added == (("s3", "s5"),)
    assert POLICY_SILENT in release.warnings
    assert release.degree == 2


def test_skipped_steps_move_the_belief_and_cost_nothing() -> None:
    chain = walk(initial=[1, 0, 0, 0, 0, 0])
    stream = LocationStream.begin(knorm(task_on(chain, running_query(), running_policy())))
    stream, release = stream.skip(3)
    assert stream.state.time == 3
    assert release.z is None
    assert release.loss_path == 0
    belief = chain.marginal(2)
    assert stream.state.belief == pytest.approx(belief, rel=1e-6)
    by_none = LocationStream.begin(stream.plan)
    for _ in range(3):
        by_none, _ = by_none.read(None, rng=SeededRng(1))
    assert by_none.state == stream.state
    with pytest.raises(InputError, match="skip at least one"):
        stream.skip(0)


def test_several_questions_at_one_step_add_up() -> None:
    task = running_task()
    other = replace(task, query=measurement(SIX, [[k] for k in range(6)], labels=("k",)))
    first, second = knorm(task, "1/2"), knorm(other, "3/4")
    stream, release = LocationStream.begin(first).ask("s4", [second], rng=SeededRng(6))
    assert release.guarantee is not None
    assert release.guarantee.amount == Fraction(5, 4)
    apart = [
        LocationMachine.prior(plan.body, LocationStream.begin(plan).state).noise.spread  # type: ignore[arg-type]
        for plan in (first, second)
    ]
    assert release.loss_path == pytest.approx(sum(apart))
    alone, _ = LocationStream.begin(first).read("s4", rng=SeededRng(6))
    assert (stream.state.belief != alone.state.belief).any()
    with pytest.raises(InputError, match="different models or policies"):
        stream.ask("s4", [knorm(running_task(delta=Fraction(1, 5)))])


def test_several_questions_are_charged_one_by_one(tmp_path: Any) -> None:
    task = running_task()
    other = replace(task, query=measurement(SIX, [[k] for k in range(6)], labels=("k",)))
    first, second = knorm(task, "1/2"), knorm(other, "3/4")
    stream = LocationStream.begin(first)
    with open_ledger(tmp_path / "l.db") as ledger:
        account: dict[str, Any] = {"ledger": ledger, "subject": "ann", "key": "step 1"}
        after, release = stream.ask("s4", [second], **account)
        again, same = stream.ask("s1", [second], **account)
        assert (again, same) == (after, release)
        spent = ledger.spent("ann")
        assert spent is not None
        assert (spent.amount, spent.charges) == (Fraction(5, 4), 2)


def test_a_state_the_model_calls_impossible_answers_as_the_nearest() -> None:
    chain = walk(initial=[0, 0.5, 0.5, 0, 0, 0])
    stream = LocationStream.begin(knorm(task_on(chain, running_query(), running_policy())))
    aside = stream.aside("s5")
    assert (aside.state, aside.answering, aside.drifted, aside.degree) == ("s5", "s2", True, 2)
    assert not stream.aside("s2").drifted
    _, release = stream.read("s5", rng=SeededRng(9))
    _, same = stream.read("s2", rng=SeededRng(9))
    assert release == same  # nothing that is shown depends on the drift


def test_outputs_far_from_every_possible_state_are_pointed_out() -> None:
    plan = knorm(running_task())
    machine = plan.body
    assert isinstance(machine, LocationMachine)
    _, near = machine.absorb(machine.init(), ((machine, (2, 1)),))
    _, far = machine.absorb(machine.init(), ((machine, (900, 900)),))
    assert FAR_OFF not in near.warnings
    assert FAR_OFF in far.warnings


def test_a_known_start_is_where_everybody_knows_one_to_be() -> None:
    plan = knorm(running_task())
    stream = LocationStream.begin(plan, start="s1")
    assert stream.state.time == 1
    stream, release = stream.read("s2", rng=SeededRng(1))
    assert release.possible == 3  # stay, one on, two on
    assert release.time == 2


def test_a_step_is_charged_before_it_is_drawn(tmp_path: Any) -> None:
    plan = knorm(running_task())
    stream = LocationStream.begin(plan)
    with open_ledger(tmp_path / "l.db") as ledger:
        with pytest.raises(InputError, match="rng is seeded"):
            stream.read("s2", rng=SeededRng(1), ledger=ledger, subject="ann")
        with pytest.raises(InputError, match="subject is empty"):
            stream.read("s2", ledger=ledger)
        assert ledger.spent("ann") is None
        after, release = stream.read("s2", ledger=ledger, subject="ann", key="1")
        again, repeated = stream.read("s5", ledger=ledger, subject="ann", key="1")
        assert (again, repeated) == (after, release)  # the stored output, not a second draw
        after.read("s3", ledger=ledger, subject="ann", key="2")
        spent = ledger.spent("ann")
        assert spent is not None
        assert (spent.amount, spent.charges, spent.notion) == (Fraction(2), 2, "policy")
        assert "Theorems 7.1 and 7.2" in spent.explanation
        eta = plan.certificate.eta  # type: ignore[attr-defined]
        assert f"any position, differ by at most {significant(2 * eta)}" in spent.explanation
        certain = walk(initial=[1, 0, 0, 0, 0, 0])
        alone = knorm(task_on(certain, running_query(), running_policy()))
        _, release = LocationStream.begin(alone).read("s1", ledger=ledger, subject="bob")
        assert release.z is None
        assert ledger.spent("bob") is None


def test_the_absolute_estimate_is_a_geometric_median() -> None:
    task = running_task()
    machine = LocationMachine(
        chain=task.family[0],
        query=replace(running_query(), estimate="absolute"),
        places=running_policy(),
        epsilon=Fraction(1),
    )
    state, release = machine.absorb(machine.init(), ((machine, (1, 2)),))
    values = machine.query.values

    def cost(point: Any) -> float:
        return float(state.belief @ np.sqrt(((values - point) ** 2).sum(axis=1)))

    best = cost(np.array(release.estimate))
    for nudge in itertools.product((-0.02, 0, 0.02), repeat=2):
        assert best <= cost(np.array(release.estimate) + nudge) + 1e-7
    with pytest.raises(InputError, match="estimate is 'median'"):
        replace(machine.query, estimate="median")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="noise is 'gauss'"):
        replace(machine, noise="gauss")


def test_supports_are_shared_and_states_are_small() -> None:
    chain = town(20, 20)
    query = coordinates(chain)
    plan = knorm(task_on(chain, query, PolicyGraph.within(query, 1)))  # type: ignore[arg-type]
    states = []
    for seed in range(20):
        stream, _ = LocationStream.begin(plan).read("3,4", rng=SeededRng(seed))
        states.append(stream.state)
    assert len({id(state.support) for state in states}) == 1
    assert all(s.belief.nbytes == 1600 for s in states)


def test_far_states_of_a_graph_stay_possible_although_their_weights_underflow() -> None:
    """Two paths of 30 states at epsilon = 40: e^-1160 is 0 in floats, and still a possibility."""
    names = tuple(map(str, range(60)))
    chain = MarkovChain.of(np.full((60, 60), 1 / 60), states=names, initial=np.full(60, 1 / 60))
    query = measurement(names, [[k + 100 * (k >= 30)] for k in range(60)], labels=("x",))
    task = task_on(chain, query, PolicyGraph.within(query, 1))
    plan = calibrate_and_check(MECHANISMS["location-graph-exponential"], task, Fraction(40))
    machine = plan.body
    assert isinstance(machine, LocationMachine)
    state, release = machine.absorb(machine.init(), ((machine, (0,)),))
    assert release.loss_path == float("inf")  # the other path is ruled out for certain
    support = np.unpackbits(state.support, count=60)
    assert support[:30].all()
    assert not support[30:].any()


def test_a_known_start_is_not_counted_as_forgotten() -> None:
    mixing = MarkovChain.of(0.5 * np.eye(6) + 0.5 / 6, states=SIX, initial=np.full(6, 1 / 6))
    plan = knorm(running_task(mixing))
    known, free = LocationStream.begin(plan, start="s1"), LocationStream.begin(plan)
    for place in ("s2", "s3", "s4"):
        known, release = known.read(place, rng=SeededRng(1))
        free, other = free.read(place, rng=SeededRng(1))
    assert release.loss_here == release.loss_path
    assert other.loss_here < other.loss_path


def test_beliefs_that_underflow_never_drop_a_possible_state() -> None:
    """Far outputs push a belief below the smallest float; the support stays exact."""
    names = tuple(map(str, range(40)))
    matrix = np.eye(40) * 0.5 + np.roll(np.eye(40), 1, axis=1) * 0.5
    chain = MarkovChain.of(matrix, states=names, initial=np.full(40, 1 / 40))
    query = measurement(names, [[k] for k in range(40)], labels=("x",))
    plan = knorm(task_on(chain, query, PolicyGraph.within(query, 1)), "20")
    machine = plan.body
    assert isinstance(machine, LocationMachine)
    state = machine.init()
    for _ in range(10):
        state, _ = machine.absorb(state, ((machine, (0,)),))
    assert (state.belief == 0).any()
    assert np.unpackbits(state.support, count=40).all()
    state, release = machine.absorb(state, ((machine, (39,)),))
    assert np.isfinite(release.estimate).all()
    assert release.possible == 40


def test_readings_are_names_or_coordinates_of_the_map() -> None:
    chain = town(4, 4)
    query = coordinates(chain)
    plan = knorm(task_on(chain, query, PolicyGraph.complete(chain.states)))  # type: ignore[arg-type]
    stream = LocationStream.begin(plan)
    assert chain.grid is not None
    latitude, longitude = chain.grid.centre_of(6)
    for reading in (
        "1,2",
        {"state": "1,2"},
        (latitude, longitude),
        {"lat": latitude, "lon": longitude},
    ):
        assert stream.aside(reading).state == "1,2"
    assert stream.aside((latitude + 10, longitude)).state == "3,2"  # beyond the edge: the nearest
    for bad, why in (
        ("9,9", "not one of the model's"),
        ((1.0,), "two numbers"),
        ((float("nan"), 1.0), "not finite"),
        ({"x": 1}, "neither state nor lat and lon"),
    ):
        with pytest.raises(InputError, match=why):
            stream.aside(bad)
    with pytest.raises(InputError, match="no grid"):
        LocationStream.begin(knorm(running_task())).aside((39.0, 116.0))


def test_the_best_row_has_the_least_error_after_the_estimate() -> None:
    choice = choose(running_task(), Fraction(1))
    plans = [p for p in choice.alternatives.values() if isinstance(p, Plan)]
    assert choice.plan.cost == min(p.cost for p in plans)
    assert {p.mechanism for p in plans} >= {"location-knorm", "location-laplace"}
    certificate = choice.plan.certificate
    assert certificate.estimate_error <= certificate.guess_error  # type: ignore[attr-defined]
    assert certificate.estimate_error < certificate.raw_error  # type: ignore[attr-defined]


def test_rows_refuse_what_is_not_a_stream_of_places() -> None:
    row = MECHANISMS["location-knorm"]
    task = running_task()
    two = replace(task, family=(walk(), walk(stay=0.2)))
    assert "several models" in str(row.refuse(two))
    with pytest.raises(InputError, match="policy on 6 states"):
        Task(
            query=measurement("abc", [[0], [1], [2]]),
            secrets=running_policy(),
            family=(walk(("a", "b", "c")),),
        )
    with pytest.raises(InputError, match="not a plan for a location stream"):
        LocationStream.begin(replace(knorm(task), body=None))  # type: ignore[arg-type]


def test_a_stream_longer_than_its_model_is_refused() -> None:
    stream = LocationStream.begin(knorm(running_task(walk(length=2))))
    stream, _ = stream.skip(2)
    with pytest.raises(InputError, match="step 3 is beyond length 2"):
        stream.skip()


def test_location_sets_take_one_more_state_rather_than_one_less() -> None:
    complete = LocationSet.complete(SIX, "0.1")
    chain = walk(initial=[0.3, 0.4, 0.05, 0.2, 0.03, 0.02])
    plan = knorm(Task(query=running_query(), secrets=complete, family=(chain,)))
    _, release = LocationStream.begin(plan).read("s1", rng=SeededRng(1))
    assert release.possible == 3  # .4 + .3 + .2 is not below .9
    assert complete.notion == "location-set"
    with pytest.raises(InputError, match="coverage_delta is 1"):
        LocationSet.complete(SIX, 1)
