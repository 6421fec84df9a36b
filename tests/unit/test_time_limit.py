"""One time limit for all searches: what it ends is certified, marked, and as private as any."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.attacks.beliefs import attack, released
from shoal.chains.exact.blocks import Cell
from shoal.chains.lift.chain import ChainLift
from shoal.chains.quilt.row import chain_quilts
from shoal.contexts.attack import attack_contexts
from shoal.core.progress import OutOfTime, cut_short, heard, in_time, no_time_limit, time_over
from shoal.core.task import CUT, EachEntry, LiftedModel, Task
from shoal.mechanisms.choice import choose
from shoal.mechanisms.lift import climb, largest_eta
from shoal.mechanisms.mixture import narrow_bracket
from shoal.mechanisms.table import verify_promise
from shoal.networks import large
from shoal.networks.contagion import Contagion
from shoal.noise.primitives import SeededRng
from shoal.places.attack import attack_locations
from shoal.places.audit import sequence_leakage
from shoal.places.map import SquareGrid
from shoal.places.policy import PolicyGraph
from shoal.places.queries import EventWatch, coordinates
from shoal.places.rows import MOST_WALKS, rehearse_streams
from shoal.places.walk import free_walk
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField
from shoal.records.pairwise import Dependence
from shoal.records.sources import FriendModel
from tests.networks.models import lattice


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that goes on by its second number every time it is looked at."""
    now = [0.0, 0.0]

    def look() -> float:
        now[0] += now[1]
        return now[0]

    monkeypatch.setattr("shoal.core.progress.time.monotonic", look)
    return now


def five_states(length: int = 400) -> shoal.MarkovChain:
    matrix = 0.7 * np.eye(5) + 0.06
    return shoal.MarkovChain.of(matrix, length=length)


def at(eta: float, _: LiftedModel | None = None) -> LiftedModel:
    return LiftedModel.at(eta, 3.0 * eta, None, eta, "cone")


def test_nobody_is_out_of_time_without_a_limit() -> None:
    assert not time_over()
    assert not cut_short()
    in_time("nothing")


def test_the_nearest_limit_holds_and_the_outer_one_knows(clock: list[float]) -> None:
    with shoal.time_limit(10) as outer, shoal.time_limit("3"):
        with shoal.time_limit(100):
            assert not time_over()
            clock[0] = 5.0
            assert time_over()
            with no_time_limit():
                assert not time_over()
        assert not outer.cut
    assert outer.cut
    with pytest.raises(shoal.InputError, match=r"time_limit is 0; it must be greater than 0"):
        shoal.time_limit(0).__enter__()


def test_work_with_nothing_to_show_is_refused_in_a_sentence(clock: list[float]) -> None:
    with shoal.time_limit(2):
        in_time("the audit")
        clock[0] = 2.5
        with pytest.raises(OutOfTime, match=r"the audit was not over within 2 s; allow more time"):
            in_time("the audit")


def test_searches_end_with_what_was_evaluated(clock: list[float]) -> None:
    with shoal.time_limit(1):
        clock[1] = 0.3
        found = largest_eta([at, at], 1.0, 1.0, 1e-9)
        assert found is not None
        assert 3.0 * found.eta == found.value <= 1.0
        assert climb(at, found, 1.0, 1.0) is found
        low, high = narrow_bracket(lambda scale: 1 / scale, 1.0, (0.5, 2.0), (8.0, 0.125), 1e-12)
        assert (low, high) == (0.5, 8.0)


@pytest.fixture
def slow_losses(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each evaluation of a lift takes 0.4 s, and each look at one entry of a sum 0.03 s."""

    def slowed(own: Callable[..., Any], seconds: float) -> Callable[..., Any]:
        def slow(*given: Any, **named: Any) -> Any:
            clock[0] += seconds
            return own(*given, **named)

        return slow

    monkeypatch.setattr(ChainLift, "loss", slowed(ChainLift.loss, 0.4))
    monkeypatch.setattr(Cell, "at", slowed(Cell.at, 0.03))


@pytest.mark.usefixtures("slow_losses")
@pytest.mark.parametrize("row", ["lift", "exact"])
def test_a_plan_cut_short_keeps_its_promise_and_says_so(row: str) -> None:
    chain = five_states(60 if row == "lift" else 12)
    query = shoal.count(chain.states, ["1"])

    def plan() -> shoal.Plan:
        return shoal.calibrate(query, EachEntry(), chain, epsilon=0.97, mechanism=row)

    with shoal.time_limit(1):
        cut = plan()
    whole = plan()
    assert verify_promise(cut) <= 0.97 * (1 + 1e-12)
    assert cut.cost > whole.cost
    assert "ended by its time limit" in cut.explain()
    assert "ended by its time limit" not in whole.explain()  # nothing of the cut one was kept
    assert shoal.loads(shoal.dumps(cut)) == cut
    if row == "lift":
        assert cut.certificate.models[0].rule.endswith(CUT)  # type: ignore[attr-defined]


@pytest.mark.parametrize(("tick", "by"), [(0.005, "quilt"), (0.0015, "cone")])
def test_the_clock_is_looked_at_inside_one_evaluation_of_the_lift(
    clock: list[float], tick: float, by: str
) -> None:
    """With what was certified by then, or by quilts where nothing was."""
    chain = five_states(300 + round(1 / tick))
    query = shoal.histogram(chain.states)
    with shoal.time_limit(1):
        clock[1] = tick
        cut = shoal.calibrate(query, EachEntry(), chain, epsilon=0.9, mechanism="lift")
    clock[1] = 0.0
    whole = shoal.calibrate(query, EachEntry(), chain, epsilon=0.9, mechanism="lift")
    assert cut.cost > whole.cost
    assert cut.certificate.models[0].rule.startswith(by)  # type: ignore[attr-defined]
    assert "ended by its time limit" in cut.explain()
    assert verify_promise(cut) <= 0.9 * (1 + 1e-12)


def test_what_quilts_keep_is_checked_by_them_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever looks again at a plan that ran out of time is not made to wait for the lift."""
    chain = five_states(555)
    lift = chain.lift(shoal.histogram(chain.states))
    assert not isinstance(lift, str)
    eta = 0.5 / chain_quilts(chain, None).result(1.0).sigma

    def dear(*_: Any, **__: Any) -> Any:
        raise AssertionError("the lift was evaluated")

    monkeypatch.setattr(ChainLift, "loss", dear)
    assert lift.loss(eta, enough=1.0) <= 1.0
    with pytest.raises(AssertionError, match="the lift was evaluated"):
        lift.loss(eta)


def test_the_choice_goes_on_with_the_rows_that_are_quick(clock: list[float]) -> None:
    chain = five_states()
    task = Task(query=shoal.histogram(chain.states), secrets=EachEntry(), family=(chain,))
    with shoal.time_limit(1):
        clock[1] = 1.0
        found = choose(task, Fraction(1))
    assert found.plan.guarantee.proved
    assert math.isfinite(found.plan.cost)
    told = found.alternatives["markov-quilt"]
    assert isinstance(told, str)
    assert "the search for quilts was not over within" in told


def walk_on_a_square() -> Task:
    box = {"south": 40, "west": 116, "north": 40.017, "east": 116.022}
    chain = free_walk(SquareGrid.covering(**box, cell_km="0.5"))
    query = coordinates(chain)
    return Task(query=query, secrets=PolicyGraph.within(query, 1), family=(chain,))


def test_streams_of_places_are_calibrated_in_time(clock: list[float]) -> None:
    task = walk_on_a_square()
    row = "location-knorm"
    with shoal.time_limit(1):
        clock[1] = 0.01
        with pytest.raises(OutOfTime, match=r"the estimate of a stream's errors was not over"):
            choose(task, Fraction(1), row)
    clock[1] = 0.0
    plan = choose(task, Fraction(1), row).plan
    with shoal.time_limit(1):
        clock[0] += 2.0
        with pytest.raises(OutOfTime, match=r"following a stream's constraints was not over"):
            choose(task, Fraction(1), row)
        assert (
            verify_promise(plan) <= 1 + 1e-12
        )  # whether a promise is kept is decided all the same


def test_audits_of_places_end_with_what_was_seen_and_say_so(clock: list[float]) -> None:
    plan = choose(walk_on_a_square(), Fraction(1), "location-knorm").plan
    whole = shoal.audit(plan)
    with shoal.time_limit(1):
        clock[1] = 0.15
        cut = shoal.audit(plan)
    assert any("when the time limit ended" in one for one in cut.not_checked)
    assert not any("time limit" in one for one in whole.not_checked)
    assert 0 <= cut.lower <= whole.lower <= whole.upper == cut.upper


def test_streams_of_places_are_attacked_in_time(clock: list[float]) -> None:
    plan = choose(walk_on_a_square(), Fraction(1), "location-knorm").plan
    stream, outputs = shoal.LocationStream.begin(plan), []
    for _ in range(6):
        stream, release = stream.read("1,1", rng=SeededRng(1))
        outputs.append(release.z)
    heard_of: list[tuple[int, int]] = []
    with heard(lambda done, total: heard_of.append((done, total))):
        attack_locations(plan, outputs)
        sequence_leakage(plan, outputs)
    assert heard_of[:6] == [(step, 6) for step in range(6)]
    assert heard_of[-1] == (12, 12)
    with shoal.time_limit(1):
        clock[1] = 0.3
        with pytest.raises(OutOfTime, match=r"the attack was not over within 1 s"):
            attack_locations(plan, outputs)
        with pytest.raises(OutOfTime, match=r"following a stream from its outputs was not over"):
            sequence_leakage(plan, outputs)
    with shoal.time_limit(1):
        clock[1] = 0.1  # six looks to follow the stream, ten for what its outputs tell
        with pytest.raises(OutOfTime, match=r"the audit of a stream was not over within 1 s"):
            sequence_leakage(plan, outputs)


def test_rehearsals_end_after_a_whole_walk(clock: list[float]) -> None:
    task = walk_on_a_square()
    plan = choose(task, Fraction(1), "location-knorm").plan
    watch = EventWatch.of(shoal.Events.of(shoal.visit(["0,0"], between=(2, 6))), 1)
    whole = rehearse_streams(plan, watch)
    with shoal.time_limit(1):
        clock[1] = 0.06  # fourteen looks a walk
        cut = rehearse_streams(plan, watch)
        assert cut.steps == whole.steps / MOST_WALKS
        clock[1] = 0.5
        with pytest.raises(OutOfTime, match=r"the rehearsal on a made-up walk was not over"):
            rehearse_streams(plan, watch)


# Networks and records, their audits and attacks: the clock goes on with every look at it.


def square_net(side: int) -> shoal.BayesNet:
    """Weakly tied bits in a square."""
    return lattice(side, 0.1)


def friends(records: int = 6) -> Dependence:
    domain = RecordDomain.points([0, 1, 2], states="abc")
    edges = [(i, i + 1) for i in range(records - 1)]
    return FriendModel(b=0.5, c=1.0).ties(domain, records, edges)


def loops(records: int = 30) -> PairwiseField:
    """Records on a ring, each tied to the next two: no forest."""
    domain = RecordDomain.points([0, 1], states="ab")
    edges = [(i, (i + far) % records) for i in range(records) for far in (1, 2)]
    return PairwiseField.of(domain, records, edges, [[1.0, 0.9], [0.9, 1.0]])


@pytest.mark.parametrize("row", ["markov-quilt", "exact", "influence-matrix", "lift"])
def test_rows_on_networks_say_that_they_were_not_over(clock: list[float], row: str) -> None:
    net = lattice(4, 0.1 + len(row) / 1000)  # a network of its own: nothing is known of it
    query = shoal.count("01", "1")

    def plan() -> shoal.Plan:
        return shoal.calibrate(query, EachEntry(), net, epsilon=1, mechanism=row)

    with shoal.time_limit(1):
        clock[1] = 0.3
        with pytest.raises(OutOfTime, match=r"was not over within 1 s; allow more time"):
            plan()
    clock[1] = 0.0
    assert plan().guarantee.proved  # nothing of the attempt was kept


def test_a_lift_on_a_network_cut_short_is_marked(clock: list[float]) -> None:
    net = shoal.BayesNet.of(
        {"v0": [0.5, 0.5]} | {f"v{v}": [[0.7, 0.3], [0.4, 0.6]] for v in range(1, 12)},
        parents={f"v{v}": [f"v{v - 1}"] for v in range(1, 12)},
    )
    lift = net.lift(None)
    assert not isinstance(lift, str)
    whole = lift.largest(1.0)
    with shoal.time_limit(1):
        clock[1] = 0.01
        cut = lift.largest(1.0)
    assert cut.rule.endswith(CUT)
    assert not whole.rule.endswith(CUT)
    assert 0 < cut.eta <= whole.eta
    assert lift.loss(cut.eta) <= 1.0


def test_a_large_sum_cut_short_answers_with_what_it_has(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tilts narrow the bounds; when the time is over, those that are known decide."""
    monkeypatch.setattr(large, "LARGE_SUMS", large.LargeSumSettings(max_narrow_width=8))
    net, query = square_net(5), shoal.count("01", "1")
    large.sum_laws.cache_clear()
    own = large.TiltedSumLaws.narrow_at

    def slowed(self: large.TiltedSumLaws, steps: float) -> bool:
        clock[0] += 2.0
        return own(self, steps)

    with monkeypatch.context() as patched:
        patched.setattr(large.TiltedSumLaws, "narrow_at", slowed)
        with shoal.time_limit(1) as limit:
            cut = large.LargeSums(net, query).least_scale(9.0)
    assert limit.cut
    assert large.LargeSums(net, query).loss(cut.scale, 9.0) <= 9.0
    whole = large.LargeSums(net, query).least_scale(9.0)
    assert whole.scale < cut.scale
    large.sum_laws.cache_clear()


def test_the_laws_of_a_large_sum_end_in_a_sentence(clock: list[float]) -> None:
    net, query = square_net(5), shoal.count("01", "1")
    large.sum_laws.cache_clear()
    with shoal.time_limit(1):
        clock[1] = 0.3
        with pytest.raises(OutOfTime, match="the law of the sum over the network was not over"):
            large.LargeSums(net, query).least_scale(1.0)
    clock[1] = 0.0
    assert large.LargeSums(net, query).least_scale(1.0).scale > 0


def test_a_field_cut_short_is_as_private_and_marked(clock: list[float]) -> None:
    model = loops()
    query = shoal.count("ab", "a")

    def plan() -> shoal.Plan:
        return shoal.calibrate(query, EachEntry(), model, epsilon=1, mechanism="dependent-field")

    whole = plan()
    with shoal.time_limit(1):
        clock[1] = 0.4
        cut = plan()
    assert cut.cost > whole.cost
    assert "ended by its time limit" in cut.explain()
    assert "ended by its time limit" not in whole.explain()
    assert verify_promise(cut) <= 1
    assert shoal.loads(shoal.dumps(cut)) == cut
    reached = model.lift(query)
    with shoal.time_limit(1):
        clock[1] = 0.4
        assert reached.largest(1.0).rule.endswith(CUT)


def test_coefficients_of_ties_end_in_a_sentence(clock: list[float]) -> None:
    model, query = friends(), shoal.count("abc", "c")
    with shoal.time_limit(1):
        clock[1] = 1.5
        with pytest.raises(OutOfTime, match="the search for coefficients of tied pairs was not"):
            shoal.calibrate(query, EachEntry(), model, epsilon=1, mechanism="dependent-published")


@pytest.mark.parametrize("model", [square_net(3), loops(), friends()], ids=["net", "field", "ties"])
def test_an_audit_cut_short_has_the_bounds_it_knows(clock: list[float], model: Any) -> None:
    query = shoal.count(model.states, model.states[-1])
    plan = shoal.calibrate(query, EachEntry(), model, epsilon=1, mechanism="group")
    whole = shoal.audit(plan)
    with shoal.time_limit(1):
        clock[1] = 0.6
        cut = shoal.audit(plan)
    assert cut.lower <= whole.lower
    assert whole.upper <= cut.upper <= 1 + 1e-9
    if cut.lower < cut.upper:
        assert any("the time limit ended the search" in note for note in cut.not_checked)


@pytest.mark.filterwarnings("ignore:The noise is as wide")
def test_attacks_on_networks_and_crowds_end_in_a_sentence(clock: list[float]) -> None:
    net = square_net(5)
    plan = shoal.calibrate(shoal.count("01", "1"), EachEntry(), net, epsilon=1, mechanism="group")
    data = ["0"] * len(net.variables)
    seen = [released(plan, plan.release(data, rng=1))]
    crowd = Contagion.cliques([4, 4, 4], [0.5, 0.1, 0.1, 0.1, 0.2])
    group = shoal.calibrate(
        shoal.count(crowd.states, crowd.states[-1]),
        EachEntry(),
        crowd,
        epsilon=1,
        mechanism="group",
    )
    ill = [released(group, group.release([crowd.states[0]] * 12, rng=1))]
    for model, what, entries in ((net, seen, 25), (crowd, ill, 12)):
        attack(model, what, entries)
        with shoal.time_limit(1):
            clock[1] = 0.6
            with pytest.raises(OutOfTime, match="was not over within 1 s; allow more time"):
                attack(model, what, entries)
        clock[1] = 0.0


def sticky_day(slots: int) -> shoal.DayChain:
    moves = 0.8 * np.eye(3) + 0.2 / 3
    names = ("clinic", "home", "work")
    return shoal.DayChain.of(moves, initial=[0.2, 0.4, 0.4], states=names, slots=slots)


CLINIC = shoal.SensitiveContexts.of("clinic")


def test_a_mask_that_went_by_the_clock_says_so_and_keeps_its_promise() -> None:
    day = sticky_day(8)
    plain = shoal.mask(day, CLINIC, delta="0.1", check="mask-adaptive")
    timed = shoal.mask(day, CLINIC, delta="0.1", check="mask-adaptive", seconds=5)
    with shoal.time_limit(5):
        limited = shoal.mask(day, CLINIC, delta="0.1", check="mask-adaptive")
        chosen = choose(plain.task, Fraction(1, 10), "mask-adaptive").plan
    for plan in (timed, limited, chosen):
        assert "depends on the load of the machine" in plan.explain()
        assert verify_promise(plan) <= 0.1 * (1 + 1e-12)
        assert shoal.loads(shoal.dumps(plan)) == plan
    assert "depends on the load" not in plain.explain()
    naive = shoal.mask(day, CLINIC, delta="0.1", check="mask-sensitive", seconds=5)
    assert "depends on the load" not in naive.explain()  # nothing was searched for


def test_audits_and_attacks_of_contexts_keep_the_limit(clock: list[float]) -> None:
    short = shoal.mask(sticky_day(4), CLINIC, delta="0.2", check="mask-simulatable")
    long = shoal.mask(sticky_day(24), CLINIC, delta="0.2", check="mask-simulatable")
    events = shoal.Events.of(shoal.visit("clinic"))
    hidden = shoal.mask(sticky_day(3), events, delta="0.2")
    day = ["home"] * 24
    works: list[Callable[[], object]] = [
        lambda: shoal.audit(short),
        lambda: shoal.audit(long),
        lambda: shoal.audit(hidden),
        lambda: attack_contexts(long, day, SeededRng(1)),
    ]
    for work in works:
        clock[1] = 0.4
        with (
            shoal.time_limit(1),
            pytest.raises(OutOfTime, match=r"was not over within 1 s; allow more time"),
        ):
            work()
        clock[1] = 0.0
        work()
    whole = shoal.audit(long, secrets=events).lower
    clock[1] = 0.4
    with shoal.time_limit(1):  # a lower bound from fewer histories is one too
        assert 0 <= shoal.audit(long, secrets=events).lower <= whole


def test_an_online_mask_ends_its_search_with_bounds_that_hold(clock: list[float]) -> None:
    day, events = sticky_day(6), shoal.Events.of(shoal.visit("clinic"))
    whole = shoal.mask(day, events, delta="0.2")
    with shoal.time_limit(1):
        clock[1] = 0.4
        cut = shoal.mask(day, events, delta="0.2")
    assert "depends on the load" in cut.explain()
    assert "depends on the load" not in whole.explain()
    assert cut.certificate.most >= whole.certificate.most  # type: ignore[attr-defined]
    assert verify_promise(cut) <= 0.2
