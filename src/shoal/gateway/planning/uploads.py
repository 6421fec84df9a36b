"""What `shoal serve put-plan` sends of a file: a spec with its models, or a stored plan."""

from __future__ import annotations

import json
import tomllib
from decimal import Decimal
from pathlib import Path
from typing import Any

from shoal.core.errors import InputError
from shoal.spec.fields import read_text
from shoal.spec.inline import inline_spec, plain_document


def upload_of(file: Path, model: Path | None = None) -> dict[str, Any]:
    """Return the body for POST /v1/plans; refuse a file that is no spec and no plan.

    `model` is a stored model in place of the one that a spec names.
    """
    text = read_text(file, "spec or plan")
    if not text.lstrip().startswith("{"):
        return {"spec": inline_spec(file)} if model is None else _with_model(file, text, model)
    if model is not None:
        raise InputError(f"{file} has its model inside; leave --model out")
    try:
        document = json.loads(text)
    except ValueError as error:
        raise InputError(f"{file} is neither TOML nor JSON: {error}") from None
    if "spec" in document:
        return {"spec": document["spec"]}
    kind = document["value"].get("kind") if isinstance(document.get("value"), dict) else None
    if kind != "plan":
        raise InputError(
            f"{file} holds {'a stored ' + repr(kind) if kind else 'no stored document'}; name a "
            "spec, what `shoal plan --export` wrote, or a plan of `shoal plan --save`; a model "
            "goes with a spec, as --model FILE"
        )
    return {"plan": text}


def _with_model(file: Path, text: str, model: Path) -> dict[str, Any]:
    """Return a spec's text without [data] and [[model]], and the model beside it."""
    document = tomllib.loads(text, parse_float=Decimal)
    rest = {name: value for name, value in document.items() if name not in ("data", "model")}
    return {"spec": plain_document(rest), "model": read_text(model, "model")}
