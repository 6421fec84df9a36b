"""A plan, calibrated once without data; the releases and streams it makes, and its words."""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

from shoal.core.charge import (
    AddingRule,
    Charge,
    Composition,
    Guarantee,
    Ledger,
    Part,
    PerStep,
    Rng,
    check_one_owner,
    check_periods,
    check_subject,
    ledger_at,
    members_of,
    source_for,
)
from shoal.core.codec import Value, decode, encode
from shoal.core.errors import InputError, StoredError
from shoal.core.family import plan_act
from shoal.core.numbers import Number, significant
from shoal.core.records import RecordsRead, Sequences
from shoal.core.registry import Shown, load
from shoal.core.task import Query, Task


@dataclass(frozen=True, slots=True, eq=False)
class Error(Value):
    """How far one released value may be from the truth because of the noise."""

    kind = "error"

    expected: float
    bound: float
    confidence: float
    unit: str

    def describe(self) -> str:
        return (
            f"off by {significant(self.expected)} {self.unit} on average, within "
            f"±{significant(self.bound)} {self.unit} with probability {self.confidence:.0%}"
        )

    def times(self, factor: Fraction) -> Error:
        """The error of values multiplied by `factor`; rounds up."""
        expected, bound = (
            math.nextafter(number * float(factor), math.inf)
            for number in (self.expected, self.bound)
        )
        return replace(self, expected=expected, bound=bound)


@dataclass(frozen=True, slots=True, eq=False)
class Answer(Value):
    """Values on a lattice: integer `multiples` of `step`, one per label.

    `entries` is how many entries a mean or a share is over, where that is not the query's length.
    """

    kind = "answer"

    labels: tuple[str, ...]
    multiples: tuple[int, ...]
    step: Fraction
    unit: str
    entries: int | None = field(default=None, metadata={"later": True})

    @property
    def exact(self) -> tuple[Fraction, ...]:
        return tuple(self.step * multiple for multiple in self.multiples)

    @property
    def values(self) -> tuple[float, ...]:
        """The values as floats, for plots and further computation."""
        return tuple(float(value) for value in self.exact)


MAX_SHOWN = 6  # values and names in a line


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Release(Shown, Value):
    """An answer that may be published, and the promise it was made under.

    `plan` is the fingerprint of the plan. `secure` is False when the randomness was seeded: such
    a release is for tests and demos only, and no ledger takes it. `processed` names the
    post-processing applied since, none of which costs privacy.
    """

    kind = "release"

    answer: Answer
    plan: str
    mechanism: str
    guarantee: Guarantee
    error: Error | None
    secure: bool
    processed: tuple[str, ...] = ()
    library: str | None = field(default=None, metadata={"stored": False})  # of the data's table

    def __repr__(self) -> str:
        """Return the mechanism, the first MAX_SHOWN values, unit, error, and a seed warning."""
        pieces = [f"{name} {significant(value)}" for name, value in self.as_dict().items()]
        more = f", … {len(pieces) - MAX_SHOWN} more" if len(pieces) > MAX_SHOWN else ""
        off = "" if self.error is None else f"; {self.error.describe()}"
        seeded = "" if self.secure else "; seeded, protects nothing"
        values = ", ".join(pieces[:MAX_SHOWN])
        return f"<Release by {self.mechanism}: {values}{more} {self.answer.unit}{off}{seeded}>"

    @property
    def values(self) -> tuple[float, ...]:
        return self.answer.values

    def as_dict(self) -> dict[str, float]:
        """Label to value."""
        return dict(zip(self.answer.labels, self.values, strict=True))

    def after(self, name: str, values: tuple[Fraction, ...]) -> Release:
        """This release with its values replaced by a function of them, called `name`."""
        step = math.lcm(self.answer.step.denominator, *(v.denominator for v in values))
        answer = replace(
            self.answer, multiples=tuple(int(v * step) for v in values), step=Fraction(1, step)
        )
        return replace(self, answer=answer, processed=(*self.processed, name))

    def over(self, entries: int, query: Query) -> Release:
        """This release, as `query` draws it, as means and shares over the `entries` there are.

        A query that divides by a public length draws the sum over length; the number of entries is
        public too, so values, lattice and error are multiplied by length/entries, and the promise
        stays (mechanisms/incomplete.md). Other queries have no divisor and stay as drawn.
        """
        length = getattr(query, "length", None)
        if length is None or entries == length:
            return self
        factor = Fraction(length, entries)
        answer = replace(self.answer, step=self.answer.step * factor, entries=entries)
        return replace(self, answer=answer, error=self.error and self.error.times(factor))


class Releases(Shown, dict[str, Release]):
    """Name of each series to its release, all by one plan.

    `together` is what all releases about parts of one series come to, a `shoal.ledger.Total`; None
    where there is one release a series, or the periods are claimed to be independent.
    """

    together: Any = None

    def __repr__(self) -> str:
        """Return the first MAX_SHOWN names and, if known, the epsilon of all releases together."""
        more = ", …" if len(self) > MAX_SHOWN else ""
        names = f"{', '.join(list(self)[:MAX_SHOWN])}{more}"
        if self.together is None:
            return f"<{len(self)} releases: {names}>"
        amount = significant(self.together.amount)
        return f"<{len(self)} releases, those about one series epsilon = {amount}: {names}>"

    @property
    def library(self) -> str | None:
        """The library of the table the data came in."""
        return next((release.library for release in self.values()), None)


CONFIDENCE = 0.95  # the usual one; `error` takes others
RuleKind = TypeVar("RuleKind", bound=AddingRule)


@runtime_checkable
class Sampler(Protocol):
    """Turns records into an answer, once per release."""

    def draw(self, records: Any, rng: Rng) -> Answer: ...
    def error(self, confidence: float) -> Error | None: ...
    def describe(self) -> str: ...


@runtime_checkable
class Machine(Protocol):
    """Turns a stream of observations into a stream of answers; states are frozen values."""

    def init(self) -> Any: ...
    def step(self, state: Any, observed: Any, rng: Rng) -> tuple[Any, Any]: ...
    def describe(self) -> str: ...


@runtime_checkable
class Certificate(Protocol):
    """Why the promise holds: one frozen class per mechanism, its fields the numbers to re-check."""

    @property
    def theorem(self) -> str: ...
    @property
    def assumptions(self) -> tuple[str, ...]: ...


class Proof(Value):
    """What certificates share: the theorem and what it assumes are those of their class."""

    __slots__ = ()
    THEOREM: ClassVar[str] = ""
    ASSUMED: ClassVar[tuple[str, ...]] = ()

    @property
    def theorem(self) -> str:
        return self.THEOREM

    @property
    def assumptions(self) -> tuple[str, ...]:
        return self.ASSUMED


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class Plan(Shown, Value):
    """A mechanism calibrated for a task: deterministic, frozen, made without any data.

    `cost` is what "best" minimises: the expected l1 error of one answer in the query's unit;
    for suppression, minus the expected number of releases.
    """

    kind = "plan"

    mechanism: str
    task: Task
    body: Sampler | Machine
    cost: float
    guarantee: Guarantee
    certificate: Certificate
    composition: tuple[Composition, ...]

    def error(self, confidence: float = CONFIDENCE) -> Error | None:
        """How far one released value may be off; None when the sampler cannot say."""
        return self.body.error(confidence) if isinstance(self.body, Sampler) else None

    def rules(self, kind: type[RuleKind]) -> list[RuleKind]:
        """The rules of one kind by which it adds to others."""
        return [rule for rule in self.composition if isinstance(rule, kind)]

    @property
    def by_step(self) -> bool:
        """Whether a charge is for one step of a stream, with an eta of its own."""
        return bool(self.rules(PerStep))

    @property
    def additive(self) -> Additive | None:
        """The body, where it adds noise to the answer of a query; None where it does not."""
        return self.body if isinstance(self.body, Additive) else None

    @property
    def scale(self) -> float | None:
        """The scale of the noise in the query's own units; None where no noise is added."""
        return None if self.additive is None else float(self.additive.noise.scale)

    def __repr__(self) -> str:
        noise = "" if self.scale is None else f", noise of scale {significant(self.scale)}"
        unit = "" if self.scale is None else f" {self.task.query.unit}"
        notion = f"{self.guarantee.notion} {significant(self.guarantee.amount)}"
        proved = "" if self.guarantee.proved else ", not proved"
        return f"<Plan {self.mechanism}: {notion}{proved}{noise}{unit}>"

    def release(
        self,
        data: Any,
        *,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        subject: str = "",
        period: str = "",
        requester: str = "",
        key: str | None = None,
        part: Part | str | tuple[int, int] | None = None,
        members: Sequence[Any] | str | None = None,
        rng: Rng | int | None = None,
        together: bool = False,
        **columns: Any,
    ) -> Release:
        """One release of `data`. With a ledger: charged first, then drawn, in one transaction.

        `data` is a sequence of states or several, or a table of any library, or the path of a
        file; then `columns` name where its entries are (`state=`, `series=`, `time=`, `gap=`,
        `missing=`, `bins=`, … of `shoal.read`). Several series are released `together` only when
        asked; see `release_each`. `ledger` may be a path; a number as `rng` seeds a demo. The other
        names are those of a `Charge`: a ledger asks for `subject`, whose data it is. `part` may be
        a span (from, to), which must be as long as the data, or a name. `members` of a release of
        all series together are these series, unless others are named.
        """
        self._check_single()
        check_subject(ledger is not None, bool(subject))
        _warn(self)
        stated = Part.of(part)
        with ledger_at(ledger) as account:
            source = source_for(account, rng)
            read = self._read(data, columns, together=together)
            stated.check_size(read.longest)
            if account is None:
                made = self._draw(read.records, source)
            else:
                charge = Charge(
                    plan=self,
                    subject=subject,
                    period=period,
                    requester=requester,
                    key=key,
                    part=stated,
                    members=members_of(members, subject, read.series),
                )
                made = account.settle(charge, lambda: self._draw(read.records, source))
        return made if read.library is None else replace(made, library=read.library)

    def release_each(
        self,
        data: Any,
        *,
        series: Any = None,
        ledger: Ledger | str | os.PathLike[str] | None = None,
        subject: str = "",
        period: str = "",
        requester: str = "",
        key: str | None = None,
        rng: Rng | int | None = None,
        periods: str = "parts",
        epsilon: Number | None = None,
        **columns: Any,
    ) -> Releases:
        """One release for each series of a table or a file, all by this plan.

        A ledger charges each under its own name, or under `subject` where the data is one series.
        With `every` ("day", "week", …) there is a release for each day of each series. A promise
        holds for one release. What those about one series come to is `together` of what is
        returned, and is refused above `epsilon`, which is the plan's own unless given: the plan
        of a part that keeps it is `shoal.budget(…).plan`. Days are parts of a series, however they
        depend on each other, unless `periods` are claimed to be "independent". All data is read
        and checked before the first charge.
        """
        self._check_single()
        columns |= {} if series is None else {"series": series}
        named = load("shoal.data.entries:names_subjects")(data, columns)
        check_subject(ledger is not None, bool(subject) or named, "a column with series=…, or ")
        with ledger_at(ledger) as account:
            source = source_for(account, rng)
            found, library, parts = load("shoal.data.entries:each_series")(self.task, data, columns)
            owners = [parts[name].subject if name in parts else name for name in found]
            check_one_owner(subject, owners)
            if period and parts:
                raise InputError("period and every both name periods; drop one of them")
            releases = Releases()
            if parts and check_periods(periods, "every") == "parts":
                total = load("shoal.ledger.budget:check_parts")(self, epsilon)
                most = max(map(owners.count, owners))
                releases.together = replace(total, charges=most)
            elif epsilon is not None:
                raise InputError(
                    "epsilon is for releases about parts of one series, and each release here is "
                    "about data of its own; drop it, or give every=…"
                )
            for name, owner in zip(found, owners, strict=True):
                own = None if key is None else f"{key}/{name}"
                who = {"subject": subject or owner, "requester": requester, "key": own}
                who |= parts[name].charge_fields(periods) if name in parts else {"period": period}
                account_fields: dict[str, Any] = (
                    {"ledger": account, **who} if account is not None else {}
                )
                made = self.release(found[name], rng=source, **account_fields)
                releases[name] = made if library is None else replace(made, library=library)
        return releases

    def _check_single(self) -> None:
        if not isinstance(self.body, Sampler):
            raise InputError(f"{self.mechanism} is a stream plan; use plan.start()")

    def _read(self, data: Any, columns: dict[str, Any], *, together: bool) -> RecordsRead:
        """The records of `data`, checked, the library of its table, and the series in it."""
        if isinstance(data, Sequences | list | tuple) and not columns:
            return RecordsRead.of(self.task.read(data))
        found: RecordsRead = load("shoal.data.entries:records_for")(
            self.task, data, columns, together=together
        )
        return found

    def start(self) -> Stream:
        """The stream before its first step."""
        if not isinstance(self.body, Machine):
            raise InputError(f"{self.mechanism} makes single releases; use plan.release(data)")
        return Stream(self, self.body.init())

    def explain(self) -> str:
        """Return a plain-language summary for decision makers, one paragraph per question."""
        error = self.error()
        useful, careful = load("shoal.mechanisms.usefulness:in_words")(self)
        models = [model.describe() for model in self.task.family]
        shown = models[:3] + ([f"{len(models) - 3} more models"] if len(models) > 3 else [])
        protected = plan_act("protected", self)
        knows = "an adversary who knows everything but the data, and may believe "
        parts = [
            ("Asked", self.task.query.describe()),
            ("Protected", protected(self) if protected else self.task.secrets.describe()),
            ("From", knows + "; or ".join(shown)),
            ("Promise", self.guarantee.describe()),
            ("Mechanism", f"{self.mechanism}: {self.body.describe()}."),
            ("Error", f"each value is {error.describe()}." if error else ""),
            ("Useful", useful),
            ("Careful", careful),
            ("Why it holds", f"{self.certificate.theorem}."),
            ("Assumes", "; ".join(self.certificate.assumptions) + "."),
            ("Adding up", "; or ".join(rule.describe() for rule in self.composition) + "."),
        ]
        width = max(len(title) for title, _ in parts) + 2
        return "\n".join(f"{title + ':':<{width}}{text}" for title, text in parts if text)

    def released(self, answer: Answer, *, secure: bool) -> Release:
        """The release that holds `answer`, with this plan's promise: all are made here."""
        return Release(
            answer=answer,
            plan=self.fingerprint,
            mechanism=self.mechanism,
            guarantee=self.guarantee,
            error=_usual_error(self),
            secure=secure,
        )

    def _draw(self, records: Any, rng: Rng) -> Release:
        assert isinstance(self.body, Sampler)  # `release` has checked it
        drawn = self.released(self.body.draw(records, rng), secure=rng.secure)
        counted = isinstance(records, Sequences)
        return drawn.over(records.total, self.task.query) if counted else drawn


class UselessRelease(UserWarning):
    """Warns of noise too large for a useful release, or an epsilon too large to protect."""


@lru_cache(maxsize=256)
def _warn(plan: Plan) -> None:
    """Warn, once per plan, about noise that hides the answer and budgets too large to protect.

    It reads the plan alone, so a warning does not depend on the data.
    """
    for sentence in load("shoal.mechanisms.usefulness:cautions")(plan):
        warnings.warn(sentence, UselessRelease, stacklevel=3)


@lru_cache(maxsize=64)
def _usual_error(plan: Plan) -> Error | None:
    """What every release of the plan says about its error."""
    return plan.error()


class Fresh(NamedTuple):
    """A reading that was taken: what may be shown of it."""

    output: Any


class Repeated(NamedTuple):
    """A reading that was processed before, with its stored output; no draw and no charge."""

    output: Any


class Late(NamedTuple):
    """A reading older than `last`, which was already processed; no draw, charge or output."""

    last: Any


Outcome = Fresh | Repeated | Late

STREAM = b"SST\x01"  # the stored state of a stream, and its version
CHECK_BYTES = 8  # of a hash against damage, not against forgers


@dataclass(frozen=True, slots=True, eq=False)
class Stream(Shown, Value):
    """A stream plan and where it stands; stepping returns the next stream, so it can be stored."""

    kind = "stream"

    plan: Plan
    state: Any

    def step(self, observed: Any, *, rng: Rng | None = None) -> tuple[Stream, Any]:
        """The stream after `observed`, and what may be shown."""
        assert isinstance(self.plan.body, Machine)
        source = source_for(None, rng)
        state, shown = self.plan.body.step(self.state, observed, source)
        return Stream(self.plan, state), shown

    def to_bytes(self) -> bytes:
        """Where the stream stands, without the plan, which is stored once for all streams.

        As private as the stream: that of contexts can tell what was suppressed.
        """
        own = [encode(getattr(self, each.name)) for each in fields(self)[1:]]
        text = json.dumps([self.plan.fingerprint, *own], ensure_ascii=False)
        body = STREAM + zlib.compress(text.encode())
        return body + hashlib.blake2b(body, digest_size=CHECK_BYTES).digest()

    @classmethod
    def from_bytes(cls, plan: Plan, stored: bytes) -> Self:
        """The stream of `plan` that `to_bytes` stored; StoredError when it is not one."""
        from shoal.core.registry import KINDS

        body, check = stored[:-CHECK_BYTES], stored[-CHECK_BYTES:]
        if body[: len(STREAM)] != STREAM:
            raise StoredError("the bytes hold no stored stream of this version")
        if hashlib.blake2b(body, digest_size=CHECK_BYTES).digest() != check:
            raise StoredError("the stored stream is damaged; restore it from a copy")
        begun_with, *own = json.loads(zlib.decompress(body[len(STREAM) :]))
        if begun_with != plan.fingerprint:
            raise StoredError("the stored stream belongs to another plan; give that plan")
        return cls(plan, *(decode(each, KINDS) for each in own))


@runtime_checkable
class Noise(Protocol):
    """A law on a lattice, drawn exactly."""

    @property
    def step(self) -> Fraction:
        """The lattice: every draw is an integer multiple of this."""
        ...

    @property
    def scale(self) -> Fraction:
        """The scale of the noise, in the query's own units."""
        ...

    def draw(self, count: int, rng: Rng) -> Any: ...
    def expected_error(self) -> float: ...
    def quantile(self, confidence: float) -> Fraction: ...


@dataclass(frozen=True, slots=True, eq=False)
class Additive(Value):
    """query(data) + noise, coordinate by coordinate, in integers."""

    kind = "additive"

    query: Query
    noise: Noise

    def __post_init__(self) -> None:
        if (self.query.lattice / self.noise.step).denominator != 1:
            raise InputError(
                f"noise step is {self.noise.step}; it must divide the query's lattice "
                f"{self.query.lattice}"
            )

    @property
    def eta(self) -> Fraction:
        """Entry-level DP of the release: Lipschitz constant over scale."""
        return self.query.lipschitz / self.noise.scale

    def draw(self, records: Any, rng: Rng) -> Answer:
        """One answer. Charge the ledger before calling this."""
        ratio = int(self.query.lattice / self.noise.step)
        truth = self.query.evaluate(records)
        noise = self.noise.draw(len(truth), rng)
        multiples = tuple(ratio * t + int(z) for t, z in zip(truth, noise, strict=True))
        return Answer(self.query.labels, multiples, self.noise.step, self.query.unit)

    def error(self, confidence: float) -> Error:
        """How far one coordinate may be off: expected, and within a bound at `confidence`."""
        return Error(
            expected=self.noise.expected_error(),
            bound=float(self.noise.quantile(confidence)),
            confidence=confidence,
            unit=self.query.unit,
        )

    def describe(self) -> str:
        """Return the noise in words: its law, scale, lattice, and the number of values."""
        kind = type(self.noise).__name__
        names = {"LatticeLaplace": "discrete Laplace", "ZeroSumLaplace": "zero-sum Laplace"}
        name = names.get(kind, kind)
        return (
            f"{name} noise of scale {significant(self.noise.scale)} {self.query.unit} "
            f"on the lattice {self.noise.step}, drawn for each of "
            f"{len(self.query.labels)} value(s)"
        )
