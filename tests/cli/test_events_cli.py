"""Event secrets from a spec to a plan, a stream, an attack and an audit; days with gaps."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import shoal
from shoal.cli import app
from shoal.core.errors import SpecError
from shoal.events.secrets import MaskOptions
from shoal.spec.request import parse_request
from tests.cli.conftest import Run

MODEL = """
[[model]]
kind = "day-chain"
states = ["home", "work", "clinic"]
initial = [0.8, 0.2, 0]
transition = [[0.7, 0.29, 0.01], [0.1, 0.88, 0.02], [0.3, 0.2, 0.5]]
slots = 8
slot_minutes = 60
start_minute = 480
[query]
kind = "current"
"""
CLINIC = """
[secrets]
kind = "events"
[[secrets.event]]
visit = "clinic"
between = ["09:00", "14:00"]
"""
AMOUNT = "[privacy]\nbelief_delta = 0.1\n"
CONTEXTS = '[secrets]\nkind = "contexts"\nsensitive = ["clinic"]\n'


@pytest.fixture
def specs(folder: Path) -> Path:
    (folder / "events.toml").write_text(MODEL + CLINIC + AMOUNT)
    (folder / "contexts.toml").write_text(MODEL + CONTEXTS + AMOUNT)
    rows = ["time,context"]
    day = ["home", "work", "work", None, "clinic", "clinic", "home", "home"]
    rows += [f"2024-03-04T{8 + t:02d}:10,{c}" for t, c in enumerate(day) if c]
    (folder / "days.csv").write_text("\n".join(rows) + "\n")
    return folder


def events_of(words: str, amount: str = AMOUNT) -> shoal.Events:
    text = MODEL + '[secrets]\nkind = "events"\n' + words + amount
    found = parse_request(text, folder=Path()).task.secrets
    assert isinstance(found, shoal.Events)
    return found


def test_a_spec_says_events_in_words() -> None:
    assert (
        events_of('[[secrets.event]]\nvisit = "clinic"\nbetween = [2, 5]\n')
        == shoal.Events.of(shoal.visit("clinic", between=(2, 5))).as_rise()
    )
    counted = '[[secrets.event]]\nat_least = ["home", "work"]\ntimes = 3\nnot = true\n'
    assert events_of(counted, "[privacy]\nepsilon = 1.0\n") == shoal.Events.of(
        ~shoal.at_least(["home", "work"], 3)
    )
    several = """
[[secrets.event]]
sequence = ["home", ["work", "clinic"]]
[[secrets.event]]
any = [{ stay = "home", times = 2 }, { visit = "clinic", between = ["09:00", "10:00"] }]
"""
    assert events_of("lower = true\n" + several) == shoal.Events.of(
        shoal.sequence("home", ["work", "clinic"]),
        shoal.stay("home", 2) | shoal.visit("clinic", between=("09:00", "10:00")),
    ).as_rise(lower=True)
    pair = '[[secrets.event]]\nvisit = "clinic"\nagainst = { visit = "work" }\n'
    assert events_of(pair, "[privacy]\nepsilon = 1.0\n") == shoal.Events.of(
        (shoal.visit("clinic"), shoal.visit("work"))
    )


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ('[[secrets.event]]\nvisit = "clinic"\nstay = "home"\n', "has visit and stay of visit"),
        ('[[secrets.event]]\nstay = "home"\n', "has stay, so add times"),
        ('[[secrets.event]]\nvisit = "home"\ntimes = 2\n', "has visit, so drop times"),
        ('[[secrets.event]]\nvisit = "bar"\n', "an event names 'bar'"),
        ('[[secrets.event]]\nvisit = "home"\nbetween = [3]\n', "two slots counted from 0"),
        ('[[secrets.event]]\nvisit = "home"\nbetween = ["mon", "25:00"]\n', "end at 24:00"),
        ('[[secrets.event]]\nvisit = ["home", "work", "clinic"]\n', "is certain under the model"),
        ("event = []\n", "secrets.event"),
    ],
)
def test_events_badly_written_are_told_in_a_sentence(words: str, sentence: str) -> None:
    with pytest.raises(shoal.SpecError, match=sentence):
        events_of(words)


def test_plan_shows_a_calendar_of_beliefs(specs: Path, run: Run) -> None:
    found = run("plan", "events.toml", "--plot", "day.png")
    assert found.exit_code == 0, found.output
    assert "Event 1: at 'clinic' between 09:00 and 14:00" in found.output
    assert "any causal mechanism could show" in " ".join(found.output.split())
    assert (specs / "day.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("plan", "events.toml", "--json").output)
    assert told["mechanism"] == "mask-online"
    prior = shoal.visit("clinic", between=(1, 5)).prior(
        parse_request(MODEL + CLINIC + AMOUNT, folder=Path()).task.family[0]
    )
    for row in told["calendar"]:
        assert all(belief["most"] <= prior + 0.1 + 1e-9 for belief in row["beliefs"])


def test_plan_of_contexts_can_be_plotted_and_says_what_delta_means(specs: Path, run: Run) -> None:
    found = run("plan", "contexts.toml", "--plot", "day.png")
    assert found.exit_code == 0, found.output
    assert "above what everybody expects" in " ".join(found.output.split())
    assert (specs / "day.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("spec", ["events.toml", "contexts.toml"])
def test_attack_takes_days_with_slots_not_read(specs: Path, run: Run, spec: str) -> None:
    columns = ("--state", "context", "--time", "time")
    found = run("attack", spec, "days.csv", *columns, "--plot", "a.png")
    assert found.exit_code == 0, found.output
    assert "not read" in found.output
    assert (specs / "a.png").read_bytes().startswith(b"\x89PNG")
    told = json.loads(run("attack", spec, "days.csv", *columns, "--json").output)
    assert told["truth"][3] is None
    (event,) = told["events"]
    if spec == "events.toml":
        assert max(event["after"]) <= event["before"] + 0.1 + 1e-9


def test_stream_audit_and_leak_know_events(specs: Path, run: Run) -> None:
    lines = "".join(f'{{"context": "{c}"}}\n' for c in ("home", "work", "clinic"))
    found = CliRunner().invoke(app, ["stream", "events.toml"], input=lines)
    assert found.exit_code == 0, found.output
    answers = [json.loads(line) for line in found.stdout.splitlines() if line.startswith("{")]
    assert [answer["slot"] for answer in answers] == [0, 1, 2]
    assert "the claim is kept" in run("audit", "events.toml").output
    leak = json.loads(run("leak", "events.toml", "--json").output)
    assert leak["events"][0]["most"] > leak["events"][0]["before"] + 0.1


def test_options_of_a_mask_are_keys_of_a_spec() -> None:
    keys = 'memory = "none"\nahead = false\n'
    text = MODEL + CLINIC.replace("[[", keys + "[[", 1) + AMOUNT
    found = parse_request(text, folder=Path()).task
    assert isinstance(found.secrets, shoal.Events)
    assert found.secrets.options == MaskOptions("none", (), ahead=False)
    both = MODEL.split("[query]", maxsplit=1)[0] * 2 + '[query]\nkind = "current"\n'
    mixed = both + CLINIC.replace("[[", "mixture = [5, 2]\n[[", 1) + AMOUNT
    weighed = parse_request(mixed, folder=Path()).task.secrets
    assert isinstance(weighed, shoal.Events)
    assert weighed.options.mixture == (5.0, 2.0)
    with pytest.raises(SpecError, match="one weight for each of the 1 models"):
        parse_request(mixed.replace(both, MODEL), folder=Path())
