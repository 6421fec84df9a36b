"""`shoal stream --by KEY`: streams of many people in one program."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli.app import app
from shoal.core.plan import Plan
from shoal.core.registry import dumps
from shoal.jobs.keyed import MAX_BATCH_LINES, batches
from tests.gateway.gateway_house import plan as gateway_plan
from tests.ledger_servers import KINDS, fresh_ledger

ROOT = Path(__file__).parents[2]
PEOPLE = ("ada", "ben", "cleo")


@pytest.fixture
def stored(tmp_path: Path) -> Callable[[str], Path]:
    def keep(name: str) -> Path:
        path = tmp_path / f"{name}.json"
        path.write_text(dumps(plan_named(name)))
        return path

    return keep


def plan_named(name: str) -> Plan:
    return gateway_plan(name)


def run(*arguments: object, given: str = "") -> Any:
    return CliRunner().invoke(app, ["stream", *map(str, arguments)], input=given)


def lines_of(readings: list[dict[str, Any]]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in readings)


def answers(done: Any) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.output
    return [json.loads(line) for line in done.stdout.splitlines()]


def walk_lines(steps: int, seed: int = 1) -> list[dict[str, Any]]:
    order = random.Random(seed)
    cells = [f"{row},{column}" for row in range(3) for column in range(3)]
    return [{"user": order.choice(PEOPLE), "state": order.choice(cells)} for _ in range(steps)]


@pytest.mark.parametrize("name", ["walk", "day", "steps"])
def test_each_key_gets_what_a_stream_of_its_own_gives(
    stored: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    """The fields of an answer, its steps and its days are those of one stream alone."""
    order = random.Random(2)
    readings: list[dict[str, Any]] = []
    for number in range(24):
        person = order.choice(PEOPLE)
        said: dict[str, Any] = {"state": "0,0"} if name == "walk" else {"state": "a"}
        if name == "day":
            mine = sum(each["user"] == person for each in readings)
            said = {"day": f"2026-01-{mine // 4 + 1:02d}", "slot": mine % 4, "context": "home"}
        readings.append({"user": person, "id": number, **said})
    found = answers(run(stored(name), "--by", "user", given=lines_of(readings)))
    assert [each["user"] for each in found] == [each["user"] for each in readings]
    assert [each["id"] for each in found] == list(range(24))
    public = ("time", "entries", "day", "slot")
    for person in PEOPLE:
        own = [
            {k: v for k, v in each.items() if k != "user"}
            for each in readings
            if each["user"] == person
        ]
        alone = answers(run(stored(name), given=lines_of(own)))
        mine = [each for each in found if each["user"] == person]
        for one, two in zip(mine, alone, strict=True):
            assert set(one) - {"user"} == set(two)
            assert {k: one.get(k) for k in public} == {k: two.get(k) for k in public}


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_is_charged_to_its_key_and_streams_go_on(
    stored: Callable[[str], Path], tmp_path: Path, kind: str
) -> None:
    ledger = fresh_ledger(kind, tmp_path)
    readings = walk_lines(60)
    found: list[dict[str, Any]] = []
    for part in (readings[:25], readings[25:26], readings[26:]):
        given = lines_of(part)
        found += answers(run(stored("walk"), "--by", "user", "--ledger", ledger, given=given))
    with shoal.open_ledger(ledger) as opened:
        charges = opened.charges()
        assert opened.verify().intact
    for person in PEOPLE:
        mine = [each for each in found if each["user"] == person]
        assert [each["time"] for each in mine] == list(range(1, len(mine) + 1))
        assert sum(charge.subject == person for charge in charges) == len(mine)
    assert len(charges) == len(readings)


def test_a_key_whose_budget_ends_stops_nobody_else(
    stored: Callable[[str], Path], tmp_path: Path
) -> None:
    ledger = str(tmp_path / "budget.db")
    with shoal.open_ledger(ledger) as opened:
        opened.limit(2, unit="epsilon", subject="ada", period=None)
    readings = [{"user": each, "state": "0,0"} for each in ("ada", "ben") * 4]
    found = answers(
        run(stored("walk"), "--by", "user", "--ledger", ledger, given=lines_of(readings))
    )
    ada, ben = found[::2], found[1::2]
    assert [each["time"] for each in ben] == [1, 2, 3, 4]
    assert [each.get("time") for each in ada] == [1, 2, None, None]
    assert all("refuses the charge" in each["error"] for each in ada[2:])
    with shoal.open_ledger(ledger) as opened:
        assert len(opened.charges()) == 6


def test_a_repeated_id_brings_its_answer_again_after_a_restart_too(
    stored: Callable[[str], Path], tmp_path: Path
) -> None:
    state = tmp_path / "states.db"
    line = lines_of([{"user": "ada", "id": 7, "state": "0,0"}])
    options = (stored("walk"), "--by", "user", "--state", state)
    first, again = answers(run(*options, given=line + line))
    assert first == again
    assert answers(run(*options, given=line)) == [first]
    other = lines_of([{"user": "ben", "id": 7, "state": "0,0"}])
    assert answers(run(*options, given=other))[0]["user"] == "ben"
    assert oct(state.stat().st_mode & 0o777) == "0o600"


@pytest.mark.parametrize(
    "line",
    [
        '{"state": "0,0"}',
        '{"user": null, "state": "0,0"}',
        '{"user": "", "state": "0,0"}',
        '{"user": "*", "state": "0,0"}',
        '{"user": [1], "state": "0,0"}',
        '{"user": true, "state": "0,0"}',
        '{"user": "ada", "state": "9,9"}',
        '{"user": "ada"}',
        "no json",
    ],
)
def test_a_line_that_cannot_be_used_is_answered_so_and_tells_nothing(
    stored: Callable[[str], Path], line: str
) -> None:
    good = lines_of([{"user": "ben", "state": "0,0"}])
    done = run(stored("walk"), "--by", "user", given=f"{good}{line}\n{good}")
    first, refused, last = answers(done)
    assert set(refused) == {"line", "error"}
    assert refused["line"] == 2
    assert "9,9" not in done.stdout
    assert (first["time"], last["time"]) == (1, 2)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--subject", "ada", "--ledger", "b.db"), "--subject is for one stream"),
        (("--resume",), "--resume is for one stream"),
        (("--ledger", "b.db", "--state", "s.db"), "drop --state"),
        (("--ledger", "b.db", "--seed", "1"), "takes no --seed"),
        (("--period", "p"), "without --ledger"),
    ],
)
def test_options_for_one_stream_are_refused(
    stored: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    sentence: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(stored("walk"), "--by", "user", *options)
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert "--by is 'context'" in run(stored("day"), "--by", "context").stderr


def test_streams_of_another_plan_are_refused(stored: Callable[[str], Path], tmp_path: Path) -> None:
    state = tmp_path / "states.db"
    line = lines_of([{"user": "ada", "state": "0,0"}])
    answers(run(stored("walk"), "--by", "user", "--state", state, given=line))
    done = run(stored("steps"), "--by", "user", "--state", state, given=line)
    assert done.exit_code == 2
    assert "belong to another plan" in done.stderr


def test_lines_that_are_there_are_one_batch() -> None:
    texts = [f"{number}\n" for number in range(3 * MAX_BATCH_LINES)]
    found = list(batches(iter(texts)))
    assert [each for batch in found for each in batch] == list(enumerate(texts, 1))
    assert max(map(len, found)) <= MAX_BATCH_LINES

    def failing() -> Any:
        yield "1\n"
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        list(batches(failing()))


def test_a_kill_loses_no_charge_and_prints_nothing_that_is_not_stored(
    stored: Callable[[str], Path], tmp_path: Path
) -> None:
    """Killed at any line: what was printed is charged, and the streams go on after it."""
    ledger, path = str(tmp_path / "budget.db"), stored("walk")
    command = [sys.executable, "-c", "from shoal.cli import main; main()", "stream", str(path)]
    command += ["--by", "user", "--ledger", ledger]
    given = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "NUMBA_DISABLE_JIT": "1"}
    printed: list[dict[str, Any]] = []
    for turn in range(3):
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=given
        )
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(lines_of(walk_lines(40, seed=turn)))
        process.stdin.flush()
        printed += [json.loads(process.stdout.readline()) for _ in range(5 * turn + 1)]
        process.send_signal(signal.SIGKILL)
        rest = process.stdout.read().splitlines()
        process.wait(60)
        printed += [json.loads(line) for line in rest if line.endswith("}")]
    with shoal.open_ledger(ledger) as opened:
        charges = opened.charges()
        assert opened.verify().intact
    for person in PEOPLE:
        times = [each["time"] for each in printed if each["user"] == person]
        assert times == sorted(set(times)), "a step was shown twice"
        charged = sum(charge.subject == person for charge in charges)
        assert not times or times[-1] <= charged
