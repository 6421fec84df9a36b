"""The shape of a spec: one strict class per section and kind, every key named and described."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Discriminator, Field, Tag, model_validator
from pydantic_core import PydanticCustomError

from shoal.contexts.spec import ContextSecrets, CurrentQuery, DayModel
from shoal.networks.spec import ContagionModel, NetworkModel, VariableQuery
from shoal.places.spec import GridWalkModel, LocationSecrets, MeasurementQuery, PolicySecrets
from shoal.records.spec import DependenceModel, GroupsModel, PlacesQuery
from shoal.spec.fields import (
    Initial,
    Number,
    Pair,
    Positive,
    Probabilities,
    Section,
    Share,
    State,
    States,
    Text,
    Whole,
)


class DataSection(Section):
    """Where the entries are in a data file; only `release` needs it."""

    model_config = ConfigDict(
        json_schema_extra={"oneOf": [{"required": ["state"]}, {"required": ["lat", "lon"]}]}
    )

    state: Text | None = Field(None, description="column with the state of each entry")
    lat: Text | None = Field(None, description="on a map, instead of state: column with latitudes")
    lon: Text | None = Field(None, description="column with longitudes; goes with lat")
    series: Text | None = Field(None, description="column that tells series (people) apart")
    time: Text | None = Field(None, description="column by which a series is ordered")
    gap: Text | None = Field(
        None, description='a longer pause starts a new independent chain, e.g. "10min"'
    )
    release: Literal["each", "together"] = Field(
        "each", description="one release per series, or one for all series together"
    )

    @model_validator(mode="after")
    def _state_or_coordinates(self) -> DataSection:
        if (self.lat is None) != (self.lon is None):
            raise PydanticCustomError("together", "has one of lat and lon; name both, or neither")
        if (self.state is None) == (self.lat is None):
            count = "neither" if self.state is None else "both"
            raise PydanticCustomError(
                "together", f"has {count} of state and lat with lon; name one of them"
            )
        return self

    @model_validator(mode="after")
    def _gap_needs_time(self) -> DataSection:
        if self.gap is not None and self.time is None:
            raise PydanticCustomError(
                "together", "has gap without time; name the time column, or drop gap"
            )
        return self


class ChainModel(Section):
    """A Markov chain, written out."""

    kind: Literal["markov-chain"]
    states: list[State] = Field(min_length=1, description="the values an entry can take")
    transition: Probabilities = Field(
        description="row x holds the law of the next entry after state x; a list of matrices "
        "gives each step its own"
    )
    initial: Initial = Field(
        "stationary", description='law of the first entry: "stationary", "any", or a list'
    )
    length: Whole | None = Field(None, description="most entries of a chain; omit for any length")


class OrderModel(Section):
    """A Markov chain whose next entry depends on the last `order` entries."""

    kind: Literal["order-chain"]
    states: list[State] = Field(min_length=1, description="the values an entry can take")
    order: Whole = Field(description="how many past entries matter")
    conditional: Probabilities = Field(
        description="one row per tuple of past states, the oldest entry varying slowest"
    )
    initial: Probabilities = Field(description="law of the first `order` entries, one per tuple")
    length: Whole | None = Field(None, description="most entries of a chain; omit for any length")


class MixingModel(Section):
    """Every Markov chain known only by how rare a state may be and how fast it forgets."""

    kind: Literal["mixing"]
    states: list[State] = Field(min_length=1, description="the values an entry can take")
    pi_min: Positive = Field(description="least stationary probability of any state")
    gap: Positive = Field(description="least spectral gap, counted with multiplicity")
    length: Whole | None = Field(None, description="most entries of a chain; omit for any length")


class IntervalModel(Section):
    """Every two-state Markov chain, with any initial law, whose staying is within bounds."""

    kind: Literal["interval"]
    states: list[State] = Field(min_length=1, description="the two values an entry can take")
    low: Probabilities = Field(description="least probability of staying, one per state")
    high: Probabilities = Field(description="largest probability of staying, one per state")
    length: Whole | None = Field(None, description="most entries of a chain; omit for any length")


class TableModel(Section):
    """Any finite joint law, written out."""

    kind: Literal["table"]
    variables: list[Text] = Field(min_length=1, description="names of the variables")
    domains: list[list[State]] = Field(min_length=1, description="the values of each variable")
    probability: Probabilities = Field(description="nested lists, one level per variable")


class ModelFile(Section):
    """A stored model, such as `shoal fit` writes, or a Bayesian network in a .bif file."""

    file: Text = Field(description="path of the model, relative to the spec")
    kind: (
        Literal[
            "markov-chain",
            "order-chain",
            "mixing",
            "interval",
            "table",
            "day-chain",
            "sparse-chain",
            "dependence",
            "bayes-net",
            "contagion",
        ]
        | None
    ) = Field(None, description="what the file must hold; omit to take any kind")


class EachEntrySecrets(Section):
    """The value of every single entry."""

    kind: Literal["each-entry"]


class PairSecrets(Section):
    """Named events over the variables of a table, and the pairs nobody may tell apart."""

    kind: Literal["pairs"]
    events: dict[Text, dict[Text, States]] = Field(
        min_length=1, description="event name to the values its variables take"
    )
    pairs: list[Pair] = Field(min_length=1, description="pairs of event names")


class CountQuery(Section):
    """How many entries are in one of some states."""

    kind: Literal["count"]
    states: States = Field(description="the states to count")
    unit: Text = Field("entries", description="what one entry stands for, in reports")


class SumQuery(Section):
    """The sum of a weight per entry."""

    kind: Literal["sum"]
    weights: dict[str, Number] = Field(min_length=1, description="state to weight; others count 0")
    unit: Text = Field("units", description="the unit of the weights, in reports")


class MeanQuery(Section):
    """The mean of a weight per entry."""

    kind: Literal["mean"]
    weights: dict[str, Number] = Field(min_length=1, description="state to weight; others count 0")
    length: Whole | None = Field(None, description="public number of entries; else the model's")
    unit: Text = Field("units", description="the unit of the weights, in reports")


class HistogramQuery(Section):
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


class PrivacySection(Section):
    """The budget: exactly one of epsilon, error and belief_delta."""

    model_config = ConfigDict(
        json_schema_extra={
            "oneOf": [
                {"required": ["epsilon"]},
                {"required": ["error"]},
                {"required": ["belief_delta"]},
            ]
        }
    )

    epsilon: Positive | None = Field(None, description="most change of log-odds between secrets")
    error: Positive | None = Field(
        None, description="wanted accuracy, in the query's unit; epsilon is derived from it"
    )
    belief_delta: Positive | None = Field(
        None, description="for contexts: the most any output may raise a belief, below 1"
    )
    confidence: Share | None = Field(
        None, description="probability with which each value is within error (default 0.95)"
    )
    mechanism: Text = Field("best", description='"best" or a row of the table of mechanisms')
    time_limit: Text | None = Field(
        None, description='for contexts: how long checks may search, such as "60s"'
    )

    @model_validator(mode="after")
    def _exactly_one_amount(self) -> PrivacySection:
        if self.belief_delta is not None:
            if self.epsilon is not None or self.error is not None:
                raise PydanticCustomError(
                    "together", "has belief_delta and another amount; give exactly one amount"
                )
        elif (self.epsilon is None) == (self.error is None):
            count = "neither" if self.epsilon is None else "both"
            raise PydanticCustomError(
                "together", f"has {count} of epsilon and error; give exactly one amount"
            )
        if self.confidence is not None and self.error is None:
            raise PydanticCustomError(
                "together", "has confidence without error; give error, or drop confidence"
            )
        if self.time_limit is not None and self.belief_delta is None:
            raise PydanticCustomError(
                "together", "has time_limit without belief_delta; only checks of contexts search"
            )
        return self


def _model_tag(value: Any) -> str | None:
    if not isinstance(value, dict):
        return None
    return "file" if "file" in value else value.get("kind")


ModelSection = Annotated[
    Annotated[ChainModel, Tag("markov-chain")]
    | Annotated[OrderModel, Tag("order-chain")]
    | Annotated[MixingModel, Tag("mixing")]
    | Annotated[IntervalModel, Tag("interval")]
    | Annotated[TableModel, Tag("table")]
    | Annotated[DayModel, Tag("day-chain")]
    | Annotated[DependenceModel, Tag("dependence")]
    | Annotated[NetworkModel, Tag("bayes-net")]
    | Annotated[ContagionModel, Tag("contagion")]
    | Annotated[GridWalkModel, Tag("grid-walk")]
    | Annotated[GroupsModel, Tag("groups")]
    | Annotated[ModelFile, Tag("file")],
    Discriminator(_model_tag),
]
SecretsSection = Annotated[
    EachEntrySecrets | PairSecrets | ContextSecrets | PolicySecrets | LocationSecrets,
    Field(discriminator="kind"),
]
QuerySection = Annotated[
    CountQuery
    | SumQuery
    | MeanQuery
    | HistogramQuery
    | CurrentQuery
    | VariableQuery
    | PlacesQuery
    | MeasurementQuery,
    Field(discriminator="kind"),
]


class Spec(Section):
    """A task and its budget."""

    data: DataSection | None = Field(None, description="where the entries are; only for release")
    model: list[ModelSection] = Field(
        min_length=1, description="what an adversary may know; repeat for a family"
    )
    secrets: SecretsSection = Field(description="what must stay indistinguishable")
    query: QuerySection = Field(description="what is asked")
    privacy: PrivacySection = Field(description="the budget")


# section name, and tag where kinds differ, to the class that holds its keys
SECTIONS: dict[tuple[str, ...], type[Section]] = {
    (): Spec,
    ("data",): DataSection,
    ("model", "markov-chain"): ChainModel,
    ("model", "order-chain"): OrderModel,
    ("model", "mixing"): MixingModel,
    ("model", "interval"): IntervalModel,
    ("model", "table"): TableModel,
    ("model", "day-chain"): DayModel,
    ("model", "dependence"): DependenceModel,
    ("model", "bayes-net"): NetworkModel,
    ("model", "contagion"): ContagionModel,
    ("model", "grid-walk"): GridWalkModel,
    ("model", "groups"): GroupsModel,
    ("model", "file"): ModelFile,
    ("secrets", "each-entry"): EachEntrySecrets,
    ("secrets", "pairs"): PairSecrets,
    ("secrets", "contexts"): ContextSecrets,
    ("secrets", "policy-graph"): PolicySecrets,
    ("secrets", "location-set"): LocationSecrets,
    ("query", "count"): CountQuery,
    ("query", "sum"): SumQuery,
    ("query", "mean"): MeanQuery,
    ("query", "histogram"): HistogramQuery,
    ("query", "current"): CurrentQuery,
    ("query", "measurement"): MeasurementQuery,
    ("query", "variable-sum"): VariableQuery,
    ("query", "places"): PlacesQuery,
    ("privacy",): PrivacySection,
}
