"""The sections of a spec for location streams: maps, policies, location sets, measurements."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from shoal.core.errors import InputError, SpecError
from shoal.core.task import Model, Query
from shoal.places.map import SquareGrid
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement, coordinates, measurement
from shoal.places.walk import SparseChain, free_walk
from shoal.places.zones import policy_in_words
from shoal.spec.fields import (
    ModelSection,
    Number,
    Positive,
    QuerySection,
    SecretsSection,
    Share,
    State,
    States,
    Text,
    Whole,
    number,
    state,
)

MOST_CELLS = 100_000  # of a map that is written out: a square of 300 cells each way
Graph = Literal["complete", "categories", "radius", "nearest", "transitions", "edges", "words"]
NEEDS: dict[str, str] = {
    "categories": "categories",
    "radius": "radius_km",
    "nearest": "k",
    "edges": "edges",
    "words": "words",
}


def number_row(value: object) -> tuple[Fraction, ...]:
    """A number, or a list of numbers that is not empty."""
    if isinstance(value, list):
        if not value:
            raise PydanticCustomError("number", "it must hold at least one number")
        return tuple(number(item) for item in value)
    return (number(value),)


def state_pair(value: object) -> tuple[str, str]:
    """Two different states."""
    if not isinstance(value, list) or len(value) != 2:
        raise PydanticCustomError("pair", "it must be a list of two different states")
    first, second = state(value[0]), state(value[1])
    if first == second:
        raise PydanticCustomError("pair", "it must be a list of two different states")
    return first, second


_NUMBERS = {"type": "array", "items": {"type": "number"}, "minItems": 1}
_LABELS = {"type": ["string", "integer"]}
NumberRow = Annotated[
    tuple[Fraction, ...],
    PlainValidator(number_row),
    WithJsonSchema({"anyOf": [{"type": "number"}, _NUMBERS]}),
]
StatePair = Annotated[
    tuple[str, str],
    PlainValidator(state_pair),
    WithJsonSchema({"type": "array", "items": _LABELS, "minItems": 2, "maxItems": 2}),
]


def place_in_words(value: object) -> tuple[float, float] | tuple[str, ...]:
    """A latitude and longitude, or the names of states."""
    if not isinstance(value, list) or not value:
        raise PydanticCustomError("place", "it must be [latitude, longitude], or a list of states")
    if len(value) == 2 and not any(isinstance(item, str) for item in value):
        return float(number(value[0])), float(number(value[1]))
    return tuple(state(item) for item in value)


PlaceInWords = Annotated[
    Any,
    PlainValidator(place_in_words),
    WithJsonSchema({"type": "array", "items": {"type": ["number", "string"]}, "minItems": 1}),
]


class GridWalkModel(ModelSection):
    """A map of square cells on which one stays or moves to a cell around, evenly."""

    kind: Literal["grid-walk"]
    south: Number = Field(description="latitude of the south-west corner, in degrees")
    west: Number = Field(description="longitude of the south-west corner, in degrees")
    cell_km: Positive = Field(description="width of a cell")
    rows: Whole = Field(description="cells from south to north")
    columns: Whole = Field(description="cells from west to east")
    stay: Share = Field(0.5, description="probability of staying in a cell")
    start: State | None = Field(
        None, description='a first cell that everybody knows, "row,column"; else any, evenly'
    )
    length: Whole | None = Field(None, description="most steps of a stream; omit for any length")

    def model(self, folder: Path) -> SparseChain:
        return grid_walk_of(self)


class PolicySecrets(SecretsSection):
    """Which states must stay indistinguishable, among those still possible at each step."""

    kind: Literal["policy-graph"]
    graph: Graph = Field(description="which states are joined")
    radius_km: Positive | None = Field(
        None, description='with graph "radius": joined within this distance, in the query\'s unit'
    )
    k: Whole | None = Field(None, description='with graph "nearest": how many nearest states')
    categories: list[States] | None = Field(
        None, description='with graph "categories": lists of states, each joined inside'
    )
    edges: list[StatePair] | None = Field(
        None, description='with graph "edges": pairs of states to join'
    )
    words: Text | None = Field(
        None, description='with graph "words": such as "everywhere among the 1 km around"'
    )
    places: dict[Text, PlaceInWords] | None = Field(
        None, description="where the names of words are: [latitude, longitude], or states"
    )
    partners: dict[Text, State] | None = Field(
        None, description="whom to join a state to when it is left alone, by name"
    )
    repair: Literal["nearest", "least-area", "least-error"] = Field(
        "nearest", description="how states left alone are joined to another"
    )

    @model_validator(mode="after")
    def _graph_has_its_key(self) -> PolicySecrets:
        for graph, key in NEEDS.items():
            given = getattr(self, key) is not None
            if given and self.graph != graph:
                raise PydanticCustomError(
                    "together", f'has {key}, which is for graph = "{graph}"; drop it'
                )
            if not given and self.graph == graph:
                raise PydanticCustomError(
                    "together", f'has graph = "{graph}" without {key}; give it'
                )
        if self.places is not None and self.graph != "words":
            raise PydanticCustomError("together", 'has places, which are for graph = "words"')
        return self

    def secrets(self, query: Query, family: tuple[Model, ...]) -> PolicyGraph | LocationSet:
        return places_of(self, query, family)


class LocationSecrets(PolicySecrets):
    """A policy on the fewest states that hold almost all of the belief at each step."""

    kind: Literal["location-set"]  # type: ignore[assignment]
    coverage_delta: Share = Field(description="the mass a location set may leave out")
    everywhere: bool = Field(
        False, description="cover the policy's edges outside the set too, with more noise"
    )


class MeasurementQuery(QuerySection):
    """Numbers that the current state stands for; on a map its coordinates."""

    kind: Literal["measurement"]
    values: dict[Text, NumberRow] | None = Field(
        None, description="state to its numbers; omit on a map, for km east and north"
    )
    labels: States | None = Field(None, description="a name for each number")
    step: Positive | None = Field(
        None, description="values are rounded to multiples of it, once and publicly"
    )
    parts: Whole = Field(1, description="on a map: lattice steps per cell")
    unit: Text | None = Field(None, description="the unit of the numbers, in reports")
    estimate: Literal["squared", "absolute"] = Field(
        "squared", description="the expected error that the estimate minimises"
    )

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> Measurement:
        return measurement_of(self, states, family)


def grid_walk_of(section: GridWalkModel) -> SparseChain:
    """The chain a map section describes."""
    grid = SquareGrid(
        south=section.south,
        west=section.west,
        cell_m=section.cell_km * 1000,
        rows=section.rows,
        columns=section.columns,
    )
    if grid.size > MOST_CELLS:
        raise SpecError(
            f"rows and columns make {grid.size:,} cells; at most {MOST_CELLS:,} are followed: "
            "give larger cells, or a smaller map"
        )
    names = [grid.name_of(cell) for cell in range(grid.size)]
    if section.start is not None and section.start not in names:
        raise InputError(f"start is {section.start!r}; cells are named '0,0' to {names[-1]!r}")
    start = None if section.start is None else names.index(section.start)
    return free_walk(grid, stay=section.stay, start=start, length=section.length)


def measurement_of(
    section: MeasurementQuery, states: tuple[str, ...], family: tuple[Model, ...]
) -> Measurement:
    """The query a section describes: given values, or the coordinates of the map."""
    if section.values is None:
        model = family[0]
        if not isinstance(model, SparseChain) or model.grid is None:
            raise SpecError(
                "query.values is missing; the model is not a map, so give each state its numbers"
            )
        for key in ("labels", "step", "unit"):
            if getattr(section, key) is not None:
                raise SpecError(f"query.{key} is given without query.values; a map has its own")
        return coordinates(model, parts=section.parts, estimate=section.estimate)
    return measurement(
        states,
        section.values,
        labels=section.labels or (),
        step=section.step,
        unit=section.unit or "units",
        estimate=section.estimate,
    )


def places_of(
    section: PolicySecrets, query: Query, family: tuple[Model, ...]
) -> PolicyGraph | LocationSet:
    """The policy, or location set, a section describes, on the states of the query."""
    if not isinstance(query, Measurement):
        raise SpecError(
            f"query.kind must be 'measurement' for secrets of kind {section.kind!r}: a policy "
            "protects the current state of a stream"
        )
    policy = _policy(section, query, family)
    if isinstance(section, LocationSecrets):
        return LocationSet(
            policy=policy,
            delta=Fraction(str(section.coverage_delta)),
            everywhere=section.everywhere,
        )
    return policy


def _policy(section: PolicySecrets, query: Measurement, family: tuple[Model, ...]) -> PolicyGraph:
    graph = _graph(section, query, family)
    if not section.partners:
        return graph
    named = PolicyGraph.of(query.states, [], repair=section.repair, partners=section.partners)
    return PolicyGraph(
        states=graph.states,
        edges=graph.edges,
        groups=graph.groups,
        title=graph.title,
        repair=section.repair,
        partners=named.partners,
    )


def _graph(section: PolicySecrets, query: Measurement, family: tuple[Model, ...]) -> PolicyGraph:
    repair = section.repair
    match section.graph:
        case "complete":
            return PolicyGraph.complete(query.states, repair=repair)
        case "categories":
            return PolicyGraph.categories(query.states, section.categories or (), repair=repair)
        case "radius":
            return PolicyGraph.within(query, section.radius_km or 0, repair=repair)
        case "nearest":
            return PolicyGraph.nearest(query, section.k or 0, repair=repair)
        case "words":
            return policy_in_words(family[0], section.words or "", section.places, repair=repair)
        case "transitions":
            return PolicyGraph.transitions(family[0], repair=repair)
    return PolicyGraph.of(query.states, section.edges or (), repair=repair)
