"""The props of the views, from values of the library: the same wherever a view is drawn."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from shoal.audit.result import BRIEFLY, LOSS_TOLERANCE, Audit, StreamWitness, Witness
from shoal.audit.statistical import Estimate
from shoal.chains.model import MarkovChain
from shoal.core.errors import InputError
from shoal.core.numbers import finite
from shoal.core.plan import Plan
from shoal.mechanisms.lift import Leakage

UNBUILT = (
    "the studio's page has not been built; run `make views` in a checkout, or install the wheel, "
    "which carries it"
)


def static_folder() -> Path:
    """Return the folder of the built page; refused, with the fix, when it was never built."""
    folder = Path(str(files("shoal.studio"))) / "static"
    if not (folder / "index.html").is_file():
        raise InputError(UNBUILT)
    return folder


def views_source() -> str:
    """Return the views as one JavaScript module that is safe inside an HTML document."""
    text = (static_folder() / "views.js").read_text(encoding="utf-8")
    # an HTML parser ends a script at these letters wherever they stand; JavaScript reads \/ as /
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


Props = dict[str, Any]
LOSS = "Loss: how far some output moves the log-odds between two secrets"
RISE = "How far some output raises a belief"


def chain_heat(chain: MarkovChain) -> Props:
    """Return the props of a transition matrix; the first step's where every step has its own."""
    matrix = chain.transition if chain.transition.ndim == 2 else chain.transition[0]
    return {"states": list(chain.states), "transition": matrix.tolist()}


def leak_bars(plan: Plan, alternatives: Mapping[str, Plan | str]) -> Props:
    """Return every mechanism's error beside the chosen one's, or why it does not apply."""
    return {
        "unit": plan.task.query.unit,
        "mechanisms": [
            _mechanism(name, row, chosen=name == plan.mechanism)
            for name, row in alternatives.items()
        ],
    }


def _mechanism(name: str, row: Plan | str, *, chosen: bool) -> Props:
    """Return the props of one mechanism; `row` is its plan, or the sentence of its refusal."""
    if isinstance(row, str):
        return {"name": name, "error": None, "standing": "", "chosen": False, "refusal": row}
    error = row.error()
    return {
        "name": name,
        "error": None if error is None else error.expected,
        "standing": standing(row),
        "chosen": chosen,
        "refusal": None if error is not None else "its error is not a number",
    }


def standing(plan: Plan) -> str:
    """Return in a word or two how the plan's guarantee is established for its task."""
    if not plan.guarantee.proved:
        return "claimed, not proved"
    wanted = plan.task.secrets.notion
    return "proved" if plan.guarantee.gives(wanted) else f"{plan.guarantee.notion} only"


def noise_preview(
    plan: Plan, simulated: Sequence[Sequence[float]], truth: Sequence[float] | None
) -> Props:
    """Return the props of simulated releases; they contain the truth, for the data's owner only."""
    return {
        "labels": list(plan.task.query.labels),
        "unit": plan.task.query.unit,
        "truth": None if truth is None else list(truth),
        "simulated": [list(row) for row in simulated],
    }


def audit_densities(audit: Audit | Estimate) -> Props:
    """Return the props of an audit: its losses, worst output, and the beliefs it causes."""
    return _estimate_props(audit) if isinstance(audit, Estimate) else _audit_props(audit)


def _audit_props(audit: Audit) -> Props:
    """Return the props of an exact audit: losses, worst output, and beliefs before and after."""
    rise, witness = audit.notion == "delta-privacy", audit.witness
    losses = [] if rise else [_loss("entry level", audit.entry_level)]
    losses.append(_loss("measured", audit.upper, audit.lower, measured=True))
    return {
        **just_losses(RISE if rise else LOSS, audit.promised, losses),
        "broken": audit.violated
        or audit.lower > (audit.promised or math.inf) * (1 + LOSS_TOLERANCE),
        "curve": [list(row) for row in witness.curve if np.isfinite(row).all()] if witness else [],
        "subject": witness.subject if witness else "",
        "belief": _belief(witness),
        "adversaries": [
            {"name": BRIEFLY[one.knows], "rise": one.rise} for one in audit.adversaries
        ],
        "unit": witness.unit if witness else "",
    }


def _estimate_props(audit: Estimate) -> Props:
    """Return the props of a sampled audit: its lower bound, its estimate, and shares of hits."""
    counted = zip(audit.facts, audit.hits, audit.trials, strict=True)
    losses = [_loss("at least", audit.lower, measured=True), _loss("estimate", audit.estimate)]
    return {
        **just_losses(LOSS, audit.promised, losses),
        "broken": audit.exceeded,
        "subject": audit.subject,
        "event": audit.event,
        "shares": [{"name": fact, "share": hits / trials} for fact, hits, trials in counted],
    }


def just_losses(title: str, promised: float | None, losses: list[Props]) -> Props:
    """Return the props of losses without a worst output."""
    first = [] if promised is None else [_loss("promised", promised)]
    props = {"title": title, "losses": first + losses, "promised": promised, "broken": False}
    empty = {"curve": [], "subject": "", "belief": [], "adversaries": [], "event": "", "shares": []}
    return {**props, **empty, "unit": ""}


def leak_props(leakage: Leakage) -> Props:
    """Return the props of an ordinary release's real loss beside the loss it claims."""
    eta, loss = float(leakage.eta), _loss("under correlation", leakage.value, measured=True)
    return {**just_losses(LOSS, eta, [loss]), "broken": leakage.value > eta}


def _loss(name: str, value: float, low: float | None = None, *, measured: bool = False) -> Props:
    low = value if low is None else low
    return {"name": name, "value": finite(value), "low": finite(low), "measured": measured}


def _belief(witness: Witness | StreamWitness | None) -> list[Props]:
    """Return each secret's probability before and after the worst output; empty without one."""
    if witness is None:
        return []
    return [
        {"name": fact, "before": before, "after": after}
        for fact, before, after in zip(witness.facts, witness.before, witness.after, strict=True)
    ]


STYLE = """
:root { color-scheme: light dark; --ink: #1c2529; --faint: #57646a; --ground: #fff; --line: #ccd5d9;
  --accent: #0b6e8f; --warning: #b5480a; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf0; --faint: #a3b1b8; --ground: #12191d;
  --line: #35434a; --accent: #5cc1e6; --warning: #f2a065; } }
body { font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: var(--ink);
  background: var(--ground); max-width: 48rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem; line-height: 1.2; overflow-wrap: anywhere; }
dl { display: grid; grid-template-columns: 8rem 1fr; gap: .4rem 1rem; }
dt { color: var(--faint); } dd { margin: 0; overflow-wrap: anywhere; }
@media (max-width: 34rem) { dl { grid-template-columns: 1fr; gap: 0; }
  dd { margin-bottom: .6rem; } }
.verdict { display: inline-block; padding: .2rem .7rem; border-radius: 6px; color: var(--ground); }
.kept { background: var(--accent); } .broken { background: var(--warning); }
.open { background: var(--faint); }
.view-title { font-weight: 600; margin: 1.75rem 0 .25rem; }
.note { color: var(--faint); }
[class*="-swatches"] { font-size: 13px !important; }
figure { margin: 0; } svg { max-width: 100%; height: auto; }
"""
CLASSES = {"kept": "kept", "VIOLATED": "broken"}


def as_html(audit: Audit | Estimate, *, title: str = "Audit") -> str:
    """Return one HTML page: the audit in words, and its pictures drawn by the included views.

    The page fetches nothing, and its content policy forbids it. Without JavaScript the words
    remain; where the views were never built, a sentence says so in their place.
    """
    lines = [line.partition(": ") for line in audit.describe().splitlines()]
    rows = "".join(f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, _, text in lines)
    badge = CLASSES.get(audit.verdict, "open")
    words = (
        f"<h1>{escape(title)}</h1>"
        f'<p><span class="verdict {badge}">{escape(audit.verdict)}</span></p><dl>{rows}</dl>'
    )
    return page_of(title, words, "auditDensities", audit_densities(audit))


def page_of(title: str, words: str, view: str, props: Props) -> str:
    """Return a self-contained document: `words` (HTML), then one view of `props`."""
    try:
        script = views_source()
    except InputError as error:
        script, note = "", f'<p class="note">No pictures: {escape(str(error))}.</p>'
    else:
        # the letter < is written as an escape, so that no name can end the script it stands in
        data = json.dumps(props, allow_nan=False).replace("<", "\\u003c")
        note = (
            f'<div data-view="{view}"><script type="application/json">{data}</script></div>'
            '<noscript><p class="note">The pictures need JavaScript; the words above say the same.'
            "</p></noscript>"
        )
    return (
        '<!doctype html><html lang="en" data-report><head><meta charset="utf-8">'
        f"{_policy(script)}<title>{escape(title)}</title>"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{words}{note}</main>"
        + (f'<script type="module">{script}</script>' if script else "")
        + "</body></html>\n"
    )


def _policy(script: str) -> str:
    """Return the page's content policy: it runs its own script only, and fetches nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; " if script else ""
    return (
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"{allowed}style-src 'unsafe-inline'\">"
    )
