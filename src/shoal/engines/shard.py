"""One shard of subjects from rows to tables: the same on every engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from shoal.core.plan import Plan
from shoal.engines.census import Census, take_census
from shoal.engines.drawing import Charging, draw
from shoal.engines.job import ALL
from shoal.engines.layout import Layout
from shoal.engines.report import shard_event
from shoal.engines.tables import refusal_table, release_table

if TYPE_CHECKING:
    import polars as pl

NO_PLAN = "a group without a plan"
CHARGED = 2000  # subjects in one transaction of the ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """What an engine needs to know to turn a shard's rows into releases; plain values only."""

    plans: Mapping[str, Plan]
    layout: Layout
    states: tuple[str, ...]
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The releases of a shard by group, its refusals, and the counts for the journal."""

    releases: dict[str, pl.DataFrame]
    refused: pl.DataFrame
    event: dict[str, Any]


def release_shard(rows: pl.DataFrame, recipe: Recipe, charging: Charging | None) -> Outcome:
    """Everything that comes of one shard's rows; with `charging`, charged before it is drawn."""
    census = take_census(rows, recipe.layout, len(recipe.states))
    groups: dict[str, list[int]] = defaultdict(list)
    for unit in range(census.units):
        groups[census.groups[unit]].append(unit)
    tables: dict[str, pl.DataFrame] = {}
    refused: dict[int, str] = {}
    counts: dict[str, int] = defaultdict(int)
    released = 0
    for group, units in sorted(groups.items()):
        plan = recipe.plans.get(group if recipe.layout.group is not None else ALL)
        if plan is None:
            refused |= {unit: census.problems.get(unit, NO_PLAN) for unit in units}
            continue
        parts = []
        for some in _batches(units, charging):
            drawn, out = draw(
                plan, census, some, recipe.states, seed=recipe.seed, charging=charging
            )
            refused |= out
            released += int(census.rows[drawn.units].sum())
            counts[plan.fingerprint] += len(drawn.units)
            parts.append(release_table(drawn, census))
        tables[group] = _joined(parts)
    return Outcome(
        releases={group: table for group, table in tables.items() if table.height},
        refused=refusal_table(refused, census),
        event=_event(census, released, counts, refused),
    )


def _event(
    census: Census, released: int, counts: Mapping[str, int], refused: Mapping[int, str]
) -> dict[str, Any]:
    return shard_event(
        subjects=len(set(census.subjects)),
        units=census.units,
        rows_released=released,
        releases=counts,
        refused=((reason, int(census.rows[unit])) for unit, reason in refused.items()),
    )


def _batches(units: list[int], charging: Charging | None) -> list[list[int]]:
    """All at once, or as many as one transaction of the ledger takes."""
    size = len(units) if charging is None else CHARGED
    return [units[begin : begin + size] for begin in range(0, len(units), size)]


def _joined(parts: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return parts[0] if len(parts) == 1 else pl.concat(parts)
