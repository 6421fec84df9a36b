"""The owner's map: what was published lies over whole rides, at one scale, north up."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from shoal.share.formats import gpx_of, read_parts
from shoal.share.jobs.picture import LONGER_SIDE, owner_page

RIDE = np.array([(52.50, 13.40), (52.51, 13.40), (52.51, 13.42)])
HOME = np.array([(52.50, 13.40)])


def points_of(page: str, kind: str) -> list[np.ndarray[tuple[int, ...], np.dtype[np.float64]]]:
    found = re.findall(f'<polyline class="{kind}" points="([^"]*)"', page)
    return [np.array([p.split(",") for p in one.split()], dtype=float) for one in found]


def test_shown_parts_lie_on_the_whole_ride() -> None:
    page = owner_page([RIDE], [RIDE[1:]], [HOME], HOME)
    (whole,), (shown,) = points_of(page, "cut"), points_of(page, "shown")
    assert np.array_equal(whole[1:], shown)
    assert whole[0, 1] > whole[1, 1]  # south is below north
    assert whole[2, 0] > whole[1, 0]  # east is right of west
    north, east = whole[0, 1] - whole[1, 1], whole[2, 0] - whole[1, 0]
    assert east / north == pytest.approx(2 * np.cos(np.radians(52.505)), rel=1e-2)
    assert 0 <= whole.min() <= whole.max() <= LONGER_SIDE
    assert page.count('class="home"') == page.count('class="zone"') == 1


def test_the_page_asks_no_network_and_says_whose_it_is() -> None:
    page = owner_page([RIDE], [], [HOME], HOME)
    assert "For the owner only" in page
    assert "default-src 'none'" in page
    assert not re.search(r"https?:|src=|<script|url\(", page)


def test_positions_that_would_not_be_seen_are_not_drawn() -> None:
    dense = RIDE[0] + np.linspace(0, 1, 50_000)[:, None] * (RIDE[1] - RIDE[0])
    page = owner_page([dense], [], [HOME], HOME)
    assert len(points_of(page, "cut")[0]) <= 2 * LONGER_SIDE


def test_published_parts_are_read_again(tmp_path: Path) -> None:
    parts = [RIDE[:2], RIDE[1:]]
    (tmp_path / "a.gpx").write_text(gpx_of(parts))
    again = read_parts(tmp_path / "a.gpx")
    assert [part.tolist() for part in again] == [part.tolist() for part in parts]
    (tmp_path / "b.gpx").write_text(gpx_of([]))
    assert read_parts(tmp_path / "b.gpx") == []
