"""A ledger in forms other accountants read: one JSON object, or a Parquet table of charges.

Released values stay in the ledger; what leaves here is what was spent. Every charge of additive
Laplace noise carries its noise multiplier, scale / l1-sensitivity = 1/eta, which is all that
accountants of ordinary differential privacy ask for (for instance LaplaceDpEvent of Google's
dp_accounting); neighbours are sequences that differ in one entry.
"""

from __future__ import annotations

import io
import json
from fractions import Fraction
from typing import Any

from shoal.core.errors import CannotCompose
from shoal.core.plan import Additive, Plan
from shoal.ledger.limits import Limit
from shoal.ledger.reading import Entry
from shoal.ledger.store import SqlLedger
from shoal.ledger.totals import Total

FORMAT = "shoal-ledger/1"
NEIGHBOURS = "one entry replaced"


def as_object(ledger: SqlLedger) -> dict[str, Any]:
    """The whole ledger as plain JSON data: head, limits, totals and charges."""
    head = ledger.head()
    return {
        "format": FORMAT,
        "head": {"seq": head.seq, "hash": head.hash},
        "limits": [limit_object(limit) for limit in ledger.limits()],
        "totals": [account_object(ledger, *names) for names in ledger.accounts()],
        "charges": charge_objects(ledger),
    }


def as_json(ledger: SqlLedger) -> bytes:
    """`as_object` as a JSON document."""
    return json.dumps(as_object(ledger), indent=2, ensure_ascii=False).encode() + b"\n"


def as_parquet(ledger: SqlLedger) -> bytes:
    """The charges as a Parquet file; the head of the chain is in its metadata."""
    import pyarrow
    import pyarrow.parquet

    text = ("at", "subject", "period", "requester", "key", "plan", "mechanism", "notion")
    exact = ("amount_exact", "eta_exact", "neighbours", "event", "previous", "hash")
    numbers = ("amount", "eta", "noise_multiplier")
    head = ledger.head()
    schema = pyarrow.schema(
        [("seq", pyarrow.int64())]
        + [(name, pyarrow.string()) for name in (*text, *exact)]
        + [(name, pyarrow.float64()) for name in numbers],
        metadata={"format": FORMAT, "head": head.hash},
    )
    table = pyarrow.Table.from_pylist(charge_objects(ledger), schema=schema)
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    return buffer.getvalue()


def limit_object(limit: Limit) -> dict[str, Any]:
    """A limit as plain data."""
    return {
        "unit": limit.unit,
        "amount": float(limit.amount),
        "amount_exact": str(limit.amount),
        "subject": limit.subject,
        "period": limit.period,
        "requester": limit.requester,
    }


def account_object(ledger: SqlLedger, subject: str, period: str) -> dict[str, Any]:
    """What one subject's charges in one period come to, or why they do not add."""
    names = {"subject": subject, "period": period}
    try:
        total = ledger.spent(subject, period)
    except CannotCompose as reason:
        return {**names, "problem": str(reason)}
    return names | ({} if total is None else total_object(total))


def total_object(total: Total) -> dict[str, Any]:
    """A total as plain data."""
    return {
        "notion": total.notion,
        "amount": float(total.amount),
        "amount_exact": str(total.amount),
        "eta": None if total.eta is None else float(total.eta),
        "eta_exact": None if total.eta is None else str(total.eta),
        "rule": total.rule,
        "charges": total.charges,
        "explanation": total.explanation,
    }


def charge_objects(ledger: SqlLedger) -> list[dict[str, Any]]:
    """Every charge as plain data, oldest first."""
    return [_charge(entry, ledger.plan(entry.plan)) for entry in ledger.charges()]


def _charge(entry: Entry, plan: Plan) -> dict[str, Any]:
    event = _event(plan)
    return {
        "seq": entry.seq,
        "at": entry.at,
        "subject": entry.subject,
        "period": entry.period,
        "requester": entry.requester,
        "key": entry.key,
        "plan": entry.plan,
        "mechanism": plan.mechanism,
        "notion": entry.notion,
        "amount": float(Fraction(entry.amount)),
        "amount_exact": entry.amount,
        "eta": None if entry.eta is None else float(Fraction(entry.eta)),
        "eta_exact": entry.eta,
        "neighbours": None if event is None else NEIGHBOURS,
        "event": None if event is None else event[0],
        "noise_multiplier": None if event is None else event[1],
        "previous": entry.previous,
        "hash": entry.hash,
    }


def _event(plan: Plan) -> tuple[str, float] | None:
    """How other accountants call the release, and its noise multiplier; None when they cannot."""
    from shoal.noise.laplace import LatticeLaplace

    if isinstance(plan.body, Additive) and isinstance(plan.body.noise, LatticeLaplace):
        return "LaplaceDpEvent", float(1 / plan.body.eta)
    return None
