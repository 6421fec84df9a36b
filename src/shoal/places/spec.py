"""The sections of a spec for location streams: maps, policies, location sets, measurements."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial, reduce
from operator import and_, or_
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from shoal.core.errors import InputError, SpecError
from shoal.core.task import Model, Query, Secrets
from shoal.events.window import minute_of_week
from shoal.places.formats import on_map
from shoal.places.map import SquareGrid
from shoal.places.points import places_by_name, policy_of_points, read_points
from shoal.places.policy import LocationSet, PolicyGraph, Repair
from shoal.places.queries import Measurement, coordinates, measurement
from shoal.places.spec_places import NamedPlaces, PointsFile, place_in_words
from shoal.places.walk import SparseChain, free_walk
from shoal.places.words import policy_in_words, states_in_words
from shoal.spec.events import EventSection, events_of
from shoal.spec.fields import (
    ModelSection,
    Number,
    NumberRow,
    Positive,
    PrivacyAmounts,
    QuerySection,
    SecretsSection,
    Section,
    Share,
    State,
    States,
    Text,
    Whole,
    state,
)

MOST_CELLS_WRITTEN = 100_000  # of a map that is written out: a square of 300 cells each way
Graph = Literal[
    "complete", "categories", "radius", "nearest", "transitions", "edges", "words", "places", "all",
    "any",
]  # fmt: skip
NEEDS: dict[str, str] = {
    "categories": "categories",
    "radius": "radius_km",
    "nearest": "k",
    "edges": "edges",
    "words": "words",
}
OF = ("all", "any")  # graphs made of other graphs


def state_pair(value: object) -> tuple[str, str]:
    """Two different states."""
    if not isinstance(value, list) or len(value) != 2:
        raise PydanticCustomError("pair", "it must be a list of two different states")
    first, second = state(value[0]), state(value[1])
    if first == second:
        raise PydanticCustomError("pair", "it must be a list of two different states")
    return first, second


_LABELS = {"type": ["string", "integer"]}
StatePair = Annotated[
    tuple[str, str],
    PlainValidator(state_pair),
    WithJsonSchema({"type": "array", "items": _LABELS, "minItems": 2, "maxItems": 2}),
]


def first_cell(value: object) -> tuple[float, float] | str:
    """The name of a cell, or a latitude and longitude inside it."""
    if not isinstance(value, list):
        return state(value)
    place = place_in_words(value)
    if isinstance(place[0], str):
        raise PydanticCustomError("place", 'it must be "row,column", or [latitude, longitude]')
    return place


FirstCell = Annotated[
    Any,
    PlainValidator(first_cell),
    WithJsonSchema(
        {"anyOf": [_LABELS, {"type": "array", "items": {"type": "number"}, "minItems": 2}]}
    ),
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
    start: FirstCell | None = Field(
        None,
        description='a public first cell, "row,column" or [latitude, longitude]; else any, evenly',
    )
    length: Whole | None = Field(None, description="most steps of a stream; omit for any length")

    def model(self, folder: Path) -> SparseChain:
        """The chain on the map."""
        grid = SquareGrid(
            south=self.south,
            west=self.west,
            cell_m=self.cell_km * 1000,
            rows=self.rows,
            columns=self.columns,
        )
        if grid.size > MOST_CELLS_WRITTEN:
            raise SpecError(
                f"rows and columns make {grid.size:,} cells; at most "
                f"{MOST_CELLS_WRITTEN:,} are followed: "
                "give larger cells, or a smaller map"
            )
        start = None if self.start is None else self._first_cell(grid)
        return free_walk(grid, stay=self.stay, start=start, length=self.length)

    def _first_cell(self, grid: SquareGrid) -> int:
        """The number of the cell that `start` names, or that covers it."""
        names = [grid.name_of(cell) for cell in range(grid.size)]
        if isinstance(self.start, tuple):
            cell = int(grid.cell_of(*self.start))
            if cell < 0:
                raise SpecError(
                    f"start is {list(self.start)}, which lies off the map; check latitude and "
                    "longitude, or name a cell"
                )
            return cell
        if self.start not in names:
            raise InputError(f"start is {self.start!r}; cells are named '0,0' to {names[-1]!r}")
        return names.index(self.start)


class GraphSection(Section):
    """Which states are joined: one graph and its key, or a graph made of other graphs."""

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
    places: NamedPlaces | None = Field(
        None,
        description="where the names of words, categories, edges and events are: "
        "[latitude, longitude], or states; or from = a file of points of interest, with same = a "
        'column, within = "1 km" and only = names of that column for graph "places"',
    )
    of: list[GraphSection] | None = Field(
        None,
        min_length=2,
        description='with graph "all" or "any": graphs of which all, or one, join two states',
    )

    @model_validator(mode="after")
    def _graph_has_its_key(self) -> Self:
        """Refuse a graph without its key, and keys of other graphs."""
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
        if (self.of is not None) != (self.graph in OF):
            fix = "drop it" if self.graph not in OF else "give two graphs or more"
            verb = "has of" if self.of is not None else f'has graph = "{self.graph}" without of'
            raise PydanticCustomError("together", f'{verb}, which is for "all" and "any"; {fix}')
        return self

    def read_places(self, folder: Path, outer: Any = None) -> dict[str, Any]:
        """Return the fields that change when files are read; parts take the outer places."""
        places = self.places if self.places is not None else outer
        if isinstance(places, PointsFile) and places.table is None:
            places = replace(places, table=read_points(folder / places.file))
        parts = [part.model_copy(update=part.read_places(folder, places)) for part in self.of or ()]
        return {"places": places, "of": parts or None}


class PolicySecrets(GraphSection, SecretsSection):
    """Which states must stay indistinguishable, among those still possible at each step."""

    kind: Literal["policy-graph"]
    partners: dict[Text, State] | None = Field(
        None, description="whom to join a state to when it is left alone, by name"
    )
    repair: Literal["nearest", "least-area", "least-error"] = Field(
        "nearest", description="how states left alone are joined to another"
    )
    event: list[EventSection] | None = Field(
        None,
        min_length=1,
        description="events the whole stream keeps secret too, to event_epsilon; they name states, "
        'places, or "within 300 m of" a place',
    )
    slots: Whole | None = Field(
        None, description="steps the events are about, where neither model nor windows say so"
    )
    slot_minutes: Whole | None = Field(
        None, description="minutes of a step, for windows of events by the clock"
    )
    start_time: Text | None = Field(
        None, description='when the first step begins, such as "mon 08:00" (default "mon 00:00")'
    )

    @model_validator(mode="after")
    def _keys_of_events(self) -> PolicySecrets:
        """Refuse places that nothing names, and keys of events without events."""
        used = ("words", "categories", "edges", "places", *OF)
        if self.places is not None and self.graph not in used and self.event is None:
            raise PydanticCustomError(
                "together",
                "has places, which are for events and the graphs words, categories, edges and "
                "places; drop it",
            )
        for key in ("slots", "slot_minutes", "start_time"):
            if getattr(self, key) is not None and self.event is None:
                raise PydanticCustomError("together", f"has {key}, which is for events; drop it")
        if self.start_time is not None and self.slot_minutes is None:
            raise PydanticCustomError("together", "has start_time without slot_minutes; give both")
        return self

    def read_files(self, folder: Path) -> PolicySecrets:
        return self.model_copy(update=self.read_places(folder))

    def secrets(self, query: Query, family: tuple[Model, ...]) -> PolicyGraph | LocationSet:
        """Return the policy of the section, with its events if any; refused for another kind of
        query.
        """
        if not isinstance(query, Measurement):
            raise SpecError(
                f"query.kind must be 'measurement' for secrets of kind {self.kind!r}: a policy "
                "protects the current state of a stream"
            )
        found = self.places_on(_graph(self, query, family, self.repair))
        if self.event is None:
            return found
        named = partial(states_in_words, family[0], places=_by_name(self, family[0]))
        clock = {
            "slots": self.slots,
            "slot_minutes": self.slot_minutes or 0,
            "start_minute": minute_of_week(self.start_time or "mon 00:00"),
        }
        # the amount is that of [privacy], which is asked next (`held_to`)
        return found.watching(events_of(self.event, named), 1, **clock)

    def places_on(self, graph: PolicyGraph) -> PolicyGraph | LocationSet:
        """The policy itself, with the partners that are preferred."""
        if not self.partners:
            return graph
        named = PolicyGraph.of(graph.states, [], partners=self.partners)
        return replace(graph, partners=named.partners)

    def held_to(self, secrets: Secrets, privacy: PrivacyAmounts) -> Secrets:
        """The policy, its events held to event_epsilon."""
        if not isinstance(secrets, PolicyGraph | LocationSet) or self.event is None:
            return super().held_to(secrets, privacy)
        if privacy.event_epsilon is None:
            raise SpecError(
                "privacy.event_epsilon is missing; [[secrets.event]] needs the most that a stream "
                "may change the log-odds of each event, such as event_epsilon = 1.0"
            )
        amounts = privacy.event_epsilon
        return secrets.held_to(amounts[0] if len(amounts) == 1 else amounts)


class LocationSecrets(PolicySecrets):
    """A policy on the fewest states that hold almost all of the belief at each step."""

    kind: Literal["location-set"]  # type: ignore[assignment]
    coverage_delta: Share = Field(description="the mass a location set may leave out")
    everywhere: bool = Field(
        False, description="cover the policy's edges outside the set too, with more noise"
    )

    def places_on(self, graph: PolicyGraph) -> LocationSet:
        policy, delta = super().places_on(graph).policy, Fraction(str(self.coverage_delta))
        return LocationSet(policy=policy, delta=delta, everywhere=self.everywhere)


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
        """The values given, or the coordinates of the map."""
        if self.values is not None:
            return measurement(
                states,
                self.values,
                labels=self.labels or (),
                step=self.step,
                unit=self.unit or "units",
                estimate=self.estimate,
            )
        model = family[0]
        if not isinstance(model, SparseChain) or model.grid is None:
            raise SpecError(
                "query.values is missing; the model is not a map, so give each state its numbers"
            )
        for key in ("labels", "step", "unit"):
            if getattr(self, key) is not None:
                raise SpecError(f"query.{key} is given without query.values; a map has its own")
        return coordinates(model, parts=self.parts, estimate=self.estimate)


def _by_name(section: GraphSection, model: Model) -> dict[str, Any] | None:
    """Where the names of the section are: as written, or names and categories of its file."""
    if not isinstance(section.places, PointsFile):
        return section.places
    return places_by_name(on_map(model), section.places.table)


def _graph(
    section: GraphSection, query: Measurement, family: tuple[Model, ...], repair: Repair
) -> PolicyGraph:
    """Return the policy graph that the section names, on the states of the query."""
    match section.graph:
        case "complete":
            return PolicyGraph.complete(query.states, repair=repair)
        case "radius":
            return PolicyGraph.within(query, section.radius_km or 0, repair=repair)
        case "nearest":
            return PolicyGraph.nearest(query, section.k or 0, repair=repair)
        case "transitions":
            return PolicyGraph.transitions(family[0], repair=repair)
        case "places":
            return _graph_of_points(section.places, family[0], repair)
        case "all" | "any":
            parts = [_graph(part, query, family, repair) for part in section.of or ()]
            return reduce(and_ if section.graph == "all" else or_, parts)
    places = _by_name(section, family[0])
    if section.graph == "words":
        return policy_in_words(family[0], section.words or "", places, repair=repair)
    named = partial(states_in_words, family[0], places=places)
    if section.graph == "categories":
        groups = [named(group) for group in section.categories or ()]
        return PolicyGraph.categories(query.states, groups, repair=repair)
    pairs = [(_one(named, first), _one(named, second)) for first, second in section.edges or ()]
    return PolicyGraph.of(query.states, pairs, repair=repair)


def _graph_of_points(places: Any, model: Model, repair: Repair) -> PolicyGraph:
    """Return the policy of `graph = "places"`."""
    if not isinstance(places, PointsFile):
        raise SpecError(
            'graph = "places" needs a file of points of interest; give [secrets.places] with '
            'from = "pois.geojson", and with same or within'
        )
    if places.same is None and places.within is None and places.only is None:
        raise SpecError(
            "secrets.places joins every two points of interest; say which look alike, such as "
            'same = "category" and within = "1 km"'
        )
    return policy_of_points(
        model,
        places.table,
        same=places.same,
        within=places.within,
        only=places.only,
        repair=repair,
    )


def _one(named: Callable[[tuple[str]], tuple[str, ...]], name: str) -> str:
    """The one state that a name stands for."""
    states = named((name,))
    if len(states) != 1:
        raise SpecError(
            f"secrets.edges names {name!r}, which stands for {len(states)} states; an edge joins "
            "two: name points or states, or use categories"
        )
    return states[0]
