"""The owner's map: whole rides, and over them what was published; a page that asks no network.

The page shows hidden places. It goes into the private folder, never among the published files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.core.codec import Floats
from shoal.share.roads import plane

LONGER_SIDE = 1200  # pixels of the drawing; the other side follows from the rides
STEP_PIXELS = 1.0  # positions nearer to the last drawn one are not drawn
MARGIN = 0.04  # of the longer side, around the rides

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Rides: shown and cut (private)</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>
body {{ font: 15px/1.4 system-ui, sans-serif; margin: 1.5rem; color: #222; background: #fff; }}
.only {{ border: 2px solid #c0392b; padding: .5rem 1rem; font-weight: 600; }}
svg {{ max-width: 100%; height: auto; border: 1px solid #ccc; background: #fafafa; }}
polyline {{ fill: none; stroke-linejoin: round; }}
.cut {{ stroke: #c0392b; stroke-width: 1.6; stroke-dasharray: 5 3; }}
.shown {{ stroke: #2c5f8a; stroke-width: 2.4; }}
.zone {{ fill: #e0a030; }} .home {{ fill: none; stroke: #000; stroke-width: 2.5; }}
</style></head><body>
<h1>Rides: shown and cut</h1>
<p class="only">For the owner only: this page shows where you live. Do not publish or send it.</p>
<svg viewBox="0 0 {width} {height}" role="img" aria-label="map of shown and cut parts of rides">
{drawing}
</svg>
<p>Blue: published as ridden. Red, dashed: cut, in no published file. Orange dots: crossings among
which a place is hidden. Black circle: the place itself. Distances keep their scale, north is
up.</p>
</body></html>
"""


def owner_page(
    rides: Sequence[Floats], shown: Sequence[Floats], zones: Sequence[Floats], homes: Floats
) -> str:
    """Return the page of whole rides, their published parts, zones and hidden places.

    All arguments are positions as (latitude, longitude) in degrees; `shown` is drawn over `rides`.
    """
    parts = [*rides, *shown, *zones, homes]
    x, y = plane(np.vstack([part.reshape(-1, 2) for part in parts]))
    span = max(float(np.ptp(x)), float(np.ptp(y)), 1.0)
    margin = MARGIN * span
    left, top = float(x.min()) - margin, float(y.max()) + margin
    scale = LONGER_SIDE / (span + 2 * margin)
    width, height = (round((float(np.ptp(side)) + 2 * margin) * scale) for side in (x, y))
    pixels = np.column_stack([(x - left) * scale, (top - y) * scale])
    ends = np.cumsum([len(part) for part in parts])[:-1]
    drawn = np.split(pixels, ends)
    first, second = len(rides), len(rides) + len(shown)
    rows = [_polyline(part, "cut") for part in drawn[:first]]
    rows += [_polyline(part, "shown") for part in drawn[first:second]]
    for part in drawn[second:-1]:
        rows += [f'<circle class="zone" r="3" cx="{a:.1f}" cy="{b:.1f}"/>' for a, b in part]
    rows += [f'<circle class="home" r="8" cx="{a:.1f}" cy="{b:.1f}"/>' for a, b in drawn[-1]]
    return PAGE.format(width=width, height=height, drawing="\n".join(rows))


def _polyline(pixels: Floats, kind: str) -> str:
    """Return one line of the drawing, without positions that would not be seen."""
    kept: list[Floats] = []
    for where in pixels:
        if not kept or abs(where - kept[-1]).max() >= STEP_PIXELS:
            kept.append(where)
    points = " ".join(f"{a:.1f},{b:.1f}" for a, b in kept)
    return f'<polyline class="{kind}" points="{points}"/>'
