"""Joint tables, Bayesian networks and contagion: laws of named variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes

if TYPE_CHECKING:
    from shoal.networks.contagion import (
        exponential_law as exponential_law,
    )
    from shoal.networks.queries import (
        VariableSum as VariableSum,
    )


NAMES = {
    "networks.contagion": ("exponential_law",),
    "networks.queries": ("VariableSum",),
}

__all__ = [*homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
