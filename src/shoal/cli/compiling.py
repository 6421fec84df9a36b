"""A line for whoever waits: the first run on a computer compiles loops, later ones load them."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import typer

EVENTS = "numba.core.event"
COMPILED = "numba:compile"  # begins when a loop was not found on the disk
NOTE = "Compiling fast loops, once on this computer; this may take half a minute."


def tell_when_compiling() -> None:
    """Prints one line to a terminal when a loop is compiled; costs nothing until numba is loaded.

    To standard error, so that what is piped stays as it is.
    """
    if sys.stderr.isatty() and EVENTS not in sys.modules:
        sys.meta_path.insert(0, _Loading())


class _Loading(MetaPathFinder):
    """Waits for numba's module of events, and listens to it as soon as it is there."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != EVENTS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def load_and_listen(module: Any) -> None:
                load(module)
                module.register(COMPILED, _listener(module))

            loader.exec_module = load_and_listen
        return spec


def _listener(events: Any) -> Any:
    """Tells the first time that something begins to compile."""

    class Telling(events.Listener):  # type: ignore[misc]
        told = False

        def on_start(self, event: object) -> None:
            if not self.told:
                self.told = True
                typer.echo(NOTE, err=True)

        def on_end(self, event: object) -> None:
            """Nothing to tell."""

    return Telling()
