"""The sections of a spec for learning from records: clusters, a linear classifier, degrees."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from shoal.core.task import Model, Query
from shoal.records.classifier import linear_classifier
from shoal.records.kmeans import centroids
from shoal.records.queries import degree_distribution
from shoal.records.schema import RecordSchema
from shoal.records.spec import PlacesQuery
from shoal.spec.fields import Positive, QuerySection, State, Text, Whole, number, state


def declared_column(value: object) -> tuple[Any, ...]:
    """Return a range [low, high] of numbers as two rationals, or the categories as texts."""
    if not isinstance(value, list) or len(value) < 2:
        raise PydanticCustomError(
            "column", "it must be a range [low, high] of numbers, or a list of categories as text"
        )
    if any(isinstance(item, str) for item in value):
        return tuple(state(item) for item in value)
    if len(value) > 2:
        raise PydanticCustomError(
            "column", "it must be a range [low, high]; write categories that are numbers as text"
        )
    return tuple(number(item) for item in value)


DeclaredColumn = Annotated[
    Any,
    PlainValidator(declared_column),
    WithJsonSchema({"type": "array", "items": {"type": ["number", "string"]}, "minItems": 2}),
]
ABOUT_COLUMNS = (
    "columns of the table and what they may hold, [low, high] or a list of texts; public, and "
    "made without the data"
)


class RecordsQuery(QuerySection):
    """What the queries about rows of a table share: they have no states."""

    by_state: ClassVar[bool] = False

    def seen(self, model: Model) -> Model:
        """Return a model of tied records without named values: a row of a table has none."""
        return PlacesQuery.without_states(model)


class ClustersQuery(RecordsQuery):
    """K-means over the rows of a table: the centroids, every round of them."""

    kind: Literal["clusters"]
    columns: dict[Text, DeclaredColumn] = Field(min_length=1, description=ABOUT_COLUMNS)
    clusters: Whole = Field(8, description="how many centroids are released")
    rounds: Whole = Field(5, description="how many rounds of K-means, each with noise")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
        """Return K-means over the declared columns, numbers in their own units."""
        schema = RecordSchema.of(self.columns)
        low, high = schema.ends
        return centroids(
            schema.features,
            low=low,
            high=high,
            clusters=self.clusters,
            rounds=self.rounds,
            schema=schema,
        )


class ClassifierQuery(RecordsQuery):
    """The weights of a linear classifier of two classes."""

    kind: Literal["classifier"]
    columns: dict[Text, DeclaredColumn] = Field(min_length=1, description=ABOUT_COLUMNS)
    label: Text = Field(description="the column of classes")
    classes: list[State] = Field(
        min_length=2, max_length=2, description="the two classes as the column writes them"
    )
    records: Whole = Field(description="how many rows there are, a public number")
    loss: Literal["huber", "logistic"] = Field(
        "huber", description="support vector machine with a rounded hinge, or logistic regression"
    )
    regularisation: Positive | None = Field(
        None, description="strength of the regularisation (default 0.01)"
    )
    norm: Positive | None = Field(
        None, description="longer rows, of columns brought to 0 … 1, are scaled down (default 1)"
    )
    intercept: bool = Field(True, description="whether there is a weight that is always added")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
        """Return the classifier over the declared columns, each brought to 0 … 1."""
        schema = RecordSchema.of(self.columns, label=self.label, classes=self.classes)
        return linear_classifier(
            schema.features,
            records=self.records,
            loss=self.loss,
            regularisation="0.01" if self.regularisation is None else self.regularisation,
            norm=1 if self.norm is None else self.norm,
            intercept=self.intercept,
            schema=schema,
        )


class DegreesQuery(RecordsQuery):
    """How many people of a graph have 0, 1, 2, … friends."""

    kind: Literal["degrees"]
    nodes: Whole = Field(description="how many people there are, numbered from 0: a public number")
    cap: Whole = Field(description="the largest degree that is told apart")
    level: Literal["edge", "node"] = Field(
        "edge", description="what is protected: a friendship, or a person with all of them"
    )
    cumulative: bool = Field(True, description="ask how many have more than k, with less noise")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Query:
        """Return the degree distribution."""
        return degree_distribution(
            self.nodes, cap=self.cap, level=self.level, cumulative=self.cumulative
        )
