"""Releases on disk: exact values, and the guarantee beside them."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest

from shoal.core.charge import Guarantee
from shoal.core.errors import DataError, InputError
from shoal.core.plan import Answer, Error, Release
from shoal.data.write import SCHEMA, write_releases, write_table

RELEASE = Release(
    answer=Answer(("sit", "walk"), (10**20 + 1, -3), Fraction(1, 3), "entries"),
    plan="ab" * 32,
    mechanism="markov-quilt",
    guarantee=Guarantee(notion="pufferfish", amount=Fraction(1, 10), over="each entry"),
    error=Error(expected=2.5, bound=7.0, confidence=0.95, unit="entries"),
    secure=True,
)
CLAIMED = replace(
    RELEASE,
    guarantee=replace(RELEASE.guarantee, proved=False, caveat="the proof has a hole"),
    error=None,
    secure=False,
    processed=("non-negative", "simplex"),
)


def test_json_holds_exact_values_and_the_guarantee(tmp_path: Path) -> None:
    file = write_releases(tmp_path / "out.json", {"ann": RELEASE, "bøb": CLAIMED})
    document = json.loads(file.read_text(encoding="utf-8"))
    assert document["schema"] == SCHEMA
    assert list(document["releases"]) == ["ann", "bøb"]
    ann = document["releases"]["ann"]
    exact = {name: n * Fraction(ann["step"]) for name, n in ann["multiples"].items()}
    assert exact == dict(zip(RELEASE.answer.labels, RELEASE.answer.exact, strict=True))
    assert ann["values"] == {"sit": float(Fraction(10**20 + 1, 3)), "walk": -1.0}
    assert (ann["unit"], ann["mechanism"], ann["plan"]) == ("entries", "markov-quilt", "ab" * 32)
    assert ann["guarantee"]["notion"] == "pufferfish"
    assert ann["guarantee"]["amount"] == 0.1
    assert ann["guarantee"]["amount_exact"] == "1/10"
    assert ann["guarantee"]["over"] == "each entry"
    assert ann["guarantee"]["proved"] is True
    assert "epsilon = 0.1" in ann["guarantee"]["in_words"]
    assert (ann["error"]["bound"], ann["error"]["confidence"]) == (7.0, 0.95)
    assert ann["secure"] is True
    assert ann["fingerprint"] == RELEASE.fingerprint


def test_json_says_what_is_not_promised(tmp_path: Path) -> None:
    file = write_releases(tmp_path / "out.json", {"bob": CLAIMED})
    bob = json.loads(file.read_text())["releases"]["bob"]
    assert bob["guarantee"]["proved"] is False
    assert bob["guarantee"]["caveat"] == "the proof has a hole"
    assert (bob["error"], bob["secure"]) == (None, False)
    assert bob["processed"] == ["non-negative", "simplex"]


def test_an_unbounded_error_is_null_not_invalid_json(tmp_path: Path) -> None:
    wide = replace(RELEASE, error=Error(float("inf"), float("inf"), 0.95, "entries"))
    file = write_releases(tmp_path / "out.json", {"ann": wide})
    assert json.loads(file.read_text())["releases"]["ann"]["error"]["bound"] is None


def test_parquet_holds_a_row_per_series_and_label(tmp_path: Path) -> None:
    file = write_releases(tmp_path / "out.parquet", {"ann": RELEASE, "bob": CLAIMED})
    rows = pl.read_parquet(file)
    assert rows.select("series", "label").rows() == [
        ("ann", "sit"),
        ("ann", "walk"),
        ("bob", "sit"),
        ("bob", "walk"),
    ]
    assert [Fraction(text) for text in rows["exact"]] == [*RELEASE.answer.exact] * 2
    assert rows["value"].to_list() == [*RELEASE.values] * 2
    assert rows["notion"].unique().to_list() == ["pufferfish"]
    assert rows["amount"].unique().to_list() == [0.1]
    assert rows["proved"].to_list() == [True, True, False, False]
    assert rows["error_bound"].to_list() == [7.0, 7.0, None, None]
    assert rows["secure"].to_list() == [True, True, False, False]
    assert rows["processed"].to_list()[2] == "non-negative, simplex"
    assert set(rows["plan"]) == {"ab" * 32}


def test_bad_targets_are_refused_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ends in '\.xml'; releases are written as \.json or"):
        write_releases(tmp_path / "out.xml", {"ann": RELEASE})
    with pytest.raises(InputError, match="releases is empty"):
        write_releases(tmp_path / "out.json", {})
    for name in ("out.json", "out.parquet"):
        with pytest.raises(DataError, match="there is no folder"):
            write_releases(tmp_path / "missing" / name, {"ann": RELEASE})
    with pytest.raises(InputError, match=r"ends in '\.json'; tables are written as \.csv"):
        write_table(tmp_path / "t.json", pl.DataFrame({"a": [1]}))
    assert os.listdir(tmp_path) == []
