"""A declared schema of records: what it encodes, what it refuses before data are read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from shoal.core.errors import DataError, InputError
from shoal.core.registry import dumps, loads
from shoal.records import DeclaredEncoder, PrivateKMeans, PrivateLinearSVC, RecordSchema

SCHEMA = RecordSchema.of({"age": (20, 70), "work": ["private", "public"]})
ROWS: dict[str, list[Any]] = {"age": [20, 45, 90], "work": ["public", "private", "other"]}
FRAMES = [pl.DataFrame, pd.DataFrame]


@pytest.mark.parametrize("frame", FRAMES)
def test_numbers_are_brought_to_their_range_and_categories_to_columns(frame: Any) -> None:
    encoded = SCHEMA.encode(frame(ROWS))
    assert SCHEMA.features == ("age", "work is private", "work is public")
    np.testing.assert_array_equal(encoded[:2], [[0, 0, 1], [0.5, 1, 0]])
    assert encoded[2, 0] == 1
    assert np.isnan(encoded[2, 1:]).all()
    turned = frame({name: ROWS[name] for name in ("work", "age")})
    np.testing.assert_array_equal(SCHEMA.encode(turned), encoded)
    listed = list(zip(ROWS["age"], ROWS["work"], strict=True))
    np.testing.assert_array_equal(SCHEMA.encode(listed), encoded)


@pytest.mark.parametrize("cell", ["x", None, 3, float("nan"), b"private", ["private"], object()])
def test_what_a_cell_holds_is_never_refused(cell: object) -> None:
    for column in range(2):
        row: list[Any] = [30, "public"]
        row[column] = cell
        encoded = SCHEMA.encode([row, [30, "public"]])
        assert encoded.shape == (2, 3)
        np.testing.assert_array_equal(encoded[1], [0.2, 0, 1])
        assert np.isnan(encoded[0]).any() or (column, cell) == (0, 3)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({}, "columns is empty; declare at least one"),
        ({"age": (70, 20)}, "column 'age' is 70 … 20; the low end must be below"),
        ({"age": (1, 2, 3)}, r"column 'age' is \[1, 2, 3\]; declare a range"),
        ({"work": ["one"]}, "column 'work' has the categories .*; declare two or more, each once"),
        ({"work": ["one", "one"]}, "each once"),
    ],
)
def test_a_schema_that_cannot_be_is_refused(columns: Any, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        RecordSchema.of(columns)


def test_columns_that_are_not_declared_are_refused_before_cells_are_read() -> None:
    with pytest.raises(DataError, match="columns of the table are age, pay; the schema declares"):
        SCHEMA.encode(pl.DataFrame({"age": [1], "pay": [2]}))
    with pytest.raises(DataError, match="not rows of 2 cells"):
        SCHEMA.encode([[1, "public", 3]])


@pytest.mark.parametrize("frame", FRAMES)
def test_text_without_a_schema_is_refused_by_its_type(frame: Any) -> None:
    text = frame({"age": [30, 40], "work": ["public", "private"]})
    for model in (PrivateLinearSVC(classes=[0, 1]), PrivateKMeans(2)):
        with pytest.raises(InputError, match=r"column 'work' is of type .*no schema is declared"):
            model.fit(text, [0, 1])


@pytest.mark.parametrize("series", [pl.Series, lambda values: pd.Series(values, dtype="string")])
def test_text_labels_of_classes_that_are_numbers_are_refused(series: Any) -> None:
    rows = [[0.0], [1.0]]
    with pytest.raises(InputError, match=r"the labels are of type str.*declare the two classes"):
        PrivateLinearSVC(classes=[0, 1]).fit(rows, series(["no", "yes"]))


def test_a_classifier_learns_from_text_through_its_schema() -> None:
    work = np.array(["public", "private"])[np.random.default_rng(1).integers(0, 2, 4000)]
    people = pl.DataFrame({"age": np.full(4000, 30), "work": work})
    pay = np.where(work == "public", "more", "less")
    model = PrivateLinearSVC(
        classes=["less", "more"], schema=SCHEMA, epsilon=1000, random_state=1
    ).fit(people, pay)
    assert (model.predict(people) == pay).all()
    assert model.plan_.guarantee.amount == 1000


@pytest.mark.parametrize("frame", FRAMES)
def test_a_pipeline_with_text_columns_is_the_estimator_with_a_schema(frame: Any) -> None:
    table = frame({"age": [20, 45, 90, 33] * 50, "work": ["public", "private", "other", "x"] * 50})
    labels = ["no", "yes", "no", "yes"] * 50
    classes, seed = ["no", "yes"], 5
    pipeline = make_pipeline(
        DeclaredEncoder(SCHEMA), PrivateLinearSVC(classes=classes, random_state=seed)
    )
    found = clone(pipeline).fit(table, labels)
    alone = PrivateLinearSVC(classes=classes, schema=SCHEMA, random_state=seed).fit(table, labels)
    np.testing.assert_array_equal(found[-1].coef_, alone.coef_)
    assert list(found[:-1].get_feature_names_out()) == list(SCHEMA.features)
    assert list(found.predict(table)[:2]) == list(alone.predict(table)[:2])
    with pytest.raises(DataError, match="give exactly those columns"):
        found.predict(frame({"age": [1], "job": ["public"]}))


def test_an_encoder_keeps_nothing_of_the_records() -> None:
    first = DeclaredEncoder(SCHEMA).fit(pl.DataFrame({"age": [20], "work": ["public"]}))
    second = DeclaredEncoder(SCHEMA).fit(pl.DataFrame({"age": [7000], "work": ["nobody's"]}))
    assert repr(vars(first)) == repr(vars(second))


def test_a_schema_with_a_label_is_stored_and_read_again() -> None:
    schema = RecordSchema.of({"age": (20, 70)}, label="paid", classes=["no", "yes"])
    assert loads(dumps(schema)) == schema
    frame = pl.DataFrame({"age": [20, 30, 40], "paid": ["yes", "no", "perhaps"]})
    assert schema.encode(frame)[:, 0].tolist() == [0, 0.2, 0.4]
    assert schema.sides(frame)[:2] == [1, -1]
    assert np.isnan(schema.sides(frame)[2])
    with pytest.raises(DataError, match="the schema declares age, paid"):
        schema.encode(frame.drop("paid"))
    for changes in ({"label": "paid"}, {"label": "age", "classes": ["a", "b"]}):
        with pytest.raises(InputError):
            RecordSchema.of({"age": (20, 70)}, **changes)
