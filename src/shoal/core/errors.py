"""Everything Shoal raises on purpose.

    ShoalError
    ├── InputError (also a ValueError)   a value, spec, file or data set that breaks a rule
    │   ├── SpecError                    a key of a spec
    │   ├── DataError                    the data handed to a release or a fit
    │   └── StoredError                  a stored plan, model or release that cannot be trusted
    ├── Refused                          no mechanism, or not this one, for this task
    ├── PromiseBroken                    a finished plan failed its own re-check
    └── BudgetError
        ├── OverBudget                   the limit does not allow the charge
        ├── CannotCompose                no theorem adds these charges
        │   └── OtherHistory             a step of a stream whose stored outputs are others
        └── LedgerError                  the ledger's store cannot be used

Each message is one sentence: the field, the value, the rule, the way out.
"""

from __future__ import annotations


class ShoalError(Exception):
    """The root of the tree."""


class InputError(ShoalError, ValueError):
    """A value that breaks a rule."""


class SpecError(InputError):
    """A spec with a key or value that breaks a rule."""


class DataError(InputError):
    """Data a plan or a fit cannot take."""


class StoredError(InputError):
    """A stored value that is damaged, edited, or of another version."""


class Refused(ShoalError):
    """No mechanism applies, or the one named does not; the message says why."""


class PromiseBroken(ShoalError):
    """A plan whose loss, evaluated again, exceeds its promise."""


class BudgetError(ShoalError):
    """A charge the ledger did not take; the store is unchanged."""


class OverBudget(BudgetError):
    """A charge above its limit: `spent`, `requested` and `limit` are separate fields."""

    def __init__(self, message: str, *, spent: str, requested: str, limit: str) -> None:
        super().__init__(message)
        self.spent = spent
        self.requested = requested
        self.limit = limit


class CannotCompose(BudgetError):
    """Charges no theorem adds up: `reason`, and the `ways_out`."""

    def __init__(self, reason: str, ways_out: tuple[str, ...]) -> None:
        super().__init__(f"{reason}; ways out: {'; '.join(ways_out)}")
        self.reason = reason
        self.ways_out = ways_out


class OtherHistory(CannotCompose):
    """A step of a stream that does not follow the outputs the ledger holds of that stream."""


class LedgerError(BudgetError):
    """A ledger store that is locked, corrupt, read-only, full, or newer than this program."""
