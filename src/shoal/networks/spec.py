"""The sections of a spec for networks: Bayesian networks, contagion, sums over named variables."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from shoal.core.errors import SpecError
from shoal.core.task import Model
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion, exponential_law
from shoal.networks.queries import VariableSum, variable_sum
from shoal.networks.table import JointTable
from shoal.spec.fields import (
    Number,
    Pair,
    Probabilities,
    Section,
    State,
    Text,
    Whole,
    probabilities,
    read_text,
    state,
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
_NODE_RULE = "it must have values and table, may have parents, and nothing else"


def node(value: object) -> dict[str, Any]:
    """One variable of a network: values, table, and parents if it has any."""
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


Node = Annotated[dict[str, Any], PlainValidator(node), WithJsonSchema(_NODE)]


class NetworkModel(Section):
    """A Bayesian network, written out; with `file = "name.bif"` it is read from a file instead."""

    kind: Literal["bayes-net"]
    nodes: dict[Text, Node] = Field(
        min_length=1,
        description="variable to its values, its parents and its table: one level of nesting per "
        "parent, then the law of the variable's own values",
    )


class ContagionModel(Section):
    """People in independent groups, each well or ill."""

    kind: Literal["contagion"]
    sizes: list[Whole] | None = Field(
        None, description="sizes of groups in which everybody meets everybody"
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


class VariableQuery(Section):
    """The sum of a weight per variable and value, for variables that differ."""

    kind: Literal["variable-sum"]
    weights: dict[Text, dict[str, Number]] = Field(
        min_length=1, description="variable to weights of its values; what is not named counts 0"
    )
    unit: Text = Field("units", description="the unit of the weights, in reports")


def network_of(section: NetworkModel) -> BayesNet:
    """The network a section describes."""
    return BayesNet(
        variables=tuple(section.nodes),
        domains=tuple(tuple(own["values"]) for own in section.nodes.values()),
        parents=tuple(tuple(own["parents"]) for own in section.nodes.values()),
        tables=tuple(_numbers(own["table"], name) for name, own in section.nodes.items()),
    )


def contagion_of(section: ContagionModel, folder: Path) -> Contagion:
    """The contagion model a section describes; files are found relative to `folder`."""
    law = _law(section)
    if section.sizes is not None:
        return Contagion.cliques(
            section.sizes, law, people=section.people, states=tuple(section.states)
        )
    edges = section.edges if section.edges is not None else _edges(section, folder)
    people = section.people or list(dict.fromkeys(name for pair in edges for name in pair))
    tables = {name: _numbers(table, name) for name, table in (section.tables or {}).items()}
    return Contagion.from_edges(people, edges, law, tables=tables, states=tuple(section.states))


def network_file(path: Path) -> BayesNet | None:
    """The network of a .bif file, plain or compressed; None for files of other kinds."""
    return BayesNet.from_bif(path) if path.name.endswith((".bif", ".bif.gz")) else None


def variable_query_of(section: VariableQuery, family: Sequence[Model]) -> VariableSum:
    """The query a section describes, about the variables of the first model."""
    model = family[0]
    if not isinstance(model, JointTable | BayesNet | Contagion):
        raise SpecError(
            "query.kind is 'variable-sum', which needs a model of kind 'table', 'bayes-net' or "
            "'contagion'"
        )
    return variable_sum(model, section.weights, unit=section.unit)


def _law(section: ContagionModel) -> Any:
    if section.rate is not None:
        return exponential_law(float(section.rate))
    if section.law is not None:
        return _numbers(section.law, "law")
    assert section.laws is not None  # the section takes exactly one
    found = {}
    for size, law in section.laws.items():
        if not size.isdigit():
            raise SpecError(f'laws has the key {size!r}; keys are sizes of groups, such as "4"')
        found[int(size)] = _numbers(law, f"laws of {size}")
    return found


def _edges(section: ContagionModel, folder: Path) -> list[tuple[str, str]]:
    assert section.edges_file is not None
    path = folder / section.edges_file
    rows = [row for row in csv.reader(io.StringIO(read_text(path, "edges_file"))) if row]
    bad = next((number for number, row in enumerate(rows, start=1) if len(row) != 2), None)
    if bad is not None:
        raise SpecError(
            f"edges_file is {section.edges_file!r}, whose line {bad} has {len(rows[bad - 1])} "
            "fields; each line must hold two names"
        )
    return [(row[0].strip(), row[1].strip()) for row in rows]


def _numbers(nested: list[Any], field: str) -> Any:
    try:
        return np.array(nested, dtype=np.float64)
    except ValueError:
        raise SpecError(
            f"the table of {field!r} has rows of different lengths; give every row one number per "
            "value"
        ) from None
