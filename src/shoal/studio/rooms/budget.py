"""The Budget room: a ledger, opened read-only: spent, left, and whether its chain is whole."""

from __future__ import annotations

from collections.abc import Mapping
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
        entries = ledger.charges()
        return {
            "accounts": [_account(ledger, *names) for names in accounts[:MOST_ACCOUNTS]],
            "more": max(0, len(accounts) - MOST_ACCOUNTS),
            "limits": [
                {"unit": one.unit, "amount": float(one.amount), "subject": one.subject}
                for one in ledger.limits()
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


def _account(ledger: SqlLedger, subject: str, period: str) -> dict[str, Any]:
    try:
        total = ledger.spent(subject, period)
    except CannotCompose as error:
        return {"subject": subject, "period": period, "spent": None, "words": str(error)}
    words = "nothing" if total is None else total.explanation
    amount = None if total is None else float(total.amount)
    return {"subject": subject, "period": period, "spent": amount, "words": words}
