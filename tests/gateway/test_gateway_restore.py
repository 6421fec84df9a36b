"""Copies of the database put back: old ones never start unnoticed, nothing taken back returns."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path

import httpx
import pytest
from sqlalchemy import select

from shoal.core.errors import LedgerError
from shoal.core.registry import dumps
from shoal.gateway.clock import Clock, day_clock, steady_clock
from shoal.gateway.copies import head as head_module
from shoal.gateway.copies.head import HeadFile, NotedHead, advance_head, check_head, note_checkpoint
from shoal.gateway.copies.restore import hold_still
from shoal.gateway.planning.calibration import describe_plan, keep_plan
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import Address, House, held_at_beginning, open_stream
from shoal.gateway.tables import HEADS, STREAMS
from shoal.gateway.vault import Vault, read_keys
from tests.gateway.gateway_copies import EVERY, Site
from tests.gateway.gateway_house import fill, settings_in, wait_until
from tests.gateway.gateway_nursery import free_ports
from tests.gateway.test_gateway_events import places as watched_places
from tests.ledger_servers import KINDS, fresh_schema, shared_server

ROOT = Path(__file__).parents[2]
WALK = "/v1/people/ada/streams/walk"
DAY = "/v1/people/ben/streams/day"


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Site]:
    sqlite = request.param == "sqlite"
    url = str(tmp_path / "gateway.db") if sqlite else fresh_schema(shared_server())
    found = Site(url, tmp_path)
    yield found
    found.nursery.stop()


def walking(site: Site) -> None:
    """Ada walks, and lets the viewer see."""
    site.start()
    site.begin("ada", "ben")
    body = {"plan": "walk", "clock": {"every": EVERY}}
    site.ask("PUT", WALK, "ada", body).raise_for_status()
    site.ask("PUT", "/v1/people/ada/grants/viewer", "ada", {"since": "2020-01-01T00:00:00Z"})
    site.pass_time(EVERY)


def test_an_older_copy_is_refused_after_a_stop(site: Site) -> None:
    """Stop, copy, four readings, the copy put back: ids that were shown get no other content."""
    walking(site)
    assert site.slot(WALK, "ada-phone", {"state": "1,1"}) is None
    site.stop()
    site.copy("older")
    site.start()
    for _ in range(4):
        assert site.slot(WALK, "ada-phone", {"state": "1,1"}) is None
    shown = site.outputs(WALK, "ada")
    site.stop()
    site.copy("newest")
    site.put_back("older")
    with pytest.raises(LedgerError, match=r"is behind the head noted in .*--restored"):
        site.check()
    site.put_back("newest")
    site.start()
    assert site.outputs(WALK, "ada") == shown
    assert site.slot(WALK, "ada-phone", {"state": "1,1"}) is None


def test_an_older_copy_is_refused_after_a_kill(site: Site) -> None:
    """Nothing is noted at a kill: what was noted in the last interval is enough."""
    walking(site)
    before = site.settings.head_file.read_text()
    wait_until(lambda: site.settings.head_file.read_text() != before)
    site.copy("older")
    before = site.settings.head_file.read_text()
    assert site.slot(WALK, "ada-phone", {"state": "1,1"}) is None
    wait_until(lambda: site.settings.head_file.read_text() != before)
    before = site.settings.head_file.read_text()
    wait_until(lambda: site.settings.head_file.read_text() != before)
    site.kill()
    site.check()  # the database itself goes on, however it was stopped
    site.put_back("older")
    with pytest.raises(LedgerError, match="is behind"):
        site.check()


def test_what_was_taken_back_since_the_copy_stays_so(site: Site) -> None:
    walking(site)
    paths = {
        name: f"/v1/people/{name}/streams/walk" for name in ("kept", "gone", "paused", "twice")
    }
    for name, path in paths.items():
        site.begin(name)
        for kind, maker in (("person", "operator"), ("device", name)):
            made = site.ask("POST", "/v1/keys", maker, {"kind": kind, "holder": name})
            site.tokens[name if kind == "person" else f"{name}-phone"] = made.json()["token"]
        body = {"plan": "walk", "clock": {"every": EVERY}}
        site.ask("PUT", path, name, body).raise_for_status()
        since = {"since": "2020-01-01T00:00:00Z"}
        site.ask("PUT", f"/v1/people/{name}/grants/viewer", name, since).raise_for_status()
    site.ask("POST", f"{paths['twice']}/pause", "twice").raise_for_status()
    site.pass_time(2 * EVERY)
    site.ask("POST", f"{paths['twice']}/resume", "twice").raise_for_status()
    site.pass_time(2 * EVERY)
    site.copy("older")
    # one grant withdrawn, one made narrower; a stream deleted, one paused; a key and ada go
    assert site.ask("DELETE", "/v1/people/kept/grants/viewer", "kept").status_code == 204
    site.ask("PUT", "/v1/people/twice/grants/viewer", "twice", {"every": 1000}).raise_for_status()
    site.ask("DELETE", paths["gone"], "gone").raise_for_status()
    site.ask("POST", f"{paths['paused']}/pause", "paused").raise_for_status()
    (phone,) = site.ask("GET", "/v1/keys", "gone").json()["keys"]
    assert site.ask("DELETE", f"/v1/keys/{phone['key']}", "gone").status_code == 204
    assert site.ask("DELETE", "/v1/people/ada", "ada").status_code == 204
    site.pass_time(EVERY)
    site.kill()
    site.put_back("older")
    done = site.accept()
    # of streams: the one deleted and ada's; of grants: two and ada's; of keys: one and ada's two
    assert (done.known, done.streams, done.grants, done.people) == (True, 2, 3, 1)
    assert (done.keys, done.paused, done.held) == (3, 1, 0)
    site.start()
    for name in ("kept", "twice", "gone"):
        assert site.ask("GET", f"{paths[name]}/outputs", "viewer").status_code == 404
    assert site.ask("GET", f"{paths['gone']}/outputs", "gone").status_code == 404
    assert site.ask("GET", f"{WALK}/outputs", "viewer").status_code == 404
    assert site.ask("GET", f"{paths['paused']}/outputs", "viewer").status_code == 200
    for key in ("gone-phone", "ada", "ada-phone"):
        assert site.ask("GET", "/v1/keys", key).status_code == 401
    reading = {"state": "1,1"}
    site.pass_time(EVERY)
    told = {
        name: site.slot(paths[name], f"{name}-phone", reading)
        for name in ("kept", "paused", "twice")
    }
    assert told == {"kept": None, "paused": "paused", "twice": None}
    site.ask("POST", f"{paths['paused']}/resume", "paused").raise_for_status()
    site.pass_time(EVERY)
    assert site.slot(paths["paused"], "paused-phone", reading) is None


def test_a_day_is_held_and_resume_during_the_hold_is_remembered(site: Site) -> None:
    site.start()
    site.begin("ada", "ben")
    for person in ("ada", "ben"):
        body = {"plan": "day", "clock": {"every": EVERY}}
        path = f"/v1/people/{person}/streams/day"
        site.ask("PUT", path, person, body).raise_for_status()
    site.pass_time(EVERY)
    ada = "/v1/people/ada/streams/day"
    site.ask("POST", f"{DAY}/pause", "ben").raise_for_status()
    assert site.slot(ada, "ada-phone", {"context": "home"}) is None
    site.copy("older")
    assert site.slot(ada, "ada-phone", {"context": "home"}) is None
    site.kill()
    site.put_back("older")
    done = site.accept()
    assert (done.held, done.paused) == (2, 0)
    site.start()
    resumed = site.ask("POST", f"{DAY}/resume", "ben").json()["from"]
    assert resumed == 4, "the next day is the first that may be read"
    told = {
        path: [site.slot(path, key, {"context": "home"}) for _ in range(4)]
        for path, key in ((ada, "ada-phone"), (DAY, "ben-phone"))
    }
    assert told[ada][0] == told[ada][1] == "paused", "the day that is known in part is not drawn"
    assert told[ada][2:] == [None, None]
    assert told[DAY] == [None] * 4, "ben had resumed, and a new day had begun"
    statuses = [each["status"] for each in site.outputs(DAY, "ben")]
    assert statuses[1:4] == ["paused"] * 3
    assert site.ask("POST", f"{ada}/pause", "ada").status_code == 200


def test_every_copy_made_before_a_restore_is_refused_after_it(site: Site) -> None:
    walking(site)
    site.copy("older")
    assert site.slot(WALK, "ada-phone", {"state": "1,1"}) is None
    site.stop()
    site.copy("newest")
    site.put_back("older")
    site.accept()
    for name in ("newest", "older"):
        site.put_back(name)
        with pytest.raises(LedgerError, match="is behind"):
            site.check()


def test_a_database_exchanged_under_a_running_gateway_shows_nothing_more(site: Site) -> None:
    walking(site)
    site.stop()
    site.copy("older")
    site.start()
    assert site.slot(WALK, "ada-phone", {"state": "1,1"}) is None
    noted = site.settings.head_file.read_text()
    wait_until(lambda: site.settings.head_file.read_text() != noted)
    if not site.postgres:  # a file cannot be exchanged while it is open: the head moves instead
        file = HeadFile(site.settings.head_file)
        with file.lock():
            found = file.read()
            assert found is not None
            file.write(found._replace(number=found.number + 9))
    else:
        site.put_back("older")
    url = f"http://127.0.0.1:{site.ports[0]}/health/ready"

    def refused() -> bool:
        return httpx.get(url, timeout=30).status_code == 503

    if not site.postgres:
        wait_until(refused)
        assert "head" in httpx.get(url, timeout=30).json()["detail"]
    else:  # one of two workers holds the clock
        both = [f"http://127.0.0.1:{port}/health/ready" for port in site.ports]
        wait_until(lambda: any(httpx.get(each, timeout=30).status_code == 503 for each in both))
    count = len(site.outputs(WALK, "ada"))
    site.pass_time(3 * EVERY, wait=False)
    assert len(site.outputs(WALK, "ada")) == count


def test_a_missing_head_file_is_refused_and_everything_is_taken_back(site: Site) -> None:
    site.check()
    site.settings.head_file.unlink()
    with pytest.raises(LedgerError, match=r"is missing.*--new-head"):
        site.check()  # not even in use, but begun: a copy of it could come back
    site.begin_head()
    walking(site)
    site.stop()
    site.copy("newest")
    site.settings.head_file.unlink()
    with pytest.raises(LedgerError, match="is missing"):
        site.check()
    site.begin_head()
    site.check()
    site.start()
    assert site.slot(WALK, "ada-phone", {"state": "1,1"}) is None
    site.stop()
    site.settings.head_file.unlink()
    done = site.accept()
    assert (done.known, done.grants, done.paused) == (False, 1, 1)
    site.start()
    for key in ("operator", "ada", "ada-phone", "viewer"):
        assert site.ask("GET", "/v1/keys", key).status_code == 401


class Lineage:
    """Copies and notes in a model that shares nothing with the program: a list of what happened.

    The database is a list of note numbers it went through; the file is the list at its last write.
    """

    def __init__(self) -> None:
        self.database: tuple[int, ...] = ()
        self.file: tuple[int, ...] = ()
        self.copies: dict[str, tuple[int, ...]] = {}
        self.count = 0

    def allowed(self) -> bool:
        """Whether the database is at the noted moment, or one note past it."""
        return self.database == self.file or self.database[:-1] == self.file

    def note(self, *, torn: bool) -> None:
        if self.database == self.file:
            self.count += 1
            self.database = (*self.database, self.count)
        if not torn:
            self.file = self.database


def test_only_the_newest_database_passes_whatever_is_copied_killed_and_put_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random histories against a model: refused exactly when the model says so."""
    order, seen = random.Random(11), {True: 0, False: 0}
    for turn in range(12):
        folder = tmp_path / str(turn)
        folder.mkdir()
        site = Site(str(folder / "gateway.db"), folder)
        site.check()
        model = Lineage()
        model.note(torn=False)
        for step in range(12):
            act = order.choice(["note", "note", "torn", "copy", "put", "accept"])
            if act == "copy":
                name = f"copy{step}"
                site.copy(name)
                model.copies[name] = model.database
            elif act == "put" and model.copies:
                name = order.choice(sorted(model.copies))
                site.put_back(name)
                model.database = model.copies[name]
            elif act == "accept":
                site.accept()
                model.count += 1
                model.database = model.file = (*model.database, model.count)
            elif act in ("note", "torn") and model.allowed():
                torn = act == "torn"
                with monkeypatch.context() as patch, site.store() as store:
                    if torn:
                        patch.setattr(HeadFile, "write", cut_off)
                        with pytest.raises(OSError, match="cut off"):
                            advance_head(store)
                    else:
                        advance_head(store)
                model.note(torn=torn)
            seen[model.allowed()] += 1
            if model.allowed():
                site.check()
                model.file = model.database
            else:
                with pytest.raises(LedgerError):
                    site.check()
    assert min(seen.values()) > 20, seen


def cut_off(file: HeadFile, head: NotedHead) -> NotedHead:
    raise OSError("the power was cut off")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    found = Store(settings_in(tmp_path))
    found.migrate()
    yield found
    found.close()


def test_many_workers_note_one_head(tmp_path: Path, store: Store) -> None:
    check_head(store)
    others = [Store(store.settings) for _ in range(3)]
    numbers: list[int] = []

    def work(one: Store) -> None:
        for _ in range(10):
            advance_head(one)
            found = one.head.read()
            assert found is not None
            numbers.append(found.number)

    threads = [threading.Thread(target=work, args=(each,)) for each in others]
    for each in threads:
        each.start()
    for each in threads:
        each.join(60)
    last = store.head.read()
    assert last is not None
    assert (len(numbers), max(numbers), last.number) == (30, 31, 31)
    row = store.commit_now(lambda c: c.execute(select(HEADS)).one())
    assert (row.seq, row.token) == (last.number, last.token)
    for one in others:
        one.close()


def test_a_head_of_another_database_and_one_that_is_older_are_refused(
    tmp_path: Path, store: Store
) -> None:
    check_head(store)
    file, first = store.head.path, store.head.path.read_text()
    for _ in range(3):
        advance_head(store)
    newest = file.read_text()
    file.write_text(first)
    with pytest.raises(LedgerError, match="older than the database"):
        check_head(store)
    found = json.loads(newest)
    for changed in ({"database": "ff"}, {"token": "ff"}, {"number": found["number"] + 1}):
        file.write_text(json.dumps(found | changed))
        with pytest.raises(LedgerError, match=r"is behind the head|older than"):
            check_head(store)
    for broken in ("", "{}x", "[1]", '{"seq": 1}'):
        file.write_text(broken)
        with pytest.raises(LedgerError, match="is no head"):
            check_head(store)
    file.write_text(newest)
    check_head(store)
    assert file.stat().st_mode & 0o077 == 0


def test_a_head_file_of_the_version_before_is_taken_over(tmp_path: Path, store: Store) -> None:
    """It held the hash of the last checkpoint, and nothing else."""
    store.write(ALL, lambda c: fill(c, ("one",)))
    rooms = House(store, Vault(read_keys("", store.settings.state_key_file)))
    asked = {"plan": "walk", "clock": {"every": 10.0}}
    where = Address("one", "ada", "s")
    store.write(ALL, lambda c: open_stream(rooms, c, where, asked, 1e9))
    with pytest.raises(LedgerError, match="is missing"):
        check_head(store)  # in use, and no head was ever noted
    noted = store.ledger.checkpoint(by="gateway").hash
    store.head.path.write_text("0" * 64)
    with pytest.raises(LedgerError, match="is behind"):
        check_head(store)
    store.head.path.write_text(f"{noted}\n")
    check_head(store)
    found = store.head.read()
    assert found is not None
    assert (found.number, found.checkpoint) == (1, noted)
    note_checkpoint(store)
    advance_head(store)
    found = store.head.read()
    assert found is not None
    assert found.number == 2
    assert store.ledger.verify(head=found.checkpoint).intact


def test_the_list_of_what_was_taken_back_is_whole_or_refused(tmp_path: Path) -> None:
    file = HeadFile(tmp_path / "x.head")
    file.note_withdrawn(["row aa", "pause u 3"])
    head = file.write(NotedHead("d", 1, "t"))
    with file.list.open("a") as stream:
        stream.write("row tor")  # the power was cut off
    file.note_withdrawn(["row bb"])
    found = file.read_withdrawn(head)
    assert {"aa", "bb"} <= found.rows
    assert found.pauses == {("u", 3)}
    file.list.write_text("row aa\n")
    with pytest.raises(LedgerError, match="is shorter than"):
        file.read_withdrawn(head)
    file.list.unlink()
    with pytest.raises(LedgerError, match="is shorter than"):
        file.read_withdrawn(head)


def test_a_list_that_cannot_be_written_takes_nothing_back(site: Site) -> None:
    """The person is told and the grant stays: none is gone here and back after a restore."""
    walking(site)
    file = HeadFile(site.settings.head_file)
    file.list.unlink(missing_ok=True)
    file.list.mkdir()
    told = site.ask("DELETE", "/v1/people/ada/grants/viewer", "ada")
    assert told.status_code == 503
    assert "cannot be written" in told.json()["detail"]
    assert len(site.ask("GET", "/v1/people/ada/grants", "ada").json()["grants"]) == 1
    file.list.rmdir()
    assert site.ask("DELETE", "/v1/people/ada/grants/viewer", "ada").status_code == 204


def clocks() -> list[Clock]:
    steady = steady_clock(seconds=7.0, slots=4, begins=1000.0)
    daily = day_clock(slots=3, minutes=60, start=480, zone="UTC", begins=date(1970, 1, 1))
    return [steady, replace(steady, first=8), daily, replace(daily, first=6)]


@pytest.mark.parametrize("clock", clocks())
def test_a_stream_begun_after_a_restore_waits_for_a_day_that_nobody_saw(clock: Clock) -> None:
    """By enumeration: read from the first day on that begins when any lost day is over."""
    length = 28.0 if clock.kind == "every" else 0.0
    days = range(clock.first, clock.first + 15 * clock.slots, clock.slots)
    shifts = (-50.0, -1.0, 0.0, 30.0, 100.0, *([6e4, 3e5] if clock.kind == "day" else []))
    for restored in [clock.slot(days[0]).opens + shift for shift in shifts]:
        for closed in range(clock.first, clock.first + 3 * clock.slots):
            safe = min(day for day in days if clock.slot(day).opens >= restored + length)
            begun_before = max(day for day in days if day <= closed)
            expected = [] if begun_before >= safe else [[closed, safe]]
            assert held_at_beginning(clock, closed, restored) == expected
    assert held_at_beginning(clock, clock.first, None) == []
    assert held_at_beginning(replace(clock, slots=0), clock.first, 5.0) == []


def test_a_stream_begun_after_a_restore_is_held(site: Site) -> None:
    """The copy may have lost a stream of that name, whose day was seen in part."""
    walking(site)
    site.copy("older")
    body = {"plan": "day", "clock": {"every": EVERY}}
    site.ask("PUT", DAY, "ben", body).raise_for_status()
    site.pass_time(EVERY)
    assert site.slot(DAY, "ben-phone", {"context": "home"}) is None
    site.kill()
    site.put_back("older")
    site.accept()
    site.start()
    site.ask("PUT", DAY, "ben", body).raise_for_status()
    site.pass_time(EVERY)
    told = [site.slot(DAY, "ben-phone", {"context": "home"}) for _ in range(9)]
    assert told == ["paused"] * 4 + [None] * 5


def test_a_day_of_events_about_places_is_held_still_too(tmp_path: Path, store: Store) -> None:
    """What an older copy forgot of it would not count toward what the day promises."""
    rooms = House(store, Vault(read_keys("", store.settings.state_key_file)))
    watched = watched_places()
    told = {
        "plan": "watch",
        "document": dumps(watched, indent=None),
        "told": describe_plan(watched),
    }
    store.write(ALL, lambda c: fill(c, ("one",)))
    store.write(ALL, lambda c: keep_plan(c, "one", told))
    for name, person in (("watch", "ada"), ("walk", "ben")):
        asked = {"plan": name, "clock": {"every": 10.0}}
        begin = partial(open_stream, rooms, asked=asked, now=1e9)
        store.write(ALL, partial(begin, address=Address("one", person, name)))
    assert store.write(ALL, lambda c: hold_still(rooms, c, 1e9)) == 1
    pauses = select(STREAMS.c.stream, STREAMS.c.pauses).order_by(STREAMS.c.stream)
    (_, free), (_, held) = store.read(ALL, lambda c: c.execute(pauses).all())
    assert (len(json.loads(held)), free) == (1, "[]")


def serve(folder: Path, *options: str, port: int = 0) -> subprocess.Popen[str]:
    """`shoal serve` as a program of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", "from shoal.cli import main; main()", "serve", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "SHOAL_PORT": str(port)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_program_refuses_an_older_copy_and_goes_on_from_it_when_told(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    assert serve(tmp_path, "--init").wait(120) == 0
    older = (tmp_path / "shoal-gateway.db").read_bytes()
    head = tmp_path / "shoal-gateway.head"
    assert not head.exists(), "the service begins it, where it runs"
    for _ in range(2):  # begun and stopped: the head is noted at the start and at the end
        process = serve(tmp_path, port=port)
        wait_until(lambda: answers(port))
        process.send_signal(signal.SIGTERM)
        assert process.wait(120) in (0, -signal.SIGTERM)
    assert json.loads(head.read_text())["number"] >= 5
    for left in tmp_path.glob("shoal-gateway.db*"):
        left.unlink()
    (tmp_path / "shoal-gateway.db").write_bytes(older)
    refused = serve(tmp_path, port=port)
    _, said = refused.communicate(timeout=120)
    assert refused.returncode != 0
    assert "behind the head" in said
    assert "--restored" in said
    assert "Traceback" not in said
    process = serve(tmp_path, "--restored", port=port)
    wait_until(lambda: answers(port))
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=120)
    assert "0 streams with days are held" in said


def answers(port: int) -> bool:
    try:
        return httpx.get(f"http://127.0.0.1:{port}/health/ready", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def test_a_mark_names_one_row_and_no_later_one_of_its_name() -> None:
    one = head_module.row_mark("grant", "s", "ada", "app", 1.5)
    assert one != head_module.row_mark("grant", "s", "ada", "app", 1.6)
    assert one != head_module.row_mark("person", "s", "ada", "app", 1.5)
    assert head_module.row_mark("key", "ab", "c") != head_module.row_mark("key", "a", "bc")
