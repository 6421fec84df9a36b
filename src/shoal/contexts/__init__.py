"""Streams of contexts: days, sensitive contexts, checks that show or suppress."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core import face, homes

if TYPE_CHECKING:
    from shoal.contexts.given import (
        DayGiven as DayGiven,
    )
    from shoal.contexts.secrets import (
        CurrentState as CurrentState,
    )


NAMES = {
    "contexts.secrets": ("CurrentState",),
    "contexts.given": ("DayGiven",),
}

__all__ = [*homes(NAMES)]  # noqa: PLE0604 - made of the table
__getattr__, __dir__ = face(__name__, NAMES)
