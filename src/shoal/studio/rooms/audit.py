"""The Audit room: what a spec's plan really tells, with the output that tells most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from shoal.additive.choice import choose
from shoal.audit.exact import audit
from shoal.audit.result import Audit
from shoal.studio import props
from shoal.studio.bench import request_of
from shoal.studio.report import as_html
from shoal.studio.work import Say


def run(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The audit of the plan that the spec on the table asks for, and its report."""
    request = request_of(params)
    say("making the plan", 0.1)
    with request.limited():
        found = choose(request.task, request.epsilon(), request.mechanism, prune=True).plan
    say("looking for the output that tells most", 0.4)
    measured = audit(found, curve=True)
    say("writing the report", 0.9)
    return {
        "spec": params["spec"],
        "files": {},
        "densities": props.audit_densities(measured),
        "verdict": measured.verdict,
        "sentence": verdict_words(measured),
        "broken": measured.lower > (measured.promised or math.inf) * (1 + 1e-9),
        "words": measured.describe(),
        "report": as_html(measured, title=f"Audit of {found.mechanism}"),
    }


def verdict_words(measured: Audit) -> str:
    """The verdict as a sentence of its own."""
    lines = dict(line.partition(": ")[::2] for line in measured.describe().splitlines())
    words = lines.get("Verdict", measured.verdict)
    return words[:1].upper() + words[1:]
