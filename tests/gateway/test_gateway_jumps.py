"""A wall clock that jumps: nothing is read or closed until it is right or accepted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from shoal.core.errors import LedgerError
from shoal.gateway.app import Gateway
from shoal.gateway.copies.head import HeadFile
from shoal.gateway.jumps import JumpWatch, accept_clock, accepted_file
from shoal.gateway.problems import Problem
from tests.gateway.gateway_house import House, running, wait_until
from tests.ledger_servers import fresh_schema, shared_server

EVERY = 1000.0
HOUR = 3600.0
PATH = "/v1/people/ada/streams/s"


class Clocks:
    """A wall clock that is set, and a steady one."""

    def __init__(self, folder: Path) -> None:
        self.passed, self.off = 0.0, 0.0
        self.head = folder / "gateway.head"
        self.head.touch()
        self.watch = JumpWatch(60.0, accepted_file(self.head), wall=self.wall, steady=self.steady)

    def wall(self) -> float:
        return 1_700_000_000.0 + self.passed + self.off

    def steady(self) -> float:
        return self.passed


@pytest.mark.parametrize("off", [HOUR, -HOUR, 61.0, -61.0])
def test_a_jump_lasts_until_the_clock_is_right(tmp_path: Path, off: float) -> None:
    clocks = Clocks(tmp_path)
    clocks.passed += 1e6
    assert clocks.watch.jump() == 0
    clocks.off = off
    for _ in range(3):
        clocks.passed += 100
        assert clocks.watch.jump() == pytest.approx(off)
        assert clocks.watch.time == pytest.approx(clocks.wall() - off)
    with pytest.raises(Problem, match="the server's clock jumped"):
        clocks.watch.check()
    clocks.off = 30.0
    assert clocks.watch.jump() == 0


def test_small_corrections_are_followed(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    for _ in range(10):
        clocks.off += 50.0
        assert clocks.watch.jump() == 0
    clocks.off -= 500.0
    assert clocks.watch.jump() == pytest.approx(-500.0)


def test_a_jump_is_accepted_once_and_only_after_it_happened(tmp_path: Path) -> None:
    clocks = Clocks(tmp_path)
    accept_clock(clocks.head)
    clocks.off = HOUR
    assert clocks.watch.jump() == pytest.approx(HOUR)
    accept_clock(clocks.head)
    assert clocks.watch.jump() == 0
    clocks.off = 0.0
    assert clocks.watch.jump() == pytest.approx(-HOUR)
    accept_clock(clocks.head)
    assert clocks.watch.jump() == 0


def test_a_clock_is_accepted_where_a_gateway_runs(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="is missing"):
        accept_clock(tmp_path / "gateway.head")


def database(kind: str, folder: Path) -> str:
    return str(folder / "gateway.db") if kind == "sqlite" else fresh_schema(shared_server())


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.postgres)])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[House]:
    with running(tmp_path, database=database(request.param, tmp_path)) as found:
        found.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
        body = {"plan": "walk", "clock": {"every": EVERY}}
        found.ask("PUT", PATH, "one/ada", body).raise_for_status()
        found.pass_time(EVERY)
        yield found


def set_clock(house: House, off: float) -> None:
    """Set the wall clock so far ahead, for slots and for the watch."""
    house.clock.ahead += off - getattr(house, "off", 0.0)
    house.off = off  # type: ignore[attr-defined]
    house.gateway.watch.wall = lambda: time.time() + off


def push(house: House) -> int:
    return house.ask("POST", f"{PATH}/readings", "one/ada-phone", {"state": "0,0"}).status_code


def test_an_hour_ahead_and_back_closes_and_refuses_nothing(house: House) -> None:
    """Before, every reading was closed for an hour after the correction."""
    known = house.outputs(PATH, "one/ada")
    set_clock(house, HOUR)
    assert push(house) == 503
    ready = house.ask("GET", "/health/ready")
    assert ready.status_code == 503
    assert "clock jumped 3,600 s ahead" in ready.json()["detail"]
    assert house.ask("GET", "/health/live").status_code == 200
    for path in ("pause", "resume"):
        assert house.ask("POST", f"{PATH}/{path}", "one/ada").status_code == 503
    time.sleep(10 * house.settings.tick)
    assert house.outputs(PATH, "one/ada") == known
    set_clock(house, 0.0)
    wait_until(lambda: house.ask("GET", "/health/ready").status_code == 200)
    assert house.ask("POST", f"{PATH}/readings", "one/ada-phone", {"state": "0,0"}).json() == {
        "taken": 1,
        "dead": [],
    }
    house.pass_time(EVERY)
    assert house.outputs(PATH, "one/ada")[-1]["status"] == "shown"


def test_an_operator_accepts_a_clock_that_was_wrong_before(house: House) -> None:
    set_clock(house, HOUR)
    assert push(house) == 503
    accept_clock(house.settings.head_file)
    wait_until(lambda: house.ask("GET", "/health/ready").status_code == 200)
    assert push(house) == 202
    house.pass_time(0)
    last = house.outputs(PATH, "one/ada")[-1]["id"]
    assert last >= 2  # the slots of that hour are closed


def test_a_clock_behind_the_last_note_is_not_believed_at_the_start(tmp_path: Path) -> None:
    """A machine that starts without the time, before it has asked for it."""
    with running(tmp_path) as house:
        file = HeadFile(house.settings.head_file)
        wait_until(lambda: (file.read() or pytest.fail("no head")).at > 0)
    noted = file.read()
    assert noted is not None
    with file.lock():
        file.write(noted._replace(at=time.time() + HOUR))
    gateway = Gateway(house.settings)
    gateway._made_ready()
    assert "clock jumped 3,600 s back" in "; ".join(gateway.ready())
    gateway.store.close()
