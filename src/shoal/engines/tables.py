"""The rows a job writes: one per release with its promise, and one per refusal with its reason."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from shoal.core.plan import CONFIDENCE, Plan, Sampler
from shoal.core.value import Ints
from shoal.data.files import atomic_write
from shoal.data.write import ratio
from shoal.engines.census import Census
from shoal.engines.drawing import Drawn, release_maker

if TYPE_CHECKING:
    import polars as pl


def release_table(drawn: Drawn, census: Census) -> pl.DataFrame:
    """One row per release: subject, period, the values by label, and the promise.

    `value` and `multiples` are structs with one field per label; a value is its multiple times
    `step`, exactly.
    """
    subjects = [census.subjects[unit] for unit in drawn.units]
    periods = [census.periods[unit] for unit in drawn.units]
    return table_of(drawn.plan, subjects, periods, drawn.multiples, secure=drawn.secure)


def table_of(
    plan: Plan, subjects: Sequence[str], periods: Sequence[str], multiples: Ints, *, secure: bool
) -> pl.DataFrame:
    """The same from plain columns."""
    import polars as pl

    labels = plan.task.query.labels
    promise = promise_of(plan, secure=secure)
    step = float(release_maker(plan, secure=secure)((0,) * len(labels)).answer.step)
    fields = {name: pl.Series(multiples[:, place]) for place, name in enumerate(labels)}
    values = {name: column.cast(pl.Float64) * step for name, column in fields.items()}
    return pl.DataFrame(
        {
            "subject": pl.Series(subjects, dtype=pl.String),
            "period": pl.Series(periods, dtype=pl.String),
            "value": pl.DataFrame(values).to_struct("value"),
            "multiples": pl.DataFrame(fields).to_struct("multiples"),
        }
    ).with_columns(pl.lit(value, dtype=_kind(value)).alias(name) for name, value in promise.items())


def promise_of(plan: Plan, *, secure: bool) -> dict[str, Any]:
    """The columns that say what the values are and what is promised about them."""
    assert isinstance(plan.body, Sampler)
    error = plan.body.error(CONFIDENCE)
    step = release_maker(plan, secure=secure)((0,) * len(plan.task.query.labels)).answer.step
    return {
        "unit": plan.task.query.unit,
        "step": ratio(step),
        **guarantee_of(plan),
        "error_expected": None if error is None else error.expected,
        "error_bound": None if error is None else error.bound,
        "error_confidence": None if error is None else error.confidence,
        "secure": secure,
    }


def guarantee_of(plan: Plan) -> dict[str, Any]:
    """The columns of the guarantee alone."""
    return {
        "notion": plan.guarantee.notion,
        "amount": float(plan.guarantee.amount),
        "amount_exact": ratio(plan.guarantee.amount),
        "over": plan.guarantee.over,
        "proved": plan.guarantee.proved,
        "caveat": plan.guarantee.caveat,
        "mechanism": plan.mechanism,
        "plan": plan.fingerprint,
    }


def refusal_table(refused: Mapping[int, str], census: Census) -> pl.DataFrame:
    """One row per refused unit: subject, period, how many rows it has, and the reason."""
    import polars as pl

    units = sorted(refused)
    return pl.DataFrame(
        {
            "subject": pl.Series([census.subjects[unit] for unit in units], dtype=pl.String),
            "period": pl.Series([census.periods[unit] for unit in units], dtype=pl.String),
            "rows": pl.Series(census.rows[np.array(units, dtype=np.int64)], dtype=pl.Int64),
            "reason": pl.Series([refused[unit] for unit in units], dtype=pl.String),
        }
    )


def part_name(shard: int, column: str | None, group: str) -> str:
    """Where a shard's releases go inside the output: in the hive folder of their group, if any."""
    name = f"part-{shard:05d}.parquet"
    return name if column is None else f"{quote(column, safe='')}={quote(group, safe='')}/{name}"


def write_parquet(path: Path, table: pl.DataFrame) -> None:
    """The table in `path`, on the disk, whole or not at all; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    table.write_parquet(buffer)
    atomic_write(path, buffer.getvalue())


def write_lines(path: Path, table: pl.DataFrame) -> None:
    """The same as JSON Lines: refusals, which a pattern for Parquet files must not find."""
    path.parent.mkdir(parents=True, exist_ok=True)
    atomic_write(path, table.write_ndjson())


def _kind(value: object) -> Any:
    import polars as pl

    if isinstance(value, bool):
        return pl.Boolean
    return pl.String if isinstance(value, str) else pl.Float64
