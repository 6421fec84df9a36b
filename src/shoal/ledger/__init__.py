"""What was spent, and what may still be: the rules that add charges up, and the store they rest in.

Read `rules` for the theorems, `settle` for the act of charging, `store` for daily use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from shoal.core.charge import EVERYBODY as EVERYBODY, Part as Part
    from shoal.ledger.accounts import Limit as Limit
    from shoal.ledger.rules import compose as compose, parallel_records as parallel_records
    from shoal.ledger.store import (
        Session as Session,
        SqlLedger as SqlLedger,
        open_ledger as open_ledger,
    )
    from shoal.ledger.totals import Total as Total
    from shoal.ledger.verify import Signer as Signer

_HOME = {
    "EVERYBODY": "core.charge",
    "Limit": "ledger.accounts",
    "Part": "core.charge",
    "Session": "ledger.store",
    "Signer": "ledger.verify",
    "SqlLedger": "ledger.store",
    "Total": "ledger.totals",
    "compose": "ledger.rules",
    "open_ledger": "ledger.store",
    "parallel_records": "ledger.rules",
}

__all__ = sorted(_HOME)  # noqa: PLE0605 - a list, built from the table


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'shoal.ledger' has no attribute {name!r}")
    return getattr(import_module(f"shoal.{home}"), name)
