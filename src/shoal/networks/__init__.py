"""Joint tables, Bayesian networks and contagion: laws of named variables."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

if TYPE_CHECKING:
    from shoal.mechanisms.variables import VariableSum as VariableSum
    from shoal.networks.contagion import exponential_law as exponential_law

__getattr__, __dir__, __all__ = lazy_exports(__name__)
