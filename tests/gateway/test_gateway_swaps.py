"""Streams that get another plan or zone: no moment, no date and no event is covered twice.

Days are recounted here from dates and zones alone, and what outputs tell by all paths.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest

import shoal
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.task import Task
from shoal.gateway.clock import Clock
from shoal.gateway.machines import stream_kind
from shoal.gateway.problems import Problem
from shoal.gateway.streams import Address
from shoal.gateway.windows import clock_of, next_clock
from shoal.mechanisms import in_steps
from shoal.places.policy import PolicyGraph
from shoal.places.queries import measurement
from shoal.places.rows import GRAPH_ROW
from shoal.places.stream import LocationStream
from tests.event_oracle import paths
from tests.gateway.gateway_rooms import Rooms, contexts, places
from tests.histories import Draw, Scripted, log_odds_moved, town
from tests.settling import Settling

HOUR = 3600.0
ZONES = ["UTC", "Pacific/Auckland", "America/Los_Angeles", "Europe/Berlin", "Pacific/Kiritimati"]
ZONES += ["Pacific/Niue"]


@pytest.fixture
def rooms(tmp_path: Path) -> Iterator[Rooms]:
    found = Rooms(tmp_path, utc("2026-03-04T22:30"))
    yield found
    found.store.close()


def utc(text: str) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()


def counted(epsilon: str, rows: Any = ((0.7, 0.3), (0.4, 0.6))) -> Plan:
    """A plan for counts over steps of two entries."""
    chain = shoal.MarkovChain.of(rows, initial=[0.5, 0.5], states=["a", "b"])
    query = in_steps(shoal.count(chain.states, "a"), 2)
    return shoal.calibrate(query, shoal.EachEntry(), chain, epsilon=epsilon, mechanism="lift")


WHERE = town(3, 4, 0.8, shoal.visit("1", between=(2, 3)))
ELSEWHERE = town(3, 4, 0.6, shoal.visit("1", between=(2, 3)))
SWAPS: dict[str, Callable[[], Plan]] = {
    "day": contexts,
    "week": lambda: contexts(days=7, watched=True),
    "plain": lambda: places(WHERE, "1", watched=False),
    "less": lambda: places(WHERE, "1/2", watched=False),
    "watched": lambda: places(WHERE, "1"),
    "other event": lambda: places(WHERE._replace(event=shoal.visit("0", between=(1, 3))), "1"),
    "elsewhere": lambda: places(ELSEWHERE, "1", watched=False),
    "watched elsewhere": lambda: places(ELSEWHERE, "1"),
    "counts": lambda: counted("1"),
    "more counts": lambda: counted("2"),
    "other counts": lambda: counted("1", [[0.5, 0.5], [0.4, 0.6]]),
}
GROUPS = {
    "contexts": ["day", "week"],
    "places": ["plain", "less", "elsewhere"],
    "watched": ["watched", "other event", "watched elsewhere"],
    "counts": ["counts", "more counts", "other counts"],
}
OTHER_MODELS = ("elsewhere", "watched elsewhere", "other counts")


def refusal_of(old: str, new: str) -> str | None:
    """Why a stream under plan `old` does not get plan `new`; None where it does."""
    before, after = (next(g for g, names in GROUPS.items() if each in names) for each in (old, new))
    if {before, after} == {"places", "watched"} and "elsewhere" not in f"{old} {new}":
        return "watches events and the other does not"
    if {before, after} == {"places", "watched"}:
        return "for another model|watches events and the other does not"
    if before != after:
        return "for another kind of stream"
    other = (old in OTHER_MODELS) != (new in OTHER_MODELS)
    return "for another model" if other and before != "contexts" else None


def test_every_pair_of_plans_is_swapped_or_refused_with_a_sentence(rooms: Rooms) -> None:
    for name, made in SWAPS.items():
        rooms.keep(name.replace(" ", "-"), made())
    for old in SWAPS:
        rooms.where = Address("one", old.replace(" ", "-"), "s")
        rooms.put(old.replace(" ", "-"), clock={"every": 100.0})
        for new in SWAPS:
            refusal = refusal_of(old, new)
            if refusal is None:
                assert rooms.put(new.replace(" ", "-"), clock={"every": 100.0}) is False
                assert rooms.stream.swap is not None, (old, new)
                continue
            with pytest.raises((Problem, InputError), match=refusal):
                rooms.put(new.replace(" ", "-"), clock={"every": 100.0})


def test_a_swap_between_watching_and_not_would_break_the_promise() -> None:
    """What the refusal prevents, either way, by all paths: the control of the test above."""
    watched, plain = WHERE.plan("1"), WHERE.plan("2", watched=False)
    for early in (True, False):
        worst = 0.0
        for cells in itertools.product(range(3), repeat=4):
            draws = mixed(watched, plain, cells, early=early)
            worst = max(worst, log_odds_moved(WHERE, draws))
        assert worst > WHERE.amount * 1.2, early
    alone = [
        mixed(watched, plain, cells, early=None) for cells in itertools.product(range(3), repeat=4)
    ]
    assert max(log_odds_moved(WHERE, draws) for draws in alone) <= WHERE.amount * (1 + 1e-9)


def mixed(watched: Plan, plain: Plan, cells: Any, *, early: bool | None) -> list[Draw]:
    """Four steps that show `cells`: the first two (`early`) or the last two under `plain`."""
    streams_of = {True: LocationStream.begin(plain), False: LocationStream.begin(watched)}
    notes = Scripted(_Free(), cells)
    for time in range(4):
        by_plain = early is not None and (time < 2) == early
        notes.time = time
        for name, stream in streams_of.items():
            if name == by_plain:
                streams_of[name], _ = stream.read("0", ledger=notes, subject="ann")
            else:
                streams_of[name], _ = stream.skip()
    return notes.draws


class _Free(Settling):
    """A ledger that allows everything."""

    def settle(self, charge: Any, sample: Any) -> Any:
        return sample()


def test_places_go_on_from_all_that_was_shown() -> None:
    """After a swap exactly the cells that are possible by all paths are protected."""
    names, kind = ["0", "1", "2", "3"], stream_kind(WHERE.plan("1", watched=False))
    rows = [[0.5, 0.5, 0, 0], [0, 0.5, 0.5, 0], [0, 0, 0.5, 0.5], [0, 0, 0, 1.0]]
    chain = shoal.MarkovChain.of(rows, initial=[0.5, 0.5, 0, 0], states=names, length=4)
    old, new = (on_chain(chain, names, epsilon) for epsilon in ("1", "1/2"))
    stream = LocationStream.begin(old)
    for steps in range(1, 4):
        stream, _ = stream.read("1")
        state = kind.carry_state(old, stream.to_bytes(), new)
        swapped = LocationStream.from_bytes(new, state)
        noise = swapped.machine.prior(swapped.state).noise
        possible = {
            p[steps] for p, chance in paths([0.5, 0.5, 0, 0], [np.array(rows)] * steps) if chance
        }
        assert set(np.flatnonzero(noise.members).tolist()) == possible
        assert noise.eta is not None
        assert float(noise.eta) == pytest.approx(0.5)


def on_chain(chain: Any, names: list[str], epsilon: str) -> Plan:
    """A plan that joins all cells of a chain."""
    points = measurement(names, [[cell] for cell in range(len(names))], step=1)
    task = Task(query=points, secrets=PolicyGraph.complete(names), family=(chain,))
    return GRAPH_ROW.calibrate(task, Fraction(epsilon))


def test_the_total_of_counts_before_and_after_a_swap_covers_the_truth(rooms: Rooms) -> None:
    rooms.keep("first", counted("1"))
    rooms.keep("second", counted("2"))
    rooms.put("first", clock={"every": 100.0})
    begun_at = rooms.stream.clock
    rooms.now = begun_at.slot(begun_at.day_ends(rooms.stream.closed)).opens + 1
    rooms.pass_time(0)
    for entry in range(6):
        assert rooms.push(state="a") is None
        if entry == 2:
            rooms.put("second", clock={"every": 100.0})
        rooms.pass_time(100.0)
    shown = [each["plan"] for each in rooms.outputs() if each["status"] == "shown"]
    assert shown[-3:] == ["first", "first", "second"]
    spent: Any = rooms.store.ledger.spent("one/ada/s", None)
    truth = true_loss([scale_of(counted(each)) for each in ("1", "1", "2")])
    assert 1.5 < truth <= float(spent.amount) * (1 + 1e-9)


def scale_of(counts: Plan) -> float:
    body: Any = counts.body
    return float(body.noise.scale)


def true_loss(scales: list[float]) -> float:
    """How much sums over steps of two entries, each with Laplace noise, tell about any entry."""
    entries, matrix = 2 * len(scales), [np.array([[0.7, 0.3], [0.4, 0.6]])]
    answers = list(itertools.product(range(3), repeat=len(scales)))
    told = np.zeros((entries, 2, len(answers)))
    mass = np.zeros((entries, 2))
    for path, chance in paths([0.5, 0.5], matrix * (entries - 1)):
        sums = [2 - path[2 * step] - path[2 * step + 1] for step in range(len(scales))]
        shown = [
            math.exp(
                -sum(abs(z - s) / scale for z, s, scale in zip(each, sums, scales, strict=True))
            )
            for each in answers
        ]
        for entry, state in enumerate(path):
            told[entry, state] += chance * np.array(shown)
            mass[entry, state] += chance
    given = told / mass[:, :, None]
    return float(np.abs(np.log(given[:, 0] / given[:, 1])).max())


def test_no_moment_and_no_date_is_covered_twice_by_random_moves() -> None:
    """Days are recounted from dates and zones alone; DST days and partial days among them."""
    dice = random.Random(29)
    plans = [contexts(), contexts(slots=2, minutes=120, start=480), contexts(slots=4, start=1320)]
    plans += [contexts(slots=24, minutes=60), contexts(days=7)]
    for _ in range(60):
        now = utc("2026-01-01") + dice.uniform(0, 360 * 86400)
        clock = clock_of(dice.choice(plans), {}, dice.choice(ZONES), now, 0)
        days, first = list[tuple[Clock, int]](), 0
        for _ in range(6):
            lived = first + clock.slots * dice.randint(1, 3)
            every = {"every": dice.choice([600.0, 3600.0])} if dice.random() < 0.2 else {}
            ahead = datetime.fromtimestamp(clock.slot(lived).opens, UTC).date() + timedelta(
                dice.choice([-9, 20])
            )
            begins = {"begins": ahead.isoformat()} if dice.random() < 0.1 else {}
            swapped = dice.choice(plans[:-1] if begins else plans)
            old = clock
            clock = next_clock(swapped, every | begins, dice.choice(ZONES), old, lived)
            days += [(old, each) for each in range(first, clock.first, old.slots)]
            first = clock.first
            assert clock.first >= lived
        spans = [(begun(each, at), ended(each, at), each.slot(at).day) for each, at in days]
        for (_, ends, _), (opens, _, _) in itertools.pairwise(spans):
            assert ends <= opens + 1e-3
        assert len({day for *_, day in spans}) == len(spans)


def begun(clock: Clock, ordinal: int) -> float:
    """When the day of an ordinal that begins one opens, from its date and zone alone."""
    if clock.kind == "every":
        return clock.slot(ordinal).opens
    return wall(clock, date.fromisoformat(clock.slot(ordinal).day), clock.start)


def ended(clock: Clock, ordinal: int) -> float:
    if clock.kind == "every":
        return clock.slot(ordinal + clock.slots - 1).ends
    day = date.fromisoformat(clock.slot(ordinal).day)
    return wall(clock, day, clock.start + clock.slots * clock.minutes)


def wall(clock: Clock, day: date, minutes: int) -> float:
    """UTC seconds of a time on the clock of a zone; all the times here exist on every day."""
    naive = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)
    return naive.replace(tzinfo=ZoneInfo(clock.zone)).timestamp()


@pytest.mark.parametrize("silence", ["publish", "hide"])
def test_a_person_who_moves_west_lives_no_date_twice(rooms: Rooms, silence: str) -> None:
    rooms.keep("day", contexts())
    rooms.put("day", timezone="Pacific/Auckland", silence=silence)
    told = {rooms.push(context="home")}
    for move in ("America/Los_Angeles", "Pacific/Auckland", "Pacific/Niue", "UTC"):
        rooms.put("day", timezone=move, silence=silence)
        for _ in range(4 * 3):
            rooms.pass_time(6 * HOUR)
            told.add(rooms.push(context="home"))
        assert rooms.stream.clock.zone == move
    assert told <= {None, "closed", "early"}
    found = rooms.outputs()
    assert [each["id"] for each in found] == list(
        range(found[0]["id"], found[0]["id"] + len(found))
    )
    assert not {each["status"] for each in found} & {"refused"}
    days = [each["day"] for each in found]
    assert days == sorted(days)
    slots = [(each["day"], each["slot"]) for each in found]
    assert len(set(slots)) == len(slots)
    assert rooms.now - utc(found[-1]["ends"][:19]) < 30 * HOUR  # the stream still goes on


def test_a_zone_alone_is_a_change_and_the_same_again_is_none(rooms: Rooms) -> None:
    rooms.keep("day", contexts())
    rooms.put("day", timezone="Pacific/Auckland")
    rooms.put("day", timezone="America/Los_Angeles")
    assert rooms.stream.swap[2].zone == "America/Los_Angeles"
    rooms.put("day", timezone="Pacific/Auckland")
    assert rooms.stream.swap is None


def test_a_plan_for_weeks_waits_for_its_week(rooms: Rooms) -> None:
    """Wednesday evening: the old plan goes on until Sunday, for the week must not have begun."""
    rooms.keep("day", contexts())
    rooms.keep("week", contexts(days=7, watched=True))
    rooms.put("day")
    rooms.put("week")
    for _ in range(4 * 8):
        rooms.push(context="home")
        rooms.pass_time(6 * HOUR)
    days = {each["day"]: each["plan"] for each in rooms.outputs()}
    first = [f"2026-03-0{day}" for day in range(5, 9)]
    assert days == dict.fromkeys(first, "day") | {"2026-03-09": "week"}


@pytest.mark.parametrize("silence", ["publish", "hide"])
def test_a_date_that_the_ledger_knows_is_refused_in_the_gateways_words(
    rooms: Rooms, silence: str
) -> None:
    """Another program began the day on the same ledger: slots go on, the next day is drawn."""
    kept = contexts()
    rooms.keep("day", kept)
    rooms.put("day", silence=silence)
    stream = shoal.ContextStream.begin(kept, "2026-03-05")
    stream.read("home", ledger=rooms.store.ledger, subject="one/ada/s")
    told = []
    for _ in range(9):
        told.append(rooms.push(context="home"))
        rooms.pass_time(6 * HOUR)
    # the first reading is kept for the first slot, which is refused; the second comes in that slot
    assert told == ["budget", None, *["budget"] * 3, *[None] * 4]
    statuses = {each["day"]: each["status"] for each in rooms.outputs()}
    assert statuses["2026-03-05"] == "refused"
    assert statuses["2026-03-06"] in ("shown", "suppressed")


def test_a_forgotten_stream_lives_no_date_twice_in_a_zone_to_the_west(rooms: Rooms) -> None:
    rooms.keep("day", contexts())
    rooms.put("day", timezone="Pacific/Auckland")
    rooms.forget()
    with pytest.raises(Problem, match="forgotten"):
        rooms.put("day", timezone="America/Los_Angeles")
    rooms.now = utc("2026-03-05T11:00:01")  # the day is over in Auckland, and goes on in the west
    rooms.put("day", timezone="America/Los_Angeles")
    assert rooms.stream.clock.slot(rooms.stream.closed).day == "2026-03-06"


def test_forgetting_a_stream_does_not_get_round_a_refused_swap(rooms: Rooms) -> None:
    clock = {"every": 100.0}
    for old, new in itertools.permutations(("plain", "watched")):
        rooms.keep(old, SWAPS[old]())
        rooms.keep(new, SWAPS[new]())
        rooms.where = Address("one", f"{old}-first", "s")
        rooms.put(old, clock=clock)
        rooms.forget()
        rooms.now += 2 * 86400
        with pytest.raises(Problem, match="say independent = true"):
            rooms.put(new, clock=clock)
        assert rooms.put(new, clock=clock, independent=True)


def test_a_model_with_an_end_is_refused_before_a_stream_stands_still(rooms: Rooms) -> None:
    rooms.keep("ends", WHERE.plan("1", watched=False))
    rooms.keep("plain", places(WHERE, "1", watched=False))
    with pytest.raises(Problem, match="has length 4, and a stream of places has no end"):
        rooms.put("ends", clock={"every": 100.0})
    rooms.keep("ends-watched", WHERE.plan("1"))
    rooms.put("ends-watched", clock={"every": 100.0})
    rooms.pass_time(2000.0)
    assert len(rooms.outputs()) >= 19
