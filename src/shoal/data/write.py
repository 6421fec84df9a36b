"""Writing whole files or none: releases with their guarantee, tables for other programs."""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from shoal.core.charge import Guarantee
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import ratio
from shoal.core.plan import Release

if TYPE_CHECKING:
    import polars as pl


def atomic_write(
    path: str | os.PathLike[str],
    content: bytes | str,
    *,
    durable: bool = True,
    private: bool = False,
) -> Path:
    """The path written: `content` (text as UTF-8) is in place and on the disk, or nothing changed.

    Written to a hidden file in the same folder, flushed, then renamed over the target; a link is
    followed. On any failure the hidden file is removed and an existing target is as it was. What
    need not be `durable` is not flushed: a power cut may lose it. What is `private` nobody else on
    this computer may read, from the first byte.
    """
    raw = content.encode() if isinstance(content, str) else content
    with _replace_on_success(path, durable) as (scratch, target):
        # a new file gets the usual permissions, an old one keeps its own
        mode = 0o600 if private else 0o666
        descriptor = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with os.fdopen(descriptor, "wb") as stream:
            if target.exists() and not private:
                os.chmod(scratch, target.stat().st_mode & 0o777)
            stream.write(raw)
            if durable:
                stream.flush()
                os.fsync(stream.fileno())
    return Path(path)


@contextlib.contextmanager
def atomic_fill(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A hidden file to be filled, which is then flushed and renamed to `path`; nothing on failure.

    For what is too large to be held at once; else as `atomic_write`.
    """
    with _replace_on_success(path, durable=True) as (scratch, _):
        yield scratch
        with scratch.open("rb") as filled:
            os.fsync(filled.fileno())


@contextlib.contextmanager
def _replace_on_success(path: str | os.PathLike[str], durable: bool) -> Iterator[tuple[Path, Path]]:
    """A hidden file to be written, and the target it is then renamed to; removed on failure."""
    target = Path(os.path.realpath(path))
    _check_target(target, path)
    scratch = target.with_name(f".{target.name[:100]}.{secrets.token_hex(6)}.part")
    try:
        yield scratch, target
        os.replace(scratch, target)
        if durable:
            _sync_folder(target.parent)
    except OSError as error:
        reason = (error.strerror or str(error) or type(error).__name__).lower()
        raise DataError(
            f"cannot write {str(path)!r}: {reason}; nothing was changed, "
            "choose another place or make room"
        ) from None
    finally:
        with contextlib.suppress(OSError):
            scratch.unlink()


def check_writable(path: str | os.PathLike[str]) -> None:
    """Refuse, before long work or a charge, a path that `atomic_write` could not write."""
    target = Path(os.path.realpath(path))
    _check_target(target, path)
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise DataError(
            f"cannot write {str(path)!r}: the folder {str(target.parent)!r} does not allow it; "
            "choose another place or change its permissions"
        )


def _check_target(target: Path, path: str | os.PathLike[str]) -> None:
    """Refuse a path that is a folder or a device, or in a folder that does not exist."""
    if not target.name or target.is_dir():
        raise DataError(f"cannot write {str(path)!r}: it is a folder; name a file inside it")
    if not target.parent.is_dir():
        raise DataError(
            f"cannot write {str(path)!r}: there is no folder {str(target.parent)!r}; "
            "create it first or choose another place"
        )
    if target.exists() and not target.is_file():
        raise DataError(
            f"cannot write {str(path)!r}: it is a device, not a file; name an ordinary file"
        )


def _sync_folder(folder: Path) -> None:
    """Make the rename itself survive a power cut, where the system lets folders be flushed."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


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
            **guarantee_columns(release.guarantee),
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

    rows = []
    for name, release in releases.items():
        shared = {**promise_columns(release), "processed": ", ".join(release.processed)}
        del shared["amount_exact"]
        answer = release.answer
        for label, value, exact in zip(answer.labels, answer.values, answer.exact, strict=True):
            own = {"series": name, "label": label, "value": value, "exact": ratio(exact)}
            rows.append({**own, **shared})
    floats = ("value", "amount", "error_expected", "error_bound", "error_confidence")
    return pl.DataFrame(
        rows, schema_overrides=dict.fromkeys(floats, pl.Float64), infer_schema_length=None
    )


def promise_columns(release: Release) -> dict[str, Any]:
    """What the values of a release are, and what is promised about them, a column each."""
    error = ("expected", "bound", "confidence")
    return {
        "unit": release.answer.unit,
        "step": ratio(release.answer.step),
        **guarantee_columns(release.guarantee),
        "mechanism": release.mechanism,
        "plan": release.plan,
        **{f"error_{name}": getattr(release.error, name, None) for name in error},
        "secure": release.secure,
    }


def guarantee_columns(promise: Guarantee) -> dict[str, Any]:
    """The columns of the guarantee alone."""
    return {
        "notion": promise.notion,
        "amount": float(promise.amount),
        "amount_exact": ratio(promise.amount),
        "over": promise.over,
        "proved": promise.proved,
        "caveat": promise.caveat,
    }


def _error_object(release: Release) -> dict[str, Any] | None:
    """Return a release's error as JSON data, None where no error is known."""
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
