"""One shard of subjects from rows to tables: the same on every engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.contexts.day import DayChain
from shoal.core.plan import Plan, Sampler
from shoal.jobs.census import Census, take_census
from shoal.jobs.drawing import Charging, OwnStates, draw
from shoal.jobs.inputs import Layout
from shoal.jobs.job import ALL
from shoal.jobs.report import refusal_table, release_table, shard_event

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


class _Made(NamedTuple):
    """What came of the units of one group: a table, the rows of each unit in it, the refusals.

    A stream that a ledger stopped is in both: with the rows before, and with the reason.
    """

    table: pl.DataFrame
    rows: dict[int, int]
    refused: dict[int, str]


def release_shard(rows: pl.DataFrame, recipe: Recipe, charging: Charging | None) -> Outcome:
    """Everything that comes of one shard's rows; with `charging`, charged before it is drawn."""
    lenient = any(not isinstance(plan.body, Sampler) for plan in recipe.plans.values())
    census = take_census(rows, recipe.layout, len(recipe.states), lenient=lenient)
    groups: dict[str, list[int]] = defaultdict(list)
    for unit in range(census.units):
        groups[census.groups[unit]].append(unit)
    tables: dict[str, pl.DataFrame] = {}
    refused: dict[int, str] = {}
    counts: dict[str, int] = defaultdict(int)
    done: dict[int, int] = {}
    for group, units in sorted(groups.items()):
        plan = recipe.plans.get(group if recipe.layout.group is not None else ALL)
        if plan is None:
            refused |= {unit: census.problems.get(unit, NO_PLAN) for unit in units}
            continue
        parts = [
            _made(plan, census, some, recipe, charging) for some in _batches(units, plan, charging)
        ]
        tables[group] = _joined([part.table for part in parts])
        for part in parts:
            refused |= part.refused
            done |= part.rows
            counts[plan.fingerprint] += sum(unit not in part.refused for unit in part.rows)
    return Outcome(
        releases={group: table for group, table in tables.items() if table.height},
        refused=refusal_table(refused, census),
        event=_event(census, done, counts, refused),
    )


def _made(
    plan: Plan, census: Census, units: list[int], recipe: Recipe, charging: Charging | None
) -> _Made:
    """The releases of these units by the kind of their plan."""
    rules: dict[str, Any] = {"seed": recipe.seed, "charging": charging}
    if isinstance(plan.body, Sampler):
        drawn, refused = draw(plan, census, units, recipe.states, **rules)
        table = release_table(drawn, census)
        return _Made(table, _all_rows(census, drawn.units), refused)
    if _of_days(plan):
        from shoal.contexts.jobs import release_days

        clock = recipe.layout.daily
        days, kept, refused = release_days(
            plan, census, units, recipe.states, by_clock=clock, **rules
        )
        return _Made(days, _all_rows(census, kept), refused)
    from shoal.places.jobs.traces import release_traces

    own = OwnStates.of(plan, recipe.states)
    outside = own.outside(census, units)
    inside = [unit for unit in units if unit not in outside]
    steps, done, refused = release_traces(plan, census, inside, place=own.place, **rules)
    return _Made(steps, done, outside | refused)


def _all_rows(census: Census, units: list[int]) -> dict[int, int]:
    return dict(zip(units, census.rows[units].tolist(), strict=True))


def _of_days(plan: Plan) -> bool:
    return not isinstance(plan.body, Sampler) and isinstance(plan.task.family[0], DayChain)


def _event(
    census: Census, done: Mapping[int, int], counts: Mapping[str, int], refused: Mapping[int, str]
) -> dict[str, Any]:
    left = {unit: int(census.rows[unit]) - done.get(unit, 0) for unit in refused}
    return shard_event(
        subjects=len(set(census.subjects)),
        units=census.units,
        rows_released=sum(done.values()),
        releases=counts,
        refused=((reason, left[unit]) for unit, reason in refused.items()),
    )


def _batches(units: list[int], plan: Plan, charging: Charging | None) -> list[list[int]]:
    """All at once, or as many as one transaction of the ledger takes."""
    single = isinstance(plan.body, Sampler) or _of_days(plan)
    size = CHARGED if charging is not None and single else len(units)
    return [units[begin : begin + size] for begin in range(0, len(units), size)]


def _joined(parts: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return parts[0] if len(parts) == 1 else pl.concat(parts)
