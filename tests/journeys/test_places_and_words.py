"""Journeys that broke at their second step, and messages that had to be read twice."""

from __future__ import annotations

import json
import re
import tomllib

import pytest

import shoal
from shoal.core.errors import InputError
from tests.journeys import files, pages
from tests.journeys.shell import Shell

MAP = """\
[[model]]
kind = "grid-walk"
south = 52.40
west = 13.20
cell_km = 0.34
rows = {rows}
columns = 43
stay = 0.6

[secrets]
kind = "policy-graph"
graph = "words"
words = "exact unless within 500 m of home; there among the 1 km around"
places = {{ home = [52.47, 13.30] }}

[query]
kind = "measurement"
estimate = "squared"

[privacy]
epsilon = 1.0
"""


def test_a_policy_in_words_on_1892_cells_gets_the_mechanism_made_for_it(shell: Shell) -> None:
    """K-norm noise errs 3.3 km under this policy; the graph's own law .17 km."""
    (shell.folder / "home.toml").write_text(MAP.format(rows=44))
    found = json.loads(shell.run("shoal plan home.toml --json").out)
    assert found["mechanism"] == "location-graph-exponential"
    assert found["places"]["estimate_error"] < 0.2
    assert found["guarantee"]["proved"]


def test_a_map_too_large_for_a_mechanism_is_said_with_the_width_that_is_not(shell: Shell) -> None:
    (shell.folder / "large.toml").write_text(MAP.format(rows=96))
    said = " ".join(shell.run("shoal plan large.toml").out.split())
    assert "location-graph-exponential: the model has 4,128 states; distances in the" in said
    assert "take cells 1.1 times as wide" in said
    wider = MAP.format(rows=79).replace("0.34", f"{0.34 * 1.1:.3f}").replace("= 43", "= 39")
    (shell.folder / "wider.toml").write_text(wider)
    assert "location-graph-exponential" in shell.run("shoal plan wider.toml --json").out


def test_the_centres_on_the_edge_are_counted_among_all_coordinates(shell: Shell) -> None:
    files.town(shell.folder)
    spec = shell.folder / "places.toml"
    spec.write_text(spec.read_text().replace("epsilon = 5.0", "epsilon = 0.1"))
    said = shell.run("shoal release places.toml checkins.csv -o centres.json").err
    counted = re.search(r"(\d+) of the (\d+) coordinates of the 8 centres", said)
    assert counted is not None, said
    assert 0 < int(counted[1]) <= int(counted[2]) == 8 * 12


def test_a_line_too_late_for_a_stream_is_answered_in_plain_words(shell: Shell) -> None:
    shell.run("shoal init --kind contexts mask.toml")
    text = (shell.folder / "mask.toml").read_text()
    (shell.folder / "mask.toml").write_text(text.replace('"best"', '"mask-simulatable"'))
    lines = [{"context": "home", "day": day, "slot": 0} for day in ("2024-03-05", "2024-03-04")]
    (shell.folder / "in.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    answers = shell.run("shoal stream mask.toml < in.jsonl").out.splitlines()
    assert json.loads(answers[1])["error"] == (
        "the line is not a reading of this stream, or its time is before the last one answered"
    )


def test_a_week_of_short_days_is_refused_with_the_hours_it_needs() -> None:
    short = shoal.DayChain.of(
        [[0.9, 0.1], [0.2, 0.8]],
        initial=[1, 0],
        states=["home", "out"],
        slots=16,
        slot_minutes=60,
        start_minute=420,
    )
    with pytest.raises(InputError, match=r"fit or write days of 24 hours \(--hours 00:00-24:00\)"):
        shoal.DayChain.joined([short] * 7)
    page = " ".join(pages.page("docs/how-to/hide-events.md").split())
    assert "a day of a week has 24 hours" in page
    whole = shoal.DayChain.of(
        [[0.9, 0.1], [0.2, 0.8]],
        initial=[1, 0],
        states=["home", "out"],
        slots=24,
        slot_minutes=60,
    )
    assert shoal.DayChain.joined([whole] * 7).slots == 168


def test_the_limits_are_those_of_this_version() -> None:
    version = tomllib.loads(pages.page("pyproject.toml"))["project"]["version"]
    assert f"This is version {version.rpartition('.')[0]}:" in pages.page("docs/limits.md")
