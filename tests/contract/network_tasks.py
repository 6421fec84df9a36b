"""Tasks on networks and contagion for the contract, and the same with their states renamed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from shoal.core.task import EachEntry, Model, Task
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.queries import count, histogram, weighted_sum
from shoal.mechanisms.variables import VariableSum, variable_sum
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion

ILL = ("well", "ill")
FLU = [0.1, 0.15, 0.5, 0.15, 0.1]


def household() -> BayesNet:
    """Two parents, a child both may infect (a collider), the child's friend, and a stranger."""
    either = [[[0.9, 0.1], [0.5, 0.5]], [[0.4, 0.6], [0.2, 0.8]]]
    return BayesNet.of(
        {
            "mother": [0.8, 0.2],
            "father": [0.7, 0.3],
            "child": either,
            "friend": [[0.8, 0.2], [0.4, 0.6]],
            "stranger": [0.9, 0.1],
        },
        parents={"child": ["mother", "father"], "friend": ["child"]},
        domains=dict.fromkeys(("mother", "father", "child", "friend", "stranger"), ILL),
    )


def clinic() -> BayesNet:
    """Unlike variables: an age group, whether somebody smokes, and a grade of cough."""
    cough = [[[0.8, 0.15, 0.05], [0.5, 0.3, 0.2]], [[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]]
    return BayesNet.of(
        {"age": [0.6, 0.4], "smokes": [[0.7, 0.3], [0.8, 0.2]], "cough": cough},
        parents={"smokes": ["age"], "cough": ["age", "smokes"]},
        domains={
            "age": ("young", "old"),
            "smokes": ("no", "yes"),
            "cough": ("none", "some", "bad"),
        },
    )


def crowd() -> Contagion:
    """Three households, two of them alike, and one whose joint law is written out."""
    table = np.array([[0.5, 0.1], [0.1, 0.3]])
    people = [f"p{i}" for i in range(10)]
    edges = [("p0", "p1"), ("p1", "p2"), ("p2", "p3"), ("p4", "p5"), ("p5", "p6"), ("p6", "p7")]
    return Contagion.from_edges(
        people, [*edges, ("p8", "p9")], {4: FLU, 2: [0.5, 0.2, 0.3]}, tables={"p9": table}
    )


def _fact(name: str, **where: str) -> Event:
    return Event.of(name, where)


def network_tasks() -> dict[str, Task]:
    """One task for every kind of query and secret a network or crowd takes."""
    entry = EachEntry()
    child = SecretPairs.of(
        [
            (
                _fact("parents ill", mother="ill", father="ill"),
                _fact("parents well", mother="well", father="well"),
            ),
            (_fact("stranger ill", stranger="ill"), _fact("child well", child="well")),
        ]
    )
    houses = SecretPairs.of(
        [(_fact("both", p0="ill", p4="ill"), _fact("none", p0="well", p4="well"))]
    )
    doses = variable_sum(crowd(), {"p0": {"ill": 2}, "p5": {"ill": "1/2"}, "p9": {"well": 1}})
    cough = variable_sum(clinic(), {"cough": {"some": 1, "bad": "5/2"}, "smokes": {"yes": 1}})

    def task(query: object, model: Model, secrets: object = entry) -> Task:
        return Task(query=query, secrets=secrets, family=(model,))  # type: ignore[arg-type]

    return {
        "network": task(count(ILL, "ill"), household()),
        "network-histogram": task(histogram(ILL), household()),
        "network-pairs": task(weighted_sum(ILL, {"ill": "3/2"}), household(), child),
        "network-unlike": task(cough, clinic()),
        "contagion": task(count(ILL, "ill"), crowd()),
        "contagion-histogram": task(histogram(ILL), crowd()),
        "contagion-pairs": task(count(ILL, "ill"), crowd(), houses),
        "contagion-weights": task(doses, crowd()),
    }


def turned_variables(original: Task) -> Task:
    """A task about unlike variables with the values of each in reverse order."""
    query = original.query
    assert isinstance(query, VariableSum)
    turned = replace(
        query,
        domains=tuple(domain[::-1] for domain in query.domains),
        weights=tuple(row[::-1] for row in query.weights),
    )
    family = tuple(turned_network(model) for model in original.family)
    return Task(query=turned, secrets=original.secrets, family=family)


def turned_network(model: Model) -> Model:
    """The same law with the values of every variable in reverse order."""
    if isinstance(model, Contagion):
        laws = tuple(np.flip(law) for law in model.laws)
        return replace(model, states=model.states[::-1], laws=laws)
    assert isinstance(model, BayesNet)
    return replace(
        model,
        domains=tuple(domain[::-1] for domain in model.domains),
        tables=tuple(np.flip(table) for table in model.tables),
    )
