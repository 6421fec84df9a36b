"""The Ties room: who is tied to whom, what one tells about the other, noise that survives it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import networkx as nx

from shoal.additive.choice import choose
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.task import Model
from shoal.data.generate import contact_network
from shoal.records.ties import Dependence
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
        "graph": tie_graph([f"person {one + 1}" for one in range(people)], edges),
        "bars": props.leak_bars(choice.plan, choice.alternatives),
        "words": choice.plan.explain(),
        "sentence": told(choice.plan, choice.alternatives),
        **friends_tell(request.task.family[0], edges),
    }


def friends_tell(model: Model, edges: list[list[int]]) -> dict[str, Any]:
    """What one friend's value tells about the other's: one sentence, and the heat map behind it."""
    if not isinstance(model, Dependence):
        raise InputError("the spec on the table is not about people who are tied")
    law = model.pair(edges[0][0], edges[0][1]) if edges else None
    if law is None:
        return {"friends": "Nobody is tied to anybody.", "heat": None}
    given = law / law.sum(axis=1, keepdims=True)
    last, states = len(given) - 1, model.domain.states or ()
    return {
        "friends": f"Whoever learns that a friend of yours lives in the {states[last]} believes "
        f"with {given[last, last]:.0%} instead of {law[:, last].sum():.0%} that you do too.",
        "heat": {
            "states": list(states),
            "transition": given.tolist(),
            "axes": ["a friend", "you (%)"],
        },
    }


def tie_graph(names: Sequence[str], edges: list[list[int]]) -> dict[str, Any]:
    """Props of the graph: people in their components, dark where many others are tied to one."""
    graph = nx.Graph()
    graph.add_nodes_from(range(len(names)))
    graph.add_edges_from(map(tuple, edges))
    place = _layout(graph)
    component = {
        node: number
        for number, nodes in enumerate(nx.connected_components(graph))
        for node in nodes
    }
    return {
        "nodes": [
            {
                "name": names[node],
                "x": place[node][0],
                "y": place[node][1],
                "component": component[node],
                "value": graph.degree[node],
            }
            for node in graph
        ],
        "edges": edges,
        "what": "people directly tied to one",
    }


def _layout(graph: nx.Graph) -> dict[int, tuple[float, float]]:
    """Where everybody stands; whoever is tied to nobody stands in a row below the others."""
    tied = graph.subgraph([node for node in graph if graph.degree[node]])
    drawn = nx.spring_layout(tied, seed=1, k=1.4 / max(1, len(tied)) ** 0.5) if len(tied) else {}
    place = {node: (float(x), float(y)) for node, (x, y) in drawn.items()}
    lonely = [node for node in graph if node not in place]
    for at, node in enumerate(lonely):
        place[node] = (2 * (at + 0.5) / len(lonely) - 1, -1.25)
    return place


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
