"""`shoal ledger`: show, limit, verify and export what was spent."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import options, show as screen
from shoal.cli.options import argument, flag, option
from shoal.cli.show import check_chart, check_output, write_chart
from shoal.core.errors import InputError, LedgerError
from shoal.core.numbers import LARGEST, exact, significant

if TYPE_CHECKING:
    from shoal.ledger.accounts import Limit
    from shoal.ledger.store import SqlLedger

app = options.new_app()

LedgerPath = Annotated[
    str, argument("LEDGER", "A SQLite file, or postgresql://USER@HOST/DATABASE.")
]


def _open(where: str, *, read_only: bool = False) -> SqlLedger:
    from shoal.ledger.store import open_ledger

    return open_ledger(where, read_only=read_only)


@app.callback()
def ledger() -> None:
    """Keep account of what was spent.

    Charges are made by `shoal release --ledger`; here they are shown, limited, verified and
    exported. Nothing in a ledger is ever changed or deleted.
    """


@app.command()
def show(
    where: LedgerPath,
    subject: Annotated[str | None, option("NAME", "Only this subject or data set.")] = None,
    period: Annotated[str | None, option("NAME", "Only this period.")] = None,
    requester: Annotated[str | None, option("NAME", "What this requester alone was told.")] = None,
    rows: Annotated[int, option("N", "Subjects on one page.", min=1)] = 100,
    after: Annotated[str, option("SUBJECT", "The page after this subject.")] = "",
    as_json: options.AsJson = False,
    plot: options.PlotPath = None,
    force: options.Force = False,
) -> None:
    """Show what was spent on each subject in each period, and the limits.

    eta is the entry-level sum; epsilon is what it comes to against somebody who knows how entries
    depend on each other, by the theorem that gives the least.
    """
    from shoal.ledger.export import account_objects, limit_object

    check_chart(plot, force=force)
    with _open(where, read_only=True) as opened, screen.working("adding up"):
        page = {"after": after, "rows": rows}
        found = list(account_objects(opened, subject, period, requester, **page))
        count = len({row["subject"] for row in found})
        last = found[-1]["subject"] if subject is None and count == rows else None
        limits = opened.limits()
        idle = _never_charged(opened, limits)
        head = opened.head()
        drawn = None if plot is None else _chart(opened, subject, period, requester)
    if as_json:
        screen.print_json(
            {
                "head": head.hash,
                "links": head.seq,
                "accounts": found,
                "next": last,
                "limits": [limit_object(limit) for limit in limits],
                "never_charged": idle,
            }
        )
    else:
        _print_accounts(found, limits)
        if last is not None:
            typer.echo(f"\nThere may be more: --after {last!r} shows the next page.")
        for name in idle:
            typer.echo(f"\nThe limit for {name!r} has never met a charge: is the name right?")
    write_chart(plot, drawn, as_json=as_json)


def _never_charged(opened: SqlLedger, limits: tuple[Limit, ...]) -> list[str]:
    """Return subjects that have their own limit but no charge: their names may be mistyped."""
    named = dict.fromkeys(one.subject for one in limits if one.subject != "*")
    return [name for name in named if opened.head(name).seq == 0]


@app.command()
def limit(
    where: LedgerPath,
    eta: Annotated[str | None, option("NUMBER", "At most this much entry-level spending.")] = None,
    epsilon: Annotated[str | None, option("NUMBER", "At most this much after conversion.")] = None,
    subject: Annotated[str, option("NAME", "For one subject; * is each one.")] = "*",
    period: Annotated[str, option("NAME", "For one period; * is each one.")] = "*",
    lifetime: Annotated[
        bool, flag("--lifetime", "For all periods together, independent or not.")
    ] = False,
    requester: Annotated[
        str | None,
        option("NAME", "For one requester; * is each one separately. By default all together."),
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Set a limit; the ledger is made when it does not exist.

    A later limit on the same scope replaces the earlier one, and every limit that matches a
    charge must hold. Numbers are exact: 0.1 + 0.2 is 0.3.
    """
    from shoal.ledger.export import limit_object

    given = [(unit, n) for unit, n in (("eta", eta), ("epsilon", epsilon)) if n is not None]
    if len(given) != 1:
        raise InputError("give one of --eta and --epsilon; the limit is on one of them")
    if lifetime and period != "*":
        raise InputError(f"--period is {period!r} with --lifetime, which is all of them; give one")
    ((unit, amount),) = given
    if exact(amount, f"--{unit}") > LARGEST:
        raise InputError(f"--{unit} is {amount}; it must be at most 1e300")
    with _open(where) as opened:
        made = opened.limit(
            amount,
            unit=unit,
            subject=subject,
            period=None if lifetime else period,
            requester=requester,
        )
        idle = _never_charged(opened, (made,))
    if as_json:
        screen.print_json({**limit_object(made), "never_charged": bool(idle)})
        return
    typer.echo(f"Limit set: {_number(made.amount)} for {made.describe()}")
    if idle:
        typer.echo(f"{subject!r} has never been charged so far: is the name right?")


@app.command()
def verify(
    where: LedgerPath,
    head: Annotated[
        str | None, option("HASH", "A head noted earlier; shows a cut-off end.")
    ] = None,
    signer: Annotated[
        str | None, option("KEY", "The public key the last checkpoint is signed with.")
    ] = None,
    as_json: options.AsJson = False,
) -> None:
    """Check that every row is as it was written.

    Any change shows. A cut-off end shows only with --head: note the hash that `shoal ledger
    checkpoint` prints somewhere else.
    """
    if head is not None and not re.fullmatch(r"[0-9a-f]{64}", head):
        raise InputError(
            f"--head is {head!r}; a head is the 64 hexadecimal digits that `shoal ledger verify` "
            "prints: copy all of them"
        )
    with _open(where, read_only=True) as opened, screen.working("verifying"):
        verdict = opened.verify(head, signer=signer)
    if as_json:
        screen.print_json(
            {
                "intact": verdict.intact,
                "head": verdict.head.hash,
                **{name: getattr(verdict, name) for name in ("links", "charges", "uncovered")},
                "since_head": verdict.since,
                "problems": list(verdict.problems),
            }
        )
    elif verdict.intact:
        since = "" if verdict.since is None else f"; {verdict.since} link(s) since the given head"
        typer.echo(f"Intact: {verdict.links} links, {verdict.charges} charges{since}")
        typer.echo(f"Head: {verdict.head.hash}")
        if verdict.uncovered:
            typer.echo(
                f"{verdict.uncovered} charge(s) are under no checkpoint yet: `shoal ledger "
                "checkpoint` makes one over all of them"
            )
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
        Path | None, option("FILE", "A .json or .parquet file to write.", "-o", "--out")
    ] = None,
    as_json: options.AsJson = False,
    force: options.Force = False,
) -> None:
    """Write all charges, limits and totals for other programs; released values stay here.

    Without a file the JSON object is printed.
    """
    from shoal.ledger.export import as_json as json_of, write_parquet

    if out is not None:
        if out.suffix.lower() not in (".json", ".parquet"):
            raise InputError(f"--out is {str(out)!r}; it must end in .json or .parquet")
        check_output(out, force=force)
    with _open(where, read_only=True) as opened:
        if out is None:
            for piece in json_of(opened):
                typer.echo(piece, nl=False)
            return
        head = opened.head()
        from shoal.data.write import atomic_fill

        with screen.working("writing"), atomic_fill(out) as scratch:
            if out.suffix.lower() == ".parquet":
                write_parquet(opened, scratch)
            else:
                with scratch.open("w", encoding="utf-8") as stream:
                    stream.writelines(json_of(opened))
    if as_json:
        screen.print_json({"file": str(out), "head": head.hash})
    else:
        typer.echo(f"The charges are in {out}")


@app.command()
def key(
    path: Annotated[Path, argument("FILE", "The new key's file.")], as_json: options.AsJson = False
) -> None:
    """Make a key that signs checkpoints or plans; its public half is printed."""
    from shoal.ledger import Signer

    made = Signer.make(path)
    if as_json:
        screen.print_json({"file": str(path), "public": made.public})
    else:
        typer.echo(f"The key is in {path}: keep it apart from the ledger.\nPublic: {made.public}")


@app.command()
def checkpoint(
    where: LedgerPath,
    signing: Annotated[Path | None, option("FILE", "Sign with this key of `key`.", "--key")] = None,
    as_json: options.AsJson = False,
) -> None:
    """Seal all charges so far under one hash; note it somewhere else.

    `verify --head` with that hash shows whether anything before it was cut off.
    """
    from shoal.ledger import Signer

    signer = None if signing is None else Signer.load(signing)
    with _open(where) as opened, screen.working("sealing"):
        made = opened.checkpoint(signer)
    if as_json:
        screen.print_json({"head": made.hash, "link": made.seq, "signer": signer and signer.public})
    else:
        typer.echo(f"Checkpoint: {made.hash}")


@app.command()
def trust(
    where: LedgerPath,
    signer: Annotated[str, argument("KEY", "A signer's public key.")],
    no_more: Annotated[bool, flag("--no-more", "Trust it no more.")] = False,
) -> None:
    """Take only plans signed by named signers from now on, this one among them."""
    with _open(where) as opened:
        opened.trust(signer, trusted=not no_more)
    typer.echo(f"Plans of {signer[:12]}… are taken{' no more' if no_more else ''}.")


@app.command()
def sign(
    where: LedgerPath,
    plan: Annotated[Path, argument("PLAN", "A plan stored by `shoal plan`.")],
    signing: Annotated[Path, option("FILE", "The signer's key.", "--key")],
) -> None:
    """Sign a plan, so that a ledger that takes only named signers' plans takes it."""
    from shoal.cli.sources import load_plan
    from shoal.ledger import Signer

    (made, _), signer = load_plan(plan), Signer.load(signing)
    with _open(where) as opened:
        opened.admit(made, signer.public, signer.sign(made.fingerprint))
    typer.echo(f"Plan {made.fingerprint[:12]}… is signed.")


@app.command()
def changes(where: LedgerPath, as_json: options.AsJson = False) -> None:
    """Show who set which limit, trusted which signer and sealed what, and when."""
    with _open(where, read_only=True) as opened:
        found = opened.changes()
    if as_json:
        screen.print_json([one._asdict() for one in found])
        return
    cells = []
    for one in found:
        said = ", ".join(f"{key}={value}" for key, value in one.document.items() if value)
        cells.append((one.at[:19], one.changed_by, one.kind, said))
    screen.console().print(screen.table(("when", "who", "what", "said"), cells))


def _print_accounts(rows: list[dict[str, Any]], limits: tuple[Limit, ...]) -> None:
    """Print a table of the accounts and a table of the limits."""
    console = screen.console()
    if rows:
        cells = [
            (
                row["subject"],
                row["period"] or "-",
                str(row["charges"]),
                _number(row.get("eta")),
                # what a stream of contexts bounds instead of an epsilon has a name
                ("delta " if row.get("notion") == "delta-privacy" else "")
                + _number(row.get("amount")),
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


def _number(value: Any) -> str:
    return "-" if value is None else significant(value)


def _chart(
    opened: SqlLedger, subject: str | None, period: str | None, requester: str | None
) -> bytes:
    """Return a PNG of the entry-level spending of every account over time, in steps."""
    from shoal.cli.charts import _figure, _png
    from shoal.data.display import draw_spending

    wanted = {"subject": subject, "period": period, "requester": requester}
    charges = [
        entry
        for entry in opened.charges()
        if all(want in (None, getattr(entry, name)) for name, want in wanted.items())
    ]
    figure = _figure(8, 4)
    draw_spending(charges, figure.subplots())
    return _png(figure)
