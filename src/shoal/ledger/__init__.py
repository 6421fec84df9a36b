"""What was spent, and what may still be: the rules that add charges up, and the store they rest in.

Read `rules` for the theorems, `settle` for the act of charging, `store` for daily use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

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

__getattr__, __dir__, __all__ = lazy_exports(__name__)
