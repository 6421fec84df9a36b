"""XML files of any size: whole elements by name, one after the other, without any entity."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn
from xml.parsers import expat

from shoal.core.errors import DataError

CHUNK_BYTES = 1 << 18
MAX_DEPTH = 100  # elements inside each other; real files have fewer than 20
MAX_XML_BYTES = 2**33  # of a file; exports of ten years of a watch have 2^31
MAX_ELEMENT_CHARACTERS = 2**27  # in one element that is kept whole, tags counted as below
TAG_CHARACTERS = 64  # that an element inside another counts for: about what it takes in memory
MAX_DTD_BYTES = 1 << 18  # of a document type that is skipped
_DTD = re.compile(rb"<!DOCTYPE[^>\[]*(\[.*?\]\s*)?>", re.DOTALL)


@dataclass(slots=True)
class Element:
    """An element: `tag` without its namespace, the tag of its `parent`, and what is inside it."""

    tag: str
    parent: str
    attributes: dict[str, str]
    children: list[Element] = field(default_factory=list)
    parts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The element's own text without spaces around it."""
        return "".join(self.parts).strip()

    def find(self, *tags: str) -> Element | None:
        """Return the first child, grandchild, … on the path of `tags`; None when there is none."""
        here = self
        for tag in tags:
            found = next((each for each in here.children if each.tag == tag), None)
            if found is None:
                return None
            here = found
        return here

    def text_of(self, *tags: str) -> str | None:
        """Return the text of `find(*tags)`; None when it is missing or empty."""
        found = self.find(*tags)
        return (found.text or None) if found is not None else None

    def walk(self) -> Iterator[Element]:
        """Yield the element and everything inside it, in the order of the file."""
        yield self
        for child in self.children:
            yield from child.walk()


def elements(
    path: Path, whole: Collection[str], announced: Collection[str] = ()
) -> Iterator[Element]:
    """Yield the outermost elements whose tag is in `whole` when they end, and then forget them.

    Elements whose tag is in `announced` are yielded when they begin, with their attributes alone.
    A document type is skipped, and one that declares entities is refused: nothing is expanded, and
    nothing outside the file is read.
    """
    if path.stat().st_size > MAX_XML_BYTES:
        raise DataError(f"{str(path)!r} is larger than {MAX_XML_BYTES >> 30} GiB; split it")
    builder = _Builder(path, frozenset(whole), frozenset(announced))
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True
    parser.StartElementHandler = builder.start
    parser.EndElementHandler = builder.end
    parser.CharacterDataHandler = builder.characters
    parser.EntityDeclHandler = builder.refuse_entities
    try:
        with path.open("rb") as stream:
            parser.Parse(_without_dtd(path, stream.read(MAX_DTD_BYTES)), False)
            while chunk := stream.read(CHUNK_BYTES):
                yield from builder.take_finished()
                parser.Parse(chunk, False)
            parser.Parse(b"", True)
        yield from builder.take_finished()
    except expat.ExpatError as error:
        raise DataError(
            f"{str(path)!r} is not XML as it should be: line {error.lineno} cannot be read; it may "
            "be cut short: make it again"
        ) from None


def root_of(head: str) -> tuple[str, str]:
    """Return the tag of the first element in `head` and the text of that element's start."""
    bare = re.sub(r"<\?.*?\?>|<!--.*?-->", "", head, flags=re.DOTALL)
    bare = _DTD.sub(b"", bare.encode()).decode()
    found = re.search(r"<([A-Za-z_][\w.-]*:)?([A-Za-z_][\w.-]*)[^>]*>?", bare)
    return ("", "") if found is None else (found[2], found[0])


def _without_dtd(path: Path, head: bytes) -> bytes:
    """Return the beginning of a file without its document type, which some programs write wrong."""
    found = _DTD.search(head)
    if found is None:
        return head
    if b"<!ENTITY" in found[0]:
        _refuse_entities(path)
    return head[: found.start()] + b"\n" * found[0].count(b"\n") + head[found.end() :]


def _refuse_entities(path: Path) -> NoReturn:
    raise DataError(f"{str(path)!r} declares entities, which are not expanded; remove its DOCTYPE")


class _Builder:
    """Makes elements of what the parser reports."""

    def __init__(self, path: Path, whole: frozenset[str], announced: frozenset[str]) -> None:
        self._path, self._whole, self._announced = path, whole, announced
        self._tags: list[str] = [""]
        self._open: list[Element] = []
        self._done: list[Element] = []
        self._characters = 0

    def take_finished(self) -> list[Element]:
        """Return the elements that were finished since the last call."""
        done, self._done = self._done, []
        return done

    def start(self, name: str, attributes: dict[str, str]) -> None:
        """Begin an element; it is kept when it or one around it is wanted.

        Refuses elements more than MAX_DEPTH deep.
        """
        tag = name.rpartition(" ")[2]
        if len(self._tags) > MAX_DEPTH:
            raise DataError(
                f"{str(self._path)!r} has elements inside each other {MAX_DEPTH} deep; no known "
                "format does"
            )
        if self._open or tag in self._whole:
            element = Element(tag, self._tags[-1], attributes)
            if self._open:
                self._open[-1].children.append(element)
                self._count_characters(TAG_CHARACTERS)
            self._open.append(element)
        elif tag in self._announced:
            self._done.append(Element(tag, self._tags[-1], attributes))
        self._tags.append(tag)

    def characters(self, text: str) -> None:
        if self._open:
            self._count_characters(len(text))
            self._open[-1].parts.append(text)

    def _count_characters(self, characters: int) -> None:
        """Add to the characters of the open element; refuse more than MAX_ELEMENT_CHARACTERS."""
        self._characters += characters
        if self._characters > MAX_ELEMENT_CHARACTERS:
            raise DataError(
                f"{str(self._path)!r} has more than {MAX_ELEMENT_CHARACTERS:,} characters in one "
                "element; split it"
            )

    def end(self, name: str) -> None:
        """End the innermost element; an outermost wanted one is finished with it."""
        self._tags.pop()
        if self._open:
            element = self._open.pop()
            if not self._open:
                self._done.append(element)
                self._characters = 0

    def refuse_entities(self, *_: object) -> None:
        _refuse_entities(self._path)
