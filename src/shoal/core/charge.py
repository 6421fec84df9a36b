"""What a plan asks of a ledger: charge, then sample, in one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from shoal.core.errors import DataError, InputError
from shoal.core.records import label
from shoal.core.registry import load
from shoal.core.rng import Rng, SystemRng

if TYPE_CHECKING:
    from shoal.core.plan import Plan, Release

EVERYBODY = ("*",)  # the members of an aggregate over all subjects, known or not


@dataclass(frozen=True, slots=True)
class Part:
    """Which entries of one series a release reads; all of them when nothing is said.

    `span` holds entries from the first up to, not including, the second, counted from 0. `name`
    is a part that shares no entry with any part of another name (a week, a ward): whoever names
    it vouches for that. ledger/rules.md, section 10.
    """

    span: tuple[int, int] | None = None
    name: str = ""

    def __post_init__(self) -> None:
        if self.span is not None and self.name:
            raise InputError(f"part is {self.name!r} and span {self.span}; give one of them")
        if self.span is None:
            return
        ends: tuple[Any, ...] = tuple(self.span)
        if len(ends) != 2 or {*map(type, ends)} != {int} or not 0 <= ends[0] < ends[1]:
            raise InputError(
                f"span is {self.span}; give the first entry and the one after the last, from 0"
            )

    @classmethod
    def of(cls, part: Part | str | tuple[int, int] | None) -> Part:
        """A part from its name, its span, or a part; None is all of the data."""
        if isinstance(part, Part):
            return part
        return (
            WHOLE if part is None else cls(name=part) if isinstance(part, str) else cls(span=part)
        )

    @property
    def text(self) -> str:
        """The part as it is stored: "" for all of the data, "0..1440" or "=name"."""
        if self.span is None:
            return f"={self.name}" if self.name else ""
        return f"{self.span[0]}..{self.span[1]}"

    @classmethod
    def stored(cls, text: str) -> Part:
        """The part behind its text; the same value for the same text."""
        known = _PARTS.get(text)
        if known is None:
            first, _, second = text.partition("..")
            known = (
                cls(name=text[1:]) if text.startswith("=") else cls(span=(int(first), int(second)))
            )
            if len(_PARTS) < 4096:
                _PARTS[text] = known
        return known


WHOLE = Part()
_PARTS = {"": WHOLE}

PERIODS = ("parts", "independent")  # what periods of one series are to each other


def check_periods(periods: str | None, named: str) -> str:
    """`periods` itself; refused when nobody said what the periods `named` are to each other."""
    if periods in PERIODS:
        return str(periods)
    said = "nothing says" if periods is None else f"periods is {periods!r}, which does not say"
    raise InputError(
        f"{named} cuts a series into periods, and {said} what they are to each other; say periods "
        '= "parts" (of one series, however they depend on each other) or "independent" (a claim '
        "that none tells of another), in [data] of the spec or with --periods"
    )


class PartOf(NamedTuple):
    """A part of a series by the calendar: whose it is, its name, and the seconds it covers.

    Seconds since 1970 stand for entries: days, weeks and months meet where they do.
    """

    subject: str
    period: str
    span: tuple[int, int]

    def charged(self, periods: str) -> dict[str, Any]:
        """What a charge says of it: a part of the series, or a period independent of the others."""
        if check_periods(periods, "every") == "independent":
            return {"period": self.period}
        return {"part": Part(span=self.span)}


def covered(first: int, last: int, subject: str) -> tuple[int, int]:
    """The seconds from one time to another, in microseconds since 1970: the span of a part."""
    if first < 0:
        raise DataError(
            f"series {subject!r} begins before 1970, and parts are counted in seconds from there; "
            "shift its times, or release it without every"
        )
    return first // 1_000_000, last // 1_000_000 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One release about one subject's data, before it is made.

    `key` makes a retry harmless: a second charge with the same key returns the stored release.
    `eta` is for steps of a stream, whose noise follows from the outputs before: what this one
    output tells between any two states, rounded up; None when there is no bound. A new `period` is
    a claim that its data is independent of the other periods'; a `part` is of one series, however
    dependent. `members` are the subjects whose data an aggregate reads: each is charged too;
    EVERYBODY stands for all subjects there are or will be.
    """

    plan: Plan
    subject: str
    period: str = ""
    requester: str = ""
    key: str | None = None
    eta: Fraction | None = None
    part: Part = WHOLE
    members: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.subject:
            raise InputError("subject is empty; a ledger needs to know whose data is released")


def members_of(said: Any, subject: str, series: Sequence[str] = ()) -> tuple[str, ...]:
    """Who is charged beside the subject: those named, or else every series of an aggregate."""
    if said is None:
        return tuple(name for name in series if name != subject)
    if isinstance(said, str):
        if said == "everybody":
            return EVERYBODY
        raise InputError(f"members is {said!r}; give a list of names, or shoal.ledger.EVERYBODY")
    return tuple(label(name) for name in said)


def source_for(ledger: Ledger | None, rng: Rng | int | None) -> Rng:
    """`rng`, or the system's when there is none; refused when it is seeded and a ledger charges.

    A whole number is the seed of a predictable source, for demos.
    """
    if isinstance(ledger, str | os.PathLike):
        raise InputError(
            f"ledger is {str(ledger)!r}, a path; open it first, with shoal.open_ledger(path)"
        )
    source: Any = SystemRng() if rng is None else rng
    if isinstance(rng, int) and not isinstance(rng, bool):
        source = load("shoal.noise.primitives:SeededRng")(rng)
    elif not hasattr(source, "words"):
        raise InputError(
            f"rng is a {type(rng).__name__}; leave it out for a real release, or give a whole "
            "number to make a demo that can be repeated and protects nothing"
        )
    if ledger is not None:
        refuse_seed(not source.secure, "rng is seeded")
    return source  # type: ignore[no-any-return]


@contextmanager
def opened(ledger: Ledger | str | os.PathLike[str] | None) -> Iterator[Ledger | None]:
    """The ledger itself, or the one at a path, closed again afterwards."""
    if not isinstance(ledger, str | os.PathLike):
        yield ledger
        return
    with load("shoal.ledger.store:open_ledger")(ledger) as account:
        yield account


def refuse_seed(seeded: bool, told: str = "seed is given with a ledger") -> None:
    """Refuse predictable noise where a ledger charges; `told` says what was given."""
    if seeded:
        raise InputError(f"{told}; a ledger takes only real releases")


class Ledger(Protocol):
    """Keeps account of what was spent."""

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        """Check and charge, then call `sample`, store its release, commit, and return it.

        Raises before sampling when the charge is refused; then nothing has changed.
        """
        ...
