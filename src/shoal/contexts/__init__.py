"""Streams of contexts: days, sensitive contexts, and checks that release or suppress them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import lazy_exports

if TYPE_CHECKING:
    from shoal.contexts.online import DayGiven as DayGiven
    from shoal.contexts.secrets import CurrentState as CurrentState

__getattr__, __dir__, __all__ = lazy_exports(__name__)
