"""A spec with its models inside: one document that needs no other file."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from shoal.core.errors import SpecError
from shoal.spec.fields import load_model, read_text

STORED = "stored"  # the key of a [[model]] that holds a stored model as text


def inline_spec(path: Path) -> dict[str, Any]:
    """Return the spec in `path` with every stored model inside and without [data], for JSON.

    Decimal numbers become {"decimal": TEXT}, which stands for the same number. Refused when [data]
    cuts series into parts, because the promise depends on it.
    """
    from shoal.spec.request import parse_request

    text = read_text(path, "spec")
    request = parse_request(text, folder=path.parent, name=str(path))
    if request.data is not None and request.data.parts:
        raise SpecError(
            f"{path} has data.every, so its promise is about all parts of a series, and a live "
            'service releases no parts; drop it, or say periods = "independent"'
        )
    document = tomllib.loads(text, parse_float=Decimal)
    document.pop("data", None)
    document["model"] = [_inline(section, path.parent) for section in document["model"]]
    return plain_document(document)


def plain_document(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a parsed TOML document for JSON, with decimal numbers as {"decimal": TEXT}."""
    found: dict[str, Any] = _plain(document)
    return found


def _inline(section: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a [[model]] section with the stored model that it names."""
    from shoal.core.registry import dumps

    if "file" not in section:
        return dict(section)
    rest = {name: value for name, value in section.items() if name != "file"}
    return {**rest, STORED: dumps(load_model(folder / section["file"], "file"), indent=None)}


def _plain(value: Any) -> Any:
    """Return parsed TOML as JSON has it."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return {"decimal": str(value)} if isinstance(value, Decimal) else value
