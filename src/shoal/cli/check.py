"""`shoal check`: does a model describe data that had no part in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from shoal.cli import show
from shoal.cli.show import (
    AsJson,
    BinEdges,
    DataPath,
    Gap,
    Missing,
    Separator,
    TimeUnit,
    Where,
    Zone,
    new_app,
)
from shoal.core.errors import InputError

if TYPE_CHECKING:
    from shoal.chains.held_out import HeldOut

app = new_app()

EXAMPLES = """\b
Examples:
  shoal check model.json june.csv --state activity --series person --time minute --gap 10min
  shoal check model.json days.csv --state activity --where "day >= 2024-06-01"
"""

ModelPath = Annotated[
    Path, typer.Argument(metavar="MODEL", help="A chain, as `shoal fit` writes it.")
]
Column = Annotated[str | None, typer.Option(metavar="COLUMN", help="As in `shoal fit`.")]


@app.command(epilog=EXAMPLES)
def check(
    model: ModelPath,
    data: DataPath,
    *,
    state: Column = None,
    series: Column = None,
    time: Column = None,
    gap: Gap = None,
    missing: Missing = None,
    bins: BinEdges = None,
    time_unit: TimeUnit = None,
    tz: Zone = None,
    where: Where = None,
    sep: Separator = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a model describes data it was not fitted on.

    Says how well the model predicts the data beside chains of order 0, 1 and 2 of the data's own,
    whether its transitions have the chances it says, and whether the data drifts.
    """
    from shoal.chains.held_out import check_held_out
    from shoal.cli.sources import NamedColumns, read_data

    chain = _chain(model)
    columns = NamedColumns(
        state, series, time, gap, missing=missing, bins=bins, unit=time_unit, tz=tz, where=where,
        sep=sep,
    )  # fmt: skip
    dataset = read_data(data, columns, chain.states)
    with show.working("checking"):
        found = check_held_out(dataset.sequences(chain.states), chain)
    if as_json:
        show.print_json(_object(found))
        return
    screen = show.console()
    screen.print(f"Read {dataset.describe()}.")
    screen.print(show.paragraphs(found.describe()))


def _chain(path: Path) -> Any:
    """The stored chain with one matrix for all steps."""
    from shoal.chains.model import MarkovChain
    from shoal.spec.fields import parse_stored, read_text

    stored = parse_stored(read_text(path, "model"), path, "model")
    if not isinstance(stored, MarkovChain):
        raise InputError(
            f"{str(path)!r} holds a {type(stored).__name__}; check takes a Markov chain of order "
            "1, as `shoal fit` writes it"
        )
    return stored


def _object(found: HeldOut) -> dict[str, Any]:
    return {
        "steps": found.steps,
        "fair": found.fair,
        "bits_per_step": show.finite(found.bits),
        "orders": [show.finite(bits) for bits in found.orders],
        "chi_square": show.finite(found.chi_square),
        "degrees": found.degrees,
        "p_value": found.p_value,
        "worst": [{name: getattr(cell, name) for name in cell.__slots__} for cell in found.worst],
        "distance": found.distance,
        "in_words": found.describe().splitlines(),
    }
