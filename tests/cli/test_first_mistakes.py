"""What a newcomer does wrong first: each mistake ends in a sentence that says what to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from shoal.cli import app
from tests.cli.conftest import Run
from tests.cli.test_bad_input import refused

WHERE = ("--lat", "lat", "--lon", "lon")


@pytest.fixture
def specs(run: Run, folder: Path) -> Path:
    """The working folder with a spec of every kind, named after it."""
    for kind in ("contexts", "location", "network"):
        assert run("init", "--kind", kind, f"{kind}.toml").exit_code == 0
    contexts = folder / "contexts.toml"  # the check that needs no search
    contexts.write_text(contexts.read_text().replace('"best"', '"mask-simulatable"'))
    return folder


def streamed(spec: str, *lines: object, options: tuple[str, ...] = ()) -> Result:
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return CliRunner().invoke(app, ["stream", spec, *options], input=text)


def test_files_in_each_others_place_are_told_apart(run: Run, folder: Path) -> None:
    assert "days.csv looks like data, not a spec" in refused(run("plan", "days.csv"))
    assert run("plan", "spec.toml", "--save", "plan.json").exit_code == 0
    assert "plan.json looks like a stored plan" in refused(run("plan", "plan.json"))


def test_a_command_that_does_not_exist_is_met_with_the_nearest_one(run: Run) -> None:
    assert "did you mean 'plan'?" in run("plna", "spec.toml").stderr
    assert "the commands are demo, init" in run("zzz").stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("release", "contexts.toml", "days.csv", "-o", "o.json"), "use `shoal stream`"),
        (("release", "location.toml", "days.csv", "-o", "o.json"), "tables are written as .csv"),
        (("locations", "contexts.toml", "days.csv", "-o", "o.csv"), "use `shoal stream`"),
        (("attack", "location.toml", "days.csv"), "has no column 'lat', named as the latitude"),
        (("attack", "spec.toml", "days.csv", "--friends", "x.csv"), "--friends is for a query"),
        (("fit", "days.csv", "-o", "m.json"), "give --state COLUMN, or --grid"),
        (("reproduce", "nothing"), "it must be one of chain-synthetic, "),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, tuple) else None,
)
def test_a_wrong_command_names_the_right_one(
    run: Run, specs: Path, arguments: tuple[str, ...], words: str
) -> None:
    assert words in refused(run(*arguments))


def test_a_network_is_attacked_and_its_variables_are_named(run: Run, specs: Path) -> None:
    (specs / "net.csv").write_text("health\ncold\nill\nwell\nill\nwell\n")
    done = run("attack", "network.toml", "net.csv", "--state", "health")
    assert done.exit_code == 0, done.output
    assert any(
        f"{name} (really" in done.output for name in ("season", "anna", "ben", "cleo", "dan")
    )


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("abc,13.4", "column 'lat' holds 'abc' in row 2; a latitude is a number from -90 to 90"),
        ("152.5,13.4", "column 'lat' holds '152.5' in row 2"),
        ("52.5,-180.5", "column 'lon' holds '-180.5' in row 2; a longitude is"),
    ],
)
def test_positions_that_are_none_are_refused(run: Run, specs: Path, rows: str, words: str) -> None:
    (specs / "t.csv").write_text(f"lat,lon\n52.51,13.39\n{rows}\n")
    command = ("locations", "location.toml", "t.csv", "-o", "o.csv", *WHERE)
    assert words in refused(run(*command))
    assert not (specs / "o.csv").exists()


def test_empty_positions_are_skipped_and_those_off_the_map_are_told(run: Run, specs: Path) -> None:
    (specs / "t.csv").write_text("lat,lon\n52.51,13.39\n,13.39\n 52.52 ,13.39\nNaN,13.4\n")
    command = ("locations", "location.toml", "t.csv", "-o", "o.csv", *WHERE, "--force")
    assert run(*command).stderr == ""
    steps = [line.split(",")[3] != "" for line in (specs / "o.csv").read_text().splitlines()[1:]]
    assert steps == [True, False, True, False]
    (specs / "t.csv").write_text("lat,lon\n52.51,13.39\n13.39,52.51\n")
    found = run(*command)
    assert found.exit_code == 0
    assert "1 of 2 positions lie off the model's map" in found.stderr


def test_columns_of_positions_are_called_what_they_are(run: Run, specs: Path) -> None:
    (specs / "t.csv").write_text("lat,lon,cell\n52.51,13.39,nowhere\n")
    command = ("locations", "location.toml", "t.csv", "-o", "o.csv")
    words = refused(run(*command, "--lat", "lat", "--lon", "lng"))
    assert "no column 'lng', named as the longitude; its columns are: lat, lon" in words
    assert "holds 'nowhere' in row 1" in refused(run(*command, "--state", "cell"))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ({"lat": 552.5, "lon": 13.4}, "lat is 552.5; it must be a number from -90 to 90"),
        ({"lat": "x", "lon": 13.4}, "lat is 'x'; it must be a number"),
        ({"lat": 52.5, "lon": True}, "lon is True; it must be a number from -180 to 180"),
        ({"state": "3,44"}, "state is '3,44', which is not one of the model's states; name one"),
        ({"state": [52.5, 13.4]}, "state is [52.5, 13.4], which is not one of the model's"),
    ],
    ids=json.dumps,
)
def test_a_line_that_is_no_place_is_refused(
    specs: Path, line: dict[str, object], words: str
) -> None:
    assert words in refused(streamed("location.toml", line, options=("--strict",)))


def test_a_line_off_the_map_is_answered_and_told_once(specs: Path) -> None:
    found = streamed("location.toml", {"lat": 13.4, "lon": 52.5}, {"lat": 13.4, "lon": 52.5})
    assert (found.exit_code, len(found.stdout.splitlines())) == (0, 2)
    assert found.stderr.startswith("WARNING: line 1: lat 13.4 and lon 52.5 lie off the model's map")
    assert found.stderr.count("\n") == 1


def test_contexts_that_cannot_be_shown_are_told_once(specs: Path) -> None:
    found = streamed("contexts.toml", {"context": "hom"}, {"context": "hum"})
    assert [json.loads(line)["shown"] for line in found.stdout.splitlines()] == [None, None]
    assert found.stderr.startswith("WARNING: line 1: context is 'hom', which is not one of")
    assert found.stderr.count("\n") == 1
    assert "give --field contxt" in streamed("contexts.toml", {"contxt": "home"}).stderr
    for quiet in ({"slot": 1}, {"context": None}, {"context": "home"}):
        assert streamed("contexts.toml", quiet).stderr == ""


def test_a_known_first_place_is_one_of_the_map(specs: Path) -> None:
    found = streamed("location.toml", {"state": "1,1"}, options=("--start", "77"))
    assert "--start is '77', which is not one of the model's states" in refused(found)
    found = streamed("contexts.toml", {"context": "home"}, options=("--start", "home"))
    assert "--start is 'home', but mask-simulatable is no plan for places" in refused(found)


def test_every_help_is_about_its_own_command(run: Run) -> None:
    assert "completion" not in run("reproduce", "--help").stdout


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("\nben = { ill = 1 }", "\nbenn = { ill = 1 }", "its variables are season, anna, ben"),
        ('["cleo"]', '["clio"]', "the parent 'clio', which is no variable; name one that has"),
    ],
)
def test_a_misspelt_variable_is_met_with_the_right_ones(
    run: Run, specs: Path, old: str, new: str, words: str
) -> None:
    text = (specs / "network.toml").read_text()
    assert old in text
    (specs / "network.toml").write_text(text.replace(old, new))
    assert words in refused(run("plan", "network.toml"))


def test_a_model_file_that_is_not_there_is_called_by_its_key(run: Run, folder: Path) -> None:
    text = (folder / "spec.toml").read_text()
    start, end = text.index('kind = "markov-chain"'), text.index("[secrets]")
    (folder / "spec.toml").write_text(f'{text[:start]}file = "nope.json"\n{text[end:]}')
    assert "model.file 'nope.json' does not exist; check the path" in refused(
        run("plan", "spec.toml")
    )


def test_a_charged_context_needs_a_day(specs: Path) -> None:
    charged = ("--ledger", "b.db", "--subject", "ann", "--strict")
    told = streamed("contexts.toml", {"context": "home"}, options=charged)
    assert (told.exit_code, told.stdout) == (2, "")
    assert (
        'line 1: the line names no day, which is what a ledger charges; give "day"' in told.stderr
    )
    named = (*charged, "--period", "2024-03-04")
    assert streamed("contexts.toml", {"context": "home"}, options=named).exit_code == 0
