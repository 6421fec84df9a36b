"""Events on location streams, by listing all paths and outputs: no odds beyond their bound."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

import shoal
from shoal.core.errors import InputError, PromiseBroken
from shoal.core.plan import Plan
from shoal.core.registry import dumps, loads
from shoal.core.task import Task
from shoal.events.event import TimeEvent
from shoal.events.filter import TrackSums
from shoal.noise.primitives import SeededRng
from shoal.places.events import Carried, check_of, event_curve, guard_of
from shoal.places.machine import EVENT_KEPT
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import EventWatch, measurement
from shoal.places.rows import GRAPH_ROW, KNORM_ROW, LAPLACE_ROW, STAIRCASE_ROW
from shoal.places.stream import LocationStream, output_log_likelihoods
from tests.event_oracle import happens, paths, random_event
from tests.locations import town_task
from tests.settling import Settling

ROWS = {"graph": GRAPH_ROW, "knorm": KNORM_ROW, "laplace": LAPLACE_ROW, "staircase": STAIRCASE_ROW}
SLOTS = 3


class Forced(Settling):
    """A ledger that says which output a step has."""

    def __init__(self, z: tuple[int, ...]) -> None:
        self._z = z

    def settle(self, charge: Any, sample: Any) -> Any:
        from dataclasses import replace

        drawn = sample()
        return replace(drawn, answer=replace(drawn.answer, multiples=self._z))


def chain_of(rng: np.random.Generator, size: int) -> tuple[Any, Any, shoal.MarkovChain]:
    """A random chain, with zeros and rows that are nearly certain."""
    rows = rng.dirichlet(np.full(size, rng.choice([0.2, 1.0])), size=(SLOTS - 1, size))
    rows[rng.random(rows.shape) < 0.2] = 0
    rows += 1e-3 * np.eye(size)
    rows /= rows.sum(axis=2, keepdims=True)
    first = rng.dirichlet(np.ones(size))
    if rng.random() < 0.4:
        first[int(rng.integers(size))] = 0
        first /= first.sum()
    return first, rows, shoal.MarkovChain.of(rows, initial=first, length=SLOTS)


def plan_of(
    rng: np.random.Generator, chain: shoal.MarkovChain, kind: str, width: int, delta: float | None
) -> Plan:
    """A random policy that is one piece, on a line or in the plane."""
    size = len(chain.states)
    cells = [divmod(k, 2)[:width] if width == 2 else (k,) for k in range(size)]
    labels = ("x", "y")[:width]
    query = measurement(chain.states, [list(cell) for cell in cells], labels=labels)
    edges = [(k, k + 1) for k in range(size - 1)]
    edges += [(a, b) for a, b in itertools.combinations(range(size), 2) if rng.random() < 0.3]
    places: Any = PolicyGraph.of(chain.states, edges)
    if delta is not None:
        places = LocationSet(policy=places, delta=Fraction(str(delta)))
    epsilon = Fraction(int(rng.integers(5, 30)), 10)
    return ROWS[kind].calibrate(Task(query=query, secrets=places, family=(chain,)), epsilon)


def event_of(rng: np.random.Generator, chain: shoal.MarkovChain) -> TimeEvent:
    """A random event that is neither certain nor impossible."""
    while True:
        event = random_event(rng, len(chain.states), SLOTS)
        if 1e-6 < event.prior(chain) < 1 - 1e-6:
            return event


def outputs_of(plan: Plan, law: Any) -> list[tuple[int, ...]]:
    """The outputs of a step: all of them, or those around the map and far from it."""
    if plan.mechanism == "location-graph-exponential":
        return [tuple(z) for z in np.unique(law.points[law.nodes], axis=0).tolist()]
    near = [*range(-3, 8), -60, 60]
    return list(itertools.product(near, repeat=law.points.shape[1]))


def histories(stream: LocationStream, rng: np.random.Generator, few: int) -> Iterator[list[Any]]:
    """Outputs of whole streams, each step with log q(z|·); all of them, or `few` a step."""
    if stream.state.time == SLOTS:
        yield []
        return
    assert stream.watched is not None
    guard = guard_of(stream.plan, stream.watched.watch)
    choice = guard.choose(
        stream.state, guard.beliefs_before_output(stream.watched.held, stream.state.time)
    )
    here = stream.plan.body.query.states[0]  # type: ignore[union-attr]
    if choice is None or choice.noise.count < 2:
        after, release = stream.read(here, rng=SeededRng(1))
        assert release.z is None
        assert (EVENT_KEPT in release.warnings) == (choice is None)
        yield from ([None, *rest] for rest in histories(after, rng, few))
        return
    law = choice.noise.law
    listed = [z for z in outputs_of(stream.plan, law) if (law.log_likelihood(z) > -np.inf).any()]
    some = listed if len(listed) <= few else [listed[k] for k in rng.permutation(len(listed))[:few]]
    last = stream.state.time == SLOTS - 1
    for number, z in enumerate(some):
        if last and number:  # nothing comes after it: its likelihood is all there is to know
            yield [law.log_likelihood(z)]
            continue
        after, release = stream.read(here, ledger=Forced(z), subject="ann")
        assert release.guarantee is not None
        assert release.guarantee.amount == choice.epsilon <= stream.plan.guarantee.amount
        logs = choice.noise.law.log_likelihood(z)
        yield from ([logs, *rest] for rest in histories(after, rng, few))


def worst_change(case: Any, event: TimeEvent, stream: LocationStream, few: int) -> float:
    """The largest change of log-odds over these histories, from all paths of the chain."""
    rng, first, rows, names = case
    listed = [(path, chance) for path, chance in paths(first, rows)]
    held = np.array([happens(event, [names[x] for x in path]) for path, _ in listed])
    prior = np.array([chance for _, chance in listed])
    worst = 0.0
    for history in histories(stream, rng, few):
        logs = np.zeros(len(listed))
        for t, told in enumerate(history):
            if told is not None:
                logs += np.array([told[path[t]] for path, _ in listed])
        if not (logs > -np.inf).any():
            continue
        after = prior * np.exp(logs - logs.max())
        change = math.log(after[held].sum() / after[~held].sum())
        worst = max(worst, abs(change - math.log(prior[held].sum() / prior[~held].sum())))
    return worst


def check_random_streams(kind: str, width: int, delta: float | None, count: int, few: int) -> float:
    """`count` random streams; the share of the bound that is used, at most."""
    used, told = 0.0, 0
    for seed in range(count):
        rng = np.random.default_rng([seed, width, list(ROWS).index(kind)])
        first, rows, chain = chain_of(rng, int(rng.integers(3, 5)))
        plan, event = plan_of(rng, chain, kind, width, delta), event_of(rng, chain)
        amount = float(rng.choice([0.2, 0.5, 1.0, 2.0]))
        stream = LocationStream.begin(plan, events=shoal.Events.of(event), event_epsilon=amount)
        case = (rng, first, rows, chain.states)
        worst = worst_change(case, event, stream, few)
        assert worst <= amount * (1 + 1e-9), (seed, worst, amount)
        told += worst > 0
        used = max(used, worst / amount)
    assert told > count / 3
    return used


KINDS = [
    ("graph", 1, None),
    ("graph", 2, 0.1),
    ("laplace", 2, None),
    ("knorm", 1, None),
    ("knorm", 2, None),
    ("knorm", 2, 0.1),
    ("staircase", 2, None),
]


@pytest.mark.parametrize(("kind", "width", "delta"), KINDS, ids=str)
def test_no_output_moves_the_odds_of_an_event_too_far(
    kind: str, width: int, delta: float | None
) -> None:
    used = check_random_streams(kind, width, delta, 8, 4)
    assert used > 0.5  # and what is allowed is used


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "width", "delta"), KINDS, ids=str)
def test_no_output_of_many_streams_moves_the_odds_too_far(
    kind: str, width: int, delta: float | None
) -> None:
    check_random_streams(kind, width, delta, 300, 9)


def test_the_control_is_caught() -> None:
    """The plan without a watch moves the odds of a visit by far more."""
    rng = np.random.default_rng(3)
    first, rows, chain = chain_of(rng, 4)
    plan, event = plan_of(rng, chain, "graph", 1, None), shoal.visit(["1"], between=(1, 1))
    free = LocationStream.begin(plan, events=shoal.Events.of(event), event_epsilon=50)
    assert worst_change((rng, first, rows, chain.states), event, free, 9) > 0.6


def table_of(over: Any, under: Any) -> TrackSums:
    shape = (1, 1, len(over))
    everywhere = np.ones((1, len(over)), dtype=np.bool_)
    return TrackSums(
        mass=np.ones((1, len(over))),
        over=np.reshape(over, shape),
        under=np.reshape(under, shape),
        possible=everywhere,
        slack=1e-12,
        lost=0.0,
    )


@pytest.mark.parametrize("count", [60, pytest.param(600, marks=pytest.mark.slow)])
def test_what_is_carried_is_never_above_the_program_over_all_likelihoods(count: int) -> None:
    """max Σ over·v, Σ under·v = 1, v(s) ≤ e^G(s,s') v(s'): at most 1 wherever mass is carried."""
    rng, tight, agreed = np.random.default_rng(5), 0, 0
    for _ in range(count):
        _, _, chain = chain_of(rng, 4)
        plan = plan_of(rng, chain, "knorm", 2, None)
        machine: Any = plan.body
        noise = machine.runtime.noise(np.ones(4, dtype=np.bool_))
        check = Carried.of(noise.law, noise.answering)
        over, under = rng.dirichlet(np.full(4, 0.5)), rng.dirichlet(np.full(4, 0.5))
        under *= math.exp(rng.uniform(0, 2))
        points = noise.law.points
        pairs = list(itertools.permutations(range(4), 2))
        shifts = np.array([points[a] - points[b] for a, b in pairs])
        rows = np.zeros((len(pairs), 4))
        for k, ((a, b), loss) in enumerate(
            zip(pairs, noise.law.noise.log_ratios(shifts), strict=True)
        ):
            rows[k, a], rows[k, b] = 1.0, -math.exp(loss)
        best = linprog(-over, A_ub=rows, b_ub=np.zeros(len(pairs)), A_eq=[under], b_eq=[1.0])
        assert best.status == 0
        fits = check.fits(table_of(over, under))
        if fits:
            assert -best.fun <= 1 + 1e-7
            agreed += 1
        tight += not fits and -best.fun <= 1 - 1e-7
    assert agreed > count / 10
    assert tight < count / 5  # seldom does it hold back what the program allows


def test_a_parallelogram_is_decided_on_the_grid_of_its_corners() -> None:
    """Against a fine grid of outputs: the corners hold the largest ratio, and it is attained."""
    rng, checked = np.random.default_rng(8), 0
    for _ in range(40):
        _, _, chain = chain_of(rng, 4)
        plan = plan_of(rng, chain, "laplace", 2, None)
        machine: Any = plan.body
        noise = machine.runtime.noise(np.ones(4, dtype=np.bool_))
        over, under = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
        zs = list(itertools.product(range(-40, 44), repeat=2))
        logs = noise.law.noise.log_weights(
            (np.array(zs)[:, None, :] - noise.law.points[None]).reshape(-1, 2)
        ).reshape(len(zs), -1)
        likely = np.exp(logs - logs.max(axis=1, keepdims=True))
        largest = float((likely @ over / (likely @ under)).max())
        check = check_of(noise)
        assert not check.fits(table_of(over, under * largest * (1 - 1e-6)))
        checked += check.fits(table_of(over, under * largest * (1 + 1e-6)))
    assert checked > 30  # the rest has corners between two points of the lattice


def watched(size: int = 4, **options: Any) -> LocationStream:
    plan = KNORM_ROW.calibrate(town_task(size, size), Fraction(1))
    events = shoal.Events.of(shoal.visit(["1,1", "1,2"], between=(2, 4)))
    return LocationStream.begin(plan, events=events, event_epsilon=1, **options)


def test_a_stream_with_events_goes_on_from_what_was_stored() -> None:
    stream = again = watched()
    for step in range(7):  # beliefs move after the window too
        stream, one = stream.read("1,1", rng=SeededRng(step))
        stored = LocationStream.from_bytes(again.plan, again.to_bytes())
        assert stored == loads(dumps(again))
        again, other = stored.read("1,1", rng=SeededRng(step))
        assert one == other
        assert stream == again
    (belief,) = stream.event_beliefs()
    (prior,) = watched().event_beliefs()
    odds = math.log(belief / (1 - belief)) - math.log(prior / (1 - prior))
    assert abs(odds) <= 1
    assert stream.skip(2)[0].state.time == 9
    assert [promise.amount for promise in stream.watched.watch.promises] == [1]  # type: ignore[union-attr]


def test_a_known_start_is_part_of_the_prior() -> None:
    begun = watched(start="1,1")
    (known,), (unknown,) = begun.event_beliefs(), watched().event_beliefs()
    assert known > unknown
    assert begun.state.time == 1
    assert begun.read("1,1", rng=SeededRng(1))[0].state.time == 2


def test_windows_by_the_clock_need_one() -> None:
    plan = KNORM_ROW.calibrate(town_task(3, 3), Fraction(1))
    evening = shoal.Events.of(shoal.visit(["1,1"], between=("18:00", "20:00")))
    stream = LocationStream.begin(
        plan, events=evening, event_epsilon=1, slots=24, slot_minutes=60, start_minute=12 * 60
    )
    after, _ = stream.read("1,1", rng=SeededRng(1))
    by_slot = shoal.Events.of(shoal.visit(["1,1"], between=(6, 7)))
    same = LocationStream.begin(plan, events=by_slot, event_epsilon=1, slots=24)
    assert after.event_beliefs() == same.read("1,1", rng=SeededRng(1))[0].event_beliefs()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"events": None, "event_epsilon": 1}, "go together"),
        ({"events": shoal.visit("1,1"), "event_epsilon": 1}, "give shoal.Events.of"),
        ({"event_epsilon": [1, 2]}, "holds 2 amounts for 1 events"),
        ({"event_epsilon": 0}, "event_epsilon"),
        ({"event_epsilon": 1, "epsilons": [2]}, "must descend from at most"),
        ({"event_epsilon": 1, "epsilons": [0.1, 0.5]}, "must descend"),
        ({"events": shoal.Events.of(shoal.visit("1,1")), "event_epsilon": 1}, "has no last slot"),
        (
            {"events": shoal.Events.of(shoal.visit("9,9", between=(0, 1))), "event_epsilon": 1},
            "9,9",
        ),
    ],
)
def test_wrong_watches_are_refused(options: dict[str, Any], words: str) -> None:
    plan = KNORM_ROW.calibrate(town_task(3, 3), Fraction(1))
    usual = {"events": shoal.Events.of(shoal.visit("1,1", between=(0, 1)))}
    with pytest.raises(InputError, match=words):
        LocationStream.begin(plan, **{**usual, **options})


def test_a_stream_with_events_is_asked_one_question_a_step() -> None:
    stream = watched()
    with pytest.raises(InputError, match="a step with several questions does not follow"):
        stream.ask("1,1", [stream.plan])


def test_a_step_by_itself_does_not_pass_the_events_by() -> None:
    plan = watched().plan
    machine: Any = plan.body
    with pytest.raises(InputError, match="a step by itself does not follow"):
        machine.step(machine.init(), "1,1", SeededRng(1))
    with pytest.raises(InputError, match="watches events already"):
        LocationStream.begin(plan, events=shoal.Events.of(shoal.visit("1,1")), event_epsilon=1)
    assert LocationStream.begin(plan) == watched()
    assert loads(dumps(plan)) == plan


@pytest.mark.parametrize("kind", ["graph", "knorm"])
def test_beliefs_along_any_stream_are_those_of_all_paths(kind: str) -> None:
    """Of streams that watch the event and of those that do not, by Bayes over all paths."""
    for seed in range(6):
        rng = np.random.default_rng([seed, 77])
        first, rows, chain = chain_of(rng, 4)
        plan, event = plan_of(rng, chain, kind, 1, None), event_of(rng, chain)
        events = shoal.Events.of(event)
        stream = LocationStream.begin(plan, events=events, event_epsilon=1)
        listed = [(path, chance) for path, chance in paths(first, rows)]
        held = np.array([happens(event, [chain.states[x] for x in path]) for path, _ in listed])
        walk = listed[int(rng.integers(len(listed)))][0]
        for begun in (stream, LocationStream.begin(plan)):
            outputs, here = [], begun
            for t in range(SLOTS):
                reading = None if rng.random() < 0.2 else chain.states[walk[t]]
                here, release = here.read(reading, rng=SeededRng(seed))
                outputs.append(release.z)
            logs = output_log_likelihoods(begun.plan, outputs)
            curve = event_curve(begun.plan, outputs, EventWatch.of(events, 1))[:, 0]
            weights = np.array([chance for _, chance in listed])
            for t in range(SLOTS + 1):
                told = np.array([sum(logs[k, path[k]] for k in range(t)) for path, _ in listed])
                after = weights * np.exp(told - told.max())
                assert curve[t] == pytest.approx(after[held].sum() / after.sum(), abs=1e-12)
            if begun is stream:
                assert here.event_beliefs() == pytest.approx([curve[-1]], abs=1e-12)


def test_an_output_beyond_the_bound_is_caught_when_it_is_drawn() -> None:
    """What is drawn is held to the promise once more: a check that lets all pass is found out."""
    rng = np.random.default_rng(3)
    _, _, chain = chain_of(rng, 4)
    plan = plan_of(rng, chain, "graph", 1, None)
    event = shoal.Events.of(shoal.visit(["1"], between=(0, 0)))
    stream = LocationStream.begin(plan, events=event, event_epsilon=0.01)
    assert stream.watched is not None
    guard = guard_of(plan, stream.watched.watch)
    arrived = guard.beliefs_before_output(stream.watched.held, 0)
    noise = plan.body.noises(stream.state, [plan.body])[0]  # type: ignore[union-attr]
    with pytest.raises(PromiseBroken, match="beyond its bound"):
        guard.after(arrived, 0, noise, (1,))
