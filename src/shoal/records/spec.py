"""The section of a spec for tied records: values, ties, and how likely two tied values are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from shoal.core.codec import Floats, Ints
from shoal.core.errors import DataError, SpecError
from shoal.core.task import Model
from shoal.records.domain import RecordDomain
from shoal.records.field import PairwiseField, field_of_pairs
from shoal.records.kmeans import Centroids
from shoal.records.pairwise import Dependence, RecordGroups
from shoal.records.place_attack import PLACES_PER_PERSON, City
from shoal.records.sources import FriendModel
from shoal.spec.fields import (
    ModelSection,
    Number,
    Positive,
    Probabilities,
    QuerySection,
    Section,
    State,
    Text,
    Whole,
    table_of,
)

MAX_RECORDS = 10**7  # with ties among them, each a few numbers


class FriendSection(Section):
    """Friends' values are the likelier the closer: proportional to (distance + b)^(-c)."""

    b: Positive = Field(description="distance at which likelihood begins to fall")
    c: Positive = Field(description="how fast it falls")


class DependenceModel(ModelSection):
    """Records tied in pairs."""

    kind: Literal["dependence"]
    states: list[State] = Field(min_length=1, description="the values a record can take")
    values: list[Number] | None = Field(
        None, description="the number each state stands for; else the states themselves, or 0, 1, …"
    )
    records: Whole = Field(description="how many records there are, numbered from 0")
    ties: list[list[int]] | None = Field(None, description="pairs of tied records")
    ties_file: Text | None = Field(
        None, description="CSV or Parquet file with two columns of record numbers, one tie a row"
    )
    law: Probabilities | None = Field(
        None, description="how likely each pair of values of two tied records is"
    )
    friends: FriendSection | None = Field(None, description="instead of law: the friend model")
    joint: Literal["pairs", "field", "tree"] = Field(
        "pairs",
        description='what is known of more than two records: nothing ("pairs"), or that law is '
        'the potential of a field ("field"), or that records depend along ties only ("tree")',
    )

    @model_validator(mode="after")
    def _one_of_each(self) -> DependenceModel:
        """Refuse a section without exactly one source of ties and one of laws."""
        for one, other in (("ties", "ties_file"), ("law", "friends")):
            given = [getattr(self, name) is not None for name in (one, other)]
            if given[0] == given[1]:
                count = "both" if given[0] else "neither"
                raise PydanticCustomError(
                    "together", f"has {count} of {one} and {other}; give exactly one of them"
                )
        return self

    def model(self, folder: Path) -> Model:
        """Return the pairwise model, or the field or tree that the section asks for."""
        if self.records > MAX_RECORDS:
            raise SpecError(
                f"records is {self.records:,}; at most {MAX_RECORDS:,} are followed: leave out "
                "records without ties, which protect themselves"
            )
        domain = _record_domain(self)
        edges = _tie_pairs(self, folder)
        law = _pair_table(self, domain)
        if self.joint == "field":
            return PairwiseField.of(domain, self.records, edges, law)
        pairs = Dependence.of(domain, self.records, edges, law)
        return field_of_pairs(pairs) if self.joint == "tree" else pairs


def _record_domain(section: DependenceModel) -> RecordDomain:
    """Return the domain of the section's states, at their numbers."""
    if section.values is None:
        return RecordDomain.named(section.states)
    if len(section.values) != len(section.states):
        raise SpecError(
            f"values has {len(section.values)} numbers for {len(section.states)} states; "
            "give each state its number"
        )
    return RecordDomain.points([float(v) for v in section.values], states=section.states)


def _pair_table(section: DependenceModel, domain: RecordDomain) -> Floats:
    """Return the table of two tied records: a law, or the potential of the friend model."""
    if section.friends is not None:
        friends = FriendModel(b=float(section.friends.b), c=float(section.friends.c))
        return friends.potential(domain) if section.joint == "field" else friends.pair_law(domain)
    law: Floats = table_of(section.law, "law")
    size = domain.size
    if law.shape != (size, size):
        raise SpecError(f"law has shape {law.shape}; {size} states need ({size}, {size})")
    return law


def _tie_pairs(section: DependenceModel, folder: Path) -> Ints:
    """Return the ties as (t, 2) record numbers, from the section or its file."""
    if section.ties is not None:
        if any(len(tie) != 2 for tie in section.ties):
            raise SpecError("ties holds a list that is not a pair; name two records per tie")
        return np.array(section.ties, dtype=np.int64).reshape(-1, 2)
    assert section.ties_file is not None  # the section takes exactly one of them
    return _read_tie_file(folder / section.ties_file, section.ties_file)


def _read_tie_file(path: Path, name: str) -> Ints:
    """Return the ties in a CSV or Parquet file; refused when it is no table of two whole
    numbers.
    """
    import polars as pl

    from shoal.data.frames import parquet_whole

    try:
        parquet = path.suffix == ".parquet"
        table = parquet_whole(path, list) if parquet else pl.read_csv(path)
    except FileNotFoundError:
        raise SpecError(f"ties_file is {name!r}, which does not exist; check the path") from None
    except (OSError, ValueError, DataError, pl.exceptions.PolarsError):
        raise SpecError(f"ties_file is {name!r}, which is no CSV or Parquet table") from None
    if table.width != 2 or not all(kind.is_integer() for kind in table.dtypes):
        raise SpecError(
            f"ties_file is {name!r}; it must have a header and two columns of record numbers"
        )
    if not parquet and all(column.strip().isdigit() for column in table.columns):
        raise SpecError(
            f"ties_file is {name!r}, whose first line is a tie and not a header; write one above it"
        )
    if table.null_count().sum_horizontal().item():
        raise SpecError(
            f"ties_file is {name!r}, which has empty cells; every tie needs two records"
        )
    return np.asarray(table.to_numpy(), dtype=np.int64)


# The sections of a spec for people and their places: groups of records, where people cluster.


class GroupsModel(ModelSection):
    """Records in independent groups, such as households; nothing else is known."""

    kind: Literal["groups"]
    largest: Whole = Field(description="most records that may depend on each other")

    def model(self, folder: Path) -> RecordGroups:
        return RecordGroups(self.largest)


class PlacesQuery(QuerySection):
    """K-means over people's most visited places: the centroids, every round of them."""

    by_state: ClassVar[bool] = False

    kind: Literal["places"]
    south: Number = Field(description="latitude of the city's southern edge")
    west: Number = Field(description="longitude of its western edge")
    north: Number = Field(description="latitude of its northern edge")
    east: Number = Field(description="longitude of its eastern edge")
    places: Whole = Field(PLACES_PER_PERSON, description="how many places of a person count")
    clusters: Whole = Field(8, description="how many centroids are released")
    rounds: Whole = Field(5, description="how many rounds of K-means, each with noise")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Centroids:
        """Return K-means over people's most visited places in the section's box."""
        city = City(
            south=float(self.south),
            west=float(self.west),
            north=float(self.north),
            east=float(self.east),
        )
        return city.query(self.places, clusters=self.clusters, rounds=self.rounds)

    def seen(self, model: Model) -> Model:
        """Return a model of tied records without named values: people's places are numbers."""
        return self.without_states(model)

    @staticmethod
    def without_states(model: Model) -> Model:
        """Return a model of tied records without the names of its values; others as they are."""
        if isinstance(model, Dependence | PairwiseField):
            return replace(model, domain=replace(model.domain, states=None))
        return model
