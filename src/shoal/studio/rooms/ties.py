"""The Ties room: who is tied to whom, what one tells about the other, noise that survives it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import networkx as nx

from shoal.additive.choice import choose
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.data.generate import contact_network
from shoal.studio import props
from shoal.studio.bench import number, request_of
from shoal.studio.work import Say

MOST_PEOPLE = 200

SPEC = """\
# Made in the studio. Try:  shoal plan shoal.toml    shoal leak shoal.toml

[[model]]
kind = "dependence"
states = ["north", "centre", "south"]
values = [0, 1, 3]
records = {people}
ties = {ties}
friends = {{ b = 0.5, c = {strength} }}
joint = "pairs"

[secrets]
kind = "each-entry"

[query]
kind = "count"
states = ["south"]
unit = "people"

[privacy]
epsilon = {epsilon}
"""


def plan(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The ties as a picture, every mechanism's error, and what friends tell in one sentence."""
    people = int(number(params, "people", 40))
    if not 2 <= people <= MOST_PEOPLE:
        raise InputError(f"people is {people}; the studio draws 2 to {MOST_PEOPLE}")
    network = contact_network(people, int(number(params, "seed", 1)))
    edges = network.edges.tolist()
    spec = SPEC.format(
        people=people,
        ties=json.dumps(edges),
        strength=repr(number(params, "strength", 2.0)),
        epsilon=repr(number(params, "epsilon", 1.0)),
    )
    request = request_of({"spec": spec, "files": {}})
    say("finding the least noise", 0.3)
    choice = choose(request.task, request.epsilon(), request.mechanism)
    say("drawing the graph", 0.8)
    return {
        "spec": spec,
        "files": {},
        "graph": tie_graph(people, edges),
        "bars": props.leak_bars(choice.plan, choice.alternatives),
        "words": choice.plan.explain(),
        "sentence": told(choice.plan, choice.alternatives),
    }


def tie_graph(people: int, edges: list[list[int]]) -> dict[str, Any]:
    """Props of the graph: people in their components, dark where many others are tied to one."""
    graph = nx.Graph()
    graph.add_nodes_from(range(people))
    graph.add_edges_from(map(tuple, edges))
    place = nx.spring_layout(graph, seed=1, k=1.4 / people**0.5)
    component = {
        node: number
        for number, nodes in enumerate(nx.connected_components(graph))
        for node in nodes
    }
    return {
        "nodes": [
            {
                "name": f"person {node + 1}",
                "x": float(place[node][0]),
                "y": float(place[node][1]),
                "component": component[node],
                "value": graph.degree[node],
            }
            for node in graph
        ],
        "edges": edges,
        "what": "people directly tied to one",
    }


def told(plan: Plan, alternatives: Mapping[str, Plan | str]) -> str:
    """What ignoring the ties would cost, in one sentence."""
    plain = alternatives.get("laplace")
    error = plan.error()
    if isinstance(plain, str) or plain is None or error is None:
        return "Nothing is known about what ignoring the ties would tell."
    ordinary = plain.error()
    assert ordinary is not None  # Laplace noise always has one
    return (
        f"A release that ignores the ties would be off by {ordinary.expected:.3g} "
        f"{plan.task.query.unit} and tell about friends too; the noise that is proved against "
        f"whoever knows the ties is off by {error.expected:.3g} ({plan.mechanism})."
    )
