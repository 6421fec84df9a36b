"""`shoal serve` and `shoal keys` as programs; backups, and older copies that are noticed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import select
from typer.testing import CliRunner

from shoal.cli.app import app
from shoal.core.errors import LedgerError
from shoal.core.registry import dumps
from shoal.gateway.advance import Reading
from shoal.gateway.calibration import described, keep_plan
from shoal.gateway.rounds import Asked, close_due, take_all
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import Address, House, open_stream
from shoal.gateway.tables import OUTPUTS, STREAMS
from shoal.gateway.ticker import check_anchor, hold_still, lay_anchor
from shoal.gateway.vault import Vault, read_keys
from tests.gateway.gateway_house import fill, settings_in, wait_until
from tests.gateway.gateway_nursery import free_ports
from tests.gateway.test_gateway_events import places as watched_places

ROOT = Path(__file__).parents[2]
WHERE = Address("one", "ada", "s")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_init_makes_a_space_with_a_key_and_refuses_to_make_it_twice(here: Path) -> None:
    made = run("serve", "--init", "--space", "home", "--json")
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["token"].startswith("shoal_o_")
    assert (here / "shoal-gateway.key").stat().st_mode & 0o077 == 0
    again = run("serve", "--init", "--space", "home")
    assert again.exit_code == 2
    assert "is there already" in again.stderr
    assert "space is" in run("serve", "--init", "--space", "no good").stderr


def test_keys_are_made_listed_taken_back_and_rotated(here: Path) -> None:
    run("serve", "--init")
    made = json.loads(run("keys", "make", "person", "ada", "--json").stdout)
    assert made["token"].startswith("shoal_p_")
    assert "ada" in run("keys", "list").stdout
    assert run("keys", "revoke", made["key"]).exit_code == 0
    listed = json.loads(run("keys", "list", "--json").stdout)
    assert next(each for each in listed if each["key"] == made["key"])["revoked"]
    assert run("keys", "rotate").exit_code == 0
    assert len((here / "shoal-gateway.key").read_text().split()) == 2
    for bad, sentence in ((("make", "king"), "kind is 'king'"), (("make", "person"), "holder")):
        refused = run("keys", *bad)
        assert refused.exit_code == 2
        assert sentence in refused.stderr


def test_several_workers_need_postgres(here: Path) -> None:
    run("serve", "--init")
    refused = run("serve", "--workers", "2")
    assert refused.exit_code == 2
    assert "SQLite" in refused.stderr
    bad = run("serve", "--port", "99999")
    assert bad.exit_code == 2
    assert "SHOAL_PORT" in bad.stderr


def test_a_newcomer_copies_a_line_and_sees_the_town(here: Path) -> None:
    """What is printed first is a curl line, and what it asks for is live."""
    (port,) = free_ports(1)
    command = [sys.executable, "-c", "from shoal.cli import main; main()"]
    with subprocess.Popen(
        [*command, "serve", "--town", "--port", str(port)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    ) as server:
        assert server.stdout is not None
        assert server.stderr is not None
        line = next((each for each in server.stdout if each.startswith("  curl -N ")), "")
        *_, key, url = line.split()
        headers = {"Authorization": f"Bearer {key.rstrip(chr(39))}"}
        with httpx.stream("GET", url, headers=headers, timeout=60) as answer:
            events = (each for each in answer.iter_lines() if each.startswith("data: "))
            shown = [json.loads(next(events)[6:]) for _ in range(2)]
        server.terminate()
        assert server.stderr.read() == ""
    assert [each["id"] for each in shown] == [0, 1]
    assert {each["status"] for each in shown} <= {"shown", "silent"}
    assert server.returncode in (0, -signal.SIGTERM)


WALKED = """
from shoal.gateway.town import PLACES, interpret_kernels, plan_of_spec
from shoal.noise.primitives import SeededRng
{first}
plan, rng = plan_of_spec(PLACES), SeededRng(7)
model, state = plan.task.family[0], plan.body.init()
print(plan.fingerprint)
for place in model.sample(100, rng):
    state, shown = plan.body.step(state, model.states[int(place)], rng)
    print(shown.point, *map(float, shown.estimate), shown.degree)
"""


@pytest.mark.slow
def test_the_town_draws_what_compiled_code_draws() -> None:
    """Kernels run as plain Python give the same outputs, to the last digit."""
    told = []
    for first in ("interpret_kernels()", ""):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", WALKED.format(first=first)],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert len(told[0].splitlines()) == 101


def test_the_service_starts_answers_and_stops_gracefully(here: Path) -> None:
    token = json.loads(run("serve", "--init", "--json").stdout)["token"]
    (port,) = free_ports(1)
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "SHOAL_PORT": str(port)}
    code = "from shoal.cli import main; main()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve"], env=env, stderr=subprocess.PIPE, text=True
    )
    base = f"http://127.0.0.1:{port}"
    try:
        wait_until(lambda: _alive(base))
        headers = {"Authorization": f"Bearer {token}"}
        assert httpx.get(f"{base}/v1/people", headers=headers, timeout=60).json() == {"people": []}
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) in (0, -signal.SIGTERM)
    finally:
        process.kill()


def _alive(base: str) -> bool:
    try:
        return httpx.get(f"{base}/health/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


class Kept:
    """A database of the gateway with a stream of contexts, moved by hand."""

    def __init__(self, folder: Path) -> None:
        self.settings = settings_in(folder)
        self.store = Store(self.settings)
        self.store.migrate()
        self.now = time.time()

    @property
    def rooms(self) -> House:
        return House(self.store, Vault(read_keys("", self.settings.state_key_file)))

    def begin(self) -> None:
        self.store.write(ALL, lambda c: fill(c, ("one",)))
        asked = {"plan": "day", "clock": {"every": 10.0}}
        self.store.write(ALL, lambda c: open_stream(self.rooms, c, WHERE, asked, self.now))
        self.now += 10

    def slot(self) -> str | None:
        """One reading and the close of its slot; why the reading was dead."""
        reading = [Reading(self.now, {"context": "home"})]
        asked = Asked(WHERE, reading, self.now)
        (told,) = self.store.write(ALL, lambda c: take_all(self.rooms, c, [asked]))
        assert isinstance(told, list)
        self.now += 10
        self.store.write(ALL, lambda c: close_due(self.rooms, c, self.now, 10))
        return told[0]

    def statuses(self) -> list[str]:
        rows = self.store.read(
            ALL, lambda c: c.execute(OUTPUTS.select().order_by(OUTPUTS.c.ordinal)).all()
        )
        return [json.loads(row.body)["status"] for row in rows]


def test_a_day_of_events_about_places_is_held_still_too(tmp_path: Path) -> None:
    """What an older copy forgot of it would not count toward what the day promises."""
    kept = Kept(tmp_path)
    watched = watched_places()
    told = {"plan": "watch", "document": dumps(watched, indent=None), "told": described(watched)}
    kept.store.write(ALL, lambda c: fill(c, ("one",)))
    kept.store.write(ALL, lambda c: keep_plan(c, "one", told))
    for name in ("watch", "walk"):
        asked = {"plan": name, "clock": {"every": 10.0}, "independent": True}
        begin = partial(open_stream, kept.rooms, asked=asked, now=kept.now)
        kept.store.write(ALL, partial(begin, address=WHERE._replace(stream=name)))
    assert kept.store.write(ALL, lambda c: hold_still(kept.rooms, c, kept.now)) == 1
    pauses = select(STREAMS.c.stream, STREAMS.c.pauses).order_by(STREAMS.c.stream)
    (_, free), (_, held) = kept.store.read(ALL, lambda c: c.execute(pauses).all())
    assert (len(json.loads(held)), free) == (1, "[]")
    kept.store.close()


def backup(source: Path, target: Path) -> None:
    """A copy of a database in use, as `sqlite3 gateway.db '.backup copy.db'` makes it."""
    with sqlite3.connect(source) as one, sqlite3.connect(target) as two:
        one.backup(two)
    two.close()
    one.close()


def test_a_backup_goes_on_and_an_older_copy_is_noticed(tmp_path: Path) -> None:
    kept = Kept(tmp_path)
    kept.begin()
    assert kept.slot() is None
    lay_anchor(kept.store, kept.settings.head_file)
    copy = tmp_path / "copy.db"
    backup(Path(kept.settings.database), copy)
    assert kept.slot() is None
    kept.store.close()
    for left in tmp_path.glob("gateway.db*"):
        left.unlink()
    shutil.copy(copy, kept.settings.database)
    restored = Kept(tmp_path)
    check_anchor(restored.store, kept.settings.head_file)  # laid before the copy: it is there
    lay_anchor(restored.store, tmp_path / "newer.head")
    restored.store.close()
    for left in tmp_path.glob("gateway.db*"):
        left.unlink()
    shutil.copy(copy, kept.settings.database)
    older = Kept(tmp_path)
    with pytest.raises(LedgerError, match="older copy"):
        check_anchor(older.store, tmp_path / "newer.head")
    assert older.store.ledger.verify().intact
    older.now = kept.now
    assert older.store.write(ALL, lambda c: hold_still(older.rooms, c, older.now)) == 1
    dead = [older.slot() for _ in range(8)]
    assert dead[0] == "paused", "the rest of a day that is known in part is not drawn"
    assert dead[-1] is None
    assert older.statuses()[1:4] == ["paused"] * 3
    older.store.close()
