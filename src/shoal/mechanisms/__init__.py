"""Mechanisms that need only a model's numbers, and the choice among all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

if TYPE_CHECKING:
    from shoal.mechanisms.choice import choose as choose
    from shoal.mechanisms.lift import Leakage as Leakage
    from shoal.mechanisms.plans import accuracy as accuracy
    from shoal.mechanisms.quantiles import quantile as quantile
    from shoal.mechanisms.queries import (
        LinearQuery as LinearQuery,
        RunningStream as RunningStream,
        clipped as clipped,
        consistent as consistent,
        in_steps as in_steps,
        non_negative as non_negative,
        simplex as simplex,
    )
    from shoal.mechanisms.signed_tree import totals as totals

__getattr__, __dir__, __all__ = lazy_exports(__name__)
