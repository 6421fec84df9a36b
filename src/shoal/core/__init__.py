"""The vocabulary every other module speaks. Read `task`, then `plan`.

This module holds lazy public exports and deprecated aliases. `import shoal` must be quick, and a
plan of a chain must load no maps. So a package imports its public names for type checkers alone,
and each name is imported at run time on first use.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, TypeVar

Content = TypeVar("Content")
_BLOCK = re.compile(r"^if TYPE_CHECKING:\n((?:    .*\n|\n)+)", re.MULTILINE)
_IMPORT = re.compile(r"^    from (shoal\S*) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)


def homes(package: str) -> dict[str, str]:
    """Return each public name of `package` with the module that defines it.

    The names are those `package` imports for type checkers, so each is written once. The home of
    a subpackage is `package` itself.
    """
    loader: Any = sys.modules[package].__spec__.loader  # type: ignore[union-attr]
    block = _BLOCK.search(loader.get_source(package))
    found = _IMPORT.findall(block[1]) if block else []
    parts = ((part, home) for home, *both in found for part in "".join(both).split(","))
    return dict(sorted((part.split()[0], home) for part, home in parts if part.strip()))


def lazy_exports(
    package: str, *, moved: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """`__getattr__`, `__dir__` and `__all__` of `package`.

    `moved` maps each old name to the new one, as a path from `shoal` on. An old name gives the
    object of the new one after a DeprecationWarning that names it. Old names are not listed.
    """
    home = homes(package)
    old = moved or {}

    def find(name: str) -> Any:
        """Return the public `name`, importing its module; AttributeError if there is none.

        An old name gives the object of its new name, after a DeprecationWarning.
        """
        if name in home:
            if home[name] == package:
                return import_module(f"{package}.{name}")
            return getattr(import_module(home[name]), name)
        if name in old:
            return _warn_of_old_name(f"{package}.{name}", old[name])
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find, lambda: [*home], [*home]


def _warn_of_old_name(old: str, new: str) -> Any:
    message = f"{old} is now shoal.{new}; the old name goes in version 0.3"
    # the line that asked `find` for the name
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    package, _, name = new.rpartition(".")
    return getattr(import_module(f"shoal.{package}" if package else "shoal"), name)


def value_by_old_name(old: str, new: str, value: Content) -> Content:
    """`value` of an attribute asked for by its old name, after a DeprecationWarning."""
    message = f"{old} is now {new}; the old name goes in version 0.3"
    warnings.warn(message, DeprecationWarning, stacklevel=3)
    return value
