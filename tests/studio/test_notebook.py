"""Every value that shows itself has props that its view can draw, and falls back without views."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.studio import notebook
from shoal.studio.notebook import load_ipython_extension, view_of

CHAIN = shoal.MarkovChain.of([[0.8, 0.2], [0.3, 0.7]], states=["a", "b"], length=20)
COUNT = shoal.calibrate(shoal.count(CHAIN.states, "a"), shoal.EachEntry(), CHAIN, epsilon=1)
DAY = shoal.DayChain.of(
    [[[0.5, 0.5], [0.5, 0.5]]] * 2, initial=[0.9, 0.1], states=["home", "clinic"]
)
MASK = shoal.mask(DAY, shoal.SensitiveContexts.of("clinic"), delta=0.2)


def test_every_kind_has_its_view(tmp_path: Path) -> None:
    stream, _ = shoal.ContextStream.begin(MASK).read("home")
    ledger = shoal.open_ledger(tmp_path / "b.db")
    COUNT.release(["a"] * 20, ledger=ledger, subject="ann")
    shown = {
        "noisePreview": COUNT,
        "dayCalendar": stream,
        "auditDensities": shoal.audit(COUNT),
        "budgetLine": ledger,
    }
    for name, value in shown.items():
        found = view_of(value)
        assert found is not None
        assert found[0] == name
        json.dumps(found[1], allow_nan=False)
    assert view_of(shoal.leakage(CHAIN, 1)) is not None
    assert view_of(COUNT.release(["a"] * 20)) is not None
    ledger.close()


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
    pytest.importorskip("anywidget")
    (tmp_path / "views.js").write_text("export default { render() {} };")
    monkeypatch.setattr(notebook, "static_folder", lambda: tmp_path)
    made = notebook.widget(COUNT)
    assert made.view == "noisePreview"
    assert made.props["unit"] == "entries"
    with pytest.raises(shoal.InputError, match="there is no picture of a int"):
        notebook.widget(3)
