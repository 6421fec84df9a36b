"""Tied records: made-up always; Gowalla, Adult and ego-Facebook when `SHOAL_DATA` is set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.data.entries import people_of
from shoal.data.generate import contact_network, friends_places
from shoal.records.place_attack import City, People
from shoal.records.sources import affinity_ties
from studies.sources import real_folder

NEW_YORK = City(south=40.5, west=-74.25, north=40.92, east=-73.7)
NUMBERS = ("age", "education_num", "capital_gain", "capital_loss", "hours_per_week")
CATEGORIES = (
    "workclass",
    "education",
    "marital_status",
    "occupation",
    "relationship",
    "race",
    "sex",
)
SIMILAR = 0.8  # the paper's threshold for a tie between profiles
MOST_TIES = 20_000_000


class Profiles(NamedTuple):
    """Rows of features in [0, 1] and a class each, for training and for testing."""

    rows: Floats
    classes: Ints
    test_rows: Floats
    test_classes: Ints


class Graph(NamedTuple):
    """Edges among `nodes` nodes, and the pairs of nodes with similar profiles."""

    nodes: int
    edges: Ints
    ties: Ints


def people() -> Iterator[tuple[str, People]]:
    """Location vectors and friendships."""
    town = friends_places(people=300, seed=1)
    south, west, north, east = town.box
    city = City(south=south, west=west, north=north, east=east)
    yield "generated town", people_of(town.checkins(), town.ties(), city)[0]
    folder = real_folder()
    if folder is not None and (folder / "gowalla_nyc_checkins.parquet").exists():
        import polars as pl

        visits = pl.read_parquet(folder / "gowalla_nyc_checkins.parquet")
        friends = pl.read_parquet(folder / "gowalla_nyc_edges.parquet")
        found, _ = people_of(
            visits, friends, NEW_YORK, latitude="lat", longitude="lon", place="place_id"
        )
        yield "Gowalla New York", found


def profiles() -> Iterator[tuple[str, Profiles]]:
    """Two classes of people."""
    yield "generated profiles", _generated_profiles()
    folder = real_folder()
    if folder is not None and (folder / "adult.parquet").exists():
        yield "UCI Adult", _adult(folder / "adult.parquet")


def graphs() -> Iterator[tuple[str, Graph]]:
    """A graph, and ties between similar people."""
    network = contact_network(people=800, seed=1)
    pairs = np.argwhere(np.triu(network.household[:, None] == network.household, k=1))
    yield "generated contacts", Graph(800, network.edges, pairs.reshape(-1, 2))
    folder = real_folder()
    if folder is not None and (folder / "facebook_edges.parquet").exists():
        yield "ego-Facebook", _facebook(folder)


def _generated_profiles(count: int = 8000) -> Profiles:
    """Ten answers out of four each, as 0 and 1; the classes differ in how they answer."""
    draw = np.random.default_rng(1)
    classes = (draw.random(2 * count) < 0.3).astype(np.int64)
    laws = draw.dirichlet(np.full(4, 1.5), size=(2, 10)).cumsum(axis=2)
    chosen = (draw.random((2 * count, 10, 1)) > laws[classes]).sum(axis=2).clip(0, 3)
    rows = np.eye(4)[chosen].reshape(2 * count, 40)
    return Profiles(rows[:count], classes[:count], rows[count:], classes[count:])


def _adult(path: Path) -> Profiles:
    """Numbers over their largest public value, categories as 0 and 1; rows with gaps dropped."""
    import polars as pl

    table = pl.read_parquet(path).drop_nulls()
    features = (
        table.select(*NUMBERS, *(pl.col(name).cast(pl.String) for name in CATEGORIES))
        .with_columns(
            pl.col("age") / 100,
            pl.col("education_num") / 16,
            pl.col("capital_gain") / 100_000,
            pl.col("capital_loss") / 5_000,
            pl.col("hours_per_week") / 100,
        )
        .to_dummies(list(CATEGORIES))
        .to_numpy()
        .astype(np.float64)
    )
    rich = table["income"].cast(pl.String).str.contains(">").to_numpy().astype(np.int64)
    train = (table["split"].cast(pl.String) == "train").to_numpy()
    return Profiles(features[train], rich[train], features[~train], rich[~train])


def _facebook(folder: Path) -> Graph:
    import polars as pl

    edges = pl.read_parquet(folder / "facebook_edges.parquet").to_numpy().astype(np.int64)
    told = pl.read_parquet(folder / "facebook_node_attributes.parquet")
    nodes = int(max(edges.max(), told["node"].cast(pl.Int64).max())) + 1
    name = told["attribute"].cast(pl.String) + "=" + told["value_id"].cast(pl.String)
    kinds, column = np.unique(name.to_numpy(), return_inverse=True)
    rows = np.zeros((nodes, len(kinds)))
    rows[told["node"].to_numpy().astype(np.int64), column] = 1.0
    return Graph(nodes, edges, affinity_ties(rows, least=SIMILAR))
