"""Small charts as SVG text, so that a report is one file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any, NamedTuple

from shoal.audit.result import Audit, StreamWitness, Witness
from shoal.audit.statistical import NOT_CHECKED, Estimate
from shoal.contexts.audit.adversaries import BRIEFLY, LesserAdversary
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


# An audit on one page: text, JSON, or a self-contained HTML file with charts.


STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2a30; max-width: 46rem; margin: 2rem auto;
  padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
dl { display: grid; grid-template-columns: 8rem 1fr; gap: .4rem 1rem; }
dt { font-weight: 600; } dd { margin: 0; }
.verdict { display: inline-block; padding: .2rem .7rem; border-radius: .4rem; color: white; }
.kept { background: #1b7f8c; } .broken { background: #c8553d; } .open { background: #7c8890; }
svg { width: 100%; height: auto; margin: 1rem 0; }
@media (prefers-color-scheme: dark) { svg { background: #fff; border-radius: .4rem; }
  body { background: #12181b; color: #e6ecef; } }
"""
CLASSES = {"kept": "kept", "VIOLATED": "broken"}


def as_json(audit: Audit | Estimate) -> dict[str, Any]:
    """Everything an audit says, as plain JSON data; null stands for infinity."""
    if isinstance(audit, Estimate):
        return {
            "kind": "black-box",
            "notion": audit.notion,
            "promised": audit.promised,
            "verdict": audit.verdict,
            "violated": audit.violated,
            "lower": _finite(audit.lower),
            "estimate": _finite(audit.estimate),
            "confidence": audit.confidence,
            "draws": audit.draws,
            "seed": audit.seed,
            "lengths": list(audit.lengths),
            "refused_lengths": list(audit.refused),
            "worst_case": {
                "model": audit.model,
                "law": audit.law,
                "subject": audit.subject,
                "facts": list(audit.facts),
                "event": audit.event,
                "hits": list(audit.hits),
                "trials": list(audit.trials),
            },
            "not_checked": list(NOT_CHECKED),
            "in_words": audit.describe(),
        }
    return {
        "kind": "exact" if audit.exact else "interval",
        "mechanism": audit.mechanism,
        "notion": audit.notion,
        "promised": audit.promised,
        "verdict": audit.verdict,
        "holds": audit.holds,
        "violated": audit.violated,
        "loss": _finite(audit.loss),
        "lower": _finite(audit.lower),
        "upper": _finite(audit.upper),
        "claim": [_finite(end) for end in audit.claim],
        "entry_level": _finite(audit.entry_level),
        "worst_case": None if audit.witness is None else _witness_json(audit.witness),
        "adversaries": [_adversary_json(one) for one in audit.adversaries],
        "assumptions": list(audit.assumptions),
        "not_checked": list(audit.not_checked),
        "in_words": audit.describe(),
    }


def as_html(audit: Audit | Estimate, *, title: str = "Audit") -> str:
    """One HTML page with its charts inside: no script, no other file, nothing fetched."""
    lines = [line.partition(": ") for line in audit.describe().splitlines()]
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, _, text in lines)
    badge = CLASSES.get(audit.verdict, "open")
    charts = _estimate_charts(audit) if isinstance(audit, Estimate) else _charts(audit)
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><h1>{escape(title)}</h1>"
        f'<p><span class="verdict {badge}">{escape(audit.verdict)}</span></p>'
        f"<dl>{rows}</dl>{charts}</body></html>\n"
    )


def _charts(audit: Audit) -> str:
    colour = ALARM if audit.violated or audit.lower > (audit.promised or math.inf) else GOOD
    rise = audit.notion == "delta-privacy"
    bars = [] if rise else [Bar("entry level", audit.entry_level, QUIET)]
    if audit.promised is not None:
        bars.insert(0, Bar("promised", audit.promised, QUIET))
    low = None if audit.exact else audit.lower
    bars.append(Bar("measured", audit.upper, colour, low))
    title = "Rise of a belief (delta)" if rise else "Loss (epsilon)"
    parts = [bar_chart(bars, title=title, mark=audit.promised)]
    if audit.adversaries:
        parts.append(_adversary_chart(audit))
    if audit.witness is not None:
        parts.append(_belief_chart(audit.witness))
        parts += _curve_charts(audit.witness, audit.promised)
    return "<h2>Charts</h2>" + "".join(parts)


def _estimate_charts(audit: Estimate) -> str:
    colour = ALARM if audit.exceeded else GOOD
    bars = [Bar("at least", audit.lower, colour), Bar("estimate", audit.estimate, QUIET)]
    if audit.promised is not None:
        bars.insert(0, Bar("promised", audit.promised, QUIET))
    shares = [
        Bar(f"given {fact}", hits / trials, colour)
        for fact, hits, trials in zip(audit.facts, audit.hits, audit.trials, strict=True)
    ]
    return (
        "<h2>Charts</h2>"
        + bar_chart(bars, title="Loss (epsilon)", mark=audit.promised)
        + bar_chart(shares, title=f"How often {audit.event}")
    )


def _adversary_chart(audit: Audit) -> str:
    """How much each kind of adversary can learn, and the promise."""
    bars = [
        Bar(BRIEFLY[one.knows], one.rise, GOOD if one.rise <= (audit.promised or 0.0) else ALARM)
        for one in audit.adversaries
    ]
    return bar_chart(
        bars, title="Rise of a belief, by what an adversary knows", mark=audit.promised
    )


def _adversary_json(one: LesserAdversary) -> dict[str, Any]:
    return {
        "knows": one.knows,
        "challenge": one.challenge,
        "rise": one.rise,
        "exact": one.exact,
        "covered": one.covered,
        "why": one.why,
        "fact": one.fact,
        "before": one.before,
        "after": one.after,
        "output": None if one.output is None else list(one.output),
    }


def _belief_chart(witness: Witness | StreamWitness) -> str:
    bars = []
    for fact, before, after in zip(witness.facts, witness.before, witness.after, strict=True):
        bars += [Bar(f"{fact} before", before, QUIET), Bar("after", after, OTHER)]
    return bar_chart(bars, title=f"Belief about {witness.subject} at the worst output")


def _curve_charts(witness: Witness | StreamWitness, promised: float | None) -> list[str]:
    if len(witness.curve) < 2:
        return []
    first, second = witness.facts
    ratio = [(x, a - b) for x, a, b in witness.curve]
    limits = [] if promised is None else [promised, -promised]
    ends = (witness.curve[0][0], witness.curve[-1][0])
    across = f"output ({witness.unit})"
    return [
        line_chart(
            [
                Line(f"given {first}", [(x, math.exp(a)) for x, a, _ in witness.curve], OTHER),
                Line(f"given {second}", [(x, math.exp(b)) for x, _, b in witness.curve], GOOD),
            ],
            title="How likely each output is",
            across=across,
            up="probability",
        ),
        line_chart(
            [
                Line("log-ratio", ratio, ALARM),
                *(Line("", [(ends[0], y), (ends[1], y)], QUIET) for y in limits),
            ],
            title="What each output tells (the promise in grey)",
            across=across,
            up="log of the odds' change",
        ),
    ]


def _witness_json(witness: Witness | StreamWitness) -> dict[str, Any]:
    return {
        "model": witness.model,
        "law": witness.law,
        "subject": witness.subject,
        "facts": list(witness.facts),
        "output": [v if isinstance(v, str | None) else _finite(v) for v in witness.output],
        "output_in_words": witness.output_words(),
        "before": list(witness.before),
        "after": list(witness.after),
        "log_ratio": _finite(witness.log_ratio),
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
