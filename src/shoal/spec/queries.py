"""The queries every family has, as sections of a spec: counts, sums, means and histograms."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from shoal.additive.queries import LinearQuery, count, histogram, mean, weighted_sum
from shoal.core.errors import SpecError
from shoal.core.task import EachEntry, Model, Query
from shoal.spec.fields import Number, QuerySection, SecretsSection, States, Text, Whole


class EachEntrySecrets(SecretsSection):
    """The value of every single entry."""

    kind: Literal["each-entry"]

    def secrets(self, query: Query, family: tuple[Model, ...]) -> EachEntry:
        return EachEntry()


class CountQuery(QuerySection):
    """How many entries are in one of some states."""

    kind: Literal["count"]
    states: States = Field(description="the states to count")
    unit: Text = Field("entries", description="what one entry stands for, in reports")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> LinearQuery:
        return count(states, self.states, unit=self.unit)

    def named_states(self) -> tuple[str, tuple[str, ...]]:
        return "states", self.states


class SumQuery(QuerySection):
    """The sum of a weight per entry."""

    kind: Literal["sum"]
    weights: dict[str, Number] = Field(min_length=1, description="state to weight; others count 0")
    unit: Text = Field("units", description="the unit of the weights, in reports")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> LinearQuery:
        return weighted_sum(states, self.weights, unit=self.unit)

    def named_states(self) -> tuple[str, tuple[str, ...]]:
        return "weights", tuple(self.weights)


class MeanQuery(QuerySection):
    """The mean of a weight per entry."""

    kind: Literal["mean"]
    weights: dict[str, Number] = Field(min_length=1, description="state to weight; others count 0")
    length: Whole | None = Field(None, description="public number of entries; else the model's")
    unit: Text = Field("units", description="the unit of the weights, in reports")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> LinearQuery:
        length = _public_length(self.length, family)
        return mean(states, self.weights, length=length, unit=self.unit)

    def named_states(self) -> tuple[str, tuple[str, ...]]:
        return "weights", tuple(self.weights)


class HistogramQuery(QuerySection):
    """How often each state occurs."""

    kind: Literal["histogram"]
    relative: bool = Field(False, description="as a share of length instead of a count")
    length: Whole | None = Field(None, description="public number of entries; else the model's")
    unit: Text | None = Field(None, description="the unit in reports")

    @model_validator(mode="after")
    def _length_is_for_shares(self) -> HistogramQuery:
        if self.length is not None and not self.relative:
            raise PydanticCustomError(
                "together", "has length without relative = true; add that line, or drop length"
            )
        return self

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> LinearQuery:
        length = _public_length(self.length, family) if self.relative else None
        return histogram(states, relative=self.relative, length=length, unit=self.unit)


def _public_length(given: int | None, family: tuple[Model, ...]) -> int:
    """The public number of entries: the query's own, else that of the only model."""
    if given is not None:
        return given
    if len(family) == 1 and family[0].tied is not None:
        return int(getattr(family[0], "records", family[0].tied))
    raise SpecError(
        "query.length is missing; give the public number of entries to divide by "
        "(it is taken from the model only when there is one model, with a length)"
    )
