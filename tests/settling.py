"""Ledgers of tests that answer one charge at a time, as ledgers for batches of steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from shoal.core.charge import Charge
from shoal.core.errors import ShoalError
from shoal.core.plan import Release
from shoal.core.stream import ALLOWED, Denied, Stored, Transaction, Verdict
from shoal.ledger.entries import unpacked

T = TypeVar("T")


def placeholder(charge: Charge) -> Release:
    """Return a release of the charge's plan that was not drawn."""
    return unpacked(json.dumps([0] * len(charge.plan.task.query.labels)), charge.plan)


class Settling:
    """A ledger with `settle` alone: an output it makes up itself takes the place of a draw."""

    def settle(self, charge: Any, sample: Any) -> Any:
        raise NotImplementedError

    def transact(self, work: Callable[[Transaction], T]) -> T:
        return work(_OneByOne(self.settle))


class _OneByOne:
    def __init__(self, settle: Callable[[Any, Any], Any]) -> None:
        self._settle = settle

    def charge(self, charges: Sequence[Charge]) -> list[Verdict]:
        return [self._verdict(charge) for charge in charges]

    def _verdict(self, charge: Charge) -> Verdict:
        free = placeholder(charge)
        try:
            settled = self._settle(charge, lambda: free)
        except ShoalError as error:
            return Denied(error)
        return ALLOWED if settled is free else Stored(settled)

    def store(self, outputs: Mapping[int, Release]) -> None:
        """Nothing: what was settled is stored."""
