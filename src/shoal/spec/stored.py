"""Sections of a [[model]] that was stored before: in a file, or inside the spec."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticKnownError

from shoal.core.codec import kind_of
from shoal.core.errors import SpecError
from shoal.core.family import families
from shoal.core.task import Model
from shoal.spec.fields import ModelSection, Text, load_model, parse_stored


def _stored_kinds() -> dict[str, tuple[str, ...]]:
    """Return, for each kind of model, the kinds of stored values that its file may hold."""
    return {kind: own for family in families() for kind, own in family.stored_models.items()}


def _stored_kind(value: object) -> str:
    kinds = _stored_kinds()
    if value not in kinds:
        raise PydanticKnownError("literal_error", {"expected": ", ".join(map(repr, kinds))})
    return str(value)


StoredKind = Annotated[
    str,
    PlainValidator(_stored_kind),
    WithJsonSchema({"type": "string", "enum": [*_stored_kinds()]}),
]


class ModelFile(ModelSection):
    """A stored model, such as `shoal fit` writes, or a Bayesian network in a .bif file."""

    file: Text = Field(description="path of the model, relative to the spec")
    kind: StoredKind | None = Field(
        None, description="what the file must hold; omit to take any kind"
    )

    def model(self, folder: Path) -> Model:
        stored: Model = load_model(folder / self.file, "file")
        check_model(stored, f"file is {self.file!r}", self.kind)
        return stored


class ModelStored(ModelSection):
    """A stored model inside the spec, as text: what `shoal fit --inline` writes."""

    stored: Text = Field(description="the content of a model's file, as one text")
    kind: StoredKind | None = Field(
        None, description="what the text must hold; omit to take any kind"
    )

    def model(self, folder: Path) -> Model:
        found: Model = parse_stored(self.stored, Path("stored"), "model")
        check_model(found, "stored is a text", self.kind)
        return found


def check_model(stored: object, named: str, kind: str | None = None) -> None:
    """Refuse a value that is no model of the wanted kind; `named` is its origin for the error."""
    kinds = _stored_kinds() if kind is None else {kind: _stored_kinds()[kind]}
    if not any(kind_of(type(stored)) in own for own in kinds.values()):
        wanted = " or ".join(map(repr, kinds))
        raise SpecError(
            f"{named}, which holds a {type(stored).__name__}; it must hold a model of kind "
            f"{wanted} (write one with `shoal fit`)"
        )


# the sections of a [[model]] that is stored, by the key that such a section has
STORED_SECTIONS: dict[str, type[ModelSection]] = {"file": ModelFile, "stored": ModelStored}
