"""Plans of specs kept in a folder of the user, so that one task is calibrated once.

Nothing in the folder is trusted. A plan that is loaded must be for the very task, budget and
mechanism that are asked for, and its promise is evaluated again. So a file that somebody changed
can lead to more noise, never to less privacy. Plans hold public models and no data.
"""

from __future__ import annotations

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.spec.request import Request

VARIABLE = "SHOAL_PLAN_CACHE"  # the variable that names the folder; empty: no plan is kept
MAX_PLANS_KEPT = 64  # the oldest ones are deleted beyond it
MAX_BYTES = 8_000_000  # most bytes of one plan; larger ones take about as long to read as to make


def plan_of_spec(request: Request) -> Plan:
    """Return the plan a spec asks for, from the folder where it holds one that is sound."""
    kept = load_plan(request)
    if kept is not None:
        return kept
    plan = request.plan()
    keep_plan(request, plan)
    return plan


def load_plan(request: Request) -> Plan | None:
    """Return the plan kept for `request`; None where there is none or any check fails."""
    from shoal.core.errors import ShoalError
    from shoal.core.plan import Plan
    from shoal.core.registry import loads
    from shoal.mechanisms.choice import fits
    from shoal.mechanisms.table import confirm_plan

    path = _path(request)
    if path is None:
        return None
    try:
        plan = loads(path.read_text(encoding="utf-8"))
        if not isinstance(plan, Plan):
            return None
        asked = plan.task == request.task and plan.guarantee.amount == request.epsilon()
        named = plan.mechanism == request.mechanism
        if not asked or not (named or (request.mechanism == "best" and fits(plan, request.task))):
            return None
        return confirm_plan(plan)
    except (OSError, ShoalError, ValueError, TypeError, LookupError, AttributeError):
        return None  # a file that is absent, damaged or changed: the plan is made again


def keep_plan(request: Request, plan: Plan) -> None:
    """Store the plan of `request` in the folder, readable by its user alone, where that works."""
    from shoal.core.registry import dumps
    from shoal.data.write import atomic_write

    path = _path(request)
    if path is None:
        return
    text = dumps(plan, indent=None)
    if len(text) > MAX_BYTES:
        return
    with suppress(OSError):  # a home that cannot be written costs time, nothing else
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        atomic_write(path, text, durable=False, private=True)
        kept = sorted(path.parent.glob("*.json"), key=lambda file: file.stat().st_mtime)
        for old in kept[:-MAX_PLANS_KEPT]:
            old.unlink(missing_ok=True)


def _path(request: Request) -> Path | None:
    """Return the file for `request`; None where plans are not kept.

    A budget that follows from an error is not stored: that it is the least one is not re-checked.
    Nor is a plan under a time limit, which may have more noise than the next one.
    """
    from shoal import __version__

    folder, amounts = _folder(), request.privacy
    if folder is None or amounts.error is not None or amounts.time_limit is not None:
        return None
    asked = [__version__, request.task.fingerprint, str(request.epsilon()), request.mechanism]
    return folder / f"{hashlib.sha256(json.dumps(asked).encode()).hexdigest()}.json"


def _folder() -> Path | None:
    """Return the folder of SHOAL_PLAN_CACHE, else shoal/plans in the user's cache folder."""
    given = os.environ.get(VARIABLE)
    if given is not None:
        return Path(given) if given else None
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    with suppress(RuntimeError):  # no home is known
        return Path(base).expanduser() / "shoal" / "plans"
    return None
