"""Writing releases with their guarantee, and tables for other programs."""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.errors import InputError
from shoal.core.plan import Release
from shoal.data.files import atomic_write

if TYPE_CHECKING:
    import polars as pl

SCHEMA = "shoal-releases/1"


def write_releases(path: str | os.PathLike[str], releases: Mapping[str, Release]) -> Path:
    """The path written, by its suffix: a .json document or a .parquet table. Whole or not at all.

    JSON holds one object per series: see `release_object`. Parquet holds one row per series and
    label: see `release_table`.
    """
    if not releases:
        raise InputError("releases is empty; there is nothing to write")
    suffix = Path(path).suffix.lower()
    if suffix == ".json":
        return atomic_write(path, releases_json(releases))
    if suffix == ".parquet":
        return write_table(path, release_table(releases))
    raise InputError(f"{str(path)!r} ends in {suffix!r}; releases are written as .json or .parquet")


def write_table(path: str | os.PathLike[str], frame: pl.DataFrame) -> Path:
    """The path written, by its suffix: .csv, .parquet, .jsonl or .ndjson. Whole or not at all."""
    buffer = io.BytesIO()
    match Path(path).suffix.lower():
        case ".csv":
            frame.write_csv(buffer)
        case ".parquet":
            frame.write_parquet(buffer)
        case ".jsonl" | ".ndjson":
            frame.write_ndjson(buffer)
        case suffix:
            raise InputError(
                f"{str(path)!r} ends in {suffix!r}; tables are written as .csv, .parquet, "
                ".jsonl or .ndjson"
            )
    return atomic_write(path, buffer.getvalue())


def releases_json(releases: Mapping[str, Release]) -> str:
    """The document: schema, and under `releases` one object per series."""
    document = {
        "schema": SCHEMA,
        "releases": {name: release_object(release) for name, release in releases.items()},
    }
    return json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def release_object(release: Release) -> dict[str, Any]:
    """The release as plain JSON data.

    A value is its integer in `multiples` times `step`, exactly; `values` are the nearest floats.
    """
    answer = release.answer
    return {
        "values": {name: _finite(value) for name, value in release.as_dict().items()},
        "multiples": dict(zip(answer.labels, answer.multiples, strict=True)),
        "step": ratio(answer.step),
        "unit": answer.unit,
        "guarantee": {
            "notion": release.guarantee.notion,
            "amount": float(release.guarantee.amount),
            "amount_exact": ratio(release.guarantee.amount),
            "over": release.guarantee.over,
            "proved": release.guarantee.proved,
            "caveat": release.guarantee.caveat,
            "in_words": release.guarantee.describe(),
        },
        "mechanism": release.mechanism,
        "plan": release.plan,
        "error": _error_object(release),
        "secure": release.secure,
        "processed": list(release.processed),
        "fingerprint": release.fingerprint,
    }


def release_table(releases: Mapping[str, Release]) -> pl.DataFrame:
    """One row per series and label; `exact` is the value as "p/q", the rest repeats per row."""
    import polars as pl

    rows = [
        {"series": name, "label": label, "value": value, "exact": ratio(exact), **shared}
        for name, release in releases.items()
        for shared in [_shared_columns(release)]
        for label, value, exact in zip(
            release.answer.labels, release.values, release.answer.exact, strict=True
        )
    ]
    floats = ("value", "amount", "error_expected", "error_bound", "error_confidence")
    return pl.DataFrame(
        rows, schema_overrides=dict.fromkeys(floats, pl.Float64), infer_schema_length=None
    )


def ratio(value: Fraction) -> str:
    """The rational as "p/q", always with both parts."""
    return f"{value.numerator}/{value.denominator}"


def _shared_columns(release: Release) -> dict[str, Any]:
    error = release.error
    return {
        "unit": release.answer.unit,
        "step": ratio(release.answer.step),
        "notion": release.guarantee.notion,
        "amount": float(release.guarantee.amount),
        "over": release.guarantee.over,
        "proved": release.guarantee.proved,
        "caveat": release.guarantee.caveat,
        "mechanism": release.mechanism,
        "plan": release.plan,
        "error_expected": None if error is None else error.expected,
        "error_bound": None if error is None else error.bound,
        "error_confidence": None if error is None else error.confidence,
        "secure": release.secure,
        "processed": ", ".join(release.processed),
    }


def _error_object(release: Release) -> dict[str, Any] | None:
    error = release.error
    if error is None:
        return None
    return {
        "expected": _finite(error.expected),
        "bound": _finite(error.bound),
        "confidence": error.confidence,
        "unit": error.unit,
        "in_words": error.describe(),
    }


def _finite(value: float) -> float | None:
    """JSON has no infinity: an unbounded number is null."""
    return value if math.isfinite(value) else None
