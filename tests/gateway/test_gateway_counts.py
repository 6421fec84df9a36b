"""Running counts: entries gather in the sealed state, and a step shows its noisy sum at its end."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare
from sqlalchemy import select

from shoal.core.plan import Plan
from shoal.core.stream import Slot, run_batch
from shoal.gateway.copies.restore import hold_still
from shoal.gateway.machines import COUNTS, HIDDEN, ShownSlot
from shoal.gateway.store import ALL
from shoal.gateway.tables import OUTPUTS
from tests.gateway.gateway_house import House, plan
from tests.gateway.test_gateway_promises import EVERY, begin, charges, push, stored

STEP = 4  # slots


def begin_step(house: House, **more: Any) -> str:
    """The path of a new stream whose next slot is the first of a step."""
    path = begin(house, "steps", **more)
    house.pass_time(-stored(house, path).closed % STEP * EVERY)
    return path


def entries(house: House, path: str, *states: str | None) -> list[dict[str, Any]]:
    """What a step shows whose entries these are; None: nobody read it."""
    for state in states:
        if state is not None:
            assert push(house, path, {"state": state})["dead"] == []
        house.pass_time(EVERY)
    return house.outputs(path, "one/ada")[-len(states) :]


def test_a_step_shows_one_number_when_it_ends(house: House) -> None:
    path = begin_step(house)
    found = entries(house, path, "a", None, "b", "a")
    assert [each["status"] for each in found] == ["counting", "silent", "counting", "shown"]
    assert [each["counts"] for each in found[:3]] == [None] * 3
    assert set(found[3]["counts"]) == {"a"}
    assert found[3]["guarantee"]["amount"] == "1"
    (charge,) = charges(house, path)[-1:]
    last = found[3]["id"]
    assert charge.part.partition(",")[2] == f"{last - 3}..{last + 1}"


def test_a_step_ends_whether_or_not_its_last_entry_was_read(house: House) -> None:
    path = begin_step(house)
    found = entries(house, path, "a", "a", None, None)
    assert [each["status"] for each in found] == ["counting", "counting", "silent", "shown"]
    path = begin_step(house, silence="hide")
    found = entries(house, path, "a", None, None, None)
    assert [each["status"] for each in found] == [*["counting"] * 3, "shown"]
    assert "entries" not in found[3], "how many were read is hidden"


def test_outputs_have_one_length_and_all_steps_cost_what_one_does(house: House) -> None:
    path = begin_step(house)
    found = entries(house, path, *["a", "b", None, "b"] * 3)
    assert len(found) == 12
    wanted = select(OUTPUTS).where(OUTPUTS.c.uid == stored(house, path).uid)
    rows = house.gateway.store.read(ALL, lambda c: c.execute(wanted).all())
    lengths = {len(each.body) - len(str(each.ordinal)) for each in rows}
    assert len(lengths) == 1, "a number and none must be as long"
    budget = house.ask("GET", "/v1/people/ada/budget", "one/ada").json()["streams"]
    (mine,) = [each for each in budget if each["stream"] == path.rpartition("/")[2]]
    assert mine["spent"] == pytest.approx(1, rel=1e-6)
    assert mine["steps"] >= 3
    assert house.ask("GET", f"{path}/beliefs", "one/ada").status_code == 409


def test_a_pause_over_the_end_drops_the_step(house: House) -> None:
    path = begin_step(house)
    before = len(charges(house, path))
    assert entries(house, path, "a", "a")[0]["status"] == "counting"
    house.ask("POST", f"{path}/pause", "one/ada").raise_for_status()
    house.pass_time(2 * EVERY)
    statuses = [each["status"] for each in house.outputs(path, "one/ada")[-2:]]
    assert statuses[-1] == "paused"
    assert len(charges(house, path)) == before


def test_readings_that_are_no_state_are_dead(house: House) -> None:
    path = begin_step(house)
    told = push(house, path, {"state": "flying"}, {"context": "a"}, {"lat": 1.0, "lon": 2.0})
    assert {each["reason"] for each in told["dead"]} == {"unreadable"}


def test_an_older_copy_keeps_a_step_still(house: House) -> None:
    """A step that was shown after the copy was made must not be drawn again from its entries."""
    path = begin_step(house)
    entries(house, path, "a")
    rooms, now = house.gateway.rooms, house.clock()
    assert house.gateway.store.write(ALL, lambda c: hold_still(rooms, c, now)) >= 1
    found = entries(house, path, None, None, None)
    assert [each["status"] for each in found] == ["paused"] * 3


def test_the_law_of_a_step_is_the_plans() -> None:
    """2,000 steps with two a's among their entries, against two-sided geometric noise around 2."""
    kept, shown = plan("steps"), []
    for _ in range(2000):
        state = COUNTS.begin(kept)
        for slot, entry in enumerate(("a", "b", "a")):
            state, _ = _stepped(kept, state, entry, slot)
        assert COUNTS.stand_in(kept, state, status=HIDDEN) == (None,)
        state, told = _stepped(kept, state, None, 3)
        assert told.status == "shown"
        assert state == COUNTS.begin(kept)
        shown.append(told.value["counts"]["a"])
    assert kept.scale is not None
    decay = math.exp(-1 / kept.scale)
    tail = decay**3 / (1 + decay)  # P(noise >= 3)
    inside = [(1 - decay) / (1 + decay) * decay ** abs(k) for k in range(-2, 3)]
    seen = np.histogram(shown, [-math.inf, *np.arange(-0.5, 5), math.inf])[0]
    assert chisquare(seen, 2000 * np.array([tail, *inside, tail])).pvalue > 1e-4


def _stepped(kept: Plan, state: bytes, entry: str | None, slot: int) -> tuple[bytes, ShownSlot]:
    """The state after an entry that nobody is charged for, and what its slot shows."""
    (result,) = run_batch([COUNTS.step(kept, state, entry, Slot(), slot)])
    return COUNTS.after(kept, result, status=HIDDEN)
