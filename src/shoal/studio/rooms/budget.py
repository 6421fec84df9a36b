"""The Budget room: a ledger, opened read-only: spent, left, and whether its chain is whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal.core.errors import CannotCompose, InputError
from shoal.ledger.store import SqlLedger, open_ledger as opened
from shoal.studio.bench import text
from shoal.studio.work import Say

MOST_ACCOUNTS = 200


def open_ledger(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Every account with what was spent, the limits, and what verifying the chain found."""
    where = text(params, "ledger")
    if "://" not in where and not Path(where).is_file():
        raise InputError(f"there is no ledger at {where!r}; name its file, such as budget.db")
    with opened(where, read_only=True) as ledger:
        say("checking the chain", 0.2)
        verdict = ledger.verify()
        say("adding up", 0.6)
        accounts = ledger.accounts()
        entries, limits = ledger.charges(), ledger.limits()
        return {
            "accounts": [_account(ledger, limits, *names) for names in accounts[:MOST_ACCOUNTS]],
            "more": max(0, len(accounts) - MOST_ACCOUNTS),
            "limits": [
                {"unit": one.unit, "amount": float(one.amount), "subject": one.subject}
                for one in limits
            ],
            "line": budget_line(entries, ledger),
            "saw": [
                {"who": entry.requester or "anybody", "whom": entry.subject, "at": entry.at}
                for entry in entries[-50:]
            ],
            "intact": verdict.intact,
            "checked": (
                f"{verdict.charges} charges in {verdict.links} links were read again, and every "
                "hash fits the one before it"
                if verdict.intact
                else verdict.problems[0]
            ),
        }


def budget_line(entries: list[Any], ledger: SqlLedger) -> dict[str, Any]:
    """Props of the line: amounts in order, the limit, and when it is reached at this pace."""
    points, total = [], Fraction(0)
    amounts: dict[str, Fraction] = {}
    for entry in entries:
        if entry.plan not in amounts:
            amounts[entry.plan] = Fraction(ledger.plan(entry.plan).guarantee.amount)
        total += amounts[entry.plan]
        points.append({"at": entry.at, "spent": float(total)})
    limits = [limit.amount for limit in ledger.limits() if limit.unit == "epsilon"]
    limit = float(min(limits)) if limits else None
    return {"points": points, "limit": limit, "until": _until(points, limit)}


def _until(points: list[dict[str, Any]], limit: float | None) -> str | None:
    if limit is None or len(points) < 2 or points[-1]["spent"] >= limit:
        return None
    first, last = (datetime.fromisoformat(points[at]["at"]) for at in (0, -1))
    spent = float(points[-1]["spent"] - points[0]["spent"])
    if last <= first or spent <= 0:
        return None
    left = float(limit - points[-1]["spent"])
    return (last + (last - first) * (left / spent)).isoformat()


def _account(ledger: SqlLedger, limits: Sequence[Any], subject: str, period: str) -> dict[str, Any]:
    """What one account spent, and what is left of the least limit that is set for it."""
    row: dict[str, Any] = {"subject": subject, "period": period, "spent": None, "left": None}
    try:
        total = ledger.spent(subject, period)
    except CannotCompose as error:
        return row | {"words": str(error)}
    if total is None:
        return row | {"words": "nothing"}
    own = [one.amount for one in limits if one.unit == "epsilon" and one.subject in ("*", subject)]
    left = max(0.0, float(min(own) - total.amount)) if own else None
    return row | {"spent": float(total.amount), "left": left, "words": total.explanation}
