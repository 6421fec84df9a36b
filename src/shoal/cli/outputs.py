"""Checks on the files a command will write, made before it works or charges anything."""

from __future__ import annotations

from glob import glob
from pathlib import Path

from shoal.core.errors import DataError


def check_output(path: Path, *, force: bool) -> None:
    """Refuse a path that cannot be written, or that exists unless `force`."""
    from shoal.data.files import check_writable

    if path.exists() and not path.is_dir() and not force:
        raise DataError(f"{str(path)!r} exists; choose another name, or replace it with --force")
    check_writable(path)


def check_apart(path: Path, *inputs: str | Path) -> None:
    """Refuse an output that is one of the files read, even with --force; patterns are followed."""
    if not path.exists():
        return
    for given in inputs:
        files = [given] if Path(given).exists() else glob(str(given), recursive=True)
        if any(Path(file).samefile(path) for file in files):
            raise DataError(f"{str(path)!r} is read by this command; write to another file")


def check_chart(path: Path | None, *, force: bool) -> None:
    """`check_output` for a chart, and that it can be drawn at all."""
    if path is None:
        return
    from shoal.cli.charts import check_charts

    if path.suffix.lower() != ".png":
        raise DataError(f"--plot is {str(path)!r}; it must end in .png")
    check_charts()
    check_output(path, force=force)
