"""An audit as one HTML page that needs nothing else: its words, and the views drawn inside it."""

from __future__ import annotations

import base64
import hashlib
import json
from html import escape

from shoal.audit.result import Audit
from shoal.audit.statistical import Estimate
from shoal.core.errors import InputError
from shoal.studio.bundle import views_source
from shoal.studio.props import Props, audit_densities

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
    """One HTML page: the audit in words, and its pictures drawn by the views that it carries.

    Nothing is fetched, and the page's own policy forbids it. Without JavaScript the words remain;
    where the views were never built, a sentence says so in their place.
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
    """A document that stands alone: `words` (HTML), then one view of `props`."""
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
    """The page's own rule: it runs the one script it carries, and fetches nothing."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"script-src 'sha256-{digest}'; " if script else ""
    return (
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        f"{allowed}style-src 'unsafe-inline'\">"
    )
