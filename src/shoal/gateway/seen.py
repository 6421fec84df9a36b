"""Which outputs each application was given: every output counts once, however often it is read."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, Row, insert, select, update

from shoal.gateway.advance import Output
from shoal.gateway.sight import Sight
from shoal.gateway.tables import OUTPUTS, SEEN

MAX_SPANS = 200  # of one application and stream; the oldest are joined, and what is between counts

Span = tuple[int, int, int]  # first and last ordinal, and that it sees one slot in so many


class Given(NamedTuple):
    """Ordinals that an application was given at once, all of them between the first and last."""

    ordinals: tuple[int, ...]
    every: int


Reader = tuple[str, str, str]  # space, uid of the stream, application


class Seen:
    """What applications were given a moment ago, until it is written down."""

    def __init__(self) -> None:
        self._noted: dict[Reader, list[Given]] = {}

    def note(self, sight: Sight, outputs: Sequence[Output]) -> None:
        """Note that an application was given these outputs, all that it sees between them."""
        if sight.reader and outputs:
            given = Given(tuple(each.ordinal for each in outputs), sight.every)
            key = (sight.space, sight.uid, sight.reader)
            found = self._noted.setdefault(key, [])
            if not found or found[-1] != given:  # one that polls is given the same again
                found.append(given)

    def take_notes(self) -> list[tuple[Reader, list[Given]]]:
        """Return all notes, which are gone from here."""
        noted, self._noted = self._noted, {}
        return list(noted.items())


def write_seen(connection: Connection, noted: Iterable[tuple[Reader, list[Given]]]) -> None:
    """Add what applications saw to what is known."""
    now = time.time()
    for (space, uid, application), given in noted:
        own = {"space": space, "uid": uid, "application": application}
        row = connection.execute(select(SEEN).filter_by(**own).with_for_update()).first()
        spans = [] if row is None else _spans(row)
        count = 0 if row is None else int(row.times)
        for each in given:
            count += sum(not _covers(spans, ordinal) for ordinal in each.ordinals)
            spans = joined([*spans, (each.ordinals[0], each.ordinals[-1], each.every)])
        first, last = min(each[0] for each in spans), max(each[1] for each in spans)
        values: dict[str, Any] = {"first": first, "last": last, "times": count, "at": now}
        values["given"] = json.dumps(spans)
        if row is None:
            connection.execute(insert(SEEN), own | values)
        else:
            connection.execute(update(SEEN).filter_by(**own).values(values))


def joined(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, those joined between which nothing is to be seen.

    An application that sees one slot in `every` misses nothing between two such slots.
    """
    found: list[Span] = []
    for first, last, every in sorted(spans, key=lambda each: (each[2], each[:2])):
        if found and every == found[-1][2] and first <= found[-1][1] + every:
            found[-1] = (found[-1][0], max(last, found[-1][1]), every)
        else:
            found.append((first, last, every))
    while len(found) > MAX_SPANS:
        found[:2] = [(found[0][0], max(found[0][1], found[1][1]), found[1][2])]
    return found


def _covers(spans: Iterable[Span], ordinal: int) -> bool:
    return any(first <= ordinal <= last and ordinal % each == 0 for first, last, each in spans)


def given_of(
    connection: Connection, row: Row[Any], application: str, first: int, last: int
) -> dict[str, Any]:
    """Return what an application was given of the slots from `first` to `last` of a stream."""
    wanted = select(SEEN).filter_by(space=row.space, uid=row.uid, application=application)
    found = connection.execute(wanted).first()
    spans = [] if found is None else _spans(found)
    seen = [each for each in range(first, last + 1) if _covers(spans, each)]
    there = select(OUTPUTS.c.ordinal).filter_by(space=row.space, uid=row.uid)
    inside = OUTPUTS.c.ordinal.between(first, last)
    shown = set(connection.execute(there.where(inside)).scalars())
    seen = [each for each in seen if each in shown]
    end = seen[-1] if seen else None
    missed = end is not None and any(each <= end and each not in seen for each in shown)
    return {
        "application": application,
        "outputs": len(seen),
        "last": end,
        "all": not missed,
    }


def _spans(row: Row[Any]) -> list[Span]:
    """Return the spans of a row; one of before they were kept has its first and last output."""
    if row.given is None:
        return [(int(row.first), int(row.last), 1)]
    return [(first, last, every) for first, last, every in json.loads(row.given)]
