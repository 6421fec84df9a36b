"""`shoal stream`: filter readings live, one JSON object a line in, one a line out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from shoal.cli.options import PlanSource, new_app
from shoal.cli.show import unicode_out
from shoal.contexts.views.calendar import Days, clock_of, timed
from shoal.core.errors import DataError, InputError
from shoal.places.views.stream import (
    Purse,
    begun,
    follows_places,
    place_doubt,
    place_step,
    warn_of_stored,
)

if TYPE_CHECKING:
    from shoal.contexts.day import DayChain
    from shoal.contexts.stream import ContextStream
    from shoal.core.plan import Plan, Stream

app = new_app()

BYTE_ORDER_MARK = "\ufeff"  # some editors begin a file with it

EXAMPLES = """\b
Examples:
  shoal stream mask.toml < contexts.jsonl > shown.jsonl
  tail -f contexts.jsonl | shoal stream plan.json --state today.json
  shoal stream mask.toml --clock time < timed.jsonl
\b
A line in:  {"context": "home"}, or {"day": "2024-03-04", "slot": 36, "context": "work"}
  with --clock: {"time": "2024-03-04T18:05", "context": "work"}
A line out: {"slot": 36, "shown": "work"}; null stands for suppressed
Of places:  {"lat": 39.91, "lon": 116.41}, {"state": "3,4"} or {"skip": 2}
       out: {"time": 1, "z": [1.5, 2], "estimate": [1.4, 1.6], …}
"""


Field = Annotated[
    str, typer.Option(metavar="KEY", help="The key of a line that holds the reading.")
]
Clock = Annotated[
    str | None,
    typer.Option(metavar="KEY", help="For contexts: the key of a line that holds its time."),
]
StatePath = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Keep where the stream stands, to go on after a stop; as private as the data.",
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(metavar="N", help="Predictable randomness: protects nothing, for tests only."),
]
Start = Annotated[
    str | None,
    typer.Option(metavar="STATE", help="For places: a first state that everybody knows."),
]
LedgerPath = Annotated[
    str | None,
    typer.Option(
        metavar="FILE", help="Charge each step of places, or each day of contexts, first."
    ),
]
Subject = Annotated[
    str, typer.Option(metavar="NAME", help="Whose readings they are, for the ledger.")
]
Period = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="The period the ledger charges; the day of lines that name none."
    ),
]


@app.command(epilog=EXAMPLES)
def stream(
    source: PlanSource,
    field: Field = "context",
    clock: Clock = None,
    state: StatePath = None,
    seed: Seed = None,
    start: Start = None,
    ledger: LedgerPath = None,
    subject: Subject = "",
    period: Period = "",
) -> None:
    """Show, hide or blur each reading as it comes.

    Reads JSON Lines from standard input and writes one line for each to standard output at once.
    Lines may name their day and slot, or with --clock their time: slots left out count as missing,
    a slot asked for again gives the same answer, a new day starts afresh. Everything a person's
    applications see must come from one such stream.
    """
    from shoal.cli.sources import load_plan

    _check_options(state, ledger, subject, period)
    plan, _ = load_plan(source)
    if field != "context" and follows_places(plan):
        raise InputError(
            f"--field is {field!r}, but {plan.mechanism} reads lat and lon, or state; drop it"
        )
    if seed is not None:
        typer.echo("WARNING: --seed makes the stream predictable; it protects nothing.", err=True)
    keys = Keys(field, clock, None if clock is None else clock_of(plan))
    purse = _purse(plan, ledger, subject, period, seed)
    runner = _begun(plan, state, start)
    if purse is not None and follows_places(plan):
        warn_of_stored(runner, purse)
    for line in filtered(runner, _lines_in(), keys, state, seed, purse):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _lines_in() -> Iterable[str]:
    """Standard input as UTF-8, whatever the locale; bytes that are none spoil their line alone."""
    if sys.stdin is None:
        raise InputError("standard input is closed; hand the readings over with < FILE or a pipe")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    return sys.stdin


def _check_options(state: Path | None, ledger: str | None, subject: str, period: str) -> None:
    """Refuses, before anything is drawn, a state that cannot be kept and charges to no ledger."""
    from shoal.data.files import check_writable

    if sys.stdout is None:
        raise InputError("standard output is closed; what is shown must go somewhere")
    if state is not None:
        check_writable(state)
    given = [name for name, value in (("subject", subject), ("period", period)) if value]
    if ledger is None and given:
        raise InputError(f"--{given[0]} is given without --ledger; name the ledger too")


class Keys(NamedTuple):
    """Where a line holds its reading, and its time where --clock says so."""

    field: str
    clock: str | None = None
    day: DayChain | None = None


def filtered(
    runner: ContextStream | Stream,
    lines: Iterable[str],
    keys: Keys,
    state: Path | None,
    seed: int | None,
    purse: Purse | None = None,
) -> Iterator[str]:
    """The lines to write, one for each line read; the state is stored before a line goes out."""
    from shoal.core.registry import dumps
    from shoal.core.rng import Rng, SystemRng
    from shoal.data.files import atomic_write
    from shoal.noise.primitives import SeededRng

    rng: Rng = SystemRng() if seed is None else SeededRng(seed)
    doubtful, days = True, Days()
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        reading = _reading(text.removeprefix(BYTE_ORDER_MARK), number)
        try:
            if keys.clock is not None and keys.day is not None:
                reading = timed(reading, keys.clock, keys.day)
                if reading["slot"] is None:  # at other hours nothing is shown, whatever it is
                    yield json.dumps({"day": reading["day"], "slot": None, "shown": None})
                    continue
            if reading.get("day") is not None:
                days.enter(str(reading["day"]), getattr(runner, "day", ""))
            runner, out = _step(runner, reading, keys.field, rng, purse)
        except InputError as error:
            raise DataError(f"line {number}: {error}") from None
        doubt = _doubt(runner, reading, keys.field) if doubtful else ""
        if doubt:
            # once: the reader of standard error owns the readings, but needs no line for each
            typer.echo(f"WARNING: line {number}: {doubt}", err=True)
            doubtful = False
        if state is not None:
            # before the line goes out: a second draw of a slot that was shown would tell more
            atomic_write(state, dumps(runner, indent=None) + "\n")
            state.chmod(0o600)
        yield json.dumps(out, ensure_ascii=not unicode_out())


def _step(
    runner: Any, reading: dict[str, Any], field: str, rng: Any, purse: Purse | None
) -> tuple[Any, dict[str, Any]]:
    from shoal.contexts.stream import ContextStream
    from shoal.places.stream import LocationStream

    if isinstance(runner, LocationStream):
        return place_step(runner, reading, rng, purse)
    if not isinstance(runner, ContextStream):
        runner, shown = runner.step(reading.get(field), rng=rng)
        return runner, {"shown": shown}
    slot, day = reading.get("slot"), reading.get("day")
    if slot is not None and (not isinstance(slot, int) or isinstance(slot, bool)):
        raise InputError(f"slot is {slot!r}; it must be a whole number")
    charged: dict[str, Any] = {}
    if purse is not None:
        charged = {"ledger": purse.ledger, "subject": purse.subject}
        day = (purse.period or None) if day is None and not runner.day else day
        if day is None and not runner.day:
            raise InputError(
                'the line names no day, which is what a ledger charges; give "day" in it, or '
                "--clock KEY, or --period DAY"
            )
    runner, shown = runner.read(
        reading.get(field), slot=slot, day=None if day is None else str(day), rng=rng, **charged
    )
    out = {"slot": runner.state.slot - 1 if slot is None else slot, "shown": shown}
    return runner, ({"day": runner.day, **out} if runner.day else out)


def _doubt(runner: Any, reading: dict[str, Any], field: str) -> str:
    """Why a line is suppressed or moved whatever the plan says; empty when it is not."""
    from shoal.contexts.stream import ContextStream
    from shoal.core.records import label
    from shoal.places.stream import LocationStream

    if isinstance(runner, LocationStream):
        return place_doubt(runner, reading)
    if not isinstance(runner, ContextStream):
        return ""
    if field not in reading:
        others = [key for key in reading if key not in ("slot", "day", "time")]
        return (
            f"it has no key {field!r}, so it counts as missing; rename {others[0]!r} to {field!r}, "
            f"or give --field {others[0]}"
            if others
            else ""
        )
    states = runner.plan.task.query.states
    if reading[field] is None or label(reading[field]) in states:
        return ""
    return (
        f"{field} is {reading[field]!r}, which is not one of the model's contexts "
        f"({', '.join(map(str, states))}), so it is suppressed; correct it, or fit the model again"
    )


def _begun(plan: Plan, state: Path | None, start: str | None) -> Any:
    """The stream where it stood, or before its first step."""
    from shoal.contexts.day import DayChain
    from shoal.contexts.stream import ContextStream, goes_on
    from shoal.core.plan import Machine
    from shoal.spec.fields import load_stored

    if not isinstance(plan.body, Machine):
        raise InputError(f"{plan.mechanism} makes single releases; use `shoal release`")
    if start is not None and not follows_places(plan):
        raise InputError(
            f"--start is {start!r}, but {plan.mechanism} is no plan for places; drop it"
        )
    if state is not None and state.exists():
        stored = load_stored(state, "state")
        begun_with = getattr(stored, "plan", None)
        if begun_with is None or not goes_on(begun_with, plan):
            raise InputError(
                f"state {str(state)!r} belongs to another plan; name another file, or remove it"
            )
        return stored
    if follows_places(plan):
        return begun(plan, start)
    if isinstance(plan.task.family[0], DayChain):
        return ContextStream.begin(plan)
    return plan.start()


def _purse(
    plan: Plan, ledger: str | None, subject: str, period: str, seed: int | None
) -> Purse | None:
    if ledger is None:
        return None
    from shoal.contexts.day import DayChain

    if not (follows_places(plan) or isinstance(plan.task.family[0], DayChain)):
        raise InputError("--ledger charges streams of places and of contexts, not this one")
    if seed is not None or not subject:
        raise InputError(
            "--ledger needs --subject, and takes no --seed: predictable steps are free"
        )
    from shoal.ledger.store import open_ledger

    return Purse(open_ledger(ledger), subject, period)


def _reading(text: str, number: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise DataError(f"line {number} is not a JSON object; write one object a line")
    return found
