"""What a plan promises, by which rules promises add, what is charged, and with what it is drawn."""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from shoal.core.codec import Floats, Value
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import significant
from shoal.core.records import label
from shoal.core.registry import load

if TYPE_CHECKING:
    from shoal.core.plan import Plan, Release
    from shoal.core.stream import Transaction

T = TypeVar("T")

# notion -> the weaker notions it gives for the same amount
NOTIONS: dict[str, tuple[str, ...]] = {
    "entry-dp": (),
    "group": ("entry-dp", "pufferfish", "dependent"),
    "pufferfish": (),
    "dependent": (),
    "policy": (),
    "location-set": (),
    "delta-privacy": (),
}


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Guarantee(Value):
    """A notion of privacy, its amount, and what it covers.

    `amount` is epsilon, the largest change of log-odds between two secrets; for "delta-privacy"
    it is delta, the largest rise of a belief. `over` says which secrets and which adversary.
    `proved=False` marks a published claim that is wrong, or that we could not establish;
    `caveat` then says why.
    """

    kind = "guarantee"

    notion: str
    amount: Fraction
    over: str
    proved: bool = True
    caveat: str = ""

    def __post_init__(self) -> None:
        """Refuse an unknown notion, an amount of 0 or less, and unproved without a caveat."""
        if self.notion not in NOTIONS:
            raise InputError(f"notion is {self.notion!r}; it must be one of {sorted(NOTIONS)}")
        if self.amount <= 0:
            raise InputError(f"guarantee amount is {self.amount}; it must be greater than 0")
        if not self.proved and not self.caveat:
            raise InputError("a guarantee that is not proved needs a caveat that says why")

    def gives(self, notion: str) -> bool:
        """Whether this promise includes one of `notion` with the same amount."""
        return notion == self.notion or notion in NOTIONS[self.notion]

    def describe(self) -> str:
        """The promise in a sentence."""
        status = "" if self.proved else f" CLAIMED, NOT PROVED: {self.caveat}."
        if self.notion == "delta-privacy":
            return (
                f"no output raises the belief in {self.over} "
                f"by more than {significant(self.amount)}.{status}"
            )
        factor = math.exp(min(float(self.amount), 700.0))
        return (
            f"no output changes the odds between two values of what is protected ({self.over}) "
            f"by more than a factor of {significant(factor)} "
            f"({self.notion}, epsilon = {significant(self.amount)}).{status}"
        )


# The rules by which a ledger may add a plan to others about the same data.
#
# A plan carries every rule that is proved for it. The ledger adds charges only by a rule all of
# them share, takes the least total, and otherwise says that they cannot be added. `a.follows(b)`
# says that b implies a.


class AddingRule(Value):
    """One rule of composition. It follows from none of another kind.

    `promises` are what all steps of one stream keep together, of a rule that says so.
    """

    __slots__ = ()

    @property
    def promises(self) -> tuple[Guarantee, ...]:
        return ()

    def follows(self, other: AddingRule) -> bool:
        """Return whether `other` implies this rule: one type, each amount no smaller or None."""
        if type(other) is not type(self):
            return False
        for each in fields(self):  # type: ignore[arg-type]  # every rule is a dataclass
            mine, theirs = getattr(self, each.name), getattr(other, each.name)
            unsaid = mine is None and each.default is None
            if not (unsaid or (mine >= theirs if isinstance(theirs, Fraction) else mine == theirs)):
                return False
        return True

    def describe(self) -> str:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False)
class AsEntryDP(AddingRule):
    """The release is `eta`-DP for one entry, for every mechanism that calibrated it.

    The etas of several releases add, adaptively, and their sum is converted once by the lift.
    """

    kind = "as-entry-dp"

    eta: Fraction

    def __post_init__(self) -> None:
        if self.eta <= 0:
            raise InputError(f"eta is {self.eta}; it must be greater than 0")

    def describe(self) -> str:
        return (
            f"counts as entry-level DP with eta = {significant(self.eta)}; "
            "etas add and are converted once by the lift"
        )


@dataclass(frozen=True, slots=True, eq=False)
class SameQuilts(AddingRule):
    """Releases made from the same quilt sets (same `key`) add by max_i min_Q (|N|·Ση + e).

    Song, Wang & Chaudhuri 2017, Theorem 4.4, with the noise scales known: `eta` is L/scale.
    """

    kind = "same-quilts"

    key: str
    eta: Fraction

    def describe(self) -> str:
        return "adds to other releases from the same Markov quilts (Theorem 4.4)"


@dataclass(frozen=True, slots=True, eq=False)
class AsGroupDP(AddingRule):
    """The release is `epsilon`-DP for all tied entries together; epsilons add."""

    kind = "as-group-dp"

    epsilon: Fraction

    def describe(self) -> str:
        return f"counts as group DP with epsilon = {significant(self.epsilon)}; epsilons add"


@dataclass(frozen=True, slots=True, eq=False)
class PerStep(AddingRule):
    """A stream whose promise holds at each step given the past outputs.

    `eta` bounds what one output tells between any two states, joined or not, at every step of every
    stream; None when no bound is known in advance. A ledger adds what each step was charged with
    instead: a plan of version 0.1 may say too little here.
    """

    kind = "per-step"

    epsilon: Fraction
    eta: Fraction | None = None

    def describe(self) -> str:
        return f"per step, given what was released before: epsilon = {significant(self.epsilon)}"


@dataclass(frozen=True, slots=True, eq=False)
class Alone(AddingRule):
    """No theorem adds this release to another about the same data."""

    kind = "alone"

    reason: str

    def describe(self) -> str:
        return f"does not add to any other release about the same data: {self.reason}"


@dataclass(frozen=True, slots=True, eq=False)
class OneStream(AddingRule):
    """All outputs of one stream together keep `promises`; nothing else about the same data adds.

    Steps of the plan, each drawn once, are one charge about what is promised, however many.
    """

    kind = "one-stream"

    promises: tuple[Guarantee, ...] = ()

    def describe(self) -> str:
        promises = " ".join(promise.describe() for promise in self.promises)
        return f"all steps of one stream together, and nothing beside it: {promises}".rstrip(".")


@dataclass(frozen=True, slots=True, eq=False)
class PerPair(OneStream):
    """Legs of one history add one number per ordered pair of hidden places; none passes epsilon.

    `zone` and `model` are fingerprints. The numbers follow from the stored outputs, so a history
    has one zone, one model and one epsilon for ever.
    """

    kind = "per-pair"

    zone: str = ""
    model: str = ""

    def describe(self) -> str:
        return (
            "every leg adds its charge to one number per ordered pair of hidden places, and no "
            "number passes epsilon; nothing else about the same rides adds"
        )


Composition = AsEntryDP | SameQuilts | AsGroupDP | PerStep | Alone | OneStream | PerPair

# What every sampler asks of a source of randomness, and the one source for real releases.


class Rng(Protocol):
    """A source of uniformly random 64-bit words, each used once."""

    @property
    def secure(self) -> bool:
        """Whether the words come from the operating system and cannot be predicted."""
        ...

    def words(self, count: int) -> NDArray[np.uint64]:
        """The next `count` words of the stream, independent and uniform on [0, 2^64).

        Asking for a and then for b words gives the same as asking for a + b at once.
        """
        ...


@dataclass(frozen=True, slots=True)
class SystemRng:
    """The operating system's randomness, for every real release.

    It keeps no buffer and no state, so a forked child shares no word with its parent.
    """

    @property
    def secure(self) -> bool:
        """True: these words cannot be predicted."""
        return True

    def words(self, count: int) -> NDArray[np.uint64]:
        """`count` fresh words from os.urandom, read-only."""
        check_count(count)
        return np.frombuffer(os.urandom(8 * count), dtype=np.uint64)


def check_count(count: int) -> None:
    """Refuse a negative number of words."""
    if count < 0:
        raise ValueError(f"count is {count}; it must be 0 or more (ask for the words you need)")


# Random draws from a model, for synthetic data and attacks; private noise lives in `noise`.


def uniforms(count: int, rng: Rng) -> Floats:
    """`count` numbers in [0, 1) on the lattice of 2^-53."""
    return (rng.words(count) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def categorical(law: Floats, uniform: float) -> int:
    """The state whose slice of [0, 1) holds `uniform`; never one of probability 0."""
    cumulative = np.cumsum(law)
    chosen = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return min(chosen, int(np.flatnonzero(law)[-1]))


EVERYBODY = ("*",)  # the members of an aggregate over all subjects, known or not


@dataclass(frozen=True, slots=True)
class Part:
    """The entries of one series that a release reads; all of them without a span and a name.

    `span` holds entries from the first up to, not including, the second, counted from 0; with
    `seconds` it holds the entries of these seconds since 1970. `name` is a part that shares no
    entry with any part of another name (a week, a ward): the caller vouches for that. How entry
    numbers, seconds and names relate is unknown, so parts given in different ways count as
    overlapping. ledger/rules.md, section 10.

    `covers` is when the period that is charged lies, in microseconds since 1970, the second
    exclusive; None where it is unknown. It says nothing about what of the period is read.
    """

    span: tuple[int, int] | None = None
    name: str = ""
    seconds: bool = False
    covers: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        """Refuse a name with a span, `seconds` without a span, and invalid spans."""
        if self.covers is not None and not 0 <= self.covers[0] < self.covers[1]:
            raise InputError(
                f"covers is {self.covers}; give the first microsecond since 1970 and the one after "
                "the last"
            )
        if self.span is not None and self.name:
            raise InputError(f"part is {self.name!r} and span {self.span}; give one of them")
        if self.seconds and self.span is None:
            raise InputError("seconds is said of a part without a span; give the span, or drop it")
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
        """The part as it is stored: "" for all of the data, "0..1440", "0..86400s" or "=name".

        What the period covers comes before it: "@0..86400000000,=name".
        """
        when = "" if self.covers is None else "@{}..{},".format(*self.covers)
        if self.span is None:
            return f"{when}={self.name}" if self.name else when
        return f"{when}{self.span[0]}..{self.span[1]}{'s' if self.seconds else ''}"

    @property
    def within(self) -> Part:
        """The same entries, without when their period lies."""
        return self if self.covers is None else replace(self, covers=None)

    @staticmethod
    @lru_cache(maxsize=4096)
    def stored(text: str) -> Part:
        """The part behind its text; the same value for the same text."""
        if not text:
            return WHOLE
        if text.startswith("@"):
            when, _, entries = text[1:].partition(",")
            begins, _, ends = when.partition("..")
            return replace(Part.stored(entries), covers=(int(begins), int(ends)))
        if text.startswith("="):
            return Part(name=text[1:])
        first, _, second = text.partition("..")
        span = int(first), int(second.removesuffix("s"))
        return Part(span=span, seconds=second.endswith("s"))

    def check_size(self, entries: int | None) -> None:
        """Refuse data of more `entries` than a span has: it reads entries the span leaves out.

        None means data whose entries are not counted. Seconds and names are not checked: a second
        may hold any number of entries.
        """
        if self.span is None or self.seconds:
            return
        first, after = self.span
        if entries is None:
            raise InputError(
                f"part is {self.span}, a span of entries, and this data is no series of them; "
                "name the part instead"
            )
        if entries > after - first:
            raise InputError(
                f"part is {self.span}, a span of {after - first:,}, and the data holds {entries:,} "
                "entries; give the span of all entries that are read, or only the data of the part"
            )


WHOLE = Part()

PERIODS = ("parts", "independent")  # what periods of one series are to each other


def check_periods(periods: str | None, named: str) -> str:
    """Return `periods`; refuse a missing or unknown claim on how the periods `named` depend."""
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

    def charge_fields(self, periods: str) -> dict[str, Any]:
        """What a charge says of it: a part of the series, or a period independent of the others."""
        if check_periods(periods, "every") == "independent":
            first, last = self.span
            return {"period": self.period, "part": Part(covers=(first * 10**6, last * 10**6))}
        return {"part": Part(span=self.span, seconds=True)}


def part_span(first: int, last: int, subject: str) -> tuple[int, int]:
    """The seconds from one time to another, in microseconds since 1970: the span of a part."""
    if first < 0:
        raise DataError(
            f"series {subject!r} begins before 1970, and parts are counted in seconds from there; "
            "shift its times, or release it without every"
        )
    return first // 1_000_000, last // 1_000_000 + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStep:
    """Which output of a stream a charge is for, where all outputs together keep one promise.

    Such a promise holds for one history of outputs, so every output says what came before it.
    `number` counts the outputs drawn before, from 0. `before` is a hash of what was
    public then: the known start, and these fields of each output, with its multiples. `time` is
    the step the output is drawn at, from 0, and `epsilon` the ε of its noise. `at` is when its
    reading was taken, where steps are counted by readings, so that a step of another reading is
    known from it; it is as public as the output. A step without an output has no charge: the times
    of the others tell that it was passed.
    """

    number: int
    before: str
    time: int
    epsilon: Fraction
    at: str = ""

    def after(self, multiples: Sequence[int]) -> str:
        """Return the hash of the public history after this step has released `multiples`."""
        shown = [int(multiple) for multiple in multiples]
        return _history_hash([self.before, self.time, str(self.epsilon), self.at, shown])


def empty_history(start: int | None) -> str:
    """Return the hash of a stream without outputs; `start` is the public first state, if any."""
    return _history_hash(["start", start])


def _history_hash(content: list[Any]) -> str:
    return hashlib.sha256(json.dumps(content, separators=(",", ":")).encode()).hexdigest()


def output_key(subject: str, period: str, plan: str, number: int) -> str:
    """Return the key of the `number`-th output of the one stream of a plan (its fingerprint).

    No two charges have the same key, so the outputs of a stream form one chain: a
    second request gets the stored output, or is refused.
    """
    return json.dumps([subject, period, plan, "output", number], ensure_ascii=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Charge:
    """One release about one subject's data, before it is made.

    `key` makes a retry harmless: a second charge with the same key returns the stored release.
    `eta` is for steps of a stream, whose noise follows from the outputs before: what this one
    output tells between any two states, rounded up; None when there is no bound. A new `period` is
    a claim that its data is independent of the other periods'; a `part` is of one series, however
    dependent. `members` are the subjects whose data an aggregate reads: each is charged too;
    EVERYBODY means all present and future subjects. `step` is for streams whose outputs
    together keep a promise: where the output stands in the one history of the stream. `noise` names
    the law of a step without an eta, so that its key gives the stored output to no other law.
    """

    plan: Plan
    subject: str
    period: str = ""
    requester: str = ""
    key: str | None = None
    eta: Fraction | None = None
    part: Part = WHOLE
    members: tuple[str, ...] = ()
    step: StreamStep | None = None
    noise: str = ""

    def __post_init__(self) -> None:
        if not self.subject:
            raise InputError("subject is empty; a ledger needs to know whose data is released")
        if self.period and getattr(self.plan.task.secrets, "whole_series", False):
            raise InputError(
                f"period is {self.period!r}, and the secrets are each-person, who is in every "
                "period; leave period out, so that the releases about one person add"
            )


def check_subject(charged: bool, named: bool, other: str = "") -> None:
    """Refuse to charge a ledger without a named subject, before any other work.

    A name made up from a file or a table would be another account for the same data elsewhere.
    """
    if charged and not named:
        raise InputError(
            "ledger is given, and nothing says whose data it is; name "
            f"{other}the subject with subject=…, the same wherever this data is released"
        )


def check_one_owner(subject: str, owners: Sequence[str]) -> None:
    """Refuse one subject for the data of several series."""
    several = len(set(owners))
    if subject and several > 1:
        raise InputError(
            f"subject is {subject!r}, but the data holds {several} series; drop it, and each "
            "series is charged under its own name"
        )


def members_of(said: Any, subject: str, series: Sequence[str] = ()) -> tuple[str, ...]:
    """Return who is charged besides the subject: those named, else every series of an aggregate."""
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
def ledger_at(ledger: Ledger | str | os.PathLike[str] | None) -> Iterator[Ledger | None]:
    """The ledger itself, or the one at a path, closed again afterwards."""
    if not isinstance(ledger, str | os.PathLike):
        yield ledger
        return
    with load("shoal.ledger.store:open_ledger")(ledger) as account:
        yield account


def refuse_seed(seeded: bool, beginning: str = "seed is given with a ledger") -> None:
    """Refuse predictable noise where a ledger charges; `beginning` begins the error message."""
    if seeded:
        raise InputError(f"{beginning}; a ledger takes only real releases")


class Ledger(Protocol):
    """Keeps account of what was spent."""

    def settle(self, charge: Charge, sample: Callable[[], Release]) -> Release:
        """Check and charge, then call `sample`, store its release, commit, and return it.

        Raises before sampling when the charge is refused; the ledger is then unchanged.
        """
        ...

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` makes of one transaction, once it is committed.

        `work` may run again if the transaction had no effect; only the run that commits counts.
        """
        ...
