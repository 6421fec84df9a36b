"""Shared by all commands: text, tables, bars, progress, checks of files, and the time limit."""

from __future__ import annotations

import importlib.util
import json
import math
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from glob import glob
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any

import typer

from shoal.core.errors import DataError
from shoal.core.numbers import significant
from shoal.core.progress import OutOfTime, heard, time_limit as searching

if TYPE_CHECKING:
    from rich.console import Console

LONGEST_TITLE = 24  # characters before a colon that make a title
EVENTS = "numba.core.event"
COMPILED = "numba:compile"  # the event of numba when a loop is compiled, not loaded from the disk
NOTE = "Compiling fast loops, once on this computer; this may take half a minute."


def tell_when_compiling() -> None:
    """Print one line to a terminal when a loop is compiled; costs nothing until numba is loaded.

    The line goes to standard error, so that piped output is unchanged.
    """
    if sys.stderr.isatty() and EVENTS not in sys.modules:
        sys.meta_path.insert(0, _Loading())


class _Loading(MetaPathFinder):
    """An import hook that adds a listener to numba's module of events when it is imported."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find numba's events module, and add a listener to it once it is loaded.

        Removes itself from the import hooks then. Returns None for every other module.
        """
        if name != EVENTS:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            loader: Any = spec.loader
            load = loader.exec_module

            def load_and_listen(module: Any) -> None:
                load(module)
                module.register(COMPILED, _listener(module))

            loader.exec_module = load_and_listen
        return spec


def _listener(events: Any) -> Any:
    """Return a listener that prints a line the first time that a compilation begins."""

    class Telling(events.Listener):  # type: ignore[misc]
        has_printed = False

        def on_start(self, event: object) -> None:
            if not self.has_printed:
                self.has_printed = True
                typer.echo(NOTE, err=True)

        def on_end(self, event: object) -> None:
            """Do nothing."""

    return Telling()


BAR_WIDTH = 24  # cells: a third of a terminal of 80 columns
LONGEST_SENTENCE = 4000  # characters of a message: some list every mechanism with its reason
NARROW = 60  # columns of a terminal that has no room for tables
HALF = 16  # cells of a bar where the table has more columns
_EIGHTHS = " ▏▎▍▌▋▊▉"


def console(*, stderr: bool = False) -> Console:
    """Return a console that prints text literally, without markup in names from files."""
    from rich.console import Console

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # not rich's exit code 1, which has its own meaning here

    return Screen(stderr=stderr, markup=False, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """Print one JSON object; the values must be finite, since JSON has no infinity."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=not unicode_out(), allow_nan=False))


def unicode_out() -> bool:
    """Return whether standard output can encode every character; if not, JSON is ASCII.

    A question mark for what a terminal lacks is fine in a text, but would change a name in JSON.
    """
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


def escape_controls(text: str) -> str:
    """Return `text` with control characters escaped: names from files must not move the cursor."""
    return "".join(char if char.isprintable() or char == " " else repr(char)[1:-1] for char in text)


def shorten(text: str) -> str:
    """Return a message on one line, cut at a readable length."""
    line = escape_controls(text)
    return line if len(line) <= LONGEST_SENTENCE else f"{line[:LONGEST_SENTENCE]}…"


def odds(epsilon: float) -> str:
    """Return in words the factor e^epsilon by which odds may change."""
    if math.isinf(epsilon):
        return "without limit"
    if epsilon > math.log(1e9):
        return f"a factor of 10^{math.floor(epsilon / math.log(10)):,}"
    return f"a factor of {significant(math.exp(epsilon))}"


def bar(value: float, largest: float, *, ascii_only: bool = False, width: int = BAR_WIDTH) -> str:
    """Return a bar of up to `width` cells, where `largest` fills all; longer bars end in ">".

    A value above 0 has at least a fraction of a cell.
    """
    if value > largest:
        return ("#" if ascii_only else "█") * (width - 1) + ">"
    eighths = round(8 * width * value / largest) if largest > 0 else 0
    eighths = max(eighths, 1 if value > 0 else 0)
    full, rest = divmod(eighths, 8)
    if ascii_only:
        return "#" * max(full, 1 if value > 0 else 0)
    return "█" * full + (_EIGHTHS[rest] if rest else "")


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: Sequence[int] = ()
) -> Any:
    """Return a plain table; columns with an index in `numbers` align right, only the last wraps.

    Cells are often names from data: control characters in them are escaped. On a narrow
    terminal, where a table would cut numbers, each row is a block of lines instead.
    """
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    rows = [[escape_controls(cell) for cell in row] for row in rows]
    if console().width < NARROW:
        return _blocks(columns, rows)
    drawn = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for place, title in enumerate(columns):
        drawn.add_column(
            title,
            justify="right" if place in numbers else "left",
            no_wrap=place < len(columns) - 1,
        )
    for row in rows:
        drawn.add_row(*row)
    return drawn


def _blocks(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Any:
    """Return a line for each cell, with its title; bars (untitled later columns) are left out."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(overflow="fold")
    grid.add_column(overflow="fold")
    for row in rows:
        for place, (title, cell) in enumerate(zip(columns, row, strict=True)):
            if title or place == 0:
                grid.add_row(title, cell)
        grid.add_row("", "")
    return grid


def paragraphs(text: str) -> Any:
    """Return `Title: text` lines as two columns, so that long texts wrap inside the second one.

    A line without a title has a row of its own.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown: list[Any] = []
    for line in text.splitlines():
        title, _, rest = line.partition(":")
        if len(title) > LONGEST_TITLE:
            shown.append(Text(line))
            continue
        if not shown or isinstance(shown[-1], Text):
            shown.append(Table.grid(padding=(0, 2)))
            shown[-1].add_column(no_wrap=True, style="bold")
            shown[-1].add_column()
        shown[-1].add_row(title, rest.strip())
    return Group(*shown)


@contextmanager
def on_stop(words: str) -> Iterator[None]:
    """Print how to resume when the work inside is stopped with Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(words, err=True)
        raise


@contextmanager
def working(title: str) -> Iterator[Callable[[int, int], None]]:
    """Show a moving bar and the time on stderr while a single long piece of work runs.

    The work may report its progress with the yielded callback: the amount done, and the total.
    The time limit of the command, if any, applies inside.
    """
    with progress_bar() as progress, running():
        task = progress.add_task(title, total=None)

        def listener(done: int, total: int) -> None:
            progress.update(task, completed=done, total=total)

        def reader(words: str) -> None:
            progress.update(task, description=f"{title}, {words}")
            if (watch := _WATCH.get()) is not None:
                watch.doing = f", in the middle of {words}"

        with heard(listener, reader):
            yield listener


def with_progress(items: Sequence[str], title: str) -> Iterator[str]:
    """Yield the items, with a progress bar on stderr."""
    with progress_bar() as progress:
        task = progress.add_task(title, total=len(items))
        for item in items:
            yield item
            progress.advance(task)


def progress_bar(*middle: Any, left: Sequence[Any] = ()) -> Any:
    """Return a bar on stderr with the time, and more columns after the bar and at the end."""
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        *middle,
        TimeElapsedColumn(),
        *left,
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )


READY = 0.8  # share of the limit after which searches stop; the remainder is for checks
GRACE = 1.0  # seconds for each piece of work after the time is over: group noise takes some ms
SHORTEST_TIMER = 1e-3  # seconds: a timer of 0 would never ring


STOPPED = 130  # the exit code of a command that Ctrl-C ended
CTRL_C = "stopped with Ctrl-C"


class Watch:
    """The deadline of a command, and whether its work was truncated."""

    def __init__(self, seconds: float | None, words: str) -> None:
        self.ends = None if seconds is None else time.monotonic() + seconds
        self.words = words
        self.cut = ""  # why the work was truncated; empty when it was not
        self.doing = ""  # the last activity, for a sentence

    def ring(self, signum: int, frame: FrameType | None) -> None:
        """Handle the alarm and Ctrl-C: refuse the work that is under way."""
        if signum == signal.SIGINT:
            if self.cut:
                raise KeyboardInterrupt  # a second signal ends the program
            signal.setitimer(signal.ITIMER_REAL, GRACE, GRACE)
        self.cut = self.cut or (CTRL_C if signum == signal.SIGINT else self.words)
        raise OutOfTime(
            f"not over in time ({self.cut}){self.doing}; give it longer with --time-limit"
        )


_WATCH: ContextVar[Watch | None] = ContextVar("watch", default=None)


@contextmanager
def limit_time(time_limit: str | None) -> Iterator[Watch]:
    """End work under a bar at the limit, such as "30s", or at Ctrl-C, while inside.

    Searches end a little earlier with the best bound they have; those without one are refused.

    Without a limit only Ctrl-C ends the work: the first keeps the best result, the second stops.
    """
    seconds = None
    if time_limit is not None:
        from shoal.data.times import parse_duration

        seconds = parse_duration(time_limit, "--time-limit").total_seconds()
    watch = Watch(seconds, f"--time-limit {time_limit}")
    token = _WATCH.set(watch)
    try:
        if seconds is None:
            yield watch
            return
        with searching(seconds * READY) as search:
            yield watch
        watch.cut = watch.cut or (watch.words if search.cut else "")
    finally:
        _WATCH.reset(token)


def say_cut(watch: Watch, words: str) -> None:
    """Print that the work was truncated, below its result; Ctrl-C has its own exit code.

    `words` says what was printed.
    """
    if watch.cut:
        typer.echo(f"NOTE: cut short ({watch.cut}): {words}.", err=True)
    if watch.cut == CTRL_C:
        raise typer.Exit(STOPPED)


@contextmanager
def running() -> Iterator[None]:
    """Run the clock of `limit_time` while inside, if there is one and this is the main thread."""
    watch = _WATCH.get()
    if watch is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, watch.ring) for number in (signal.SIGALRM, signal.SIGINT)
    }
    if watch.ends is not None:
        left = max(SHORTEST_TIMER, watch.ends - time.monotonic())
        signal.setitimer(signal.ITIMER_REAL, left, GRACE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def check_output(path: Path, *, force: bool) -> None:
    """Refuse a path that cannot be written, or that exists unless `force`."""
    from shoal.data.write import check_writable

    if path.exists() and not path.is_dir() and not force:
        raise DataError(f"{str(path)!r} exists; choose another name, or replace it with --force")
    check_writable(path)


def make_folder(out: Path) -> None:
    """Create the folder of --out before the work that fills it, and return it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise DataError(
            f"--out is {str(out)!r}, which cannot be made a folder: {reason}; name another"
        ) from None


def see(data: str | Sequence[str]) -> str:
    """Return the command that shows what is in a file, for the end of a refusal."""
    file = data if isinstance(data, str) else data[0]
    return f"`shoal read {shlex.quote(file)}` shows what is in it"


def check_apart(path: Path, *inputs: str | Path) -> None:
    """Refuse an output that is one of the files read, even with --force; patterns are followed."""
    if not path.exists():
        return
    for given in inputs:
        files = [given] if Path(given).exists() else glob(str(given), recursive=True)
        if any(Path(file).samefile(path) for file in files):
            raise DataError(f"{str(path)!r} is read by this command; write to another file")


def check_chart(path: Path | None, *, force: bool, maps: bool = False) -> None:
    """Run `check_output` for a chart, and refuse if it cannot be drawn; `maps` allows HTML too."""
    if path is None:
        return
    from shoal.cli.charts import check_charts

    page = maps and path.suffix.lower() == ".html"
    if path.suffix.lower() != ".png" and not page:
        other = ", or in .html for a map" if maps else ""
        raise DataError(f"--plot is {str(path)!r}; it must end in .png{other}")
    if not page:
        check_charts()
    check_output(path, force=force)


def write_chart(path: Path | None, drawn: bytes | None, *, as_json: bool) -> None:
    """Write the chart to its file, and print a line unless only JSON may be printed."""
    if path is None or drawn is None:
        return
    from shoal.data.write import atomic_write

    atomic_write(path, drawn)
    if not as_json:
        typer.echo(f"\nThe chart is in {path}")
