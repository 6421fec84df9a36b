"""The former name of `shoal.mechanisms`: its public names work and warn until version 0.3."""

from __future__ import annotations

from typing import Any

from shoal.core import homes, value_by_old_name


def __getattr__(name: str) -> Any:
    import shoal.mechanisms

    if name not in homes("shoal.mechanisms"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(shoal.mechanisms, name)
    return value_by_old_name(f"{__name__}.{name}", f"shoal.mechanisms.{name}", value)
