"""`shoal budget`: what each of many releases may spend, and how long the remainder lasts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

from shoal.cli import options, show
from shoal.cli.options import option
from shoal.core.errors import InputError
from shoal.core.numbers import significant

if TYPE_CHECKING:
    from shoal.ledger.budget import Budget

app = options.new_app()

EXAMPLES = """\b
Examples:
  shoal budget power.toml --releases 365 --every day
  shoal budget power.toml --releases 52 --every week --plot budget.png
  shoal budget power.toml --releases 365 --ledger budget.db --subject house
"""


@app.command(epilog=EXAMPLES)
def budget(
    spec: options.SpecPath,
    *,
    releases: Annotated[int, option("N", "How many releases there will be.", min=1)],
    every: Annotated[
        str, option("UNIT", "What one is about: hour day week month quarter year.")
    ] = "day",
    ledger: Annotated[str | None, option("FILE", "Also say what this ledger still allows.")] = None,
    subject: Annotated[str, option("NAME", "Whose budget in the ledger.")] = "",
    period: Annotated[str, option("NAME", "The period in the ledger.")] = "",
    as_json: options.AsJson = False,
    plot: options.PlotPath = None,
    force: options.Force = False,
) -> None:
    """Say what each of many releases may spend, and how good it is.

    The spec's epsilon is for all releases together, its query is what one of them asks. Every
    release is about a part of the series of its own (its day), so that no entry pays twice.
    Coarser paces stand beside the one asked for.
    """
    from shoal.data.display import png_of
    from shoal.ledger.budget import budget as budget_of, left_of
    from shoal.spec.request import read_request

    show.check_chart(plot, force=force)
    if (subject or period) and ledger is None:
        raise InputError("--subject and --period are for a ledger; name it with --ledger")
    request = read_request(spec)
    with show.working("calibrating"), request.limit_time():
        task = request.task
        found = budget_of(
            task.query, task.secrets, task.family,
            epsilon=request.epsilon(), releases=releases, every=every,
        )  # fmt: skip
    if ledger is not None:
        from shoal.ledger import open_ledger

        with open_ledger(ledger, read_only=True) as account:
            found = replace(found, left=left_of(account, subject, period))
    if as_json:
        show.print_json(_budget_object(found))
    else:
        _print_budget(found)
    show.write_chart(plot, None if plot is None else png_of(found), as_json=as_json)


def _budget_object(found: Budget) -> dict[str, Any]:
    """Return the JSON object of a budget; epsilon and amounts are plain floats."""
    left = found.left
    return {
        "epsilon": float(found.epsilon),
        "paces": found.to_frame("polars").to_dicts(),
        "error_if_all_read_everything": None if found.added is None else found.added.expected,
        "left": None if left is None else {
            "unit": left.unit,
            "limit": None if left.limit is None else float(left.limit),
            "spent": float(left.spent),
            "left": None if left.amount is None else float(left.amount),
            "charges": left.charges,
            "until": None if left.until is None else left.until.isoformat(),
        },
        "in_words": found.describe().splitlines(),
    }  # fmt: skip


def _print_budget(found: Budget) -> None:
    """Print the budget: a summary, a table of paces, and the command that makes such releases."""
    out = show.console()
    first = found.describe().splitlines()[0]
    out.print(show.paragraphs(first))
    out.print()
    cells = [
        (
            pace.every,
            f"{pace.releases:,}",
            significant(pace.eta),
            "" if pace.error is None else significant(pace.error.expected, 3),
            "" if pace.error is None else f"±{significant(pace.error.bound, 3)}",
        )
        for pace in found.paces
    ]
    unit = found.plan.task.query.unit
    titles = ("every", "releases", "eta each", f"error, {unit}", "95 %")
    out.print(show.table(titles, cells, numbers=(1, 2, 3, 4)))
    out.print()
    rest = found.describe().splitlines()[1 + len(found.paces) :]
    out.print(show.paragraphs("\n".join(rest)))
    out.print(
        show.paragraphs(
            f"How: `shoal release SPEC DATA -o OUT --every {found.paces[0].every} --ledger FILE` "
            "makes such releases, each charged as a part of the series; or say every = … in [data]."
        )
    )
