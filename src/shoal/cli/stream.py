"""`shoal stream`: filter readings live, one JSON object a line in, one a line out."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options
from shoal.cli.options import flag, option
from shoal.cli.show import escape_controls, unicode_out
from shoal.core.errors import DataError, InputError, StoredError

if TYPE_CHECKING:
    from shoal.core.charge import Rng
    from shoal.core.plan import Plan
    from shoal.mechanisms.queries import RunningStream

app = options.new_app()

BYTE_ORDER_MARK = "\ufeff"  # some editors begin a file with it
LONGEST_LINE = 2**20  # characters: a reading is a few dozen
MOST_REASONS = 100  # most reasons that are counted separately; others are counted together
VALUES = re.compile(r"'[^']*'|[0-9]+")  # what like reasons may differ in
NOT_JSON = "it is not a JSON object; write one object a line"
NOT_READ = "the line is not a reading of this stream, or its time is before the last one answered"

EXAMPLES = """\b
Examples:
  shoal stream mask.toml < contexts.jsonl > shown.jsonl
  tail -f contexts.jsonl | shoal stream plan.json --state today.json --resume
  shoal stream mask.toml --clock time < timed.jsonl
  shoal stream plan.json --by user --ledger budget.db < everybody.jsonl
\b
A line in:  {"context": "home"}, or {"day": "2024-03-04", "slot": 36, "context": "work"}
  with --clock: {"time": "2024-03-04T18:05", "context": "work"}
A line out: {"slot": 36, "shown": "work"}; null stands for suppressed
Of counts:  {"state": "walk"} or {"skip": 2}; out: {"entries": 60, "shown": {"walk": 12.0}, …}
Of places:  {"lat": 39.91, "lon": 116.41}, {"state": "3,4"} or {"skip": 2}
       out: {"time": 1, "z": [1.5, 2], "estimate": [1.4, 1.6], …}
\b
A line may have an "id": with --state, the id of the last line answered brings its answer again.
A line that cannot be used is answered with {"line": 7, "error": …}; the stream goes on.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """The options of `shoal stream`: keys of a line, start, stored state, and the account.

    `ledger` is the named ledger, open while lines are read.
    """

    source: options.PlanSource
    field: Annotated[str, option("KEY", "The key of a line that holds the reading.")] = "context"
    clock: Annotated[
        str | None, option("KEY", "For contexts: the key of a line that holds its time.")
    ] = None
    by: Annotated[
        str | None, option("KEY", "A stream for each value of this key of a line, such as user.")
    ] = None
    state: Annotated[
        Path | None,
        option(
            "FILE", "Keep where the stream stands, to go on after a stop; as private as the data."
        ),
    ] = None
    resume: Annotated[
        bool, flag("--resume", "With --state: first print the last answer once more.")
    ] = False
    strict: Annotated[bool, flag("--strict", "Stop at a line that cannot be used.")] = False
    seed: options.DemoSeed = None
    start: options.Start = None
    named_ledger: Annotated[
        str | None, option("FILE", "Charge the ledger before anything is drawn.", "--ledger")
    ] = None
    subject: options.Subject = ""
    period: options.Period = ""
    ledger: Any = None


class Lines:
    """How streams process a line; the constructor checks the plan and the options.

    This class serves every stream whose family has no lines of its own.
    """

    charged = False  # whether a ledger can be charged

    def __init__(self, plan: Plan, options: StreamOptions) -> None:
        self._plan, self._options = plan, options
        if options.start is not None or options.clock is not None:
            name = "--clock" if options.start is None else "--start"
            raise InputError(f"{name} says nothing to {plan.mechanism}; drop it")

    def begin(self) -> Any:
        """Return the stream before its first step."""
        return self._plan.start()

    def goes_on(self, stored: Plan) -> bool:
        """Return whether a stream that began with another plan may go on with this one."""
        return stored == self._plan

    def step(self, runner: Any, reading: dict[str, Any], rng: Rng) -> tuple[Any, dict[str, Any]]:
        """Return the stream after a line, and the output line; refuses lines without a reading."""
        after, shown = runner.step(reading.get(self._options.field), rng=rng)
        return after, {"shown": shown}

    def doubt(self, runner: Any, reading: dict[str, Any]) -> str:
        """Return a warning to the owner of the readings about a line; empty if there is none."""
        return ""


class CountLines(Lines):
    """Lines of entries for `shoal stream`: a state each, null or {"skip": 3} where none was read.

    An output line has the number of the entry, and at the end of a step its noisy answer.
    """

    charged = True

    def __init__(self, plan: Plan, options: StreamOptions) -> None:
        """Keep the plan and the options; refuses --clock, which only contexts of a day have."""
        from shoal.mechanisms.queries import running

        self._plan, self._options = plan, options
        self._every = running(plan).query.every
        if options.clock is not None:
            raise InputError("--clock is for the contexts of a day; drop it for other streams")

    def begin(self) -> RunningStream:
        """Return a new stream that starts at entry --start, by default 0; refuses non-digits."""
        from shoal.mechanisms.queries import running

        start = "0" if self._options.start is None else self._options.start
        if not start.isdecimal():
            raise InputError(f"--start is {start!r}; give the number of the first entry")
        return running(self._plan).begin(self._plan, int(start))

    def step(
        self, runner: RunningStream, reading: dict[str, Any], rng: Rng
    ) -> tuple[RunningStream, dict[str, Any]]:
        """Return the stream after a line, and the output line, with answers of skipped steps."""
        options = self._options
        skipped = reading.get("skip", 1)
        if type(skipped) is not int or not 1 <= skipped <= self._every:
            raise InputError("skip is no whole number from 1 to the entries of a step")
        observed = None if "skip" in reading else reading.get(options.field, reading.get("state"))
        shown = None
        for _ in range(skipped):
            runner, release = runner.read(
                observed,
                rng=rng if options.ledger is None else None,
                ledger=options.ledger,
                subject=options.subject,
                period=options.period,
            )
            shown = release or shown
        fields: dict[str, Any] = {"entries": runner.state.first + runner.state.over}
        if shown is not None:
            fields |= {"shown": shown.as_dict(), "read": shown.answer.entries}
        return runner, fields


@app.command(epilog=EXAMPLES)
@options.takes(StreamOptions)
def stream(options: StreamOptions) -> None:
    """Show, hide or blur each reading as it comes.

    Reads JSON Lines from standard input and writes one line for each to standard output at once.
    Lines may name their day and slot, or with --clock their time: slots left out count as missing,
    a slot asked for again gives the same answer, a new day starts afresh. Everything a person's
    applications see must come from one such stream.
    """
    from shoal.cli.sources import Source
    from shoal.core.charge import SystemRng
    from shoal.core.family import plan_act
    from shoal.core.plan import Machine
    from shoal.noise.primitives import SeededRng

    source = Source.read(options.source)
    if options.named_ledger is not None and options.by is None:
        options = replace(options, subject=options.subject or source.columns.subject or "")
    _check_options(options)
    plan = source.plan()
    if not isinstance(plan.body, Machine):
        raise InputError(f"{plan.mechanism} makes single releases; use `shoal release`")
    if options.seed is not None:
        typer.echo("WARNING: --seed makes the stream predictable; it protects nothing.", err=True)
    family = plan_act("read_stream", plan) or Lines
    lines: Lines = family(plan, options)
    if options.named_ledger is not None and not lines.charged:
        raise InputError("--ledger charges streams of places, contexts and counts, not this one")
    texts = _lines_in()
    if options.by is not None:
        _stream_by_key(options, plan, family, texts)
        return
    with _open_named_ledger(options.named_ledger) as ledger:
        lines = family(plan, replace(options, ledger=ledger))
        runner, last = _stored_or_new(lines, options.state)
        rng: Rng = SystemRng() if options.seed is None else SeededRng(options.seed)
        if options.resume and last:
            _out(last)
        for line in filter_lines(
            lines, runner, last, texts, rng, options.state, strict=options.strict
        ):
            _out(line)


def _stream_by_key(
    options: StreamOptions,
    plan: Plan,
    family: Callable[[Plan, StreamOptions], Lines],
    texts: Iterable[str],
) -> None:
    """Answer the lines of many streams, each named by a key, until the input ends.

    Where streams stand is in the ledger, or in --state, a database of the same kind.
    """
    from shoal.core.charge import SystemRng
    from shoal.jobs.keyed import KeyedLines, StoredStreams, UnstoredStreams
    from shoal.noise.primitives import SeededRng

    unused = UnusedLines()
    rng: Rng = SystemRng() if options.seed is None else SeededRng(options.seed)
    lines = KeyedLines(
        by=options.by or "",
        parse=parse_line,
        reader=lambda subject, ledger: family(
            plan, replace(options, subject=subject, ledger=ledger)
        ),
        rng=rng,
        report=lambda number, error: _refusal_line(number, error, unused, strict=options.strict),
        warn=lambda number, doubt: typer.echo(
            f"WARNING: line {number}: {escape_controls(doubt)}", err=True
        ),
    )
    where = options.named_ledger or (None if options.state is None else str(options.state))
    with _open_named_ledger(where) as database:
        charged = options.named_ledger is not None
        kept: UnstoredStreams | StoredStreams = UnstoredStreams()
        if database is not None:
            kept = StoredStreams(database, plan, lines.begun(), charged=charged)
        for line in lines.answers(texts, kept):
            _out(line)
    unused.sum_up()


def _open_named_ledger(where: str | None) -> AbstractContextManager[Any]:
    """Open the ledger while inside, if one is named."""
    if where is None:
        return nullcontext()
    from shoal.ledger.store import ledger_or_nothing

    return ledger_or_nothing(where)


def _out(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line, ensure_ascii=not unicode_out()) + "\n")
    sys.stdout.flush()


def _lines_in() -> Iterable[str]:
    """Yield lines of standard input as UTF-8; invalid bytes make only their own line unusable."""
    if sys.stdin is None:
        raise InputError("standard input is closed; hand the readings over with < FILE or a pipe")
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(encoding="utf-8", errors="replace")
    return iter(_next_line, None)


def _next_line() -> str | None:
    """Return the next line, cut where it is longer than any reading; None at the end."""
    line = sys.stdin.readline(LONGEST_LINE)
    rest = line
    while rest and not rest.endswith("\n"):
        rest = sys.stdin.readline(LONGEST_LINE)
    return line or None


def _check_options(options: StreamOptions) -> None:
    """Refuse, before drawing, a state that cannot be stored, and charges without a ledger."""
    from shoal.data.write import check_writable

    if sys.stdout is None:
        raise InputError("standard output is closed; what is shown must go somewhere")
    if options.by is not None:
        _check_keyed(options)
        return
    if options.state is not None:
        check_writable(options.state)
    elif options.resume:
        raise InputError("--resume is given without --state; name the file that keeps the stream")
    names = {"subject": options.subject, "period": options.period}
    given = [name for name, value in names.items() if value]
    if options.named_ledger is None:
        if given:
            raise InputError(f"--{given[0]} is given without --ledger; name the ledger too")
        return
    if options.seed is not None or not options.subject:
        raise InputError(
            "--ledger needs --subject, or subject in [data] of the spec, and takes no --seed: "
            "predictable steps are free"
        )
    from shoal.ledger.entries import can_hold

    for name, value in names.items():
        if not can_hold(value):
            raise InputError(
                f"--{name} is {value[:40]!r}, which no ledger can hold: it stands for each one, "
                "is too long, or has a NUL character or half a character in it; name one"
            )


def _check_keyed(options: StreamOptions) -> None:
    """Refuse options that are for one stream where there is one for each key."""
    if options.by in (options.field, options.clock, "id", "line", "error"):
        raise InputError(
            f"--by is {options.by!r}, which a line uses for something else; name another"
        )
    if options.subject:
        raise InputError("--subject is for one stream; with --by each key is a subject, drop it")
    if options.resume:
        raise InputError("--resume is for one stream; with --by each goes on by itself, drop it")
    if options.named_ledger is not None and options.state is not None:
        raise InputError(
            "--state and --ledger are given; with --by streams stand in the ledger, drop --state"
        )
    if options.named_ledger is not None and options.seed is not None:
        raise InputError("--ledger takes no --seed: predictable steps are free")
    if options.named_ledger is None and options.period:
        raise InputError("--period is given without --ledger; name the ledger too")


def filter_lines(
    lines: Lines,
    runner: Any,
    last: dict[str, Any] | None,
    texts: Iterable[str],
    rng: Rng,
    state: Path | None = None,
    *,
    strict: bool = False,
) -> Iterator[dict[str, Any]]:
    """Yield one output line per input line; the state is stored before a line is yielded."""
    doubtful, unused = True, UnusedLines()
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        try:
            reading = parse_line(text)
            if last is not None and "id" in reading and reading["id"] == last.get("id"):
                yield last  # a repeated request: nothing is drawn
                continue
            before, (runner, out) = runner, lines.step(runner, reading, rng)
        except InputError as error:
            yield _refusal_line(number, error, unused, strict=strict)
            continue
        doubt = lines.doubt(runner, reading) if doubtful else ""
        if doubt:
            # once: the reader of standard error owns the readings, but needs no line for each
            typer.echo(f"WARNING: line {number}: {escape_controls(doubt)}", err=True)
            doubtful = False
        last = {"id": reading["id"], **out} if "id" in reading else out
        if state is not None and runner is not before:
            _store(state, runner, last)
        yield last
    unused.sum_up()


@dataclass(slots=True)
class UnusedLines:
    """Unusable lines, reported once for each reason and then by their number.

    Reasons that differ only in numbers or quoted words are the same. A stream need not end, so
    the number is reported again whenever it has one more digit.
    """

    counts: dict[str, int] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)  # line of each reason

    def tell(self, line: int, reason: str) -> None:
        """Count a line, and report the first, tenth, hundredth, … of each reason."""
        like = VALUES.sub("", reason)
        if len(self.first) >= MOST_REASONS and like not in self.first:
            like = ""
        self.first.setdefault(like, line)
        self.counts[like] = self.counts.get(like, 0) + 1
        if self.counts[like] == 1:
            typer.echo(f"WARNING: line {line} is not used: {escape_controls(reason)}", err=True)
        elif _is_power_of_ten(self.counts[like]):
            self._tell_count(like)

    def sum_up(self) -> None:
        """Report, at the end, the lines since the last report."""
        for like, count in self.counts.items():
            if not _is_power_of_ten(count):
                self._tell_count(like)

    def _tell_count(self, like: str) -> None:
        words = f"{self.counts[like]:,} lines are not used for the reason of line"
        typer.echo(f"WARNING: {words} {self.first[like]:,}", err=True)


def _is_power_of_ten(count: int) -> bool:
    """Return whether a count is 1, 10, 100, …."""
    return str(count).rstrip("0") == "1"


def _refusal_line(
    number: int, error: InputError, unused: UnusedLines, *, strict: bool
) -> dict[str, Any]:
    """Return the output for a line that cannot be used.

    The reason is printed for the owner of the readings only. The output says no more than that
    the line was not used, because a sentence about a reading would reveal it.
    """
    if strict:
        raise DataError(f"line {number}: {error}") from None
    unused.tell(number, str(error))
    return {"line": number, "error": NOT_JSON if str(error) == NOT_JSON else NOT_READ}


def _store(state: Path, runner: Any, last: dict[str, Any]) -> None:
    """Store the stream and its last answer on the disk.

    This happens before the output line: a second draw for a released slot would leak more.
    """
    from shoal.core.registry import dumps
    from shoal.data.write import atomic_write

    atomic_write(state, f"{dumps(runner, indent=None)}\n{json.dumps(last)}\n", private=True)


def _stored_or_new(lines: Lines, state: Path | None) -> tuple[Any, dict[str, Any] | None]:
    """Return the stored stream with its last answer, or a stream before its first step."""
    if state is None or not state.exists():
        return lines.begin(), None
    from shoal.spec.fields import parse_stored, read_text

    document, _, answer = read_text(state, "state").partition("\n")
    stored = parse_stored(document, state, "state")
    begun_with = getattr(stored, "plan", None)
    if begun_with is None or not lines.goes_on(begun_with):
        raise InputError(
            f"state {str(state)!r} belongs to another plan; name another file, or remove it"
        )
    try:
        last = json.loads(answer) if answer.strip() else None
    except (ValueError, RecursionError):
        last = ""
    if not isinstance(last, dict | None):
        raise StoredError(
            f"state {str(state)!r} was changed: its second line is no answer; remove that line"
        )
    return stored, last


def parse_line(text: str) -> dict[str, Any]:
    """Parse one line as a JSON object; refuses other text and an `id` that JSON cannot hold."""
    try:
        found = json.loads(text.removeprefix(BYTE_ORDER_MARK))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise InputError(NOT_JSON)
    try:
        json.dumps(found.get("id"), allow_nan=False)
    except ValueError:
        raise InputError("id holds a number that JSON has not; give a text or a number") from None
    return found
