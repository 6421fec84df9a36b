"""A map that the command line stored, opened in the browser with a track of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shoal.core.registry import dumps
from shoal.places.map import SquareGrid
from shoal.places.walk import free_walk
from tests.studio.conftest import started, stopped

pytestmark = pytest.mark.xdist_group("studio")  # one browser for all


def test_a_stored_map_opens_in_places_and_takes_a_track(browser: Any, tmp_path: Path) -> None:
    grid = SquareGrid.covering(south=52.4, west=13.2, north=52.53, east=13.41, cell_km="0.34")
    chain = free_walk(grid, stay=0.6)
    (tmp_path / "town.json").write_text(dumps(chain) + "\n")
    rows = [f"a,2026-03-02T08:{at:02d}:00,{52.45 + 0.003 * (at % 9)},13.3" for at in range(30)]
    (tmp_path / "track.csv").write_text("user,time,lat,lon\n" + "\n".join(rows) + "\n")
    running = started(tmp_path, "--port", "0", "town.json")
    context = browser.new_context()
    try:
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.goto(running.address)
        page.wait_for_url("**#/places")
        size = f"{chain.size:,} cells of 0.34 km"
        page.wait_for_selector(f"text={size}")
        page.set_input_files("input[type=file]", str(tmp_path / "track.csv"))
        page.wait_for_selector("text=The best guess is off by")
        assert size in page.inner_text("main")
    finally:
        context.close()
        stopped(running)
