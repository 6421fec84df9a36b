"""Bad input: exit code 2, one sentence with field, value, rule and way out, nothing changed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import Result

from tests.cli.conftest import SPEC, Run, contents, csv_of

RELEASE = ("release", "spec.toml", "days.csv", "-o", "out.json")


def refused(result: Result) -> str:
    """The sentence of a refusal, after checking that it is one."""
    assert result.exit_code == 2, (result.stdout, result.stderr, result.exception)
    assert result.stdout == ""
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.strip()


SPECS = [
    ("[0.4, 0.6]", "[0.4, 0.7]", "model.transition row 1 sums to 1.1; each row must be"),
    ("[0.4, 0.6]", "[0.4, 0.60000001]", "model.transition row 1 sums to 1.00000001; each row"),
    ("[0.4, 0.6]", "[-0.4, 1.4]", "model.transition[1][0] is -0.4; a probability must be"),
    ("[0.4, 0.6]", "[nan, 0.6]", "model.transition[1][0] is NaN; a probability must be"),
    ("[0.4, 0.6]", "[inf, 0.6]", "model.transition[1][0] is Infinity; a probability must be"),
    ("epsilon = 1.0", "epsilon = 0", "privacy.epsilon is 0; it must be greater than 0"),
    ("epsilon = 1.0", "epsilon = -0.5", "privacy.epsilon is -0.5; it must be greater than 0"),
    ("epsilon = 1.0", "epsilon = nan", "privacy.epsilon is NaN; it must be a finite number"),
    ("epsilon = 1.0", "epsilon = inf", "privacy.epsilon is Infinity; it must be a finite"),
    ("epsilon = 1.0", "epsilonn = 1", "privacy.epsilonn is not a key of [privacy]; did you mean"),
    ("[secrets]", "[secret]", "secret is not a key of a spec; did you mean 'secrets'?"),
    (
        'states = ["walk"]',
        'states = ["fly"]',
        "query.states names 'fly', which is not a state of the model; its states are 'sit', 'walk'",
    ),
    ('gap = "10min"', 'gap = "ten"', "gap is 'ten'; it must be a length of time"),
    ('mechanism = "group"', 'mechanism = "x"', "privacy.mechanism is 'x'; it must be 'best' or"),
    (
        SPEC[SPEC.index("length = 30") : SPEC.index("[privacy]")],
        '[secrets]\nkind = "each-entry"\n[query]\nkind = "mean"\nweights = { walk = 1 }\n',
        "query.length is missing; give the public number of entries",
    ),
    ("length = 30", "length = 3", "'p0': the longest chain of the data exceeds length 3"),
]


@pytest.mark.parametrize(("old", "new", "words"), SPECS, ids=lambda text: text[:30])
def test_a_spec_that_breaks_a_rule(run: Run, folder: Path, old: str, new: str, words: str) -> None:
    assert old in SPEC
    (folder / "spec.toml").write_text(SPEC.replace(old, new))
    before = contents(folder)
    assert words in refused(run(*RELEASE))
    assert contents(folder) == before


DATA = [
    ("", "'days.csv' is empty; at least 2 rows are needed"),
    ("person,minute,activity\n", "'days.csv' holds no rows; at least 2 are needed"),
    (csv_of(people=1, minutes=1), "the data holds 1 row; at least 2 are needed"),
    (csv_of().replace("walk", "fly", 1), "holds the state 'fly', which is not one of the model's"),
    (
        csv_of().replace("activity", "act"),
        "'days.csv' has no column 'activity', named as the state",
    ),
    (csv_of().replace("person", "who"), "'days.csv' has no column 'person', named as the series"),
    (csv_of().replace("minute", "when"), "'days.csv' has no column 'minute', named as the time"),
    (csv_of().replace("08:01", "08:00"), "'p0' has two rows at time 2024-01-01 08:00:00"),
    (csv_of().replace("2024-01-01 08:01:00", "later", 1), "column 'minute' holds 'later' in row 2"),
    (csv_of().replace("08:01:00,sit", "08:01:00,"), "column 'activity' is empty in 1 row(s)"),
]


@pytest.mark.parametrize(("text", "words"), DATA, ids=[words[:20] for _, words in DATA])
def test_data_that_breaks_a_rule(run: Run, folder: Path, text: str, words: str) -> None:
    (folder / "days.csv").write_text(text)
    before = contents(folder)
    assert words in refused(run(*RELEASE))
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-o", "none/out.json"), "cannot write 'none/out.json': there is no folder"),
        (("-o", "."), "releases are written as .json or .parquet"),
        (("-o", "sub.json"), "cannot write 'sub.json': it is a folder"),
        (("-o", "out.csv"), "'out.csv'; releases are written as .json or .parquet"),
        (
            ("-o", "days.json"),
            "'days.json' exists; choose another name, or replace it with --force",
        ),
        (("-o", "out.json", "--state", "act"), "no column 'act', named as the state"),
        (("-o", "out.json", "--gap", "10"), "gap is '10'; it must be a length of time"),
        (("-o", "out.json", "--key", "k"), "--key is 'k' without --ledger"),
        (("-o", "out.json", "--subject", "k"), "--subject is 'k' without --ledger"),
    ],
)
def test_options_that_break_a_rule(
    run: Run, folder: Path, arguments: tuple[str, ...], words: str
) -> None:
    (folder / "days.json").write_text("mine")
    (folder / "sub.json").mkdir()
    before = contents(folder)
    assert words in refused(run("release", "spec.toml", "days.csv", *arguments))
    assert contents(folder) == before


def test_a_folder_that_may_not_be_written(run: Run, folder: Path) -> None:
    (folder / "shut").mkdir(mode=0o500)
    target = "/proc/out.json" if os.geteuid() == 0 else "shut/out.json"  # root may write anywhere
    words = refused(run("release", "spec.toml", "days.csv", "-o", target))
    assert f"cannot write '{target}'" in words


def test_missing_files(run: Run, folder: Path) -> None:
    assert "spec 'no.toml' does not exist; check the path" in refused(run("plan", "no.toml"))
    assert "is a folder" in refused(run("plan", "."))
    words = refused(run("release", "spec.toml", "no.csv", "-o", "out.json"))
    assert "no file is at 'no.csv'; check the path" in words


EDITS = [
    ('"amount": {\n        "$fraction": "1/1"', '"amount": {\n        "$fraction": "1/2"'),
    ('"mechanism": "group"', '"mechanism": "laplace"'),
    ('"cost"', '"price"'),
    ('"tied": 30', '"tied": 3'),
    ("0.9,", "0.8,"),
    ('"$fraction": "1/1"', '"$fraction": "one"'),
    ('"kind": "plan"', '"kind": "os.system"'),
]


@pytest.mark.parametrize(("old", "new"), EDITS, ids=[new[:20] for _, new in EDITS])
def test_a_plan_edited_by_hand(run: Run, folder: Path, old: str, new: str) -> None:
    assert run("plan", "spec.toml", "--save", "plan.json").exit_code == 0
    text = (folder / "plan.json").read_text()
    edited = text.replace(old, new)
    assert edited != text
    (folder / "plan.json").write_text(edited)
    before = contents(folder)
    columns = ("--state", "activity", "--series", "person")
    words = refused(run("release", "plan.json", "days.csv", "-o", "out.json", *columns))
    assert "plan 'plan.json'" in words
    assert contents(folder) == before


def test_a_plan_whose_noise_was_lowered_with_a_new_fingerprint(run: Run, folder: Path) -> None:
    from dataclasses import replace

    import shoal
    from shoal.core.plan import Additive

    assert run("plan", "spec.toml", "--save", "plan.json").exit_code == 0
    plan = shoal.loads((folder / "plan.json").read_text())
    quieter = replace(plan.body.noise, scale=plan.body.noise.scale / 2)
    forged = replace(plan, body=Additive(plan.body.query, quieter))
    (folder / "plan.json").write_text(shoal.dumps(forged))
    words = refused(run("release", "plan.json", "days.csv", "-o", "o.json", "--state", "activity"))
    assert "promises 1 but its noise gives 2: the file was changed" in words


def test_a_stored_model_is_not_a_plan(run: Run, folder: Path) -> None:
    assert run("fit", "days.csv", "-o", "model.json", "--state", "activity").exit_code == 0
    words = refused(run("release", "model.json", "days.csv", "-o", "out.json"))
    assert "'model.json' holds a MarkovChain, not a plan" in words


def test_fit_refuses_what_it_cannot_fit(run: Run, folder: Path) -> None:
    (folder / "short.csv").write_text("activity\nsit\nsit\nwalk\n")
    before = contents(folder)
    fit = ("fit", "short.csv", "-o", "model.json", "--state", "activity")
    assert "occurs only at the end of chains" in refused(run(*fit, "--smoothing", "0"))
    assert "smoothing is -1; it must be 0 or more" in refused(run(*fit, "--smoothing", "-1"))
    assert "smoothing is 'x'; it must be a finite number" in refused(run(*fit, "--smoothing", "x"))
    assert "initial is 'x'; it must be 'stationary'" in refused(run(*fit, "--initial", "x"))
    assert "gap is given without a time column" in refused(run(*fit, "--gap", "5min"))
    mixed = ("--series", "person", "--group", "activity")
    words = refused(run("fit", "days.csv", "-o", "m.json", "--state", "activity", *mixed))
    assert "a series must belong to one group" in words
    assert contents(folder) == before


def test_leak_refuses_a_level_that_is_none(run: Run) -> None:
    for text in ("0", "-1", "nan", "inf", "many"):
        assert f"--eta is {text}" in refused(run("leak", "spec.toml", "--eta", text)).replace(
            "'", ""
        )


def test_usage_errors_exit_with_two_as_well(run: Run) -> None:
    for arguments in (("plan",), ("nonsense",), ("plan", "spec.toml", "--nonsense")):
        result = run(*arguments)
        assert result.exit_code == 2
        assert "Error: " in result.stderr


def test_no_traceback_from_the_installed_program(folder: Path) -> None:
    (folder / "spec.toml").write_text("[privacy]\nepsilon = -1\n")
    result = subprocess.run(
        [sys.executable, "-c", "from shoal.cli import main; main()", "plan", "spec.toml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (result.returncode, result.stdout) == (2, "")
    assert result.stderr.startswith("Error: ")
    assert "Traceback" not in result.stderr


def test_json_output_stays_empty_on_bad_input(run: Run, folder: Path) -> None:
    (folder / "spec.toml").write_text(SPEC.replace("1.0", "-1"))
    assert "privacy.epsilon is -1" in refused(run("plan", "spec.toml", "--json"))
    (folder / "spec.toml").write_text(SPEC)
    assert json.loads(run("plan", "spec.toml", "--json").stdout)["epsilon"] == 1.0
