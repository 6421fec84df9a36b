"""One shard of subjects from rows to tables: the same on every engine."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from shoal.core.errors import InputError
from shoal.core.plan import Plan, Sampler
from shoal.core.registry import plan_hook
from shoal.jobs.census import Census, take_census
from shoal.jobs.drawing import Charging, draw
from shoal.jobs.inputs import Layout
from shoal.jobs.job import ALL
from shoal.jobs.report import refusal_table, release_table, shard_event

if TYPE_CHECKING:
    import polars as pl

    from shoal.jobs.tidy import Locator

NO_PLAN = "a group without a plan"
NO_NAME = "a subject or period whose name no ledger can hold"
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


class Made(NamedTuple):
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
    if charging is not None:
        census.problems.update(_unnamable(census, charging))
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


def _unnamable(census: Census, charging: Charging) -> dict[int, str]:
    """Units whose names no ledger can hold: known before the first of them is charged."""
    return {
        unit: NO_NAME
        for unit in range(census.units)
        if not charging.can_name(census.subjects[unit], census.periods[unit], census.members[unit])
    }


class StreamJob(NamedTuple):
    """How a family's streams are released, many people at a time.

    `by_days`: a unit is charged as a whole. `calendar` says of a plan which part of the calendar
    one stream is of, a "day" or a "week", whose name is then a row's period; None: rows are steps.
    `maps` makes what turns coordinates into states of the plans.
    """

    release: Callable[[Plan, Census, list[int], Recipe, Charging | None], Made]
    by_days: bool = False
    calendar: Callable[[Plan], str | None] = lambda plan: None
    maps: Callable[[Mapping[str, Plan], tuple[str, ...]], Locator] | None = None


def stream_job(plan: Plan) -> StreamJob:
    """How the plan's family runs jobs of streams; refused where it does not."""
    found: StreamJob | None = plan_hook("job", plan)
    if found is None:
        raise InputError(f"{plan.mechanism} answers step by step and has no jobs; use a stream")
    return found


def _made(
    plan: Plan, census: Census, units: list[int], recipe: Recipe, charging: Charging | None
) -> Made:
    """The releases of these units by the kind of their plan."""
    if not isinstance(plan.body, Sampler):
        return stream_job(plan).release(plan, census, units, recipe, charging)
    told: dict[str, Any] = {"seed": recipe.seed, "charging": charging, "layout": recipe.layout}
    drawn, refused = draw(plan, census, units, recipe.states, **told)
    return Made(release_table(drawn, census), all_rows(census, drawn.units), refused)


def all_rows(census: Census, units: list[int]) -> dict[int, int]:
    """Units released whole, and how many rows each has."""
    return dict(zip(units, census.read[units].tolist(), strict=True))


def _event(
    census: Census, done: Mapping[int, int], counts: Mapping[str, int], refused: Mapping[int, str]
) -> dict[str, Any]:
    left = {unit: int(census.read[unit]) - done.get(unit, 0) for unit in refused}
    return shard_event(
        subjects=len(set(census.subjects)),
        units=census.units,
        rows_released=sum(done.values()),
        releases=counts,
        refused=((reason, left[unit]) for unit, reason in refused.items()),
    )


def _batches(units: list[int], plan: Plan, charging: Charging | None) -> list[list[int]]:
    """All at once, or as many as one transaction of the ledger takes."""
    single = isinstance(plan.body, Sampler) or stream_job(plan).by_days
    size = CHARGED if charging is not None and single else len(units)
    return [units[begin : begin + size] for begin in range(0, len(units), size)]


def _joined(parts: list[pl.DataFrame]) -> pl.DataFrame:
    import polars as pl

    return parts[0] if len(parts) == 1 else pl.concat(parts)
