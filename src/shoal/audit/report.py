"""An audit on one page: text, JSON, or a self-contained HTML file with charts."""

from __future__ import annotations

import math
from html import escape
from typing import Any

from shoal.audit.adversaries import BRIEFLY, Adversary
from shoal.audit.result import Audit, StreamWitness, Witness
from shoal.audit.statistical import NOT_CHECKED, Estimate
from shoal.audit.svg import ALARM, GOOD, OTHER, QUIET, Bar, Line, bar_chart, line_chart

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


def _adversary_json(one: Adversary) -> dict[str, Any]:
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
