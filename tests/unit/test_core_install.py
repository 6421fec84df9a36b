"""What a plain install can do: Shoal without pyarrow, networkx and the other extras."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import polars as pl
import pytest

from shoal.core.errors import DataError, InputError
from shoal.data import frames
from shoal.data.frames import like, parquet_frames
from tests.journeys import files

ROOT = Path(__file__).parents[2]
EXTRAS = ("pyarrow", "networkx", "pandas", "matplotlib", "sklearn", "osmnx", "pyspark", "duckdb")
PLAIN = f"""\
import sys

for name in {EXTRAS!r}:
    sys.modules[name] = None  # as where it is not installed
from shoal.cli import main

sys.argv[0] = "shoal"
main()
"""


def test_extras_are_not_among_what_every_install_gets() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    core = " ".join(project["dependencies"])
    assert not [name for name in EXTRAS if name in core]
    assert project["optional-dependencies"]["arrow"] == ["pyarrow>=15"]


def plain(folder: Path, *words: str) -> str:
    """What `shoal` prints where no extra is installed; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", PLAIN, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_parquet_goes_in_and_out_without_extras(tmp_path: Path) -> None:
    files.days(tmp_path / "days.parquet", "anna", "ben", count=120)
    columns = ("--state", "activity", "--series", "person", "--time", "minute")
    fit = ("fit", "days.parquet", "-o", "m.json", *columns, "--length", "120", "--spec", "s.toml")
    assert "Read 2 series" in plain(tmp_path, *fit)
    release = ("release", "s.toml", "days.parquet", "-o", "out.parquet", "--ledger", "b.db")
    plain(tmp_path, *release)
    assert pl.read_parquet(tmp_path / "out.parquet").height
    plain(tmp_path, "release", "s.toml", "days.parquet", "-o", "out", "--by", "person")
    assert "finished" in plain(tmp_path, "job", "status", "out")
    plain(tmp_path, "ledger", "export", "b.db", "-o", "b.json")


@pytest.fixture
def without_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where pyarrow is not installed."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)


@pytest.mark.usefixtures("without_arrow")
def test_pieces_of_a_parquet_file_are_those_of_pyarrow(tmp_path: Path) -> None:
    table = pl.DataFrame({"a": range(10), "b": [str(k) for k in range(10)], "c": [None] * 10})
    table.write_parquet(tmp_path / "t.parquet", row_group_size=4)
    pieces = list(parquet_frames(tmp_path / "t.parquet", lambda names: names[:2], rows=3))
    assert all(piece.height <= 3 for piece in pieces)
    assert pl.concat(pieces).equals(table.select("a", "b"))
    table.head(0).write_parquet(tmp_path / "none.parquet")
    (empty,) = parquet_frames(tmp_path / "none.parquet", lambda names: ["b"])
    assert (empty.height, empty.columns) == (0, ["b"])


@pytest.mark.usefixtures("without_arrow")
@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_tables_of_other_libraries_name_the_extra(library: str) -> None:
    with pytest.raises(InputError, match=r"needs pyarrow.*pip install 'shoal\[arrow\]'"):
        like(pl.DataFrame({"a": [1]}), library)


@pytest.mark.usefixtures("without_arrow")
def test_a_job_of_several_shards_names_the_extra() -> None:
    assert not any("arrow" in error.__module__ for error in frames.reading_errors())
    with pytest.raises(InputError, match=r"a job of 7 shards needs pyarrow"):
        frames.refuse_without_arrow("a job of 7 shards")


@pytest.mark.usefixtures("without_arrow")
def test_a_file_that_is_no_parquet_is_refused_in_one_sentence(tmp_path: Path) -> None:
    from shoal.data.entries import read_table

    (tmp_path / "t.parquet").write_bytes(b"PAR1 nothing of the kind PAR1")
    with pytest.raises(DataError, match=r"cannot be read"):
        read_table(tmp_path / "t.parquet")
