"""The families, and the tables made of their records: kinds, rows, audits, sections of a spec.

A family says of itself, in one record (`family.toml` in its folder), what it adds to each table:
names, and where they are defined, as "package.module:name". Nothing is imported before it is asked
for, so that a plan of a chain loads no maps. A sixth family is one folder and one line in
`FAMILIES`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Generic, TypeVar

from shoal.core import codec
from shoal.core.codec import Fingerprinted

# ties between rows go to the earlier family, and to the earlier row in it
FAMILIES = ("additive", "events", "chains", "networks", "records", "places", "contexts")

COMMON = "additive"  # whose rows take tasks of any family

Loaded = TypeVar("Loaded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What one family adds to the common tables; every value is "package.module:name"."""

    name: str
    about: str  # what its data is, as a noun phrase
    kinds: Mapping[str, str] = field(default_factory=dict)  # stored name to class
    rows: Mapping[str, str] = field(default_factory=dict)  # mechanism to its row
    serves: tuple[str, ...] = ()  # other families whose tasks these rows may take
    bodies: Mapping[str, str] = field(default_factory=dict)  # kind of a plan's body to its audit
    models: Mapping[str, str] = field(default_factory=dict)  # kind of a model to its audit of noise
    adversaries: Mapping[str, str] = field(default_factory=dict)  # kind of a model to who holds it
    model_sections: Mapping[str, str] = field(default_factory=dict)  # spec: kind to section
    secrets_sections: Mapping[str, str] = field(default_factory=dict)
    query_sections: Mapping[str, str] = field(default_factory=dict)
    stored_models: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # spec to stored
    files: Mapping[str, str] = field(default_factory=dict)  # suffix of foreign models to a reader
    templates: Mapping[str, str] = field(default_factory=dict)  # `shoal init --kind` to its words
    hooks: Mapping[str, str] = field(default_factory=dict)  # common act to what it does here


class Table(MutableMapping[str, Loaded], Generic[Loaded]):
    """Names to what they stand for, made of what `part` takes from each family's record.

    The records are read at the first look, and each entry is loaded when it is first looked up.
    """

    def __init__(self, part: Callable[[Family], Mapping[str, str]]) -> None:
        self._part = part

    @cached_property
    def _found(self) -> dict[str, str | Loaded]:
        return {name: place for record in families() for name, place in self._part(record).items()}

    def __getitem__(self, name: str) -> Loaded:
        found = self._found[name]
        if isinstance(found, str):
            found = self._found[name] = load(found)
        return found

    def __setitem__(self, name: str, value: Loaded) -> None:
        self._found[name] = value

    def __delitem__(self, name: str) -> None:
        del self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def load(place: str) -> Any:
    """What "package.module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


@cache
def families() -> tuple[Family, ...]:
    """The record of every family, in the order of `FAMILIES`; none of them is imported."""
    return tuple(_record(name) for name in FAMILIES)


def _record(name: str) -> Family:
    found = find_spec(f"shoal.{name}")
    if found is None or found.origin is None:
        raise ModuleNotFoundError(f"family {name!r} has no folder in shoal; see FAMILIES")
    said = tomllib.loads(Path(found.origin).with_name("family.toml").read_text(encoding="utf-8"))
    stored = {kind: tuple(names) for kind, names in said.pop("stored_models", {}).items()}
    serves = tuple(said.pop("serves", ()))
    return Family(name=name, serves=serves, stored_models=stored, **said)


def family_of(value: object) -> Family | None:
    """The family whose package defines the class of `value`; None for what is common to all."""
    package = type(value).__module__.removeprefix("shoal.").partition(".")[0]
    return next((family for family in families() if family.name == package), None)


def stranger(row: str, task: Any) -> str | None:
    """Why a family's row says nothing about a task with no part of that family; None if it may.

    Decided by names alone, so that a plan of a chain loads no maps.
    """
    home = next((family for family in families() if row in family.rows), None)
    if home is None or home.name == COMMON:
        return None
    found = (family_of(part) for part in (task.secrets, task.query, *task.family))
    parts = {family.name for family in found if family is not None}
    return f"it is for {home.about}" if parts.isdisjoint((home.name, *home.serves)) else None


def hook(act: str, *values: object) -> Any:
    """What `act` does in the first family of `values` that has its own way; None where none has."""
    for value in values:
        family = family_of(value)
        if family is not None and act in family.hooks:
            return load(family.hooks[act])
    return None


def only_hook(act: str) -> Any:
    """What `act` does in the one family that knows it."""
    return next(load(family.hooks[act]) for family in families() if act in family.hooks)


def plan_hook(act: str, plan: Any) -> Any:
    """The hook of what a plan draws with, asks about, or knows: in this order."""
    return hook(act, plan.body, plan.task.query, plan.task.family[0])


KINDS: Table[type] = Table(
    lambda family: family.kinds
)  # the closed table of everything that can be stored


ADVERSARIES: Table[Callable[..., Any]] = Table(lambda family: family.adversaries)


def dumps(value: Fingerprinted, *, indent: int | None = 2) -> str:
    """A plan, model, release or any other stored kind as a JSON document."""
    return codec.dumps(value, indent=indent)


def loads(text: str) -> Any:
    """The value of a document made by `dumps`; refused when edited, damaged or unknown."""
    return codec.loads(text, KINDS)


class Shown:
    """A result that shows itself as a table (`to_frame`), a chart (`plot`) and HTML."""

    __slots__ = ()

    def to_frame(self, library: str | None = None) -> Any:
        """A table of polars, or of "pandas" or "pyarrow" where asked for or where the data was."""
        return load("shoal.data.display:frame_of")(self, library)

    def plot(self, ax: Any = None) -> Any:
        """The matplotlib axes it is drawn on, new ones unless given; needs the `plot` extra."""
        return load("shoal.data.display:axes_of")(self, ax)

    def _repr_html_(self) -> str:
        return str(load("shoal.data.display:html_of")(self))
