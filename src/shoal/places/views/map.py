"""A map in one HTML file: cells, released points and estimates over time; it asks no network."""

from __future__ import annotations

import html
import json
import re
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.core.errors import InputError

if TYPE_CHECKING:
    import polars as pl

    from shoal.core.plan import Plan

WIDTH = 960  # pixels of the drawing; its height follows from the map
MOST_STREAMS = 50  # drawn: a page of more is no map


def map_page(plan: Plan, rows: pl.DataFrame, *, truth: Any = None, title: str = "") -> str:
    """The page for steps of `release_tracks`; `truth` adds the first stream's own positions.

    With the truth it is for the owner's eyes only, and says so.
    """
    from shoal.places.machine import machine_of

    machine = machine_of(plan)
    if len(machine.query.labels) != 2:
        raise InputError("a map needs answers in the plane; this plan has no such query")
    frame = _Frame.around(machine.query.values)
    cells = "".join(f'<circle class="cell" r="2" cx="{x}" cy="{y}"/>' for x, y in frame.all())
    drawing = (
        f'<svg viewBox="0 0 {WIDTH} {frame.height}" role="img" aria-label="map">{cells}'
        '<g id="layer"></g></svg>'
    )
    streams = [
        _stream(own, machine.query.labels, frame)
        for _, own in rows.group_by(["user", "part"], maintain_order=True)
    ][:MOST_STREAMS]
    if truth is not None:
        streams[0]["truth"] = [None if np.isnan(p).any() else frame.at(p) for p in truth]
    legend = "; green, dashed: the true positions, for the owner's eyes only"
    told = {
        "title": html.escape(title or f"Places released by {plan.mechanism}"),
        "promise": html.escape(f"Promise: {plan.guarantee.describe()}"),
        "drawing": drawing,
        "legend": legend if truth is not None else "",
        "streams": json.dumps(streams, allow_nan=False).replace("<", "\\u003c"),
    }
    page = files("shoal.places").joinpath("templates", "map.html").read_text(encoding="utf-8")
    return re.sub("@([a-z]+)@", lambda found: told[found[1]], page)


class _Frame:
    """Answers in the plane to pixels, north up, one scale for both axes."""

    def __init__(self, values: Any, low: Any, scale: float, height: int) -> None:
        self._values, self._low, self._scale, self.height = values, low, scale, height

    @classmethod
    def around(cls, values: Any) -> _Frame:
        low, high = values.min(axis=0), values.max(axis=0)
        margin = 0.05 * max(float((high - low).max()), 1e-9)
        low, wide = low - margin, np.maximum(high - low, 1e-9) + 2 * margin
        scale = WIDTH / float(wide[0])
        return cls(values, low, scale, int(min(max(scale * wide[1], 120), 4 * WIDTH)))

    def at(self, point: Any) -> list[float]:
        east, north = (np.asarray(point, np.float64) - self._low) * self._scale
        return [round(float(east), 1), round(self.height - float(north), 1)]

    def all(self) -> list[list[float]]:
        return [self.at(value) for value in self._values]


def _stream(own: pl.DataFrame, labels: tuple[str, ...], frame: _Frame) -> dict[str, Any]:
    points, estimates, times = [], [], []
    for row in own.iter_rows(named=True):
        shown = [row[f"z_{name}"] for name in labels]
        points.append(None if shown[0] is None else frame.at(shown))
        estimates.append(frame.at([row[f"estimate_{name}"] for name in labels]))
        times.append(str(row.get("time", "")))
    found = {"name": f"{own['user'][0]}/{own['part'][0]}", "points": points, "estimates": estimates}
    return {**found, "times": times} if "time" in own.columns else found
