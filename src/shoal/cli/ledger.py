"""`shoal ledger`: what was spent, what may be, whether it was touched, and all of it for others."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show as screen
from shoal.cli.options import AsJson, Force, PlotPath, new_app
from shoal.core.errors import CannotCompose, InputError, LedgerError
from shoal.core.numbers import LARGEST, exact

if TYPE_CHECKING:
    from shoal.ledger.limits import Limit
    from shoal.ledger.store import SqlLedger
    from shoal.ledger.totals import Total

app = new_app()

LedgerPath = Annotated[
    str, typer.Argument(metavar="LEDGER", help="A SQLite file, or postgresql://USER@HOST/DATABASE.")
]
SubjectName = Annotated[
    str | None, typer.Option("--subject", metavar="NAME", help="Only this subject or data set.")
]
PeriodName = Annotated[
    str | None, typer.Option("--period", metavar="NAME", help="Only this period.")
]


@app.callback()
def ledger() -> None:
    """Keep account of what was spent.

    Charges are made by `shoal release --ledger`; here they are shown, limited, verified and
    exported. Nothing in a ledger is ever changed or deleted.
    """


@app.command()
def show(
    where: LedgerPath,
    subject: SubjectName = None,
    period: PeriodName = None,
    requester: Annotated[
        str | None,
        typer.Option("--requester", metavar="NAME", help="What this requester alone was told."),
    ] = None,
    as_json: AsJson = False,
    plot: PlotPath = None,
    force: Force = False,
) -> None:
    """Show what was spent on each subject in each period, and the limits.

    eta is the entry-level sum; epsilon is what it comes to against somebody who knows how entries
    depend on each other, by the theorem that gives the least.
    """
    from shoal.cli.options import check_chart
    from shoal.ledger import open_ledger

    check_chart(plot, force=force)
    with open_ledger(where, read_only=True) as opened, screen.working("adding up"):
        rows = [
            _account(opened, *names, requester)
            for names in opened.accounts()
            if subject in (None, names[0]) and period in (None, names[1])
        ]
        rows = [row for row in rows if row["charges"]]
        limits = opened.limits()
        head = opened.head()
        drawn = None if plot is None else _chart(opened, subject, period, requester)
    if as_json:
        from shoal.ledger.export import limit_object

        screen.print_json(
            {
                "head": head.hash,
                "links": head.seq,
                "accounts": rows,
                "limits": [limit_object(limit) for limit in limits],
            }
        )
    else:
        _print_accounts(rows, limits)
    if plot is not None and drawn is not None:
        from shoal.data.files import atomic_write

        atomic_write(plot, drawn)
        if not as_json:
            typer.echo(f"\nThe chart is in {plot}")


@app.command()
def limit(
    where: LedgerPath,
    eta: Annotated[
        str | None,
        typer.Option("--eta", metavar="NUMBER", help="At most this much entry-level spending."),
    ] = None,
    epsilon: Annotated[
        str | None,
        typer.Option("--epsilon", metavar="NUMBER", help="At most this much after conversion."),
    ] = None,
    subject: Annotated[
        str, typer.Option("--subject", metavar="NAME", help="For one subject; * is each one.")
    ] = "*",
    period: Annotated[
        str, typer.Option("--period", metavar="NAME", help="For one period; * is each one.")
    ] = "*",
    requester: Annotated[
        str | None,
        typer.Option(
            "--requester",
            metavar="NAME",
            help="For one requester; * is each one separately. By default all together.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Set a limit; the ledger is made when it does not exist.

    A later limit on the same scope replaces the earlier one, and every limit that matches a
    charge must hold. Numbers are exact: 0.1 + 0.2 is 0.3.
    """
    from shoal.ledger import open_ledger
    from shoal.ledger.export import limit_object

    given = [(unit, n) for unit, n in (("eta", eta), ("epsilon", epsilon)) if n is not None]
    if len(given) != 1:
        raise InputError("give one of --eta and --epsilon; the limit is on one of them")
    ((unit, amount),) = given
    if exact(amount, f"--{unit}") > LARGEST:
        raise InputError(f"--{unit} is {amount}; it must be at most 1e300")
    with open_ledger(where) as opened:
        made = opened.limit(amount, unit=unit, subject=subject, period=period, requester=requester)
    if as_json:
        screen.print_json(limit_object(made))
    else:
        typer.echo(f"Limit set: {_number(made.amount)} for {made.describe()}")


@app.command()
def verify(
    where: LedgerPath,
    head: Annotated[
        str | None,
        typer.Option("--head", metavar="HASH", help="A head noted earlier; shows a cut-off end."),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Check that every row is as it was written.

    Any change shows. A cut-off end shows only with --head: note the head somewhere else.
    """
    from shoal.ledger import open_ledger

    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise InputError(
            f"--head is {head!r}; a head is the 64 hexadecimal digits that `shoal ledger verify` "
            "prints: copy all of them"
        )
    with open_ledger(where, read_only=True) as opened, screen.working("verifying"):
        verdict = opened.verify(head)
    if as_json:
        screen.print_json(
            {
                "intact": verdict.intact,
                "head": verdict.head.hash,
                "links": verdict.links,
                "charges": verdict.charges,
                "since_head": verdict.since,
                "problems": list(verdict.problems),
            }
        )
    elif verdict.intact:
        since = "" if verdict.since is None else f"; {verdict.since} link(s) since the given head"
        typer.echo(f"Intact: {verdict.links} links, {verdict.charges} charges{since}")
        typer.echo(f"Head: {verdict.head.hash}")
    else:
        for problem in verdict.problems[1:]:  # the first ends the command, below
            typer.echo(problem)
    if not verdict.intact:
        raise LedgerError(
            f"the ledger {where} was changed ({verdict.problems[0]}); restore it from a copy"
        )


@app.command()
def export(
    where: LedgerPath,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="A .json or .parquet file to write."),
    ] = None,
    as_json: AsJson = False,
    force: Force = False,
) -> None:
    """Write all charges, limits and totals for other programs; released values stay here.

    Without a file the JSON object is printed.
    """
    from shoal.cli.options import check_output
    from shoal.ledger import open_ledger
    from shoal.ledger.export import as_json as json_of, as_parquet

    writers = {".json": json_of, ".parquet": as_parquet}
    if out is not None:
        if out.suffix.lower() not in writers:
            raise InputError(f"--out is {str(out)!r}; it must end in .json or .parquet")
        check_output(out, force=force)
    with open_ledger(where, read_only=True) as opened, screen.working("adding up"):
        content = (json_of if out is None else writers[out.suffix.lower()])(opened)
        head = opened.head()
    if out is None:
        typer.echo(content.decode(), nl=False)
        return
    from shoal.data.files import atomic_write

    atomic_write(out, content)
    if as_json:
        screen.print_json({"file": str(out), "head": head.hash})
    else:
        typer.echo(f"The charges are in {out}")


def _account(opened: SqlLedger, subject: str, period: str, requester: str | None) -> dict[str, Any]:
    """What one subject's charges in one period come to, as plain data."""
    from shoal.ledger.export import total_object

    names = {"subject": subject, "period": period}
    try:
        total: Total | None = opened.spent(subject, period, requester=requester)
    except CannotCompose as reason:
        return {**names, "charges": 1, "problem": str(reason)}
    return {**names, "charges": 0} | ({} if total is None else total_object(total))


def _print_accounts(rows: list[dict[str, Any]], limits: tuple[Limit, ...]) -> None:
    console = screen.console()
    if rows:
        cells = [
            (
                row["subject"],
                row["period"] or "-",
                str(row["charges"]),
                _number(row.get("eta")),
                _told(row),
                row.get("problem") or f"{row['notion']}, {row['rule']}",
            )
            for row in rows
        ]
        titles = ("subject", "period", "charges", "eta", "epsilon", "by")
        console.print(screen.table(titles, cells, numbers=(2, 3, 4)))
    else:
        typer.echo("No charges.")
    if limits:
        typer.echo("")
        described = [(_number(one.amount), one.describe()) for one in limits]
        console.print(screen.table(("limit", "on"), described, numbers=(0,)))
    else:
        typer.echo("\nNo limits: `shoal ledger limit` sets one.")


def _told(row: dict[str, Any]) -> str:
    """An epsilon, or what a stream of contexts bounds instead, by its name."""
    unit = "delta " if row.get("notion") == "delta-privacy" else ""
    return unit + _number(row.get("amount"))


def _number(value: Any) -> str:
    from shoal.core.numbers import significant

    return "-" if value is None else significant(value)


def _chart(
    opened: SqlLedger, subject: str | None, period: str | None, requester: str | None
) -> bytes:
    """A PNG: the entry-level spending of every account over time, in steps."""
    import io
    from datetime import datetime
    from fractions import Fraction

    from matplotlib.figure import Figure

    lines: dict[tuple[str, str], list[tuple[datetime, Fraction]]] = {}
    for entry in opened.charges():
        names = (entry.subject, entry.period)
        wanted = zip((subject, period, requester), (*names, entry.requester), strict=True)
        if entry.eta is not None and all(want in (None, have) for want, have in wanted):
            line = lines.setdefault(names, [])
            before = line[-1][1] if line else Fraction(0)
            line.append((datetime.fromisoformat(entry.at), before + Fraction(entry.eta)))
    figure = Figure(figsize=(8, 4), layout="constrained")
    axes = figure.subplots()
    for names, line in lines.items():
        times, totals = zip(*line, strict=True)
        label = " / ".join(filter(None, names))
        axes.step(times, [float(total) for total in totals], where="post", marker=".", label=label)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("eta spent")
    axes.set_title("Entry-level spending over time")
    axes.spines[["top", "right"]].set_visible(False)
    figure.autofmt_xdate()
    if 0 < len(lines) <= 12:
        axes.legend(frameon=False)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()
