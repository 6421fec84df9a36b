"""What is on a room's table: a spec and the files it names, as text, and the data if there is any.

The page holds it and hands it back with every question, so that what is taken away is what was on
the screen: all numbers come from this spec, through the same door as the command line's.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from shoal.core.errors import InputError
from shoal.spec.request import Request, parse_request

SPEC = "shoal.toml"


@contextmanager
def on_disk(params: Mapping[str, Any]) -> Iterator[Path]:
    """A private folder with the spec and its files, for as long as it is needed."""
    spec, files = params.get("spec"), params.get("files") or {}
    if not isinstance(spec, str) or not isinstance(files, dict):
        raise InputError("there is no spec on the table; open data or an example first")
    with tempfile.TemporaryDirectory(prefix="shoal-bench-") as name:
        folder = Path(name)
        for file, text in {**files, SPEC: spec}.items():
            if Path(file).name != file or not isinstance(text, str):
                raise InputError(f"{file!r} is no plain file name")
            (folder / file).write_text(text)
        yield folder


def request_of(params: Mapping[str, Any]) -> Request:
    """What the spec on the table asks for."""
    with on_disk(params) as folder:
        return parse_request(str(params["spec"]), folder=folder, name=SPEC)


def number(params: Mapping[str, Any], name: str, default: float | None = None) -> float:
    """A number among the choices."""
    found = params.get(name, default)
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise InputError(f"{name} is {found!r}; it must be a number")
    return float(found)


def text(params: Mapping[str, Any], name: str, default: str | None = None) -> str:
    """A text among the choices."""
    found = params.get(name, default)
    if not isinstance(found, str) or not found:
        raise InputError(f"{name} is {found!r}; choose one")
    return found


def texts(params: Mapping[str, Any], name: str) -> list[str]:
    """Several texts among the choices."""
    found = params.get(name) or []
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise InputError(f"{name} must be a list of names")
    return list(found)
