"""Small charts as SVG text, so that a report is one file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from shoal.core.numbers import significant

WIDTH, LEFT, RIGHT = 680.0, 170.0, 70.0
LONGEST_LABEL, LONGEST_TITLE = 24, 72  # characters that fit
INK, QUIET, GOOD, ALARM, OTHER = "#1f2a30", "#b7c4cc", "#1b7f8c", "#c8553d", "#7a5ba6"


class Bar(NamedTuple):
    """One line of a bar chart; `low` draws a lighter part from there on, for an interval."""

    label: str
    value: float
    colour: str
    low: float | None = None


class Line(NamedTuple):
    """A curve with its name."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: str


def bar_chart(bars: Sequence[Bar], *, title: str, mark: float | None = None) -> str:
    """Horizontal bars; infinite ones fill the width. `mark` draws a dashed line at a promise."""
    finite = [b.value for b in bars if math.isfinite(b.value)] + ([mark] if mark else [])
    top = 1.1 * max(finite, default=1.0) or 1.0
    height = 40 + 34 * len(bars)
    parts = [_heading(title)]
    for row, bar in enumerate(bars):
        parts += _bar(bar, 32 + 34 * row, top)
    if mark is not None:
        x = _across(mark, top)
        parts.append(
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="26" y2="{height - 6}" stroke="{INK}" '
            'stroke-dasharray="4 3"/>'
        )
    return _svg(height, title, parts)


def line_chart(lines: Sequence[Line], *, title: str, across: str, up: str) -> str:
    """Curves over a common axis, with a legend, and labels at the ends of both axes."""
    points = [point for line in lines for point in line.points]
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    low, high = min(ys), max(ys)
    high = high if high > low else low + 1
    first, last = min(xs), max(xs)
    last = last if last > first else first + 1
    height, bottom, top = 270, 220.0, 40.0

    def place(x: float, y: float) -> str:
        along = LEFT + (x - first) / (last - first) * (WIDTH - LEFT - RIGHT)
        return f"{along:.1f},{bottom - (y - low) / (high - low) * (bottom - top):.1f}"

    parts = [_heading(title)]
    parts += [
        f'<polyline fill="none" stroke="{line.colour}" stroke-width="2" points="'
        + " ".join(place(x, y) for x, y in line.points)
        + '"/>'
        for line in lines
    ]
    parts.append(
        f'<polyline fill="none" stroke="{INK}" points="{LEFT},{top} {LEFT},{bottom} '
        f'{WIDTH - RIGHT},{bottom}"/>'
    )
    for x, anchor in ((first, "start"), (last, "end")):
        spot = float(place(x, low).split(",")[0])
        parts.append(_text(spot, bottom + 16, significant(x), anchor=anchor))
    for y in (low, high):
        spot = float(place(first, y).split(",")[1])
        parts.append(_text(LEFT - 6, spot + 4, significant(y), anchor="end"))
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 34, across, anchor="middle"))
    parts.append(_text(8, top - 8, up, anchor="start"))
    for row, line in enumerate(lines):
        name = _short(line.name, LONGEST_LABEL + 8)
        parts.append(_text(WIDTH - RIGHT, 18 + 15 * row, name, colour=line.colour))
    return _svg(height, title, parts)


def _bar(bar: Bar, y: float, top: float) -> list[str]:
    end = _across(min(max(bar.value, 0.0), top), top)
    solid = end if bar.low is None else _across(min(bar.low, top), top)
    text = "∞" if math.isinf(bar.value) else significant(bar.value)
    if bar.low is not None and bar.low < bar.value:
        text = f"{significant(bar.low)} to {text}"
    return [
        _text(LEFT - 8, y + 14, _short(bar.label), anchor="end"),
        f'<rect x="{LEFT}" y="{y}" width="{max(end - LEFT, 1):.1f}" height="20" '
        f'fill="{bar.colour}" opacity="0.35"/>',
        f'<rect x="{LEFT}" y="{y}" width="{max(solid - LEFT, 1):.1f}" height="20" '
        f'fill="{bar.colour}"/>',
        _text(end + 6, y + 14, text, anchor="start"),
    ]


def _short(label: str, longest: int = LONGEST_LABEL) -> str:
    """A label that fits left of the bars, or another text that fits where it is."""
    return label if len(label) <= longest else label[: longest - 1] + "…"


def _across(value: float, top: float) -> float:
    return LEFT + value / top * (WIDTH - LEFT - RIGHT)


def _heading(title: str) -> str:
    return _text(LEFT, 18, _short(title, LONGEST_TITLE), anchor="start", size=13, weight="bold")


def _text(
    x: float,
    y: float,
    text: str,
    *,
    anchor: str = "end",
    size: int = 12,
    weight: str = "normal",
    colour: str = INK,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" '
        f'font-weight="{weight}" fill="{colour}">{escape(text)}</text>'
    )


def _svg(height: float, title: str, parts: Sequence[str]) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" '
        f'aria-label="{escape(title)}" xmlns="http://www.w3.org/2000/svg" '
        f'font-family="system-ui, sans-serif">{"".join(parts)}</svg>'
    )
