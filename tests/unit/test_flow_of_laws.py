"""The flow that carries one law to another, against networkx's."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, strategies as st

from shoal.core.codec import Bools
from shoal.mechanisms.answer_laws import _carries_all

masses = st.lists(st.integers(1, 9), min_size=1, max_size=6)


def oracle(sources: dict[int, int], targets: dict[int, int], near: Bools) -> bool:
    """Maximum flow by networkx."""
    graph = nx.DiGraph()
    graph.add_nodes_from(["from", "to"])
    for place, mass in sources.items():
        graph.add_edge("from", ("s", place), capacity=mass)
    for place, mass in targets.items():
        graph.add_edge(("t", place), "to", capacity=mass)
    for row, source in enumerate(sources):
        for column, target in enumerate(targets):
            if near[row, column]:
                graph.add_edge(("s", source), ("t", target))
    return bool(nx.maximum_flow_value(graph, "from", "to") == sum(sources.values()))


@given(masses, masses, st.integers(0, 2**32 - 1), st.sampled_from([0.3, 0.5, 0.8]))
def test_a_flow_is_found_where_there_is_one(
    first: list[int], second: list[int], seed: int, density: float
) -> None:
    one = {place: mass * sum(second) for place, mass in enumerate(first)}
    two = {place: mass * sum(first) for place, mass in enumerate(second)}
    near = np.random.default_rng(seed).random((len(first), len(second))) < density
    assert _carries_all(one, two, near) == oracle(one, two, near)


@pytest.mark.parametrize(("near", "carried"), [([[1, 1], [1, 0]], True), ([[1, 0], [1, 0]], False)])
def test_mass_taken_by_one_point_is_given_back_to_another(
    near: list[list[int]], carried: bool
) -> None:
    """The first source takes the only target of the second, and must move."""
    huge = 10**40
    masses = {0: huge, 1: huge}
    assert _carries_all(masses, masses, np.array(near, dtype=bool)) is carried
