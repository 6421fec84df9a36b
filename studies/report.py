"""What an experiment hands over: tables with the paper's number beside ours, and figures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shoal.core.numbers import significant

Cell = str | float | int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """One table: a title that says what is measured and in which unit, and its rows.

    None is "does not apply".
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    def markdown(self) -> str:
        head = [f"**{self.title}**", "", _line(self.columns), _line(["---"] * len(self.columns))]
        body = [_line([show(cell) for cell in row]) for row in self.rows]
        return "\n".join([*head, *body, "", *(f"- {note}" for note in self.notes)]).rstrip() + "\n"

    def as_object(self) -> dict[str, Any]:
        rows = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"title": self.title, "rows": rows, "notes": list(self.notes)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A plot: a file name without suffix, a caption, and a function that draws on a figure."""

    name: str
    caption: str
    draw: Callable[[Any], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The outcome of an experiment."""

    name: str
    source: str
    tables: tuple[Table, ...]
    figures: tuple[Figure, ...] = ()

    def markdown(self) -> str:
        parts = [f"# {self.name}", "", self.source, ""]
        for table in self.tables:
            parts += [table.markdown()]
        parts += [f"![{figure.caption}]({figure.name}.png)\n" for figure in self.figures]
        return "\n".join(parts).rstrip() + "\n"

    def as_object(self) -> dict[str, Any]:
        tables = [table.as_object() for table in self.tables]
        return {"experiment": self.name, "source": self.source, "tables": tables}


def show(cell: Cell) -> str:
    """A cell as text: numbers to four significant digits, None as "n/a"."""
    if cell is None:
        return "n/a"
    return cell if isinstance(cell, str) else significant(cell)


def _line(cells: Any) -> str:
    return "| " + " | ".join(cells) + " |"
