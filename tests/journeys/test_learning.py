"""From a table or a graph to a classifier, clusters and degrees, without a line of Python."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.core.registry import dumps, loads
from shoal.spec.request import read_request
from tests.journeys.shell import Shell

ROWS = 400


def people(rows: int = ROWS) -> pl.DataFrame:
    """Made-up people: those who work long earn more; some cells are not as declared."""
    draw = np.random.default_rng(3)
    hours = draw.integers(1, 99, rows)
    rich = hours + draw.normal(0, 8, rows) > 50
    return pl.DataFrame(
        {
            "name": [f"p{k}" for k in range(rows)],
            "age": draw.integers(10, 99, rows),
            "hours": hours,
            "work": draw.choice(["private", "public", "none", "secret"], rows),
            "income": np.where(rich, ">50K", "<=50K"),
        }
    )


@pytest.fixture
def table(shell: Shell) -> Shell:
    people().write_csv(shell.folder / "people.csv")
    people().write_parquet(shell.folder / "people.parquet")
    draw = np.random.default_rng(4)
    edges = pl.DataFrame(draw.integers(0, 300, (900, 2)), schema=["a", "b"])
    edges.write_csv(shell.folder / "edges.csv")
    return shell


def made(shell: Shell, kind: str, **changes: object) -> str:
    """A template with another number of records, and the command that releases it, as printed."""
    shell.run(f"shoal init --kind {kind} {kind}.toml")
    spec = shell.folder / f"{kind}.toml"
    text = spec.read_text()
    for key, value in changes.items():
        (line,) = (line for line in text.splitlines() if line.startswith(f"{key} = "))
        text = text.replace(line, f"{key} = {value}")
    spec.write_text(text)
    (command,) = (line for line in text.splitlines() if line.startswith("# With data:"))
    return command.partition(":")[2].strip()


def test_a_classifier_is_released_from_a_table_with_text(table: Shell) -> None:
    command = made(table, "classifier", records=ROWS, epsilon="1000.0")
    said = " ".join(table.run(command).out.split())
    assert "A row is of class '>50K' if the weights" in said
    found = json.loads((table.folder / "weights.json").read_text())["releases"]["all"]["values"]
    assert list(found) == [
        "age", "hours", "work is private", "work is public", "work is none", "intercept",
    ]  # fmt: skip
    assert found["hours"] > 0.5 > abs(found["age"])
    table.run("shoal plan classifier.toml --save plan.json")
    table.run("shoal release plan.json people.parquet -o again.json")
    table.run("shoal audit classifier.toml")
    table.refused("shoal attack classifier.toml people.csv", "`shoal audit` measures what")


def test_a_table_gives_what_the_estimator_computes_from_it(table: Shell) -> None:
    """Without noise the query reads a frame as the encoded rows and sides that it stands for."""
    made(table, "classifier", records=ROWS)
    query = read_request(table.folder / "classifier.toml").task.query
    frame = people().drop("name")
    read = query.read(frame.with_columns(pl.col("age").cast(pl.Float64)))
    work = {"private": [1, 0, 0], "public": [0, 1, 0], "none": [0, 0, 1]}
    for row, pulled, side in zip(frame.iter_rows(named=True), read.rows, read.classes, strict=True):
        if row["work"] not in work:
            assert not pulled.any()
            continue
        age = min(max((row["age"] - 17) / 73, 0), 1)
        expected = np.array([age, (row["hours"] - 1) / 98, *work[row["work"]]])
        expected /= max(1.0, float(np.linalg.norm(expected)))
        assert pulled[:-1] == pytest.approx(expected, abs=1e-9)
        assert pulled[-1] == 1
        assert side == (1 if row["income"] == ">50K" else -1)
    stored = loads(dumps(query))
    assert stored == query
    assert stored.fingerprint == query.fingerprint
    assert query.evaluate(stored.read(frame)) == query.evaluate(read)


def test_clusters_are_in_the_units_of_the_columns(table: Shell) -> None:
    said = table.run(made(table, "clusters", epsilon="500.0")).out
    assert "cluster" in said
    query = read_request(table.folder / "clusters.toml").task.query
    released = json.loads((table.folder / "clusters.json").read_text())
    assert len(released["releases"]["all"]["values"]) == 3 * 4 * 3
    frame = people().select("age", "hours")
    points = query.read(frame)
    ages = np.clip((frame["age"].to_numpy() - 17) / 73, 0, 1)
    assert points.cells[:, 0].tolist() == np.rint(ages * 1024).astype(int).tolist()
    plain = shoal.records.centroids(
        ["age", "hours"], low=[17, 1], high=[90, 99], clusters=4, rounds=3
    )
    assert plain.evaluate(plain.read(frame.to_numpy())) == query.evaluate(points)
    assert plain.fingerprint == shoal.core.registry.loads(dumps(plain)).fingerprint


def test_degrees_of_a_graph_add_up_to_its_people(table: Shell) -> None:
    said = table.run(made(table, "degrees", nodes=300, cap=20)).out
    counted = [int(line.split()[-1]) for line in said.splitlines() if line[:1].isdigit()]
    assert sum(counted) == pytest.approx(300, abs=3)


def test_what_is_not_declared_is_refused_before_anything_is_released(table: Shell) -> None:
    made(table, "classifier", records=ROWS)
    spec = table.folder / "classifier.toml"
    text = spec.read_text()
    table.refused(
        "shoal release classifier.toml edges.csv -o a.json", "the table has no column 'age'"
    )
    people(ROWS - 1).write_csv(table.folder / "fewer.csv")
    table.refused("shoal release classifier.toml fewer.csv -o a.json", "has 399 rows, the query's")
    for old, new, words in (
        ("[17, 90]", "[90, 17]", "the low end must be below the high"),
        ("[17, 90]", "[17, 20, 90]", r"query.columns.age is a list of 3; it must be a range"),
        ("[17, 90]", '"young"', "query.columns.age is 'young'; it must be a range"),
        ('["<=50K", ">50K"]', '["x", "x"]', "name two different classes"),
        ('label = "income"', 'label = "age"', "which is a column too"),
        ('"huber"', '"hinge"', "query.loss is 'hinge'"),
        ("records = 400", "records = 0", "query.records is 0"),
    ):
        assert old in text, old
        spec.write_text(text.replace(old, new, 1))
        table.refused("shoal plan classifier.toml", words)
    made(table, "degrees", nodes=300)
    table.refused("shoal release degrees.toml people.csv -o b.json", "a graph is two columns of")


def test_no_cell_is_refused_and_none_tells_by_an_error(table: Shell) -> None:
    """A strange value in one record neither raises nor warns: it would tell of the record."""
    command = made(table, "classifier", records=ROWS)
    frame = people().with_columns(pl.col("age", "hours").cast(pl.String))
    for column, value in (("age", "old"), ("work", "astronaut"), ("income", "unknown")):
        strange = pl.when(pl.int_range(pl.len()) == 7).then(pl.lit(value)).otherwise(column)
        frame.with_columns(strange.alias(column)).write_csv(table.folder / "people.csv")
        said = table.run(command + " --force")
        assert value not in said.text
        assert "WARNING" not in said.err
