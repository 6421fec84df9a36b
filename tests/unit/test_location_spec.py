"""Specs of location streams: what each key means, and the sentence for each mistake."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from shoal.core.errors import InputError, SpecError
from shoal.core.registry import dumps
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement
from shoal.places.walk import SparseChain
from shoal.spec.request import Request, parse_request
from tests.locations import town

MAP = """
[[model]]
kind = "grid-walk"
south = 39.9
west = 116.3
cell_km = 0.5
rows = 3
columns = 4
"""
CHAIN = """
[[model]]
kind = "markov-chain"
states = ["a", "b", "c"]
transition = [[0.5, 0.5, 0], [0, 0.5, 0.5], [0.5, 0, 0.5]]
"""
RADIUS = '[secrets]\nkind = "policy-graph"\ngraph = "radius"\nradius_km = 0.5\n'
COMPLETE = '[secrets]\nkind = "policy-graph"\ngraph = "complete"\n'
COORDINATES = '[query]\nkind = "measurement"\n'
VALUES = '[query]\nkind = "measurement"\nvalues = { a = [0, 0.5], b = [1, 1], c = [2, 0] }\n'
EPSILON = "[privacy]\nepsilon = 0.7\n"


def parsed(*parts: str, folder: Path = Path()) -> Request:
    return parse_request("\n".join([*parts, EPSILON]), folder=folder)


def policy(request: Request) -> PolicyGraph:
    assert isinstance(request.task.secrets, PolicyGraph)
    return request.task.secrets


def test_a_map_is_a_walk_on_its_cells() -> None:
    request = parsed(MAP + 'stay = 0.2\nstart = "1,1"\nlength = 9', RADIUS, COORDINATES)
    chain, query = request.task.family[0], request.task.query
    assert isinstance(chain, SparseChain)
    assert isinstance(query, Measurement)
    rows = chain.matrix().toarray()
    assert np.diag(rows) == pytest.approx(np.full(12, 0.2))
    assert rows[0, 1] == pytest.approx(0.8 / 3)
    assert (chain.initial[5], chain.length, chain.states[5]) == (1, 9, "1,1")
    assert (query.step, query.unit) == (Fraction(1, 2), "km")
    assert policy(request).all_edges().tolist()[0] == [0, 1]
    assert len(policy(request).edges) == 3 * 3 + 2 * 4


def test_every_graph_of_a_policy() -> None:
    base = '[secrets]\nkind = "policy-graph"\n'
    graphs = {
        'graph = "complete"': [[0, 1], [0, 2], [1, 2]],
        'graph = "categories"\ncategories = [["a", "c"], "b"]': [[0, 2]],
        'graph = "radius"\nradius_km = 1.2': [[0, 1]],
        'graph = "nearest"\nk = 1': [[0, 1], [1, 2]],
        'graph = "transitions"': [[0, 1], [0, 2], [1, 2]],
        'graph = "edges"\nedges = [["c", "b"]]': [[1, 2]],
    }
    for lines, edges in graphs.items():
        found = policy(parsed(CHAIN, base + lines + '\nrepair = "least-error"', VALUES))
        assert found.all_edges().tolist() == edges
        assert found.repair == "least-error"
    partners = base + 'graph = "edges"\nedges = [["c", "b"]]\npartners = { a = "c" }'
    found = policy(parsed(CHAIN, partners, VALUES))
    assert found.partners is not None
    assert found.partners.tolist() == [2, -1, -1]
    assert found.all_edges().tolist() == [[1, 2]]


def test_location_sets_and_measurements() -> None:
    secrets = COMPLETE.replace("policy-graph", "location-set") + "coverage_delta = 0.1\n"
    query = VALUES + 'labels = ["heat", "noise"]\nstep = 0.5\nunit = "K"\nestimate = "absolute"'
    request = parsed(CHAIN, secrets + "everywhere = true\n", query)
    assert isinstance(request.task.secrets, LocationSet)
    assert request.task.secrets.delta == Fraction(1, 10)
    assert request.task.secrets.everywhere
    found = request.task.query
    assert isinstance(found, Measurement)
    assert (found.labels, found.unit, found.estimate) == (("heat", "noise"), "K", "absolute")
    assert found.points.tolist() == [[0, 1], [2, 2], [4, 0]]
    one = '[query]\nkind = "measurement"\nvalues = { a = 0, b = 0.25, c = 1 }\n'
    assert parsed(CHAIN, COMPLETE, one).task.query.labels == ("f1",)


def test_fitted_maps_are_read_from_their_file(tmp_path: Path) -> None:
    (tmp_path / "town.json").write_text(dumps(town(2, 3)))
    for kind in ("", '\nkind = "sparse-chain"'):
        model = f'[[model]]\nfile = "town.json"{kind}\n'
        request = parsed(model, RADIUS, COORDINATES + "parts = 2\n", folder=tmp_path)
        assert request.task.family == (town(2, 3),)
        assert request.task.query.lattice == Fraction(1, 4)


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        (
            (MAP, RADIUS.replace("radius_km = 0.5", ""), COORDINATES),
            'graph = "radius" without radius_km',
        ),
        ((MAP, COMPLETE + "k = 3\n", COORDINATES), 'has k, which is for graph = "nearest"'),
        ((MAP, COMPLETE.replace("complete", "whole"), COORDINATES), "secrets.graph is 'whole'"),
        ((MAP, COMPLETE + 'repair = "cheap"\n', COORDINATES), "secrets.repair is 'cheap'"),
        ((CHAIN, COMPLETE, COORDINATES), "query.values is missing"),
        ((MAP, COMPLETE, COORDINATES + 'unit = "m"\n'), "query.unit is given without query.values"),
        ((CHAIN, COMPLETE, '[query]\nkind = "histogram"\n'), "query.kind must be 'measurement'"),
        ((MAP + 'start = "9,9"\n', COMPLETE, COORDINATES), "start is '9,9'"),
        ((MAP + "stay = 1.5\n", COMPLETE, COORDINATES), "model.stay is 1.5"),
        ((CHAIN, COMPLETE, VALUES.replace("c =", "d =")), "look at 'c'"),
        (
            (CHAIN, COMPLETE.replace("policy-graph", "location-set"), VALUES),
            "coverage_delta is missing",
        ),
        (
            (CHAIN, COMPLETE.replace('"complete"', '"edges"\nedges = [["a", "a"]]'), VALUES),
            "two different states",
        ),
        (
            (CHAIN, COMPLETE.replace('"complete"', '"edges"\nedges = [["a", "x"]]'), VALUES),
            "names 'x'",
        ),
        ((CHAIN, COMPLETE, VALUES.replace("[0, 0.5]", "[]")), "at least one number"),
    ],
)
def test_mistakes_are_told_in_a_sentence(parts: tuple[str, ...], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        parsed(*parts)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


WORDS = (
    '[secrets]\nkind = "policy-graph"\ngraph = "words"\n'
    'words = "exact unless within 0.3 km of home; there among the 600 m around"\n'
    "places = { home = [39.907, 116.309] }\n"
)


def test_a_policy_may_be_said_in_words() -> None:
    found = policy(parsed(MAP, WORDS, COORDINATES))
    assert found.title == "exact unless within 0.3 km of home; there among the 600 m around"
    assert 3 <= int((found.groups == 0).sum()) < 12
    zoned = WORDS.replace("[39.907, 116.309]", '["0,0", "0,1"]')
    assert int((policy(parsed(MAP, zoned, COORDINATES)).groups == 0).sum()) >= 4


@pytest.mark.parametrize(
    ("secrets", "words"),
    [
        (WORDS.replace("home = [", "work = ["), "names 'home'"),
        (WORDS.replace("[39.907, 116.309]", "[]"), "latitude, longitude"),
        (COMPLETE + "places = { home = [1, 2] }", "for events and the graphs words"),
        (WORDS.split("words =", maxsplit=1)[0], "without words"),
    ],
)
def test_words_that_say_no_policy_are_told(secrets: str, words: str) -> None:
    with pytest.raises((SpecError, InputError), match=words):
        parsed(MAP, secrets, COORDINATES)
