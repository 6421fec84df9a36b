"""The sections of a spec for networks: Bayesian networks, contagion, sums over named variables."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from shoal.core.errors import SpecError
from shoal.core.records import label
from shoal.core.task import Model, Query
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.variables import VariableSum, variable_sum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion, exponential_law
from shoal.networks.table import JointTable
from shoal.spec.fields import (
    ModelSection,
    Number,
    Pair,
    Probabilities,
    QuerySection,
    SecretsSection,
    State,
    States,
    Text,
    Whole,
    probabilities,
    read_text,
    state,
    table_of,
)

_NODE = {
    "type": "object",
    "properties": {
        "values": {"type": "array", "items": {"type": ["string", "integer"]}, "minItems": 1},
        "parents": {"type": "array", "items": {"type": "string"}},
        "table": {"type": "array", "items": {"type": ["number", "array"]}, "minItems": 1},
    },
    "required": ["values", "table"],
    "additionalProperties": False,
}
MOST_PEOPLE_WRITTEN = 100_000  # of a contagion that is written out: each has a name and a place
HEADINGS = {
    f"{word}{end}"
    for word in ("person", "user", "node", "name", "id", "edge")
    for end in ("", "_a", "_b", "1", "2", "_1", "_2")
} | {"a", "b", "source", "target", "from", "to", "friend"}
_NODE_RULE = "it must have values and table, may have parents, and nothing else"


def parse_node(value: object) -> dict[str, Any]:
    """Return one variable of a network: values, table, and parents if it has any."""
    if not isinstance(value, Mapping) or not {"values", "table"} <= set(value) <= {
        "values",
        "table",
        "parents",
    }:
        raise PydanticCustomError("node", _NODE_RULE)
    values, parents = value["values"], value.get("parents", [])
    if not isinstance(values, list) or not values:
        raise PydanticCustomError("node", "its values must be a list that is not empty")
    if not isinstance(parents, list) or not all(isinstance(name, str) for name in parents):
        raise PydanticCustomError("node", "its parents must be a list of variables in quotes")
    return {
        "values": [state(item) for item in values],
        "parents": parents,
        "table": probabilities(value["table"]),
    }


Node = Annotated[dict[str, Any], PlainValidator(parse_node), WithJsonSchema(_NODE)]


class TableModel(ModelSection):
    """Any finite joint law, written out."""

    kind: Literal["table"]
    variables: list[Text] = Field(min_length=1, description="names of the variables")
    domains: list[list[State]] = Field(min_length=1, description="the values of each variable")
    probability: Probabilities = Field(description="nested lists, one level per variable")

    def model(self, folder: Path) -> JointTable:
        return JointTable(
            variables=tuple(self.variables),
            domains=tuple(tuple(domain) for domain in self.domains),
            probability=table_of(self.probability, "probability"),
        )


class PairSecrets(SecretsSection):
    """Named events over the variables of a table, and the pairs that stay indistinguishable."""

    kind: Literal["pairs"]
    events: dict[Text, dict[Text, States]] = Field(
        min_length=1, description="event name to the values its variables take"
    )
    pairs: list[Pair] = Field(min_length=1, description="pairs of event names")

    def secrets(self, query: Query, family: tuple[Model, ...]) -> SecretPairs:
        """Return the pairs of events; refused when a pair names no event."""
        events = {name: Event.of(name, where) for name, where in self.events.items()}
        for index, pair in enumerate(self.pairs):
            for name in pair:
                if name not in events:
                    raise SpecError(
                        f"secrets.pairs[{index}] names {name!r}, which is not in secrets.events; "
                        f"the events are {', '.join(map(repr, events))}"
                    )
        return SecretPairs.of((events[first], events[second]) for first, second in self.pairs)


class NetworkModel(ModelSection):
    """A Bayesian network, written out; with `file = "name.bif"` it is read from a file instead."""

    kind: Literal["bayes-net"]
    nodes: dict[Text, Node] = Field(
        min_length=1,
        description="variable to its values, its parents and its table: one level of nesting per "
        "parent, then the law of the variable's own values",
    )

    def model(self, folder: Path) -> BayesNet:
        """Return the network that the section writes out."""
        return BayesNet(
            variables=tuple(self.nodes),
            domains=tuple(tuple(own["values"]) for own in self.nodes.values()),
            parents=tuple(tuple(own["parents"]) for own in self.nodes.values()),
            tables=tuple(_nested_table(own["table"], name) for name, own in self.nodes.items()),
        )


class ContagionModel(ModelSection):
    """People in independent groups, each well or ill."""

    kind: Literal["contagion"]
    sizes: list[Whole] | None = Field(
        None, description="sizes of groups in which all people meet each other"
    )
    people: list[State] | None = Field(None, description="names, in the order of the data")
    edges: list[Pair] | None = Field(None, description="pairs of people who meet")
    edges_file: Text | None = Field(
        None, description="CSV file with two names a line, relative to the spec, instead of edges"
    )
    law: Probabilities | None = Field(
        None, description="probabilities that 0, 1, … of a group are ill, when all are of one size"
    )
    laws: dict[Text, Probabilities] | None = Field(
        None, description='the same for each size of group, such as { "3" = [...], "4" = [...] }'
    )
    rate: Number | None = Field(
        None, description="P(j ill) proportional to exp(rate × j), for groups of any size"
    )
    tables: dict[Text, Probabilities] | None = Field(
        None, description="person to the joint law of their group, one level of nesting per person"
    )
    states: list[State] = Field(["well", "ill"], description="the two states, the healthy first")

    @model_validator(mode="after")
    def _one_graph_and_one_law(self) -> ContagionModel:
        """Refuse a section without exactly one graph and one law."""
        graphs = [self.sizes, self.edges, self.edges_file]
        if sum(given is not None for given in graphs) != 1:
            raise PydanticCustomError(
                "together", "needs exactly one of sizes, edges and edges_file; give one"
            )
        laws = [self.law, self.laws, self.rate]
        if sum(given is not None for given in laws) != 1:
            raise PydanticCustomError(
                "together", "needs exactly one of law, laws and rate; give one and drop the others"
            )
        if self.tables is not None and self.sizes is not None:
            raise PydanticCustomError(
                "together", "has tables with sizes; name the people and their edges instead"
            )
        return self

    def model(self, folder: Path) -> Contagion:
        """Return the contagion model; edges are read from a file where the section names one."""
        law = _law_argument(self)
        if self.sizes is not None:
            if sum(self.sizes) > MOST_PEOPLE_WRITTEN:
                raise SpecError(
                    f"sizes add up to {sum(self.sizes):,} people; at most "
                    f"{MOST_PEOPLE_WRITTEN:,} are "
                    "followed: give fewer groups, as groups do not depend on each other"
                )
            return Contagion.cliques(self.sizes, law, people=self.people, states=tuple(self.states))
        edges = self.edges if self.edges is not None else _read_edges(self, folder)
        people = self.people or list(dict.fromkeys(name for pair in edges for name in pair))
        tables = {name: _nested_table(table, name) for name, table in (self.tables or {}).items()}
        return Contagion.from_edges(people, edges, law, tables=tables, states=tuple(self.states))


class VariableQuery(QuerySection):
    """The sum of a weight per variable and value, for variables that differ."""

    by_state: ClassVar[bool] = False

    kind: Literal["variable-sum"]
    weights: dict[Text, dict[str, Number]] = Field(
        min_length=1, description="variable to weights of its values; what is not named counts 0"
    )
    unit: Text = Field("units", description="the unit of the weights, in reports")

    def query(self, states: tuple[str, ...], family: tuple[Model, ...]) -> VariableSum:
        """Return the sum over the variables of the model; refused for models without variables."""
        model = family[0]
        if not isinstance(model, JointTable | BayesNet | Contagion):
            raise SpecError(
                "query.kind is 'variable-sum', which needs a model of kind 'table', 'bayes-net' or "
                "'contagion'"
            )
        return variable_sum(model, self.weights, unit=self.unit)


def network_file(path: Path) -> BayesNet:
    """Return the network of a .bif file, plain or compressed."""
    return BayesNet.from_bif(path)


def _law_argument(section: ContagionModel) -> Any:
    """Return the law by size that `Contagion` takes: a function, a list or a mapping."""
    if section.rate is not None:
        return exponential_law(float(section.rate))
    if section.law is not None:
        return _nested_table(section.law, "law")
    assert section.laws is not None  # the section takes exactly one
    found = {}
    for size, law in section.laws.items():
        if not size.isdigit():
            raise SpecError(f'laws has the key {size!r}; keys are sizes of groups, such as "4"')
        found[int(size)] = _nested_table(law, f"laws of {size}")
    return found


def _read_edges(section: ContagionModel, folder: Path) -> list[tuple[str, str]]:
    """Return the pairs of people in the section's file; refused when a line is no pair."""
    assert section.edges_file is not None
    path = folder / section.edges_file
    if path.suffix == ".parquet":
        table = _read_parquet(path, section.edges_file)
        return [(label(a), label(b)) for a, b in table.iter_rows()]
    rows = [row for row in csv.reader(io.StringIO(read_text(path, "edges_file"))) if row]
    bad = next((number for number, row in enumerate(rows, start=1) if len(row) != 2), None)
    if bad is not None:
        raise SpecError(
            f"edges_file is {section.edges_file!r}, whose line {bad} has {len(rows[bad - 1])} "
            "fields; each line must hold two names"
        )
    pairs = [(row[0].strip(), row[1].strip()) for row in rows]
    others = {name for pair in pairs[1:] for name in pair}
    numbered = all(name.isdigit() for name in others) and not any(map(str.isdigit, pairs[0]))
    if others and not others & set(pairs[0]) and (numbered or set(pairs[0]) <= HEADINGS):
        raise SpecError(
            f"edges_file is {section.edges_file!r}, whose first line, {','.join(pairs[0])}, looks "
            "like a heading: remove it, or put the pair on another line if two people are so named"
        )
    return pairs


def _read_parquet(path: Path, name: str) -> Any:
    """Return a Parquet table of two columns without empty cells; refused when it is none."""
    from shoal.data.frames import parquet_whole

    try:
        table = parquet_whole(path, list)
    except (OSError, ValueError):
        raise SpecError(f"edges_file is {name!r}, which is no Parquet file; check it") from None
    if table.width != 2 or table.null_count().sum_horizontal().item():
        raise SpecError(f"edges_file is {name!r}; it must have two columns and no empty cell")
    return table


def _nested_table(nested: list[Any], name: str) -> Any:
    return table_of(nested, f"the table of {name!r}", per="value")
