"""What was spent, and what may still be: the rules that add charges up, and the store they rest in.

Read `rules` for the theorems, `store` for the transaction, `session` for daily use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.ledger.limits import Limit as Limit
    from shoal.ledger.rules import compose as compose, parallel_records as parallel_records
    from shoal.ledger.session import Session as Session
    from shoal.ledger.store import SqlLedger as SqlLedger, open_ledger as open_ledger
    from shoal.ledger.totals import Part as Part, Total as Total

_HOME = {
    "Limit": "limits",
    "Part": "totals",
    "Session": "session",
    "SqlLedger": "store",
    "Total": "totals",
    "compose": "rules",
    "open_ledger": "store",
    "parallel_records": "rules",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list, built from the table


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal.ledger' has no attribute {name!r}")
    return getattr(import_module(f"shoal.ledger.{home}"), name)
