"""Streams step by step: what a step costs, its draw, the stream after it, and the driver of all.

A step is priced from public history, charged, drawn and absorbed. `run_batch` does so for many
streams in one transaction of a ledger; it is the only driver of streams.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeVar

from shoal.core.charge import WHOLE, Part, SystemRng
from shoal.core.errors import InputError, LedgerError, ShoalError

if TYPE_CHECKING:
    from shoal.core.charge import Charge, Rng
    from shoal.core.plan import Release


@dataclass(frozen=True, slots=True)
class Allowed:
    """The charge is within every limit; its output may be drawn."""


@dataclass(frozen=True, slots=True)
class Stored:
    """The key was charged before. `output` is what was released; None where its draw failed."""

    output: Release | None


@dataclass(frozen=True, slots=True)
class Denied:
    """The charge is refused and was not made."""

    reason: ShoalError


@dataclass(frozen=True, slots=True)
class SameAs:
    """The charge repeats the key of the one at an earlier `position` of the batch."""

    position: int


Verdict = Allowed | Stored | Denied | SameAs
ALLOWED = Allowed()
T = TypeVar("T")


class Transaction(Protocol):
    """One transaction of a ledger; no charge counts before it commits."""

    def charge(self, charges: Sequence[Charge]) -> list[Verdict]:
        """Return the verdict on each charge, with its subjects locked from here on."""
        ...

    def store(self, outputs: Mapping[int, Release]) -> None:
        """Write the charges that were allowed, with their outputs by position of the charge."""
        ...


class ChargingLedger(Protocol):
    """A ledger, or a transaction of one that the caller commits."""

    def transact(self, work: Callable[[Transaction], T]) -> T:
        """Return what `work` makes of a transaction; it may run again if that had no effect."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Slot:
    """The public facts of a step before it is drawn, and who is charged for it.

    `read` is False where it is public that no reading is taken. `at` says when the reading was
    taken, where steps are counted by readings. `number` is the slot of a day, None for the next.
    `drawer` names who may draw the same day again after a stop. `covers` is when the period lies,
    in microseconds since 1970, the second exclusive; None where it is unknown.
    """

    subject: str = ""
    period: str = ""
    requester: str = ""
    key: str | None = None
    at: str = ""
    number: int | None = None
    read: bool = True
    drawer: str = ""
    covers: tuple[int, int] | None = None

    @property
    def part(self) -> Part:
        """The part that a step is charged for: all of a period, with when it lies."""
        return WHOLE if self.covers is None else Part(covers=self.covers)


@dataclass(frozen=True, slots=True)
class Price:
    """The cost of a step, None if it is free, and the law it is drawn from; both are public."""

    slot: Slot
    charge: Charge | None
    law: Any = None


Reading_contra = TypeVar("Reading_contra", contravariant=True)
Output = TypeVar("Output")


class PricedStream(Protocol[Reading_contra, Output]):
    """A stream of one person: an immutable value."""

    def price(self, slot: Slot) -> Price:
        """Return what the next step costs: from public history, never from the reading."""
        ...

    def draw(self, price: Price, reading: Reading_contra, rng: Rng) -> Output:
        """Return the output of the step: the only place that sees the reading and draws."""
        ...

    def absorb(self, price: Price, output: Output) -> Self:
        """Return the stream after the output."""
        ...

    def to_release(self, price: Price, output: Output) -> Release:
        """Return what a ledger stores of an output."""
        ...

    def resume(self, price: Price, reading: Reading_contra, stored: Release, rng: Rng) -> Output:
        """Return the output of a step that was charged before, when the ledger stored `stored`."""
        ...


S = TypeVar("S", bound=PricedStream[Any, Any])


@dataclass(frozen=True, slots=True)
class Step(Generic[S]):
    """The next step of one stream. `reading` is valid: what cannot be read is refused before.

    `rng` is the step's own source, where the batch's is not to be used.
    """

    stream: S
    slot: Slot = field(default_factory=Slot)
    reading: Any = None
    rng: Rng | None = None


@dataclass(frozen=True, slots=True)
class StepResult(Generic[S]):
    """The stream after a step and its output; or the `error` for which it stays where it was.

    `lost` says that the step is charged and its output is lost: drawing it failed.
    """

    stream: S
    output: Any = None
    error: Exception | None = None
    lost: bool = False

    def after(self) -> S:
        """Return the stream after the step; raise the error of one that failed."""
        if self.error is not None:
            raise self.error
        return self.stream


def run_batch(
    steps: Sequence[Step[S]], ledger: ChargingLedger | None = None, rng: Rng | None = None
) -> list[StepResult[S]]:
    """Return the result of each step: priced, charged, drawn, stored and committed.

    There is one step per stream. All are charged in one transaction of `ledger`; without one none
    is. A step that is refused or fails harms no other one. `rng` is the system's unless given.
    """
    source = rng or SystemRng()
    results: dict[int, StepResult[S]] = {}
    prices: dict[int, Price] = {}
    for at, step in enumerate(steps):
        try:
            if ledger is not None and step.slot.read and not step.slot.subject:
                raise InputError("subject is empty; a ledger needs to know whose data is released")
            prices[at] = step.stream.price(step.slot)
        except ShoalError as error:
            results[at] = StepResult(step.stream, error=error)
    charged = [at for at, price in prices.items() if price.charge is not None]
    outputs: dict[int, Any] = {}
    if ledger is not None and charged:
        found = ledger.transact(lambda tx: _charge_and_draw(steps, prices, charged, tx, source))
        outputs.update(found[0])
        results.update(found[1])
    for at, price in prices.items():
        if at not in outputs and at not in results:
            _draw(steps, at, price, source, outputs, results)
        if at not in results:
            results[at] = _absorb(steps[at], price, outputs[at])
    return [results[at] for at in range(len(steps))]


def _charge_and_draw(
    steps: Sequence[Step[S]],
    prices: Mapping[int, Price],
    charged: Sequence[int],
    transaction: Transaction,
    rng: Rng,
) -> tuple[dict[int, Any], dict[int, StepResult[S]]]:
    """Return outputs and failures of the steps that cost something, by position of the step."""
    outputs: dict[int, Any] = {}
    results: dict[int, StepResult[S]] = {}
    charges = [charge for at in charged if (charge := prices[at].charge) is not None]
    verdicts = transaction.charge(charges)
    drawn: dict[int, Release] = {}
    for position, (at, verdict) in enumerate(zip(charged, verdicts, strict=True)):
        stream, price = steps[at].stream, prices[at]
        if isinstance(verdict, Denied):
            results[at] = StepResult(stream, error=verdict.reason)
        elif isinstance(verdict, Allowed):
            _draw(steps, at, price, rng, outputs, results)
            if at in outputs:
                drawn[position] = stream.to_release(price, outputs[at])
        else:
            same = isinstance(verdict, SameAs)
            stored = drawn.get(verdict.position) if isinstance(verdict, SameAs) else verdict.output
            try:
                if stored is None:
                    raise lost_output(same=same)
                step = steps[at]
                outputs[at] = stream.resume(price, step.reading, stored, step.rng or rng)
            except ShoalError as error:
                results[at] = StepResult(stream, error=error, lost=stored is None)
    transaction.store(drawn)
    return outputs, results


def _draw(
    steps: Sequence[Step[S]],
    at: int,
    price: Price,
    rng: Rng,
    outputs: dict[int, Any],
    results: dict[int, StepResult[S]],
) -> None:
    """Put the output of a step into `outputs`, or why its draw failed into `results`."""
    step = steps[at]
    try:
        outputs[at] = step.stream.draw(price, step.reading, step.rng or rng)
    except Exception as error:  # noqa: BLE001 - one step that fails must not undo the others
        lost = price.charge is not None
        results[at] = StepResult(step.stream, error=error, lost=lost)


def _absorb(step: Step[S], price: Price, output: Any) -> StepResult[S]:
    """Return the stream after an output."""
    try:
        return StepResult(step.stream.absorb(price, output), output)
    except ShoalError as error:
        return StepResult(step.stream, error=error)


def lost_output(*, same: bool = False) -> LedgerError:
    """Return why a charged key has no output to give again."""
    other = "of another step of this batch " if same else ""
    return LedgerError(
        f"the charge {other}under this key has no output, because drawing it failed after it was "
        "charged; use a new key"
    )


def look_up(ledger: ChargingLedger, charge: Charge) -> Verdict:
    """Return the verdict on a charge that is not made."""
    return ledger.transact(lambda transaction: transaction.charge([charge]))[0]
