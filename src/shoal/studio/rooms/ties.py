"""The Ties room: tied people, what one reveals about another, and noise that covers it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import networkx as nx

from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.core.task import Model, Task
from shoal.data.generate import contact_network
from shoal.mechanisms.choice import Choice, choose
from shoal.mechanisms.lift import leakage
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable
from shoal.records.kmeans import Centroids
from shoal.records.pairwise import Dependence
from shoal.spec.request import Request
from shoal.studio import props
from shoal.studio.bench import number, request_of, spec_text, sure, text
from shoal.studio.rooms.acquaintances import (
    Town,
    attack_map,
    describe_guesses,
    example_town,
    model_lines,
    query_lines,
    tied_people,
    town_of,
)
from shoal.studio.rooms.audit import read
from shoal.studio.tables import NETWORKS
from shoal.studio.work import Say

MOST_PEOPLE_DRAWN = 200  # drawn, and attacked
MADE_UP = """\
kind = "dependence"
states = ["north", "centre", "south"]
values = [0, 1, 3]
records = {people}
ties = {ties}
friends = {{ b = 0.5, c = {strength} }}
joint = "pairs\""""
COUNT = 'kind = "count"\nstates = ["south"]\nunit = "people"'
HISTOGRAM = 'kind = "histogram"\nunit = "people"'
CIRCLES = 'kind = "groups"                  # circles of friends, whatever they share\nlargest = {}'


def plan(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The ties as a picture, every mechanism's error, and what friends tell in one sentence."""
    if params.get("spec"):
        return _of_spec(params, say)
    if str(params.get("file", "")).lower().endswith((*NETWORKS, ".toml")):
        return _of_spec(_network(params), say)
    if params.get("example") == "places":
        return _places(params, example_town(), say)
    if params.get("file"):
        columns = params.get("columns") or {}
        located = columns.get("latitude") and columns.get("longitude")
        return _places(params, town_of(params), say) if located else _values(params, say)
    return _example(params, say)


def _example(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """A made-up town in which friends live near each other."""
    people = int(number(params, "people", 40))
    if not 2 <= people <= MOST_PEOPLE_DRAWN:
        raise InputError(f"people is {people}; the studio draws 2 to {MOST_PEOPLE_DRAWN}")
    edges = contact_network(people, int(number(params, "seed", 1))).edges.tolist()
    strength = repr(number(params, "strength", 2.0))
    model = MADE_UP.format(people=people, ties=json.dumps(edges), strength=strength)
    found, task, _ = _chosen(params, model, COUNT, say)
    graph = tie_graph([f"person {one + 1}" for one in range(people)], edges)
    return found | {"graph": graph, **friends_tell(task.family[0], edges)}


def _values(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """A person's own people, a value each: the pairs, and the attack on them."""
    say("reading the people", 0.1)
    group = tied_people(params)
    found, task, choice = _chosen(params, model_lines(group), HISTOGRAM, say)
    say("attacking", 0.8)
    plain = choice.alternatives.get("laplace")
    sentence, sure = describe_guesses(group, plain if isinstance(plain, Plan) else choice.plan)
    edges = group.ties.tolist()
    graph = tie_graph(group.names, edges, sure, "surer of the truth, in percent")
    friends = friends_tell(task.family[0], edges)
    return found | {"graph": graph, **friends, "friends": sentence}


def _places(params: Mapping[str, Any], town: Town, say: Say) -> dict[str, Any]:
    """People and the places they visit: the attack of Section IV, on a map."""
    largest = int(number(params, "largest", 5))
    query = query_lines(town.people.city)
    found, task, choice = _chosen(params, CIRCLES.format(largest), query, say)
    say("attacking", 0.8)
    assert isinstance(task.query, Centroids)
    attack = attack_map(town, task.query, params)
    edges = town.people.friends.tolist()
    return found | {
        "graph": tie_graph(town.names, edges),
        "sentence": circle_words(choice, largest, edges),
        "friends": attack["sentence"],
        "heat": None,
        "attack": attack,
    }


def circle_words(choice: Choice, largest: int, edges: list[list[int]]) -> str:
    """Return in words the cost of noise for groups of friends, and the sizes of the groups."""
    own, plain = choice.plan.error(), choice.alternatives.get("laplace")
    ordinary = plain.error() if isinstance(plain, Plan) else None
    much = (
        f"{own.expected / ordinary.expected:.3g} times as much noise as an ordinary release"
        if own is not None and ordinary is not None
        else "more noise than an ordinary release"
    )
    together = max(map(len, nx.connected_components(nx.Graph(map(tuple, edges)))), default=1)
    return (
        f"A release that is proved for circles of up to {largest} people, whatever they share, "
        f"takes {much} ({choice.plan.mechanism}). Here up to {together} people hang together by "
        "friendships: a promise for all of them takes a circle of that size."
    )


def _of_spec(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """A network, a contagion or tied records of a spec: its graph and what a release would tell."""
    request = request_of(params)
    model = request.task.family[0]
    names, edges = graph_of(model)
    if len(names) > MOST_PEOPLE_DRAWN:
        raise InputError(
            f"the spec has {len(names):,} variables; the studio draws {MOST_PEOPLE_DRAWN}"
        )
    choice = _choice(request, say)
    words = leakage(model, request.epsilon()).describe()
    return {
        **_common_props(params["spec"], dict(params.get("files") or {}), choice),
        "graph": tie_graph(names, edges),
        "friends": f"{words[:1].upper()}{words[1:]}.",
        "heat": None,
    }


def _network(params: Mapping[str, Any]) -> dict[str, Any]:
    """A spec, or one around a .bif file: how many variables have the first value of the first."""
    file = Path(text(params, "file"))
    if file.suffix.lower() == ".toml":
        return read(params, lambda words, share: None)
    network = BayesNet.from_bif(file)
    value = network.domains[0][0]
    weights = {
        name: {value: 1}
        for name, own in zip(network.variables, network.domains, strict=True)
        if value in own
    }
    lines = "\n".join(f"{json.dumps(name)} = {{ {json.dumps(value)} = 1 }}" for name in weights)
    model = 'kind = "bayes-net"\nfile = "network.bif"'
    spec = _spec(params, model, f'kind = "variable-sum"\n\n[query.weights]\n{lines}')
    return {"spec": spec, "files": {"network.bif": file.read_text(encoding="utf-8")}}


def graph_of(model: Model) -> tuple[Sequence[str], list[list[int]]]:
    """Return the drawn nodes and the joined pairs, for every kind of model that has a graph."""
    if isinstance(model, Dependence):
        return [f"record {one}" for one in range(model.records)], model.ties.tolist()
    if isinstance(model, BayesNet):
        place = {name: at for at, name in enumerate(model.variables)}
        pairs = zip(model.variables, model.parents, strict=True)
        return model.variables, [[place[up], place[own]] for own, above in pairs for up in above]
    if isinstance(model, Contagion):
        joined = [list(pair) for group in model.groups for pair in combinations(group, 2)]
        return model.variables, joined
    if isinstance(model, JointTable):
        all_pairs = combinations(range(len(model.variables)), 2)
        return model.variables, [list(pair) for pair in all_pairs]
    raise InputError(
        "the spec's model has no ties to draw; give one of kind dependence, bayes-net, contagion "
        "or table"
    )


def _chosen(
    params: Mapping[str, Any], model: str, query: str, say: Say
) -> tuple[dict[str, Any], Task, Choice]:
    """The spec of a model and a query, the plan of least error, and what goes with both."""
    spec = _spec(params, model, query)
    request = request_of({"spec": spec})
    choice = _choice(request, say)
    return _common_props(spec, {}, choice), request.task, choice


def _choice(request: Request, say: Say) -> Choice:
    """Every mechanism's answer to what a spec asks for."""
    say("finding the least noise", 0.3)
    with request.limit_time():
        return choose(request.task, request.epsilon(), request.mechanism)


def _common_props(spec: Any, files: dict[str, Any], choice: Choice) -> dict[str, Any]:
    """Return the part that all answers of this room share."""
    return {
        "spec": spec,
        "files": files,
        "bars": props.leak_bars(choice.plan, choice.alternatives),
        "words": choice.plan.explain(),
        "sentence": noise_sentence(choice.plan, choice.alternatives),
    }


def _spec(params: Mapping[str, Any], model: str, query: str) -> str:
    """Return a spec that protects each entry, from the text of its model and query sections."""
    return spec_text(
        "shoal plan shoal.toml    shoal leak shoal.toml",
        model=model,
        secrets='kind = "each-entry"',
        query=query,
        privacy=f"epsilon = {number(params, 'epsilon', 1.0)!r}",
    )


def friends_tell(model: Model, edges: list[list[int]]) -> dict[str, Any]:
    """Return a sentence on what a friend's value reveals about the other's, and its heat map."""
    model = sure(model, Dependence, "the spec on the table is not about people who are tied")
    law = model.pair(edges[0][0], edges[0][1]) if edges else None
    if law is None:
        return {"friends": "Nobody is tied to anybody.", "heat": None}
    given = law / law.sum(axis=1, keepdims=True)
    last, states = len(given) - 1, model.domain.states or ()
    return {
        "friends": f"Whoever learns that a friend of yours is in {states[last]!r} believes with "
        f"{given[last, last]:.0%} instead of {law[:, last].sum():.0%} that you are too.",
        "heat": {
            "states": list(states),
            "transition": given.tolist(),
            "axes": ["a friend", "you (%)"],
        },
    }


def tie_graph(
    names: Sequence[str],
    edges: list[list[int]],
    values: Sequence[float] | None = None,
    what: str = "more people directly tied to one",
) -> dict[str, Any]:
    """Props of the graph: people in their components, dark where `values` are high.

    Without values: where many others are tied to one.
    """
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
                "value": graph.degree[node] if values is None else values[node],
            }
            for node in graph
        ],
        "edges": edges,
        "what": what,
    }


def _layout(graph: nx.Graph) -> dict[int, tuple[float, float]]:
    """Return the position of each node; nodes without ties are in a row below the others."""
    tied = graph.subgraph([node for node in graph if graph.degree[node]])
    drawn = nx.spring_layout(tied, seed=1, k=1.4 / max(1, len(tied)) ** 0.5) if len(tied) else {}
    place = {node: (float(x), float(y)) for node, (x, y) in drawn.items()}
    lonely = [node for node in graph if node not in place]
    for at, node in enumerate(lonely):
        place[node] = (2 * (at + 0.5) / len(lonely) - 1, -1.25)
    return place


def noise_sentence(plan: Plan, alternatives: Mapping[str, Plan | str]) -> str:
    """Return one sentence that compares the error of noise with and without regard to the ties."""
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
