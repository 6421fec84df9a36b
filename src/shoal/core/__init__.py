"""The vocabulary every other module speaks. Read `task`, then `plan`.

Here are the public names of a package: imported when first used, and old names that warn and still
work. `import shoal` must be quick, and a plan of a chain must load no maps: so a package says where
its names are defined, and each is imported when somebody asks for it.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

Content = TypeVar("Content")
Names = Mapping[str, tuple[str, ...]]  # module, from `shoal` on, to the names it defines


def homes(names: Names) -> dict[str, str]:
    """Name to module, in the order of names."""
    return dict(sorted((name, module) for module, group in names.items() for name in group))


def face(
    package: str,
    names: Names,
    *,
    moved: Mapping[str, str] | None = None,
    packages: tuple[str, ...] = (),
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """`__getattr__` and `__dir__` of `package`.

    `moved` says of old names what they are called now, from `shoal` on: asked for, they are what
    the new name is, after a DeprecationWarning that tells it. They are not listed. `packages` are
    imported as they are.
    """
    home = homes(names)
    old = moved or {}

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(f"shoal.{home[name]}"), name)
        if name in packages:
            return import_module(f"shoal.{name}")
        if name in old:
            return _warned(f"{package}.{name}", old[name])
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: sorted([*home, *packages])


def _warned(old: str, new: str) -> Any:
    message = f"{old} is now shoal.{new}; the old name goes in version 0.3"
    # the line that asked `find` for the name
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    package, _, name = new.rpartition(".")
    return getattr(import_module(f"shoal.{package}" if package else "shoal"), name)


def renamed(old: str, new: str, value: Content) -> Content:
    """`value` of an attribute asked for by its old name, after a DeprecationWarning."""
    message = f"{old} is now {new}; the old name goes in version 0.3"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return value
