"""What people new to the commands run into: odd files, stopped commands, streams begun again."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from shoal.cli import app
from tests.cli.conftest import SPEC, Run
from tests.specs import HOUSEHOLD, PLACES

NETWORK = (
    HOUSEHOLD
    + """[query]
kind = "variable-sum"
unit = "people"
[query.weights]
anna = { ill = 1 }
ben = { ill = 1 }
[privacy]
epsilon = 1.0
"""
)
TOWN = PLACES.format(side=4)
WHERE = ("--lat", "lat", "--lon", "lon", "--time", "t", "--series", "who")


def told(result: Result) -> str:
    """What a command that was refused says: one sentence."""
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    return line


def tracks(folder: Path, *rows: str) -> None:
    (folder / "town.toml").write_text(TOWN)
    (folder / "t.csv").write_text("who,t,lat,lon\n" + "".join(f"{row}\n" for row in rows))


def stop(*_: Any, **__: Any) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("init", "--kind", "dog"), "--kind is 'dog'; it must be one of 'series', 'network', "),
        (("fit", "a", "-o", "b", "--length", "x"), "--length is 'x'; it must be a whole number"),
        (("fit", "a", "-o", "b", "--length", "0"), "--length is '0'; it must be at least 1"),
        (("audit", "a", "--confidence", "x"), "--confidence is 'x'; it must be a number"),
    ],
    ids=lambda value: value[-1] if isinstance(value, tuple) else "",
)
def test_an_option_that_cannot_be_is_named_with_its_value(
    run: Run, folder: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    assert told(run(*arguments)).startswith(f"Error: {sentence}")


def test_a_single_release_is_shown_with_its_unit(run: Run, folder: Path) -> None:
    shown = run("release", "spec.toml", "days.csv", "-o", "r.json", "--together").stdout
    values = json.loads((folder / "r.json").read_text())["releases"]["all"]["values"]
    ((name, value),) = values.items()
    assert re.search(rf"Values +{name} {value:g} entries", shown)
    many = run("release", "spec.toml", "days.csv", "-o", "r.json", "--force").stdout
    assert "Values" not in many


def test_a_stopped_release_tells_its_key_and_costs_nothing_again(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    charged = ("release", "spec.toml", "days.csv", "-o", "r.json", "--ledger", "b.db")
    with monkeypatch.context() as patched:
        patched.setattr("shoal.data.write.write_releases", stop)
        stopped = run(*charged)
    assert stopped.exit_code == 130
    assert not (folder / "r.json").exists()
    assert stopped.stderr.splitlines()[-1] == "Stopped."
    (key,) = re.findall(r"--key (\w+)", stopped.stderr)
    before = json.loads(run("ledger", "show", "b.db", "--json").stdout)["accounts"]
    assert run(*charged, "--key", key).exit_code == 0
    assert json.loads(run("ledger", "show", "b.db", "--json").stdout)["accounts"] == before


def test_a_release_without_a_ledger_has_no_key_to_tell(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.data.write.write_releases", stop)
    stopped = run("release", "spec.toml", "days.csv", "-o", "r.json")
    assert (stopped.exit_code, stopped.stderr) == (130, "Stopped.\n")


def test_a_stopped_job_tells_how_to_go_on(
    run: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shoal.jobs.local.run", stop)
    stopped = run("release", "spec.toml", "days.csv", "-o", "out", "--by", "person")
    assert stopped.exit_code == 130
    assert "shoal job resume out" in stopped.stderr


def test_a_refused_job_leaves_no_folder(run: Run, folder: Path) -> None:
    assert "'nobody'" in told(
        run("release", "spec.toml", "days.csv", "-o", "out", "--by", "nobody")
    )
    assert not (folder / "out").exists()


def test_pauses_that_nothing_cuts_are_told(run: Run, folder: Path) -> None:
    spec = SPEC.replace('gap = "10min"\n', "")
    (folder / "spec.toml").write_text(spec)
    release = ("release", "spec.toml", "days.csv", "-o", "r.json", "--force")
    (quiet,) = run(*release).stderr.splitlines()  # group privacy of 30 entries: a user must know
    assert quiet.startswith("WARNING: The noise is as wide as the answer: a value is off by 30")
    rows = (folder / "days.csv").read_text().splitlines(keepends=True)
    (folder / "days.csv").write_text("".join(rows[:6] + rows[14:]))
    said = "NOTE: 1 pause(s) are longer than the usual 1min between rows, the longest 9min"
    assert said in run(*release).stderr
    assert run(*release, "--gap", "5min").stderr.splitlines() == [quiet]
    fit = ("fit", "days.csv", "-o", "m.json", "--state", "activity", "--series", "person")
    assert run(*fit, "--time", "minute").stderr.startswith(said)


def test_a_network_takes_a_column_per_variable(run: Run, folder: Path) -> None:
    (folder / "net.toml").write_text(NETWORK)
    (folder / "r.csv").write_text("ben,id,anna,season\nwell,x,ill,cold\nill,y,ill,warm\n")
    release = ("release", "net.toml", "r.csv", "-o", "r.json", "--force", "--seed", "1")
    assert run(*release, "--series", "id").exit_code == 0
    assert list(json.loads((folder / "r.json").read_text())["releases"]) == ["x", "y"]
    assert run(*release).exit_code == 0
    wide = json.loads((folder / "r.json").read_text())["releases"]["1"]
    # the same record in the other form: one row per variable, in the order of the model
    (folder / "long.csv").write_text("value\ncold\nill\nwell\n")
    long = run("release", "net.toml", "long.csv", "-o", "l.json", "--state", "value", "--seed", "1")
    assert long.exit_code == 0
    assert json.loads((folder / "l.json").read_text())["releases"]["long"] == wide


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("season,anna,ben\nwarm,ill,maybe\n", "column 'ben' holds 'maybe'; it must be one of"),
        ("season,anna,ben\nwarm,ill,\n", "column 'ben' holds None; it must be one of"),
        ("season,anna\nwarm,ill\n", "has no column 'ben', named as the variable"),
        ("season,anna,ben\n", "holds no rows; at least 1 is needed"),
    ],
    ids=["value", "nothing", "column", "rows"],
)
def test_rows_that_are_none_of_the_network_are_refused(
    run: Run, folder: Path, text: str, sentence: str
) -> None:
    (folder / "net.toml").write_text(NETWORK)
    (folder / "r.csv").write_text(text)
    assert sentence in told(run("release", "net.toml", "r.csv", "-o", "r.json"))


def test_records_of_a_network_are_named_once_and_never_put_together(run: Run, folder: Path) -> None:
    (folder / "net.toml").write_text(NETWORK)
    (folder / "r.csv").write_text("id,season,anna,ben\nx,warm,ill,ill\nx,cold,ill,ill\n")
    release = ("release", "net.toml", "r.csv", "-o", "r.json")
    assert "series 'x' has two rows" in told(run(*release, "--series", "id"))
    assert "a network is about one record" in told(run(*release, "--together"))


def test_mistakes_of_tracks_are_told_before_anything_is_charged(run: Run, folder: Path) -> None:
    release = ("locations", "town.toml", "t.csv", "-o", "o.csv", *WHERE, "--ledger", "b.db")
    tracks(folder, "a,0,52.51,13.37", "a,60,52.51,13.37", "a,60,52.51,13.38")
    assert "series 'a' has two rows at one time" in told(run(*release))
    tracks(folder, "a,0,13.37,52.51", "a,60,13.37,52.51")
    assert "all 2 positions lie off the model's map" in told(run(*release))
    assert not (folder / "b.db").exists()
    tracks(folder, "a,0,52.51,13.37", "a,60,52.51,13.37", "a,60,52.51,13.38")
    assert run(*release, "--every", "60s").exit_code == 0


def test_pauses_of_tracks_are_told(run: Run, folder: Path) -> None:
    tracks(folder, *(f"a,{60 * minute},52.51,13.37" for minute in (0, 1, 2, 3, 63)))
    release = ("locations", "town.toml", "t.csv", "-o", "o.csv", *WHERE, "--force")
    assert "the longest 1h;" in run(*release).stderr
    assert run(*release, "--gap", "10min").stderr == ""


def test_other_data_of_the_same_people_needs_another_period(run: Run, folder: Path) -> None:
    release = ("locations", "town.toml", "t.csv", "-o", "o.csv", *WHERE, "--ledger", "b.db")
    tracks(folder, "a,0,52.51,13.37", "b,0,52.51,13.37")
    assert run(*release).stderr == ""
    first = (folder / "o.csv").read_text()
    again = run(*release, "--force")
    assert (folder / "o.csv").read_text() == first
    assert again.stderr.startswith("WARNING: the ledger holds steps of 2 of these people")
    assert run(*release, "--force", "--period", "may").stderr == ""
    accounts = json.loads(run("ledger", "show", "b.db", "--json").stdout)["accounts"]
    assert [(row["subject"], row["period"]) for row in accounts] == [
        ("a", ""),
        ("a", "may"),
        ("b", ""),
        ("b", "may"),
    ]
    assert "without --ledger" in told(run(*release[:-2], "--force", "--period", "may"))


def test_no_chart_is_replaced_unasked(run: Run, folder: Path) -> None:
    tracks(folder, "a,0,52.51,13.37", "a,60,52.51,13.37")
    (folder / "walk-over-time.png").write_text("mine")
    release = ("locations", "town.toml", "t.csv", "-o", "o.csv", *WHERE, "--plot", "walk.png")
    assert "'walk-over-time.png' exists" in told(run(*release))
    shown = run(*release, "--force").stdout
    assert "The chart is in walk.png\nThe chart is in walk-over-time.png\n" in shown


def test_a_stream_begun_again_says_whose_outputs_it_gives(folder: Path) -> None:
    (folder / "town.toml").write_text(TOWN)
    command = ["stream", "town.toml", "--ledger", "b.db", "--subject", "a"]
    line = '{"lat": 52.51, "lon": 13.37}\n'

    def streamed(*more: str) -> Result:
        return CliRunner().invoke(app, [*command, *more], input=line)

    first = streamed("--state", "s.json")
    assert (first.exit_code, first.stderr) == (0, "")
    assert streamed("--state", "s.json").stderr == ""
    again = streamed()
    assert again.stdout == first.stdout
    assert again.stderr.startswith("WARNING: the ledger holds steps of 'a' in period ''")
    assert streamed("--period", "next").stderr == ""


def test_a_mark_before_the_first_line_is_no_mistake(folder: Path) -> None:
    (folder / "town.toml").write_text(TOWN)
    line = '\ufeff{"lat": 52.51, "lon": 13.37}\r\n'
    assert CliRunner().invoke(app, ["stream", "town.toml"], input=line).exit_code == 0


def test_a_head_that_was_not_copied_whole_is_no_alarm(run: Run, folder: Path) -> None:
    run("ledger", "limit", "b.db", "--eta", "1")
    assert "--head is 'abc'; a head is the 64 hexadecimal digits" in told(
        run("ledger", "verify", "b.db", "--head", "abc")
    )


def test_hexagons_hold_all_the_data_they_are_fitted_to(run: Run, folder: Path) -> None:
    pytest.importorskip("h3")
    tracks(folder, *(f"a,{60 * k},{52.5 + 0.004 * k:.4f},{13.4 + 0.006 * k:.4f}" for k in range(9)))
    fit = ("fit", "t.csv", "-o", "m.json", *WHERE, "--force", "--json")
    found = json.loads(run(*fit, "--grid", "h3:8").stdout)
    assert (found["outside"], found["transitions"]) == (0, 8)
    assert "a resolution is 0 to 15" in told(run(*fit, "--grid", "h3:16"))
    assert "hexagons are named by a resolution" in told(run(*fit, "--grid", "h3:big"))


def test_files_of_one_name_are_different_people(run: Run, folder: Path) -> None:
    tracks(folder)
    for name in ("ann", "bob"):
        (folder / name).mkdir()
        (folder / name / "walk.csv").write_text("t,lat,lon\n0,52.51,13.37\n60,52.51,13.37\n")
    where = ("--lat", "lat", "--lon", "lon", "--time", "t")
    result = run("locations", "town.toml", "*/walk.csv", "-o", "o.csv", *where)
    assert result.exit_code == 0, result.output
    people = {line.split(",")[0] for line in (folder / "o.csv").read_text().splitlines()[1:]}
    assert people == {"ann/walk.csv", "bob/walk.csv"}


def test_marks_and_letters_of_other_systems(run: Run, folder: Path) -> None:
    text = (folder / "spec.toml").read_text()
    (folder / "spec.toml").write_bytes(b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    release = ("release", "spec.toml", "days.csv", "-o", "r.json")
    assert run(*release).exit_code == 0
    rows = (folder / "days.csv").read_text()
    (folder / "days.csv").write_bytes(
        rows.encode() + "p9,2024-01-01 08:00:00,ma\xdfig,x\n".encode("latin1")
    )
    assert "it is not text in UTF-8; save it as UTF-8" in told(run(*release, "--force"))
    (folder / "days.csv").write_text(rows + "p9,2024-01-01 08:00:00,sit,x,more\n")
    assert "a row has more fields than the first line" in told(run(*release, "--force"))


def test_a_column_of_groups_that_is_missing_is_called_one(run: Run, folder: Path) -> None:
    fit = ("fit", "days.csv", "-o", "m.json", "--state", "activity", "--series", "person")
    assert "has no column 'team', named as the group" in told(run(*fit, "--group", "team"))
