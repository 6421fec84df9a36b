"""Where output goes: full disks, readers that leave, closed pipes, poor and narrow terminals."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused
from tests.cli.test_first_mistakes import streamed

pytestmark = pytest.mark.skipif(os.name != "posix", reason="devices and pipes of POSIX")

SHOAL = (sys.executable, "-c", "from shoal.cli.app import main; main()")
PLACES = """\
[[model]]
kind = "grid-walk"
south = 52.5
west = 13.36
cell_km = 0.5
rows = 3
columns = 3

[secrets]
kind = "policy-graph"
graph = "radius"
radius_km = 1.0

[query]
kind = "measurement"

[privacy]
epsilon = 1.0
mechanism = "location-knorm"
"""
LINE = '{"lat": 52.505, "lon": 13.365}\n'


def started(folder: Path, command: str, ends: str = "", **said: str) -> subprocess.CompletedProcess:  # type: ignore[type-arg]
    """`shoal COMMAND ENDS` as a shell runs it, with the variables `said`."""
    own = " ".join(f"'{part}'" for part in SHOAL)
    line = f"{own} {command} {ends}"
    return subprocess.run(
        ["bash", "-c", f"set -o pipefail; {line}"],
        cwd=folder,
        env={**os.environ, **said},
        capture_output=True,
        timeout=120,
        check=False,
    )


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("command", ["--help", "--version", "leak spec.toml", "spec-schema"])
def test_a_full_disk_is_a_sentence(folder: Path, command: str) -> None:
    done = started(folder, command, "> /dev/full")
    assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
    assert b"no space left" in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_release_that_cannot_be_told_is_not_to_be_repeated(folder: Path) -> None:
    done = started(folder, "release spec.toml days.csv -o r.json --ledger b.db", "> /dev/full")
    assert done.returncode == 2
    assert b"'r.json' is written" in done.stderr
    assert b"repeat" not in done.stderr
    assert len(json.loads((folder / "r.json").read_text())["releases"]) == 2


@pytest.mark.parametrize("command", ["leak spec.toml", "leak spec.toml --json", "spec-schema"])
def test_a_reader_that_leaves_is_no_violation(folder: Path, command: str) -> None:
    done = started(folder, command, "| true")
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_stream_meets_closed_ends_and_other_bytes(folder: Path) -> None:
    (folder / "town.toml").write_text(PLACES)
    for ends, words in (
        ("<&-", b"standard input is closed"),
        (">&- < /dev/null", b"standard output is closed"),
    ):
        done = started(folder, "stream town.toml", ends)
        assert (done.returncode, done.stderr.count(b"\n")) == (2, 1), done.stderr
        assert words in done.stderr
    (folder / "odd").write_bytes(LINE.encode() + b"\xff\n")
    done = started(folder, "stream town.toml", "< odd", PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 0
    assert b"line 2 is not used: it is not a JSON object" in done.stderr
    assert [b"error" in line for line in done.stdout.splitlines()] == [False, True]


def test_names_survive_a_terminal_without_their_characters(folder: Path) -> None:
    for file in ("spec.toml", "days.csv"):
        text = (folder / file).read_text(encoding="utf-8").replace("walk", "Café ☕")
        (folder / file).write_text(text, encoding="utf-8")
    done = started(folder, "release spec.toml days.csv -o r.json --json", PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["releases"]
    assert found == json.loads((folder / "r.json").read_text(encoding="utf-8"))["releases"]
    assert "Café ☕" in str(found)


@pytest.mark.parametrize("width", ["20", "40"])
def test_a_narrow_terminal_cuts_no_number(
    run: Run, monkeypatch: pytest.MonkeyPatch, width: str
) -> None:
    assert (
        run("release", "spec.toml", "days.csv", "-o", "r.json", "--ledger", "b.db").exit_code == 0
    )
    wide = run("ledger", "show", "b.db").stdout
    assert "0.03333" in wide
    monkeypatch.setenv("COLUMNS", width)
    narrow = run("ledger", "show", "b.db").stdout
    assert "…" not in narrow
    assert all(len(line) <= int(width) for line in narrow.splitlines()[:10])
    for word in ("p0", "p1", "charges", "0.03333"):
        assert word in narrow


def test_the_day_of_a_plan_fits_the_usual_terminal(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert run("init", "--kind", "contexts", "mask.toml").exit_code == 0
    spec = Path("mask.toml")
    spec.write_text(spec.read_text().replace('"best"', '"mask-adaptive"'))
    shown = run("plan", "mask.toml").stdout
    assert "…" not in shown
    assert "suppressed because" in shown


@pytest.mark.parametrize(
    ("line", "options", "words"),
    [
        (
            {"skip": 10**11},
            (),
            "skip is 100000000000; it must be a whole number from 1 to 1,000,000",
        ),
        ({"lat": 52.505, "lon": 13.365, "state": "1,1"}, (), "a state and lat and lon; give one"),
        ({"state": "1,1"}, ("--subject", "ann"), "--subject is given without --ledger"),
        ({"state": "1,1"}, ("--period", "May"), "--period is given without --ledger"),
        (
            {"state": "1,1"},
            ("--field", "place"),
            "--field is 'place', but location-knorm reads lat",
        ),
        ({"state": "1,1"}, ("--state", "none/s.json"), "there is no folder"),
    ],
    ids=lambda value: value[:30] if isinstance(value, str) else "-",
)
def test_lines_and_options_of_a_stream_are_refused_before_anything_is_drawn(
    folder: Path, line: object, options: tuple[str, ...], words: str
) -> None:
    (folder / "town.toml").write_text(PLACES)
    done = streamed("town.toml", line, options=("--strict", *options))
    assert (done.exit_code, done.stdout) == (2, "")
    assert words in done.stderr


def test_work_beyond_memory_is_a_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(_: Path) -> None:
        raise MemoryError("Unable to allocate 1.82 TiB")

    monkeypatch.setattr("shoal.cli.sources.load_plan", too_much)
    assert "takes more memory than there is" in refused(run("attack", "spec.toml", "days.csv"))
