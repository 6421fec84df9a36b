"""A key repeated: with other members it is refused, and no day goes on after a release under it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.contexts.stream import ContextDay, machine_of
from shoal.core.charge import Charge
from shoal.core.errors import CannotCompose, InputError
from shoal.core.plan import Plan
from shoal.core.stream import Slot, Step, run_batch
from shoal.jobs.live import Live, LiveReading
from shoal.ledger import EVERYBODY, SqlLedger, open_ledger
from tests.unit.test_ledger_streams import outputs_of

MATRIX = [[0.8, 0.2], [0.3, 0.7]]
DATA = ["h", "c", "h"]
CHAIN = shoal.MarkovChain.of(MATRIX, initial=[0.6, 0.4], states=["h", "c"], length=3)
COUNT = shoal.calibrate(
    shoal.count(["h", "c"], "c"), shoal.EachEntry(), CHAIN, epsilon=1, mechanism="laplace"
)
NOBODY: tuple[str, ...] = ()
MEMBERS = (NOBODY, ("ann",), ("bob",), ("bob", "ann"), EVERYBODY)
DAY = "2024-03-04"


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[SqlLedger]:
    with open_ledger(tmp_path / "budget.db") as opened:
        yield opened


def charges_about_ann(ledger: SqlLedger) -> int:
    """How many charges are in her account: those about her, and those about everybody."""
    return sum(entry.subject in ("ann", "*") for entry in ledger.charges())


def test_a_key_is_repeated_with_the_same_members_only(ledger: SqlLedger) -> None:
    """Every output given as one about Ann is in her total, by a count of our own."""
    given: set[str] = set()
    for number, (first, second) in enumerate(product(MEMBERS, repeat=2)):
        key = f"k{number}"
        named: dict[str, Any] = {"ledger": ledger, "subject": f"town {number}", "key": key}
        released = COUNT.release(DATA, members=first, **named)
        if "ann" in first or first == EVERYBODY:
            given.add(key)
        before = len(ledger.charges())
        if set(first) == set(second):
            again = COUNT.release(DATA, members=second, **named)
            assert again == released
        else:
            with pytest.raises(InputError, match=f"members under key '{key}' are"):
                COUNT.release(DATA, members=second, **named)
        assert len(ledger.charges()) == before
        assert charges_about_ann(ledger) == len(given)
    assert ledger.verify().intact


def test_members_are_said_without_their_names(ledger: SqlLedger) -> None:
    COUNT.release(DATA, ledger=ledger, subject="town", key="k")
    for members, said in ((("ann",), r"1 subject\(s\) \(hash"), (EVERYBODY, "everybody")):
        with pytest.raises(InputError, match=f"{said}.*charged to the subject alone") as error:
            COUNT.release(DATA, ledger=ledger, subject="town", key="k", members=members)
        assert "ann" not in str(error.value)


def test_a_batch_holds_a_key_with_the_same_members_only(ledger: SqlLedger) -> None:
    def charge(members: tuple[str, ...]) -> Charge:
        return Charge(plan=COUNT, subject="town", key="k", members=members)

    def sample(allowed: list[int]) -> list[Any]:
        return [COUNT.release(DATA) for _ in allowed]

    with pytest.raises(InputError, match="'k' for two different releases"):
        ledger.settle_all([charge(NOBODY), charge(("ann",))], sample)
    one, other = ledger.settle_all([charge(("ann", "bob")), charge(("bob", "ann"))], sample)
    assert one == other
    assert charges_about_ann(ledger) == 1


def day_and_plan() -> tuple[Any, Any, Plan]:
    day = shoal.DayChain.of(MATRIX, initial=[0.6, 0.4], states=["h", "c"], slots=3)
    events = shoal.Events.of(shoal.visit("c"))
    return day, events, shoal.mask(day, events, epsilon="0.5")


def given_first_slot(day: Any, events: Any, plan: Plan, shown: str | None) -> Plan:
    """A count calibrated as if the day ended after its first slot."""
    law = shoal.contexts.DayGiven.of(plan, [shown, None, None], unread=[1, 2])
    return shoal.calibrate(shoal.count(day.states, "c"), events, law, epsilon="0.5")


def test_a_day_takes_no_slot_after_a_release_made_under_it(ledger: SqlLedger) -> None:
    day, events, plan = day_and_plan()
    named: dict[str, Any] = {"ledger": ledger, "subject": "ann"}
    stream, shown = shoal.ContextStream.begin(plan, DAY).read("h", **named)
    counted = given_first_slot(day, events, plan, shown)
    counted.release([DATA], period=DAY, requester="other", **named)
    head = ledger.head()
    for _ in range(2):
        with pytest.raises(CannotCompose, match="takes no further slot"):
            stream.read("c", **named)
    assert ledger.head() == head
    total = ledger.spent("ann", DAY)
    assert total is not None
    assert total.amount == Fraction(1)
    assert stream.read("c", slot=0, **named)[1] == shown  # a slot that is past is not drawn
    stream, _ = stream.read("h", day="2024-03-05", **named)
    assert stream.read("h", **named)[0].state.slot == 2  # the next day goes on


def test_a_closed_day_takes_no_slot_of_a_service_or_a_live_job(tmp_path: Path) -> None:
    """Both keep the state of the day themselves, and ask the ledger before each further slot."""
    day, events, plan = day_and_plan()
    where = str(tmp_path / "budget.db")
    with open_ledger(where) as ledger:
        names = Slot(subject="ann", period=DAY)
        (first,) = run_batch([Step(ContextDay(plan, machine_of(plan).init()), names, "h")], ledger)
        (_, shown) = first.after(), first.output.shown[0]
        (second,) = run_batch([Step(first.stream, names, "h")], ledger)
        assert second.after().state.slot == 2
        counted = given_first_slot(day, events, plan, shown)
        counted.release([DATA], period=DAY, requester="other", ledger=ledger, subject="ann")
        (third,) = run_batch([Step(first.stream, names, "h")], ledger)
        with pytest.raises(CannotCompose, match="takes no further slot"):
            third.after()

    live = Live.of(plan, b"k" * 32, ledger=where)
    state, told = live.kind.advance(live, "bob", None, [LiveReading(DAY, 0, "h")])
    assert "shown" in told[0].cells
    with open_ledger(where) as ledger:
        counted = given_first_slot(day, events, plan, told[0].cells["shown"])
        counted.release([DATA], period=DAY, requester="other", ledger=ledger, subject="bob")
    state, told = live.kind.advance(live, "bob", state, [LiveReading(DAY, 1, "c")])
    assert told[0].cells == {}
    _, told = live.kind.advance(live, "bob", state, [LiveReading("2024-03-05", 0, "h")])
    assert "shown" in told[0].cells


def test_a_day_that_went_on_would_tell_more_than_the_sum() -> None:
    """What the refusal prevents: all paths, outputs and counts of three slots, summed here."""
    day, events, plan = day_and_plan()
    laws = outputs_of(plan, day, read_from=0)
    visits = 1 - laws["hhh"][0]
    whole = {output for _, law in laws.values() for output in law}
    scales = {}
    for first in {output[0] for output in whole}:
        scale = given_first_slot(day, events, plan, first).scale
        assert scale is not None
        scales[first] = float(scale)

    def moved(output: Any, value: int) -> float:
        """How far an output of the whole day and a count move the log-odds of the visit."""

        def likely(path: str) -> float:
            noise = math.exp(-abs(value - path.count("c")) / scales[output[0]])
            return laws[path][1].get(output, 0.0) * noise

        joint = sum(laws[path][0] * likely(path) for path in laws if "c" in path)
        return abs(math.log(joint / visits / likely("hhh"))) if joint and likely("hhh") else 0.0

    assert max(moved(output, value) for output in whole for value in range(-3, 6)) > 1.1
