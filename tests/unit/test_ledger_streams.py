"""Streams charge a ledger: a day of contexts once, before its first slot; places at every step."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import shoal
from shoal.cli.app import app
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import CurrentState, SensitiveContexts
from shoal.contexts.stream import ContextStream
from shoal.core.errors import CannotCompose, InputError
from shoal.core.plan import Plan, Stream
from shoal.core.registry import dumps, loads
from shoal.core.task import Task
from shoal.ledger import Session, SqlLedger, open_ledger
from shoal.mechanisms.table import MECHANISMS
from shoal.noise.primitives import SeededRng
from shoal.places.stream import LocationStream
from tests.event_oracle import paths
from tests.locations import running_task
from tests.specs import CONTEXTS

STATES = ("home", "work", "clinic")
MATRIX = [[0.7, 0.25, 0.05], [0.1, 0.88, 0.02], [0.3, 0.2, 0.5]]
DAY = DayChain.of(MATRIX, initial=[0.8, 0.2, 0], states=STATES, slots=4, slot_minutes=60)
TASK = Task(query=CurrentState(STATES), secrets=SensitiveContexts.of("clinic"), family=(DAY,))
PLAN, OTHER = (
    MECHANISMS[name].calibrate(TASK, Fraction(1, 10)) for name in ("mask-adaptive", "mask-hybrid")
)
MONDAY, TUESDAY = "2024-03-04", "2024-03-05"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    with open_ledger(tmp_path / "budget.db") as opened:
        yield opened


def charged(ledger: SqlLedger) -> list[tuple[str, str]]:
    return [(entry.subject, entry.period) for entry in ledger.charges()]


def test_a_day_is_charged_once_before_its_first_slot(ledger: SqlLedger) -> None:
    stream = ContextStream.begin(PLAN)
    for day in (MONDAY, TUESDAY):
        for slot in range(4):
            stream, shown = stream.read("home", slot=slot, day=day, ledger=ledger, subject="ann")
            assert len(ledger.charges()) == 1 + (day == TUESDAY)
            assert stream.read("clinic", slot=slot, ledger=ledger, subject="ann")[1] == shown
    assert charged(ledger) == [("ann", MONDAY), ("ann", TUESDAY)]
    total = ledger.spent("ann", "*")
    assert total is not None
    assert (total.notion, total.amount) == ("delta-privacy", Fraction(1, 10))  # the largest day
    assert ledger.verify().intact


def test_nothing_is_shown_when_the_day_cannot_be_charged(ledger: SqlLedger) -> None:
    ledger.limit("0", unit="epsilon")  # no epsilon bounds a belief: refused
    with pytest.raises(CannotCompose):
        ContextStream.begin(PLAN, MONDAY).read("home", ledger=ledger, subject="ann")
    assert charged(ledger) == []


def test_a_second_stream_of_a_day_is_refused_and_the_first_goes_on(ledger: SqlLedger) -> None:
    first = ContextStream.begin(PLAN, MONDAY)
    stream, _ = first.read("home", ledger=ledger, subject="ann")
    head = ledger.head()
    with pytest.raises(InputError, match="has begun already; go on from the stored state"):
        first.read("home", ledger=ledger, subject="ann")
    with pytest.raises(CannotCompose):
        ContextStream.begin(OTHER, MONDAY).read("home", ledger=ledger, subject="ann")
    with pytest.raises(CannotCompose):
        first.read("home", ledger=ledger, subject="ann", requester="another application")
    assert ledger.head() == head
    stream = loads(dumps(stream))
    stream, _ = stream.read("work", ledger=ledger, subject="ann")
    assert stream.state.slot == 2
    assert ledger.head() == head
    first.read("home", ledger=ledger, subject="bob")  # somebody else's Monday


def test_a_day_begun_without_the_ledger_is_not_charged_late(ledger: SqlLedger) -> None:
    stream, _ = ContextStream.begin(PLAN, MONDAY).read("home")
    with pytest.raises(InputError, match="was begun without this ledger"):
        stream.read("work", ledger=ledger, subject="ann")
    assert charged(ledger) == []


@pytest.mark.parametrize("first", [None, "home"])
def test_a_day_that_another_stream_charged_is_not_gone_on_with(
    ledger: SqlLedger, first: str | None
) -> None:
    """Also where the second stream passed its first slot, read or not, without the ledger."""
    ContextStream.begin(PLAN, MONDAY).read("home", ledger=ledger, subject="ann")
    second, _ = ContextStream.begin(PLAN, MONDAY).read(first)
    for stream in (second, loads(dumps(second)), ContextStream.from_bytes(PLAN, second.to_bytes())):
        with pytest.raises(InputError, match="was begun without this ledger"):
            stream.read("work", ledger=ledger, subject="ann")
    assert second.read("work", day=TUESDAY, ledger=ledger, subject="ann")[0].charged


def test_two_streams_of_one_day_tell_more_than_one_may() -> None:
    """What the refusals above prevent, by all paths and outputs of three slots."""
    day = DayChain.of([[0.8, 0.2], [0.3, 0.7]], initial=[0.6, 0.4], states=["h", "c"], slots=3)
    plan = shoal.mask(day, shoal.Events.of(shoal.visit("c")), epsilon="0.5")
    one, second = outputs_of(plan, day, read_from=0), outputs_of(plan, day, read_from=1)
    prior = {path: chance for path, (chance, _) in one.items()}
    visits = 1 - prior["hhh"]

    def moved(shown: Any) -> float:
        """How far outputs of that chance on each path move the log-odds of the visit."""
        joint = sum(prior[path] * shown(path) for path in prior if "c" in path)
        return abs(math.log(joint / visits / shown("hhh"))) if joint and shown("hhh") else 0.0

    firsts, seconds = ({o for _, law in each.values() for o in law} for each in (one, second))
    alone = max(moved(lambda path, o=o: one[path][1].get(o, 0)) for o in firsts)
    together = max(
        moved(lambda path, o=o, p=p: one[path][1].get(o, 0) * second[path][1].get(p, 0))
        for o in firsts
        for p in seconds
    )
    assert alone <= 0.5 * (1 + 1e-9)
    assert together > 0.7


def outputs_of(
    plan: Plan, day: DayChain, read_from: int
) -> dict[str, tuple[float, dict[tuple[str | None, ...], float]]]:
    """For every path of a day its chance, and the chance of each output when it is read so."""
    body: Any = plan.body
    laws: dict[str, tuple[float, dict[tuple[str | None, ...], float]]] = {}
    for path, chance in paths(day.initial, day.transition):
        names = "".join(day.states[place] for place in path)
        ways: list[tuple[Any, tuple[str | None, ...], float]] = [(body.init(), (), 1.0)]
        for slot, context in enumerate(names):
            after = []
            for state, shown, weight in ways:
                observed = context if slot >= read_from else None
                rate = 0.0 if observed is None else body.shown_chance(state, observed)
                for word, share in ((0, 1 - rate), (2**32 - 1, rate)):
                    if share > 0:
                        moved, out = body.step(state, observed, Words(word))
                        after.append((moved, (*shown, out), weight * share))
            ways = after
        law: dict[tuple[str | None, ...], float] = {}
        for _, shown, weight in ways:
            law[shown] = law.get(shown, 0.0) + weight
        laws[names] = (chance, law)
    return laws


class Words:
    """A source that always draws the same word."""

    secure = False

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count: int) -> Any:
        return np.full(count, self.word, dtype=np.uint64)


@pytest.mark.parametrize(
    ("day", "options", "told"),
    [
        ("", {"subject": "ann"}, "day is empty"),
        (MONDAY, {}, "subject is empty"),
        (MONDAY, {"subject": "ann", "rng": SeededRng(1)}, "rng is seeded"),
    ],
    ids=["no day", "no subject", "a seed"],
)
def test_a_charge_needs_a_name_a_day_and_real_randomness(
    ledger: SqlLedger, day: str, options: dict[str, Any], told: str
) -> None:
    with pytest.raises(InputError, match=told):
        ContextStream.begin(PLAN, day).read("home", ledger=ledger, **options)
    assert charged(ledger) == []


def test_a_day_that_is_over_needs_a_new_name(ledger: SqlLedger) -> None:
    stream = ContextStream.begin(PLAN, MONDAY)
    for _ in range(4):
        stream, _ = stream.read("home", ledger=ledger, subject="ann")
    with pytest.raises(InputError, match=r"'2024-03-04' is over; name the next day"):
        stream.read("home", ledger=ledger, subject="ann")
    stream.read("home", day=TUESDAY, ledger=ledger, subject="ann")
    assert len(ledger.charges()) == 2


def test_a_session_charges_both_kinds_of_stream(ledger: SqlLedger) -> None:
    places = MECHANISMS["location-knorm"].calibrate(running_task(), Fraction(1))
    with Session(ledger, subject="ann", period=MONDAY, requester="map") as session:
        stream = ContextStream.begin(PLAN)
        for _ in range(3):
            stream, _ = session.read(stream, "home")
        stream, _ = session.read(stream, "home", day=TUESDAY, slot=1)
        assert stream.state.slot == 2
    with Session(ledger, subject="bob", period="march") as session:
        walk: Any = LocationStream.begin(places)
        for _ in range(3):
            walk, _ = session.read(walk, "s2")
        total = session.spent()
        assert total is not None
        assert total.charges == 3
        with pytest.raises(InputError, match="whose steps no ledger charges"):
            session.read(Stream(PLAN, stream.state), "home")
    assert charged(ledger) == [("ann", MONDAY), ("ann", TUESDAY)] + [("bob", "march")] * 3


SPEC = CONTEXTS.format(slots=4)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mask.toml").write_text(SPEC)
    return tmp_path


def streamed(folder: Path, *lines: dict[str, Any], options: tuple[str, ...] = ()) -> Result:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    names = ["--ledger", str(folder / "budget.db"), "--subject", "ann", *options]
    return CliRunner().invoke(app, ["stream", str(folder / "mask.toml"), *names], input=text)


def accounts(folder: Path) -> list[tuple[str, str]]:
    with open_ledger(folder / "budget.db") as opened:
        return charged(opened)


def test_the_command_line_charges_every_day_once(folder: Path) -> None:
    lines = [
        {"day": day, "slot": slot, "context": "home"}
        for day in (MONDAY, TUESDAY)
        for slot in range(4)
    ]
    done = streamed(folder, *lines)
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 8
    assert accounts(folder) == [("ann", MONDAY), ("ann", TUESDAY)]


def test_the_command_line_goes_on_with_a_stored_day_and_begins_none_twice(folder: Path) -> None:
    kept = ("--state", str(folder / "state.json"))
    first = streamed(folder, {"day": MONDAY, "context": "home"}, options=kept)
    assert first.exit_code == 0, first.output
    more = streamed(folder, {"context": "work"}, options=kept)
    assert json.loads(more.stdout)["slot"] == 1
    again = streamed(  # without the state
        folder, {"day": MONDAY, "context": "home"}, options=("--strict",)
    )
    assert again.exit_code == 2
    assert "has begun already" in again.output
    assert again.stdout == ""
    assert accounts(folder) == [("ann", MONDAY)]


def test_the_command_line_names_the_day_by_its_period(folder: Path) -> None:
    done = streamed(folder, *[{"context": "home"}] * 2, options=("--period", MONDAY))
    assert done.exit_code == 0, done.output
    assert accounts(folder) == [("ann", MONDAY)]
    nameless = streamed(folder, {"context": "home"}, options=("--strict",))
    assert nameless.exit_code == 2
    assert "line 1: the line names no day, which is what a ledger charges" in nameless.output


def test_the_command_line_refuses_another_plan_of_the_same_day(folder: Path) -> None:
    assert streamed(folder, {"day": MONDAY, "context": "home"}).exit_code == 0
    (folder / "mask.toml").write_text(SPEC.replace("belief_delta = 0.1", "belief_delta = 0.2"))
    other = streamed(folder, {"day": MONDAY, "context": "home"})
    assert other.exit_code == 3
    assert other.stdout == ""
    assert accounts(folder) == [("ann", MONDAY)]


def test_the_command_line_needs_a_subject_and_no_seed(folder: Path) -> None:
    seeded = streamed(folder, {"day": MONDAY, "context": "home"}, options=("--seed", "1"))
    assert seeded.exit_code == 2
    assert "takes no --seed" in seeded.output
    assert not (folder / "budget.db").exists()
