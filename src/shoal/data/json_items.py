"""JSON files of any size: the members of an object or a list, one after the other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TextIO

from shoal.core.errors import DataError

CHUNK_CHARACTERS = 1 << 18
MAX_ITEM_CHARACTERS = 2**28  # of one item, which is held whole
_SPACE = " \t\r\n"


class Item(NamedTuple):
    """A member of a document: its key ("" in a list), its value, and whether a list holds it."""

    key: str
    value: Any
    listed: bool


def json_items(path: Path) -> Iterator[Item]:
    """Yield the members of the object or list in a file; of a member that is a list each item.

    Only one item is held at a time. Empty lists yield nothing.
    """
    try:
        with path.open(encoding="utf-8-sig") as stream:
            yield from _document(_Scanner(stream, path))
    except UnicodeDecodeError:
        raise DataError(f"{str(path)!r} is not text in UTF-8; save it as UTF-8") from None
    except RecursionError:
        raise DataError(f"{str(path)!r} has lists inside each other too deep to read") from None


def _document(text: _Scanner) -> Iterator[Item]:
    """Yield the items of a document, a list or an object; lists inside the object item by item.

    Refuses text after the end.
    """
    if text.peek() == "[":
        yield from _list_items(text, "")
    else:
        text.expect("{")
        while text.peek() != "}":
            key = text.value()
            text.expect(":")
            if text.peek() == "[":
                yield from _list_items(text, str(key))
            else:
                yield Item(str(key), text.value(), listed=False)
            text.separator("}")
        text.expect("}")
    if text.peek():
        text.refuse()


def _list_items(text: _Scanner, key: str) -> Iterator[Item]:
    text.expect("[")
    while text.peek() != "]":
        yield Item(key, text.value(), listed=True)
        text.separator("]")
    text.expect("]")


class _Scanner:
    """A position in a text that is read in pieces."""

    def __init__(self, stream: TextIO, path: Path) -> None:
        self._stream, self._path = stream, path
        self._text, self._at, self._ended = "", 0, False
        self._decode = json.JSONDecoder().raw_decode

    def peek(self) -> str:
        """Return the next character that is no space; "" at the end of the file."""
        while True:
            while self._at < len(self._text) and self._text[self._at] in _SPACE:
                self._at += 1
            if self._at < len(self._text) or self._ended:
                return self._text[self._at : self._at + 1]
            self._more()

    def expect(self, character: str) -> None:
        """Step over a character; refuse the file when another one is there."""
        if self.peek() != character:
            self.refuse()
        self._at += 1

    def separator(self, end: str) -> None:
        """Step over a comma, which must stand unless the list or object ends here."""
        if self.peek() != end:
            self.expect(",")
            if self.peek() == end:
                self.refuse()

    def value(self) -> Any:
        """Return the next value, whole."""
        self.peek()
        while True:
            try:
                value, end = self._decode(self._text, self._at)
            except ValueError:
                if self._ended:
                    self.refuse()
            else:
                # a number at the end of what was read may go on
                if end < len(self._text) or self._ended:
                    self._at = end
                    return value
            self._more()

    def refuse(self) -> NoReturn:
        raise DataError(
            f"{str(self._path)!r} is not JSON as it should be; it may be cut short: make it again"
        )

    def _more(self) -> None:
        """Read on, twice as much as is waiting, so that a long item is tried few times."""
        waiting = self._text[self._at :]
        if len(waiting) > MAX_ITEM_CHARACTERS:
            raise DataError(
                f"{str(self._path)!r} has an item of more than {MAX_ITEM_CHARACTERS:,} characters; "
                "split it"
            )
        piece = self._stream.read(max(CHUNK_CHARACTERS, 2 * len(waiting)))
        self._text, self._at, self._ended = waiting + piece, 0, not piece
