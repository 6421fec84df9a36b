"""Words, tables, bars and progress on a terminal; nothing here computes."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from shoal.core.numbers import significant

if TYPE_CHECKING:
    from rich.console import Console

BAR_WIDTH = 24
HALF = 16  # cells of a bar where the table has more columns
_EIGHTHS = " ▏▎▍▌▋▊▉"


def console(*, stderr: bool = False) -> Console:
    """A console that prints text as it is: no markup in names that come from files."""
    from rich.console import Console

    return Console(stderr=stderr, markup=False, highlight=False, emoji=False)


def print_json(value: Any) -> None:
    """One JSON object; the values must be finite, since JSON has no infinity."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def finite(value: float) -> float | None:
    """`value` for JSON: null stands for infinity."""
    return value if math.isfinite(value) else None


def odds(epsilon: float) -> str:
    """The factor e^epsilon by which odds may change, in words."""
    if math.isinf(epsilon):
        return "without limit"
    if epsilon > math.log(1e9):
        return f"a factor of 10^{math.floor(epsilon / math.log(10)):,}"
    return f"a factor of {significant(math.exp(epsilon))}"


def bar(value: float, largest: float, *, ascii_only: bool = False, width: int = BAR_WIDTH) -> str:
    """A bar of up to `width` cells, `largest` filling them; a longer one is cut and ends in ">".

    What is above 0 shows at least a sliver.
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
    """A plain table; columns at the places `numbers` are aligned right, only the last may wrap."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

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


def paragraphs(text: str) -> Any:
    """`Title: text` lines as two columns, so that long texts hang under their own beginning."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True, style="bold")
    grid.add_column()
    for line in text.splitlines():
        title, _, rest = line.partition(":")
        grid.add_row(title, rest.strip())
    return grid


@contextmanager
def on_stop(words: str) -> Iterator[None]:
    """Tells how to go on when the work inside is stopped with Ctrl-C."""
    try:
        yield
    except KeyboardInterrupt:
        typer.echo(words, err=True)
        raise


@contextmanager
def working(title: str) -> Iterator[Callable[[int, int], None]]:
    """A moving bar and the time on stderr while a single long piece of work runs.

    Work that knows how far it is may say so: what is done, and of how much.
    """
    with _progress() as progress:
        task = progress.add_task(title, total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def tracked(items: Sequence[str], title: str) -> Iterator[str]:
    """The items, with a progress bar on stderr."""
    with _progress() as progress:
        task = progress.add_task(title, total=len(items))
        for item in items:
            yield item
            progress.advance(task)


def _progress() -> Any:
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    screen = console(stderr=True)
    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        console=screen,
        transient=True,
        disable=not screen.is_terminal,
    )
