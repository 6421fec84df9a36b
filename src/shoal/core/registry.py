"""Tables made of all families' records: stored kinds, adversaries; documents of stored values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, MutableMapping
from functools import cached_property
from importlib import import_module
from typing import Any, Generic, TypeVar, cast

from shoal.core import codec
from shoal.core.codec import Fingerprinted
from shoal.core.family import Family, Part, families

Loaded = TypeVar("Loaded")


class Table(MutableMapping[str, Loaded], Generic[Loaded]):
    """Names to what they stand for, made of what `part_of` takes from each family's record.

    The records are read when the table is first used. Each value is imported when it is first
    looked up. Values that are set stay until they are deleted.
    """

    def __init__(self, part_of: Callable[[Family], Mapping[str, Part]]) -> None:
        self._part_of = part_of
        self._loaded: dict[str, Loaded] = {}

    @cached_property
    def _family_parts(self) -> dict[str, Part]:
        return {name: part for family in families() for name, part in self._part_of(family).items()}

    def __getitem__(self, name: str) -> Loaded:
        if name not in self._loaded:
            self._loaded[name] = cast("Loaded", self._family_parts[name]())
        return self._loaded[name]

    def __setitem__(self, name: str, value: Loaded) -> None:
        self._family_parts[name] = lambda: value
        self._loaded[name] = value

    def __delitem__(self, name: str) -> None:
        del self._family_parts[name]
        self._loaded.pop(name, None)

    def __iter__(self) -> Iterator[str]:
        return iter(self._family_parts)

    def __len__(self) -> int:
        return len(self._family_parts)


def load(place: str) -> Any:
    """What "package.module:name" names."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)


# the closed table of all classes that can be stored
KINDS: Table[type] = Table(lambda family: family.kinds)

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
