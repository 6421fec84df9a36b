"""A ledger in forms other accountants read: one JSON object, or a Parquet table of charges.

Released values stay in the ledger; what leaves here is what was spent. Every charge of additive
Laplace noise carries its noise multiplier, scale / l1-sensitivity = 1/eta, which is all that
accountants of ordinary differential privacy ask for (for instance LaplaceDpEvent of Google's
dp_accounting); neighbours are sequences that differ in one entry.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

from shoal.core.errors import CannotCompose, InputError
from shoal.core.plan import Plan
from shoal.ledger.accounts import Limit
from shoal.ledger.entries import Entry, as_written
from shoal.ledger.store import SqlLedger
from shoal.ledger.totals import Total
from shoal.noise.laplace import is_laplace

FORMAT = "shoal-ledger/2"
NEIGHBOURS = "one entry replaced"
OWN = ("subject", "place", "at", "period", "part", "requester", "key", "members")
GROUP = 10_000  # charges written at once


def as_json(ledger: SqlLedger) -> Iterator[str]:
    """The whole ledger as a JSON object, piece by piece: head, limits, totals and charges."""
    head = ledger.head()
    start = {
        "format": FORMAT,
        "head": {"seq": head.seq, "hash": head.hash},
        "limits": [limit_object(limit) for limit in ledger.limits()],
    }
    yield json.dumps(start, ensure_ascii=False)[:-1]
    yield from _listed("totals", account_objects(ledger))
    yield from _listed("charges", charge_objects(ledger))
    yield "}\n"


def _listed(name: str, objects: Iterator[dict[str, Any]]) -> Iterator[str]:
    yield f', "{name}": ['
    for place, one in enumerate(objects):
        yield (",\n" if place else "\n") + json.dumps(one, ensure_ascii=False)
    yield "]"


def write_parquet(ledger: SqlLedger, path: Path) -> None:
    """The charges as a Parquet file, group by group; the house's head is in its metadata."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError(
            "a Parquet file of charges needs pyarrow, which is not installed; install it with "
            "`pip install 'shoal[arrow]'`, or write .json"
        ) from None
    text = ("subject", "at", "period", "part", "requester", "key", "members", "plan", "mechanism")
    exact = ("notion", "amount_exact", "eta_exact", "neighbours", "event", "hash")
    numbers = ("amount", "eta", "noise_multiplier")
    schema = pyarrow.schema(
        [("place", pyarrow.int64())]
        + [(name, pyarrow.string()) for name in (*text, *exact)]
        + [(name, pyarrow.float64()) for name in numbers],
        metadata={"format": FORMAT, "head": ledger.head().hash},
    )
    charges = charge_objects(ledger)
    with pyarrow.parquet.ParquetWriter(path, schema) as writer:
        while group := list(islice(charges, GROUP)):
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))


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


def account_objects(
    ledger: SqlLedger,
    subject: str | None = None,
    period: str | None = None,
    requester: str | None = None,
    **page: Any,
) -> Iterator[dict[str, Any]]:
    """What each subject's charges in each period come to, or why they do not add."""
    for name, one, total in ledger.totals(subject, period, requester, **page):
        names = {"subject": name, "period": one}
        if isinstance(total, CannotCompose):
            yield {**names, "charges": 1, "problem": str(total)}
        else:
            yield names | total_object(total)


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


def charge_objects(ledger: SqlLedger) -> Iterator[dict[str, Any]]:
    """Every charge as plain data, subject by subject."""
    known: dict[tuple[str, str | None], dict[str, Any]] = {}
    for entry in ledger.each_charge():
        kind = (entry.plan, entry.eta)
        if kind not in known:
            if len(known) >= GROUP:
                known.clear()
            known[kind] = _costs(entry, ledger.plan(entry.plan))
        own = {name: getattr(entry, name) for name in OWN}
        yield {**own, **known[kind], "hash": entry.hash}


def _costs(entry: Entry, plan: Plan) -> dict[str, Any]:
    """What charges of the same plan and eta have in common."""
    with as_written("the eta of a charge"):
        eta = None if entry.eta is None else float(Fraction(entry.eta))
    return {
        "plan": entry.plan,
        "mechanism": plan.mechanism,
        "notion": plan.guarantee.notion,
        "amount": float(plan.guarantee.amount),
        "amount_exact": str(plan.guarantee.amount),
        "eta": eta,
        "eta_exact": entry.eta,
        **dict(zip(("neighbours", "event", "noise_multiplier"), _event(plan), strict=True)),
    }


def _event(plan: Plan) -> tuple[str | None, str | None, float | None]:
    """Neighbours, how other accountants call the release, and its multiplier; None: they cannot."""
    body = plan.additive
    if body is None or not is_laplace(body.noise):
        return None, None, None
    return NEIGHBOURS, "LaplaceDpEvent", float(1 / body.eta)
