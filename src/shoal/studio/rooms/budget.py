"""The Budget room: a ledger, read-only: amounts spent and left, and the state of its hash chain."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

from shoal.core.errors import CannotCompose, InputError
from shoal.ledger.budget import left_of
from shoal.ledger.store import SqlLedger, open_ledger as opened
from shoal.studio.bench import text
from shoal.studio.tables import count_noun
from shoal.studio.work import Say

MOST_ACCOUNTS = 200  # listed on the page
SEEN = 50  # of the last releases, who saw them
NO_LINE: dict[str, Any] = {"points": [], "limit": None, "until": None}
LEAST_SPAN = timedelta(hours=1)  # of charges that have a pace


def open_ledger(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """Return every account with its spending, the limits, and the result of verifying the chain."""
    where = str(params.get("file") or "") or text(params, "ledger")
    if "://" not in where and not Path(where).is_file():
        raise InputError(f"there is no ledger at {where!r}; name its file, such as budget.db")
    with opened(where, read_only=True) as ledger:
        say("checking the chain", 0.2)
        verdict = ledger.verify()
        say("adding up", 0.6)
        accounts, entries = ledger.accounts(), ledger.charges()
        rows = accounts_of(ledger)
        shown = _index_of_drawn(rows, params)
        return {
            "accounts": rows,
            "more": max(0, len(accounts) - MOST_ACCOUNTS),
            "limits": len(ledger.limits()),
            "shown": shown,
            "line": account_line(ledger, rows[shown]) if rows else NO_LINE,
            "saw": [
                {"who": entry.requester or "anybody", "whom": entry.subject, "at": minute(entry.at)}
                for entry in entries[: -SEEN - 1 : -1]
            ],
            "intact": verdict.intact,
            "checked": (
                f"{count_noun(verdict.charges, 'charge', 'charges')} in {verdict.links} links were "
                "read again, and every hash fits the one before it"
                if verdict.intact
                else verdict.problems[0]
            ),
        }


def accounts_of(ledger: SqlLedger) -> list[dict[str, Any]]:
    """Return the first accounts, each with its spending and the rest of its tightest limit."""
    return [_account(ledger, *names) for names in ledger.accounts()[:MOST_ACCOUNTS]]


def _index_of_drawn(rows: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> int:
    """Return the account whose line is drawn: the chosen one, else the one with the least left."""
    chosen = params.get("account")
    if isinstance(chosen, int) and 0 <= chosen < len(rows):
        return chosen
    left = [math.inf if row["left"] is None else float(row["left"]) for row in rows]
    return left.index(min(left)) if rows else 0


def account_line(ledger: SqlLedger, row: Mapping[str, Any]) -> dict[str, Any]:
    """Props of one account's line: amounts in order, its limit, and until when at this pace."""
    mine = [one for one in ledger.charges(row["subject"]) if one.period == row["period"]]
    # a limit over several periods is no line above the charges of one of them
    limit = row["limit"] if row["limited"] == len(mine) else None
    return {"points": points_of(mine, ledger), "limit": limit, "until": row["until"]}


def budget_line(entries: list[Any], ledger: SqlLedger) -> dict[str, Any]:
    """Props of the line of all charges together; a limit is for each account, so there is none."""
    return {"points": points_of(entries, ledger), "limit": None, "until": None}


def points_of(entries: list[Any], ledger: SqlLedger) -> list[dict[str, Any]]:
    """Return the time of each charge, and the sum of the amounts up to it."""
    points, total = [], Fraction(0)
    amounts: dict[str, Fraction] = {}
    for entry in entries:
        if entry.plan not in amounts:
            amounts[entry.plan] = Fraction(ledger.plan(entry.plan).guarantee.amount)
        total += amounts[entry.plan]
        points.append({"at": entry.at, "spent": float(total)})
    return points


def minute(at: str) -> str:
    """Return a time as text, to the minute."""
    return datetime.fromisoformat(at).strftime("%d %b %Y, %H:%M")


def _account(ledger: SqlLedger, subject: str, period: str) -> dict[str, Any]:
    """What one account spent, and what is left of the tightest limit that is set for it."""
    row: dict[str, Any] = {"subject": subject, "period": period, "until": None}
    row |= {"spent": None, "left": None, "limit": None, "limited": 0}
    try:
        total = ledger.spent(subject, period)
        found = left_of(ledger, subject, period)
    except CannotCompose as error:
        return row | {"words": str(error)}
    if total is None:
        return row | {"words": "nothing"}
    if found.unit == "epsilon" and found.limit is not None:
        row["left"] = max(0.0, float(found.limit - found.spent))
        row |= {"limit": float(found.limit), "limited": found.charges}
        times = [datetime.fromisoformat(one.at) for one in ledger.charges(subject)]
        paced = found.until is not None and max(times) - min(times) >= LEAST_SPAN
        row["until"] = found.until.isoformat() if found.until is not None and paced else None
    return row | {"spent": float(total.amount), "words": total.explanation}
