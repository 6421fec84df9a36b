"""The Audit room: what a spec's plan really leaks, with the output that leaks most."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.audit.exact import audit
from shoal.audit.result import Audit
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.registry import loads
from shoal.studio import props
from shoal.studio.bench import request_of, sure, text
from shoal.studio.props import as_html
from shoal.studio.work import Say

NO_PLAN = "the file holds no plan; give plan.json or a spec"
MOST_BYTES = 16 * 2**20  # bytes of a spec or a plan
FILE = re.compile(r'(?:^|[{,])\s*(?:file|edges_file|ties_file|from)\s*=\s*"([^"]+)"', re.MULTILINE)


def read(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Read the spec or plan that was named when the studio started, and the files it names."""
    file = Path(text(params, "file"))
    words = _words(file)
    if file.suffix.lower() == ".json":
        return {"spec": "", "files": {}, "plan": words}
    beside = {name: file.parent / name for name in FILE.findall(words) if Path(name).name == name}
    return {
        "spec": words,
        "files": {name: _words(path) for name, path in beside.items() if path.is_file()},
        "plan": "",
    }


def _words(file: Path) -> str:
    """Return the text of a spec or plan; refused when it is too large or not UTF-8."""
    if file.stat().st_size > MOST_BYTES:
        raise InputError(f"the file is larger than {MOST_BYTES // 2**20} MB; use `shoal audit`")
    try:
        return file.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{file.name!r} is not text in UTF-8; give a spec or a plan") from None


def run(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Audit a plan, or the plan of the page's spec, and return the result with its report."""
    if params.get("plan"):
        found = sure(loads(text(params, "plan")), Plan, NO_PLAN)
    else:
        request = request_of(params)
        say("making the plan", 0.1)
        with request.limit_time():
            found = request.plan()
    say("looking for the output that tells most", 0.4)
    measured = audit(found, curve=True)
    say("writing the report", 0.9)
    return {
        "spec": params.get("spec") or "",
        "files": dict(params.get("files") or {}),
        "densities": props.audit_densities(measured),
        "verdict": measured.verdict,
        "sentence": verdict_words(measured),
        "broken": measured.lower > (measured.promised or math.inf) * (1 + 1e-9),
        "words": measured.describe(),
        "report": as_html(measured, title=f"Audit of {found.mechanism}"),
    }


def verdict_words(measured: Audit) -> str:
    """Return the verdict as one sentence."""
    lines = dict(line.partition(": ")[::2] for line in measured.describe().splitlines())
    words = lines.get("Verdict", measured.verdict)
    return words[:1].upper() + words[1:]
