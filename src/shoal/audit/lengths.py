"""Which lengths of data a black-box audit looks at, and how often: a budget and a ladder."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from shoal.core.walk import Walk

SHORT = (1, 2, 3, 5, 8, 12)  # short data tells more about one entry, long data brings the rest
FEWEST = 50  # draws per fact below which a pilot says nothing
ENTRIES = 400  # entries in a draw, on average, that an audit may ask for
LEAST = 20_000_000  # entries that are always allowed: a matter of seconds
CLOSE = 0.75  # a rung so near the top of the ladder shows nothing of its own
LONGEST = 3900  # the longest data is this part of the entries, so that it is drawn often enough


class Budget(NamedTuple):
    """How many releases, and how many entries of drawn data in all of them together."""

    draws: int
    entries: float = math.inf

    def part(self, share: float) -> Budget:
        """A share of it."""
        return Budget(round(share * self.draws), share * self.entries)

    def each(self, lengths: Sequence[int]) -> list[int]:
        """How many releases each of several data laws gets, `lengths` being their entries.

        As many for each, but no law takes more than c entries, with the largest c that keeps
        within the budget: Σ min(releases · length, c) ≤ entries. FEWEST at least, as far as there
        are draws.
        """
        few = self.draws // len(lengths)
        most, rest = math.inf, self.entries
        wanted = sorted(few * length for length in lengths)
        for place, cost in enumerate(wanted):
            if cost * (len(wanted) - place) > rest:
                most = rest / (len(wanted) - place)
                break
            rest -= cost
        return [few if few * n <= most else max(int(most // n), min(few, FEWEST)) for n in lengths]

    def affords(self, lengths: Sequence[int]) -> bool:
        """Whether FEWEST releases of each of several data laws are well within it."""
        enough = self.draws // len(lengths) >= FEWEST
        return enough and 2 * FEWEST * sum(lengths) <= self.entries


def default_budget(draws: int) -> Budget:
    """What an audit may draw when nobody named the lengths: ENTRIES a release, LEAST in all."""
    return Budget(draws, float(max(ENTRIES * draws, LEAST)))


def longest_by_default(budget: Budget) -> int:
    """The longest data worth looking at within a budget."""
    return int(budget.entries // LONGEST)


class Grade(NamedTuple):
    """How closely lengths are looked at: short ones, the ladder's steps, first and last entries."""

    short: tuple[int, ...]
    step: int
    ends: bool


GRADES = (Grade(SHORT, 2, True), Grade(SHORT, 2, False), Grade((1, 3, 12), 4, False))


class Place(NamedTuple):
    """An entry of data of some length under one of several chains."""

    chain: int
    entries: int
    entry: int


def named_places(walks: Sequence[Walk], lengths: Sequence[int]) -> list[Place]:
    """The first, middle and last entry of data of the given lengths, as far as chains have them."""
    return [
        Place(number, entries, entry)
        for number, walk in enumerate(walks)
        for entries in sorted(_fitting(walk, lengths))
        for entry in entries_looked_at(entries)
    ]


def places(
    walks: Sequence[Walk],
    others: Sequence[int],
    budget: Budget,
    longest: int,
    takes: Callable[[int], bool],
) -> list[Place]:
    """Where to look by default, as closely as the budget of a pilot allows.

    `others` are the lengths of laws that are no chains, `takes` says whether the box takes data of
    so many entries. When the coarsest grade costs too much, shorter data has to do.
    """
    found: list[Place] = []
    while True:
        for grade in GRADES:
            found = list(_graded(walks, grade, longest, takes)) or found
            laws = [p.entries for p in found for _ in walks[p.chain].values]
            if laws and budget.affords([*laws, *others]):
                return found
        if longest <= max(SHORT):
            return found
        longest //= 2


def ladder(walk: Walk, longest: int, grade: Grade = GRADES[0]) -> list[int]:
    """Short lengths, then steps by a factor up to the chain's own length, or to the longest."""
    top = max(_fitting(walk, [longest]), default=walk.order)
    rungs, rung = list(grade.short), grade.step * max(grade.short)
    while rung < CLOSE * top:
        rungs.append(rung)
        rung *= grade.step
    return sorted(_fitting(walk, [*rungs, top]))


def entries_looked_at(entries: int) -> list[int]:
    """The first, the middle and the last."""
    return sorted({0, entries // 2, entries - 1})


def _graded(
    walks: Sequence[Walk], grade: Grade, longest: int, takes: Callable[[int], bool]
) -> Iterator[Place]:
    """The places of one grade: first and last entries of the shortest and the longest data only."""
    for number, walk in enumerate(walks):
        lengths = [entries for entries in ladder(walk, longest, grade) if takes(entries)]
        for entries in lengths:
            ends = grade.ends and (entries <= max(SHORT) or entries == lengths[-1])
            for entry in entries_looked_at(entries) if ends else [entries // 2]:
                yield Place(number, entries, entry)


def _fitting(walk: Walk, lengths: Sequence[int]) -> set[int]:
    """The lengths, cut to what the chain covers."""
    more = walk.order - 1
    return {walk.at_most(n - more) + more for n in lengths if n > more}
