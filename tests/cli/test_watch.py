"""A time limit and Ctrl-C end what is being computed, and what is known is told."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NoReturn

import pytest

from shoal.mechanisms.table import MECHANISMS
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused

BEST = 'mechanism = "best"'


@pytest.fixture(autouse=True)
def listening() -> Iterator[None]:
    """Ctrl-C is heard: a test runner in the background of a shell inherits that it is not."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def without_end() -> NoReturn:
    """Work that something else has to end, within a minute."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        time.sleep(0.01)
    raise AssertionError("nothing ended the work within a minute")


@pytest.fixture
def endless(folder: Path) -> Iterator[Callable[[Callable[[], None]], None]]:
    """The row `exact` works without end, after doing something first."""
    row = MECHANISMS["exact"]

    def install(first: Callable[[], None]) -> None:
        def calibrate(*_: Any) -> Any:
            first()
            without_end()

        MECHANISMS["exact"] = row._replace(calibrate=calibrate)

    spec = folder / "spec.toml"
    spec.write_text(spec.read_text().replace('mechanism = "group"', BEST))
    yield install
    MECHANISMS["exact"] = row


def test_a_row_that_is_not_over_in_time_is_refused_and_the_others_stand(
    run: Run, folder: Path, endless: Callable[[Callable[[], None]], None]
) -> None:
    endless(lambda: None)
    done = run("plan", "spec.toml", "--json", "--save", "plan.json", "--time-limit", "300ms")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    words = "not over in time (--time-limit 300ms); give it longer with --time-limit"
    assert found["alternatives"]["exact"] == {"refused": words}
    assert found["guarantee"]["proved"] is True
    assert "NOTE: cut short (--time-limit 300ms): this is the best of the mechanisms" in done.stderr
    assert (folder / "plan.json").exists()


def test_ctrl_c_tells_what_is_known_so_far(
    run: Run, endless: Callable[[Callable[[], None]], None]
) -> None:
    endless(lambda: os.kill(os.getpid(), signal.SIGINT))
    done = run("plan", "spec.toml", "--json")
    assert done.exit_code == 130
    assert "stopped with Ctrl-C" in json.loads(done.stdout)["alternatives"]["exact"]["refused"]
    assert json.loads(done.stdout)["guarantee"]["proved"] is True


def test_a_second_ctrl_c_stops(run: Run, endless: Callable[[Callable[[], None]], None]) -> None:
    def twice() -> None:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        finally:
            os.kill(os.getpid(), signal.SIGINT)

    endless(twice)
    done = run("plan", "spec.toml", "--json", "--save", "plan.json")
    assert (done.exit_code, done.stdout) == (130, "")
    assert not Path("plan.json").exists()


@pytest.mark.parametrize(
    "command", [("leak", "spec.toml"), ("audit", "spec.toml"), ("attack", "spec.toml", "days.csv")]
)
def test_other_commands_have_the_limit_too(run: Run, command: tuple[str, ...]) -> None:
    assert run(*command, "--time-limit", "10min").exit_code == 0
    assert "--time-limit is 'soon'" in refused(run(*command, "--time-limit", "soon"))


def test_without_a_plan_in_time_there_is_one_sentence(
    run: Run, folder: Path, endless: Callable[[Callable[[], None]], None]
) -> None:
    endless(lambda: None)
    spec = folder / "spec.toml"
    spec.write_text(spec.read_text().replace(BEST, 'mechanism = "exact"'))
    words = refused(run("plan", "spec.toml", "--time-limit", "300ms"))
    assert "not over in time (--time-limit 300ms)" in words
    # afterwards the signals are as they were
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What is called at `place` works without end; the first call presses Ctrl-C before."""
    pressed: list[bool] = []
    monkeypatch.setattr("shoal.cli.show.GRACE", 0.3)

    def install(place: str) -> None:
        def press(*_: Any, **__: Any) -> Any:
            if not pressed:
                pressed.append(True)
                os.kill(os.getpid(), signal.SIGINT)
            without_end()

        monkeypatch.setattr(place, press)

    return install


NUMBERS = count(1)


def write_own(run: Run, folder: Path, kind: str) -> Path:
    """A spec of this kind that no test met before: what was found for one may be remembered."""
    assert run("init", "--kind", kind, "own.toml").exit_code == 0
    spec, more = folder / "own.toml", next(NUMBERS) / 10_000
    text = spec.read_text()
    for before, after in (
        ("[0.6, 0.4]", f"[{0.6 + more:.4f}, {0.4 - more:.4f}]"),
        ("rate = 0.5", f"rate = {0.5 + more:.4f}"),
        ("c = 2.0", f"c = {2 + more:.4f}"),
    ):
        text = text.replace(before, after)
    spec.write_text(text)
    return spec


FAMILIES = {
    "network": ("shoal.networks.elimination.in_time", "exact"),
    "contagion": ("shoal.networks.exact.independent_parts", "exact"),
    "friends": ("shoal.records.pairwise_mechanisms.mean_sensitivities", "dependent-means"),
}


@pytest.mark.parametrize("kind", list(FAMILIES))
def test_ctrl_c_ends_a_plan_of_every_family_with_what_is_proved(
    kind: str, run: Run, folder: Path, interrupted: Callable[[str], None]
) -> None:
    place, row = FAMILIES[kind]
    write_own(run, folder, kind)
    before = sorted(folder.iterdir())
    interrupted(place)
    done = run("plan", "own.toml", "--json")
    assert done.exit_code == 130, done.output
    found = json.loads(done.stdout)
    assert "stopped with Ctrl-C" in found["alternatives"][row]["refused"]
    assert found["guarantee"]["proved"] is True
    assert "cut short (stopped with Ctrl-C)" in done.stderr
    assert sorted(folder.iterdir()) == before  # nothing half-written


@pytest.mark.parametrize("command", ["audit", "leak"])
@pytest.mark.parametrize("kind", ["network", "contagion"])
def test_ctrl_c_in_the_middle_of_other_work_says_so(
    command: str, kind: str, run: Run, folder: Path, interrupted: Callable[[str], None]
) -> None:
    spec = write_own(run, folder, kind)
    spec.write_text(spec.read_text().replace('mechanism = "best"', 'mechanism = "group"'))
    before = sorted(folder.iterdir())
    interrupted("shoal.networks.elimination.in_time")
    interrupted("shoal.networks.audit.independent_parts")
    interrupted("shoal.networks.entry_lift.ContagionLift.loss")
    done = run(command, "own.toml")
    assert done.exit_code == 130, done.output
    assert "stopped with Ctrl-C" in done.stderr
    assert sorted(folder.iterdir()) == before


def test_ctrl_c_leaves_no_release_half_written(
    run: Run, folder: Path, endless: Callable[[Callable[[], None]], None]
) -> None:
    before = sorted(folder.iterdir())
    endless(lambda: os.kill(os.getpid(), signal.SIGINT))
    done = run("release", "spec.toml", "days.csv", "--out", "told.csv", "--ledger", "own.db")
    assert done.exit_code == 130, done.output
    assert "Stopped." in done.stderr
    assert sorted(folder.iterdir()) == before
