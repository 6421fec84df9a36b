"""Live streams step by step, without Spark: replays show the same, late rows show nothing."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from shoal.contexts.checks.rows import mask
from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.jobs.live import KeyedRng, Live, LiveReading, stream_key
from shoal.jobs.spark import STATE, advance_subject
from shoal.ledger import open_ledger
from shoal.mechanisms.table import MECHANISMS, calibrate_and_check
from shoal.places.machine import grid_in_km
from tests.engine_jobs import plan as histogram_plan
from tests.locations import running_task, town_task

CONTEXTS = ("home", "work", "clinic")
SLOTS = 12
SECRET = bytes(range(32))


@pytest.fixture(scope="module")
def masked() -> Plan:
    matrix = [[0.8, 0.15, 0.05], [0.3, 0.65, 0.05], [0.45, 0.05, 0.5]]
    day = DayChain.of(matrix, initial=[0.9, 0.1, 0.0], states=CONTEXTS, slots=SLOTS)
    secrets = SensitiveContexts.of("clinic")
    return mask(day, secrets, delta="0.3", check="mask-probabilistic")


@pytest.fixture(scope="module")
def located() -> Plan:
    return calibrate_and_check(MECHANISMS["location-knorm"], running_task(), Fraction(1))


def readings(days: int = 2) -> list[LiveReading]:
    return [
        LiveReading(f"2024-03-0{day + 1}", slot, CONTEXTS[(slot * 7 + day) % 3])
        for day in range(days)
        for slot in range(SLOTS)
    ]


def walk() -> list[LiveReading]:
    return [LiveReading("", 10 * step, f"s{step * 5 % 6 + 1}") for step in range(12)]


@pytest.mark.parametrize("kind", ["contexts", "locations"])
def test_batches_and_replays_show_the_same(kind: str, masked: Plan, located: Plan) -> None:
    live = Live.of(masked if kind == "contexts" else located, SECRET)
    rows = readings() if kind == "contexts" else walk()
    _, whole = live.advance("ann", None, rows)
    for cut in (1, 5, len(rows) - 1):
        state, first = live.advance("ann", None, reversed(rows[:cut]))
        end, second = live.advance("ann", state, rows[cut:])
        assert [*first, *second] == whole
        assert live.advance("ann", state, rows[cut:]) == (end, second)
    others = [live.advance(f"bob {i}", None, rows)[1] for i in range(40)]
    assert any(other != whole for other in others)  # two may draw the same by chance


def test_another_reading_draws_other_noise(located: Plan) -> None:
    # were the words the same, two outputs of one step would differ by the readings alone
    live = Live.of(located, SECRET)
    _, one = live.advance("ann", None, [LiveReading("", 0, "s1")])
    _, two = live.advance("ann", None, [LiveReading("", 0, "s2")])
    assert one[0].cells.get("multiples") is not None
    assert two[0].cells.get("multiples") is not None
    noise = [
        np.subtract(one[0].cells["multiples"], (1, 0)),
        np.subtract(two[0].cells["multiples"], (2, 1)),
    ]
    assert noise[0].tolist() != noise[1].tolist()


def test_late_rows_show_nothing_and_move_nothing(masked: Plan, located: Plan) -> None:
    live = Live.of(masked, SECRET)
    rows = readings(1)
    state, _ = live.advance("ann", None, rows[:6])
    after, told = live.advance("ann", state, [rows[2], LiveReading("2024-02-28", 3, "home")])
    assert after == state
    assert all(row.late and row.cells.get("shown") is None for row in told)
    _, again = live.advance("ann", state, [rows[5]])  # the slot asked for again
    assert again == live.advance("ann", None, rows[:6])[1][5:]
    moving = Live.of(located, SECRET)
    state, _ = moving.advance("ann", None, walk()[:5])
    after, told = moving.advance("ann", state, [walk()[1]])
    assert after == state
    assert told[0].late
    assert told[0].cells.get("multiples") is None


def test_numbers_in_names_of_days_are_compared_as_numbers(masked: Plan) -> None:
    live = Live.of(masked, SECRET)
    rows = [LiveReading(day, slot, "home") for day in ("day 10", "day 9") for slot in range(2)]
    state, told = live.advance("ann", None, rows)
    assert [(one.day, one.late) for one in told] == [
        ("day 9", False),
        ("day 9", False),
        ("day 10", False),
        ("day 10", False),
    ]
    _, late = live.advance(
        "ann", state, [LiveReading(day, 0, "home") for day in ("day 9", "day 010")]
    )
    assert all(one.late for one in late)  # gone by, and another name of the same day


def test_days_are_charged_when_they_begin_and_steps_one_by_one(
    masked: Plan, located: Plan, tmp_path: Path
) -> None:
    where = str(tmp_path / "budget.db")
    live = Live.of(masked, SECRET, ledger=where)
    live.advance("ann", None, readings())
    live.advance("ann", None, readings())
    moving = Live.of(located, SECRET, ledger=where, job="monday")
    _, first = moving.advance("bob", None, walk()[:4])
    again = Live.of(located, bytes(32), ledger=where, job="monday")  # the key was lost
    assert again.advance("bob", None, walk()[:4])[1] == first
    with open_ledger(where) as ledger:
        counts = Counter(entry.subject for entry in ledger.charges())
        assert ledger.verify().intact
    drawn = sum(row.cells.get("multiples") is not None for row in first)
    assert counts == {"ann": 2, "bob": drawn}


def test_what_the_ledger_refuses_shows_nothing_and_the_stream_goes_on(
    masked: Plan, located: Plan, tmp_path: Path
) -> None:
    where = str(tmp_path / "budget.db")
    with open_ledger(where) as ledger:
        ledger.limit(2, unit="epsilon", subject="bob")
    moving = Live.of(located, SECRET, ledger=where)
    _, told = moving.advance("bob", None, walk()[:5])
    assert [row.cells.get("multiples") is not None for row in told] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert all(row.cells.get("estimate") is not None and not row.late for row in told)
    live = Live.of(masked, SECRET, ledger=where)
    live.advance("ann", None, readings(1))
    other = Live.of(mask_again(masked), SECRET, ledger=where)
    _, told = other.advance("ann", None, readings())
    assert all(row.cells.get("shown") is None for row in told[:SLOTS])
    assert any(row.cells.get("shown") is not None for row in told[SLOTS:])


def mask_again(plan: Plan) -> Plan:
    """Another plan about the same day, which beliefs do not add to."""
    day = plan.task.family[0]
    assert isinstance(day, DayChain)
    return mask(day, SensitiveContexts.of("clinic"), delta="0.2", check="mask-probabilistic")


def frame_of(rows: list[tuple[int, float | None, float | None]]) -> pd.DataFrame:
    """Rows as Spark hands them over."""
    at, lat, lon = zip(*rows, strict=True)
    numbers = {"lat": pd.Series(lat, dtype="float64"), "lon": pd.Series(lon, dtype="float64")}
    return pd.DataFrame({"day": "", "at": at, **numbers})


def test_coordinates_show_what_their_cells_show() -> None:
    plan = calibrate_and_check(MECHANISMS["location-knorm"], town_task(4, 4), Fraction(1))
    live = Live.of(plan, SECRET)
    rows: list[tuple[int, float | None, float | None]] = [
        (1, 39.007, 116.010),
        (2, None, 116.010),
        (3, 39.5, 117.0),  # off the map: the nearest state
        (4, 91.0, 116.0),  # no latitude
        (5, 39.001, float("nan")),
        (6, 39.001, 116.001),
    ]
    names = ["1,1", None, "3,3", None, None, "0,0"]
    readings = [LiveReading("", at, name) for at, name in enumerate(names, 1)]
    document, told = live.advance("ann", None, readings)
    found, table = advance_subject(live, "ann", None, [frame_of(rows[:4]), frame_of(rows[4:])])
    assert found == document
    assert table["at"].tolist() == [1, 2, 3, 4, 5, 6]
    multiples = [None if row is None else tuple(row) for row in table["multiples"]]
    assert multiples == [row.cells.get("multiples") for row in told]
    assert [row is None for row in multiples] == [name is None for name in names]
    grid = grid_in_km(plan)
    assert grid is not None
    for row, shown in zip(told, table.to_dict("records"), strict=True):
        assert shown["estimate_degrees"] == grid.to_degrees(row.cells.get("estimate")).tolist()
        if row.cells.get("multiples") is None:
            assert shown["value_degrees"] is None
        else:
            point = [float(k * plan.task.query.lattice) for k in row.cells["multiples"]]
            assert np.allclose(shown["value_degrees"], grid.to_degrees(point), rtol=0, atol=1e-12)


def test_tables_of_contexts_have_one_column_shown(masked: Plan) -> None:
    live = Live.of(masked, SECRET)
    rows = readings(1)[:4]
    frame = pd.DataFrame(rows, columns=["day", "at", "state"]).assign(extra=1)
    _, told = live.advance("ann", None, rows)
    _, table = advance_subject(live, "ann", None, [frame])
    assert table.columns.tolist() == ["subject", "day", "at", "late", "error", "shown"]
    assert table["shown"].tolist() == [row.cells.get("shown") for row in told]
    assert advance_subject(live, "ann", None, [])[1].empty


def test_the_state_has_the_type_of_earlier_checkpoints(located: Plan) -> None:
    # Spark refuses to restart from a checkpoint whose state is of another type
    assert STATE == "document string"
    assert isinstance(Live.of(located, SECRET).advance("ann", None, walk())[0], str)


def test_only_streams_are_live() -> None:
    with pytest.raises(InputError, match="run it as a job"):
        Live.of(histogram_plan(), SECRET)


def test_the_words_are_one_stream_however_they_are_asked_for() -> None:
    one, two = KeyedRng(SECRET, ["a", 1]), KeyedRng(SECRET, ["a", 1])
    parts = [one.words(count) for count in (1, 0, 3, 9)]
    assert np.concatenate(parts).tolist() == two.words(13).tolist()
    assert KeyedRng(SECRET, ["a", 2]).words(4).tolist() != two.words(4).tolist()
    other = bytes(32)
    assert (
        KeyedRng(other, ["a", 1]).words(4).tolist() != KeyedRng(SECRET, ["a", 1]).words(4).tolist()
    )
    many = KeyedRng(SECRET, ["bits"]).words(4096)
    share = np.unpackbits(many.view(np.uint8)).mean()
    assert abs(share - 0.5) < 5 * 0.5 / np.sqrt(64 * 4096)
    assert len(set(many.tolist())) == 4096


def test_the_key_is_made_once_and_private(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint" / "shoal-key"
    key = stream_key(path)
    assert len(key) == 32
    assert stream_key(path) == key
    assert path.stat().st_mode & 0o077 == 0
    path.write_text("no key")
    with pytest.raises(InputError, match="does not hold a stream's key"):
        stream_key(path)
    with pytest.raises(InputError, match="must have 32"):
        KeyedRng(b"short", [])


def test_a_day_of_contexts_belongs_to_the_query_that_charged_it(
    masked: Plan, tmp_path: Path
) -> None:
    """A query with a new checkpoint has a new key, and would draw the slots of the day anew."""
    rows, ledger = readings(1), str(tmp_path / "ledger")
    queries = [Live.of(masked, bytes([k]) * 32, ledger=ledger) for k in range(9)]
    first, *others = ([row.cells for row in q.advance("ann", None, rows)[1]] for q in queries)
    assert all("shown" in cells for cells in first)
    assert others == [[{}] * SLOTS] * 8
    again = [row.cells for row in queries[0].advance("ann", None, rows)[1]]
    assert again == first  # run again after a stop, it shows what it showed
    free = [Live.of(masked, bytes([k]) * 32).advance("ann", None, rows)[1] for k in range(9)]
    assert len({tuple(row.cells["shown"] for row in told) for told in free}) > 1  # drawn anew
