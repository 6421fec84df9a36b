"""Every value that shows itself has props that its view can draw, and falls back without views."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.places.map import SquareGrid
from shoal.places.walk import free_walk
from shoal.studio import notebook
from shoal.studio.notebook import load_ipython_extension, view_of
from shoal.studio.rooms import budget

CHAIN = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=["a", "b"], length=20)
COUNT = shoal.calibrate(shoal.count(CHAIN.states, "a"), shoal.EachEntry(), CHAIN, epsilon=1)
DAY = shoal.DayChain.of(
    [[[0.5, 0.5], [0.5, 0.5]]] * 2, initial=[0.9, 0.1], states=["home", "clinic"]
)
MASK = shoal.mask(DAY, shoal.SensitiveContexts.of("clinic"), delta=0.2)


def test_a_stream_of_contexts_tells_what_was_shown_and_nothing_else() -> None:
    stream, shown = shoal.ContextStream.begin(MASK).read("clinic")
    found = view_of(stream)
    assert found is not None
    assert found[1]["played"] == [shown]
    assert "truth" not in found[1]


def test_a_release_shows_no_truth() -> None:
    found = view_of(COUNT.release(["a"] * 20))
    assert found is not None
    assert found[1]["truth"] is None


MAP = SquareGrid(south=Fraction(52), west=Fraction(13), cell_m=Fraction(500), rows=2, columns=3)
WALK = free_walk(MAP)
POINTS = shoal.coordinates(WALK)
NEAR = shoal.PolicyGraph.within(POINTS, 1)


def test_a_policy_is_a_graph_of_who_must_look_alike() -> None:
    found = view_of(NEAR)
    assert found is not None
    name, props = found
    assert name == "tieGraph"
    assert [node["name"] for node in props["nodes"]] == list(NEAR.states)
    assert len(props["edges"]) == len(NEAR.all_edges())
    assert view_of(shoal.LocationSet(policy=NEAR, delta=Fraction(1, 100))) == found


def built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Views that stand for the real ones, which need node."""
    pytest.importorskip("anywidget")
    monkeypatch.setattr(notebook, "static_folder", lambda: folder)
    (folder / "views.js").write_text("export default { render() {} };")


@pytest.mark.parametrize("truth", [True, False])
def test_a_track_is_played_and_its_truth_kept_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, truth: bool
) -> None:
    built(tmp_path, monkeypatch)
    plan = shoal.calibrate(POINTS, NEAR, WALK, epsilon=1)
    made = notebook.play(plan, WALK.states[:4], truth=truth, rng=shoal.SeededRng(1))
    assert made.view == "player"
    assert made.props["count"] == 4
    drawn, errors, _ = made.props["columns"][0]["panes"]
    json.dumps(made.props, allow_nan=False)
    assert [frame["truth"] for frame in drawn["frames"]] == ([0, 1, 2, 3] if truth else [None] * 4)
    assert len(drawn["frames"][0]["body"]) >= 3
    assert len(errors["props"]["values"]) == 4
    assert "4 steps" in made._repr_mimebundle_()[0]["text/html"]


@pytest.mark.parametrize("truth", [True, False])
def test_a_day_is_played_and_its_truth_kept_only_when_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, truth: bool
) -> None:
    built(tmp_path, monkeypatch)
    made = notebook.play(MASK, ["home", "clinic", "home"], truth=truth)
    lanes, curves = made.props["columns"][0]["panes"]
    assert ("truth" in lanes["props"]) == truth
    kinds = {curve["kind"] for curve in curves["props"]["curves"]}
    assert kinds == ({"prior", "naive", "promised"} if truth else {"prior", "promised"})
    with pytest.raises(shoal.InputError, match="only steps and slots can be played"):
        notebook.play(COUNT, ["a"])


@pytest.fixture
def values(tmp_path: Path) -> Iterator[dict[str, tuple[Any, str, str]]]:
    """One of everything that shows itself: the view, and words of what stands in its place."""
    places = shoal.calibrate(POINTS, NEAR, WALK, epsilon=1)
    slots, _ = shoal.ContextStream.begin(MASK).read("home")
    steps, _ = shoal.LocationStream.begin(places).read(WALK.states[0], rng=shoal.SeededRng(1))
    with shoal.open_ledger(tmp_path / "b.db") as ledger:
        release = COUNT.release(["a"] * 20, ledger=ledger, subject="ann")
        yield {
            "plan": (COUNT, "noisePreview", "<table"),
            "plan of places": (places, "beliefMap", "<table"),
            "plan of a day": (MASK, "dayCalendar", "<table"),
            "release": (release, "noisePreview", "<table"),
            "audit": (shoal.audit(COUNT), "auditDensities", "<table"),
            "leakage": (shoal.leakage(CHAIN, 1), "auditDensities", "<table"),
            "policy": (NEAR, "tieGraph", "<p>"),
            "stream of contexts": (slots, "dayCalendar", "<table"),
            "stream of places": (steps, "beliefMap", "<table"),
            "ledger": (ledger, "budgetLine", "<td>ann</td>"),
        }


def test_every_kind_is_a_widget_with_something_in_its_place(
    values: dict[str, tuple[Any, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built(tmp_path, monkeypatch)
    for name, (value, view, words) in values.items():
        made = notebook.widget(value)
        assert made.view == view, name
        json.dumps(made.props, allow_nan=False)
        still = made._repr_mimebundle_()[0]["text/html"]
        assert words in still, name
        assert "<script" not in still


def test_a_limit_is_drawn_above_the_charges_it_is_about_and_no_others(tmp_path: Path) -> None:
    with shoal.open_ledger(tmp_path / "b.db") as ledger:
        for week in ("one", "two", "one"):
            COUNT.release(["a"] * 20, ledger=ledger, subject="ann", period=week)

        def limits() -> list[float | None]:
            rows = budget.accounts_of(ledger)
            return [budget.account_line(ledger, row)["limit"] for row in rows]

        ledger.limit("1/2", unit="epsilon", subject="ann")  # passed already: drawn where it is
        assert limits() == [0.5, 0.5]
        ledger.limit("9", unit="epsilon", subject="ann")
        assert limits() == [9.0, 9.0]
        ledger.limit("8", unit="epsilon", subject="ann", period=None)  # of all weeks together
        assert limits() == [None, None]


class Formatter:
    def __init__(self) -> None:
        self.known: dict[type, Any] = {}

    def for_type(self, kind: type, call: Any) -> None:
        self.known[kind] = call


def test_a_notebook_is_told_once_and_falls_back_where_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Shell:
        class display_formatter:  # noqa: N801 - IPython's name
            mimebundle_formatter = Formatter()

    load_ipython_extension(Shell)
    known = Shell.display_formatter.mimebundle_formatter.known
    assert {shoal.Plan, shoal.Release} <= set(known)

    def missing() -> Path:
        raise shoal.InputError("the studio's page has not been built")

    monkeypatch.setattr(notebook, "static_folder", missing)
    assert known[shoal.Plan](COUNT) is None


def test_a_picture_carries_the_views(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    built(tmp_path, monkeypatch)
    made = notebook.widget(COUNT)
    assert made.view == "noisePreview"
    assert made.props["unit"] == "entries"
    shown, _ = made._repr_mimebundle_()
    assert shown["text/html"] == COUNT._repr_html_()  # where no JavaScript runs
    with pytest.raises(shoal.InputError, match="there is no picture of a int"):
        notebook.widget(3)
