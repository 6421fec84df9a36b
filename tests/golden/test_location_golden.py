"""The worked examples of both location papers and random instances, exactly, as rationals."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.core.motion import posterior
from shoal.geometry.body import Body, difference_body, symmetric_hull
from shoal.places.policy import PolicyGraph, Repair, location_set, surrogates
from shoal.places.step import PolicyIndex, cross_polytope
from tests.bodies import log_density
from tests.locations import mask
from tests.policies import (
    against,
    constrained_factor,
    database_hull,
    degrees,
    exposed_states,
    protect,
    unbounded_factors,
)

DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = json.loads((DATA / "location.json").read_text())["cases"]
PAPER: dict[str, dict[str, Any]] = {
    case["id"]: case for case in json.loads((DATA / "location_paper.json").read_text())
}
ALGORITHMS: dict[str, Repair] = {
    "alg1": "nearest",
    "alg3": "least-area",
    "alg3_least_mse": "least-error",
}


class Instance:
    """A case on the integer lattice that holds its points and its output."""

    def __init__(self, case: dict[str, Any]) -> None:
        rows = [[Fraction(value) for value in row] for row in case["points"]]
        output = [Fraction(value) for value in case["filter"]["z"]]
        values = [value for row in [*rows, output] for value in row]
        self.parts = math.lcm(*(value.denominator for value in values))
        self.points = np.array([[int(v * self.parts) for v in row] for row in rows])
        self.output = np.array([int(v * self.parts) for v in output])
        self.members = mask(len(rows), case["constraint"])
        self.edges = [(a, b) for a, b in case["policy_edges"]]

    def index(self, repair: Repair = "nearest") -> PolicyIndex:
        policy = PolicyGraph.of(range(len(self.points)), self.edges, repair=repair)
        return PolicyIndex(policy, self.points)

    def vertices(self, rows: list[list[str]]) -> list[list[int]]:
        return [[int(Fraction(value) * self.parts) for value in row] for row in rows]

    def area(self, body: Body) -> Fraction:
        return body.content / self.parts**2

    def mse(self, body: Body) -> Fraction:
        return body.mse(1) / self.parts**2


def named(cases: list[dict[str, Any]]) -> list[Any]:
    return [pytest.param(case, id=case["name"]) for case in cases]


def prefixed(prefix: str) -> list[Any]:
    return [pytest.param(case, id=i) for i, case in PAPER.items() if i.startswith(prefix)]


@pytest.mark.parametrize("case", named(CASES))
def test_the_hull_and_who_is_protected(case: dict[str, Any]) -> None:
    instance = Instance(case)
    index = instance.index()
    hull = index.hull(instance.members)
    assert index.policy.edges_among(instance.members).tolist() == case["constrained_edges"]
    assert hull.vertices.tolist() == instance.vertices(case["hull"])
    assert hull.dimension == case["dim"]
    assert instance.area(hull) == Fraction(case["area"])
    assert instance.mse(hull) == Fraction(case["noise_mse_eps1"])
    assert Fraction(hull.l1_radius, instance.parts) == Fraction(case["l1_sensitivity"])
    found = degrees(instance.points, instance.members, hull)
    assert {str(state): count for state, count in found.items()} == case["dop"]
    assert exposed_states(index, instance.members, hull).tolist() == case["exposed"]
    for row in case["knorms"]:
        vector = np.array(instance.vertices([row["v"]]))
        norm = hull.norm(vector).fraction(0)
        assert norm == (None if row["norm"] is None else Fraction(row["norm"]))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("case", named(CASES))
def test_the_repair_adds_the_expected_edges(case: dict[str, Any], algorithm: str) -> None:
    instance = Instance(case)
    repaired = protect(instance.index(ALGORITHMS[algorithm]), instance.members)
    assert repaired.added.tolist() == [sorted(edge) for edge in case[algorithm]]
    expected = case["repaired"].get(algorithm)
    if expected is None:
        return
    assert repaired.body.vertices.tolist() == instance.vertices(expected["hull"])
    assert instance.area(repaired.body) == Fraction(expected["area"])
    assert instance.mse(repaired.body) == Fraction(expected["noise_mse_eps1"])
    found = degrees(instance.points, instance.members, repaired.body)
    assert {str(state): count for state, count in found.items()} == expected["dop"]
    assert (min(found.values()) > 1) == expected["protectable"]
    factor = constrained_factor(instance.points, instance.members, repaired.body)
    largest = expected["max_norm"]
    assert factor == (math.inf if largest is None else Fraction(largest))


@pytest.mark.parametrize("case", named(CASES))
def test_stand_ins_and_the_posterior(case: dict[str, Any]) -> None:
    instance, given = Instance(case), case["filter"]
    index = instance.index()
    answering = index.stand_ins(instance.members)
    assert answering.tolist() == given["surrogate"]
    assert surrogates(instance.points, instance.members).tolist() == given["surrogate"]
    body = protect(index, instance.members).body
    epsilon = float(Fraction(case["eps"]))
    norms = body.norm_upper(instance.output - instance.points[answering])
    densities = log_density(body, epsilon, norms) + body.dimension * math.log(instance.parts)
    prior = np.array([float(Fraction(value)) for value in given["prior"]])
    expected = given["log_density"]
    for state in np.flatnonzero(prior):
        want = -math.inf if expected[state] is None else expected[state]
        assert densities[state] == pytest.approx(want, rel=1e-9)
    found = posterior(prior, -epsilon * norms)
    assert found == pytest.approx(given["posterior"], rel=1e-9, abs=1e-15)


@pytest.mark.parametrize("case", named([c for c in CASES if "transition" in c]))
def test_the_prior_is_one_move_of_the_chain(case: dict[str, Any]) -> None:
    start = np.array([float(Fraction(value)) for value in case["p0"]])
    rows = np.array([[float(Fraction(value)) for value in row] for row in case["transition"]])
    prior = start @ rows
    assert prior == pytest.approx([float(Fraction(v)) for v in case["filter"]["prior"]], rel=1e-12)
    assert np.flatnonzero(prior > 0).tolist() == case["constraint"]


def of_paper(identity: str) -> tuple[dict[str, Any], dict[str, Any]]:
    case = PAPER[identity]
    return case["inputs"], case["expected"]


def graph(inputs: dict[str, Any], repair: Repair = "nearest") -> tuple[PolicyIndex, Any]:
    names = list(inputs["f"])
    points = np.array([inputs["f"][name] for name in names])
    policy = PolicyGraph.of(names, inputs["edges"], repair=repair)
    chosen = [str(state) for state in inputs.get("C", names)]
    return PolicyIndex(policy, points), mask(len(names), [names.index(s) for s in chosen])


def test_example_5_1_has_area_11_and_l1_sensitivity_5() -> None:
    inputs, expected = of_paper("000.ex51")
    index, members = graph(inputs)
    hull = index.hull(members)
    assert hull.vertices.tolist() == expected["hull_ccw"]
    assert (hull.content, hull.l1_radius) == (Fraction(11), 5)
    assert hull.mse(1) == Fraction(expected["knorm_mse_eps1"])
    assert cross_polytope(hull).mse(1) == Fraction(expected["laplace_mse_eps1"])


def test_example_6_1_has_areas_14_16_and_20() -> None:
    inputs, expected = of_paper("000.ex61")
    index, members = graph(inputs)
    hull, names = index.hull(members), index.policy.states
    areas = {}
    for other in ("4", "5", "6"):
        move = index.points[names.index("3")] - index.points[names.index(other)]
        areas[other] = str(symmetric_hull(np.vstack([hull.vertices, move])).content)
    assert areas == expected["areas"]
    for algorithm, repair, area in (("alg1_adds", "nearest", 16), ("alg3_adds", "least-area", 14)):
        assert repair in ("nearest", "least-area")
        index, members = graph(inputs, repair)  # type: ignore[arg-type]
        repaired = protect(index, members)
        assert [[int(names[i]) for i in edge] for edge in repaired.added] == expected[algorithm]
        assert repaired.body.content == area


@pytest.mark.parametrize("case", prefixed("000.run"))
def test_the_running_example_under_constraints(case: dict[str, Any]) -> None:
    index, members = graph(case["inputs"])
    names, expected = index.policy.states, case["expected"]
    hull = index.hull(members)
    assert hull.vertices.tolist() == expected["hull"]
    found = degrees(index.points, members, hull)
    assert {names[s]: count for s, count in found.items()} == expected["DoP"]
    repaired = protect(index, members)
    assert [[int(names[i]) for i in edge] for edge in repaired.added] == expected["alg1_adds"]
    after = degrees(index.points, members, repaired.body)
    assert {names[s]: count for s, count in after.items()} == expected["DoP_after"]
    assert repaired.body.content == Fraction(expected["area_after"])


@pytest.mark.parametrize("case", prefixed("rnd.geom"))
def test_random_graphs(case: dict[str, Any]) -> None:
    index, members = graph(case["inputs"])
    names, expected = index.policy.states, case["expected"]
    hull = index.hull(members)
    assert hull.vertices.tolist() == expected["hull_ccw"]
    assert hull.dimension == expected["rank"]
    found = degrees(index.points, members, hull)
    assert {names[s]: count for s, count in found.items()} == expected["DoP"]
    norms = hull.norm(np.array(case["inputs"]["vectors"]))
    shown = [norms.fraction(i) for i in range(len(norms.numerators))]
    assert ["inf" if norm is None else str(norm) for norm in shown] == expected["knorms"]
    if expected["nearest_unique"]:
        repaired = protect(index, members)
        added = [[int(names[i]) for i in edge] for edge in repaired.added]
        assert sorted(added) == sorted(map(sorted, expected["alg1_adds_recheck"]))


@pytest.mark.parametrize("case", prefixed("rnd.mingraph"))
def test_least_area_repairs_are_protectable_and_no_better_than_the_minimum(
    case: dict[str, Any],
) -> None:
    index, members = graph(case["inputs"], "least-area")
    repaired = protect(index, members)
    assert repaired.body.content >= Fraction(case["expected"]["brute_min_area"])
    assert repaired.body.content == Fraction(case["expected"]["alg3_recheck_area"])
    assert min(degrees(index.points, members, repaired.body).values()) > 1


def test_the_greedy_repair_is_not_the_minimum() -> None:
    inputs, expected = of_paper("000.alg3.cex")
    index, members = graph(inputs, "least-area")
    area = protect(index, members).body.content
    assert (
        Fraction(expected["brute_min_area"]) < area == Fraction(expected["alg3_area_best_variant"])
    )


@pytest.mark.parametrize("case", prefixed("rnd.posterior"))
def test_posteriors_over_all_differences(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    output = [Fraction(value) for value in inputs["z"]]
    parts = math.lcm(*(value.denominator for value in output))
    points = np.array(inputs["points"]) * parts
    prior = np.array([float(Fraction(value)) for value in inputs["prior"]])
    body = difference_body(points[prior > 0])
    norms = body.norm_upper(np.array([int(v * parts) for v in output]) - points)
    assert posterior(prior, -inputs["eps"] * norms) == pytest.approx(
        expected["posterior"], rel=1e-9
    )
    density = np.exp(log_density(body, inputs["eps"], norms)) * parts**body.dimension
    assert density == pytest.approx(expected["density"], rel=1e-9)


@pytest.mark.parametrize("case", [*prefixed("rnd.delta"), *prefixed("004.delta")])
def test_location_sets_on_their_very_boundary(case: dict[str, Any]) -> None:
    inputs, expected = case["inputs"], case["expected"]
    exact = [Fraction(str(value)) for value in inputs["p"]]
    share = 1 - Fraction(str(inputs["delta"]))
    for prior in (np.array(exact, dtype=object), np.array([float(p) for p in exact])):
        chosen = location_set(prior, 1 - share)
        unique = expected.get("set_if_unique", expected.get("set"))
        if unique is not None:
            assert np.flatnonzero(chosen).tolist() == unique
        # without the states as probable as the last one taken, the mass would be too small
        least = min(p for p, taken in zip(exact, chosen, strict=True) if taken)
        assert sum(p for p in exact if p > least) < share
        assert sum(p for p, taken in zip(exact, chosen, strict=True) if taken) >= share
    if expected.get("surrogate") is not None:
        points = np.array(inputs["points"])
        for found, wanted in zip(surrogates(points, chosen), expected["surrogate"], strict=True):
            assert wanted in (None, found)  # None: a tie


def test_blowfish_in_a_database_with_its_null_node() -> None:
    inputs, expected = of_paper("000.ex111")
    answers = np.array(list(inputs["secrets"].values()))
    body = database_hull(answers, [(0, 1), (2, 3)])
    assert sorted(body.vertices.tolist()) == sorted(inputs["delta_f"])
    assert (body.content, body.l1_radius) == (Fraction(2), expected["l1_sensitivity"])
    assert [str(factor) for factor in unbounded_factors(answers, body)] == expected["knorms"]
    # joining the sixth record to the null node is what protects its presence
    joined = database_hull(answers, [(0, 1), (2, 3)], null_edges=[5])
    assert unbounded_factors(answers, joined)[5] == 1


def test_degrees_use_the_body_of_the_noise_in_force() -> None:
    inputs, expected = of_paper("000.thm52.lap")
    index, members = graph(inputs)
    names, hull = index.policy.states, index.hull(members)
    for body, key in ((hull, "DoP_K"), (cross_polytope(hull), "DoP_crosspolytope")):
        found = degrees(index.points, members, body)
        assert {names[s]: count for s, count in found.items()} == expected[key]
    assert len(protect(index, members).added) == 1
    assert len(protect(index, members, cross_polytope).added) == 0


def test_an_adversary_who_knows_more_strips_a_state_of_its_protector() -> None:
    inputs, expected = of_paper("000.caseI")
    index, members = graph(inputs)
    body = protect(index, members).body
    believed = mask(6, [int(s) - 1 for s in inputs["C_adv"]])
    told = against(index.policy, index.points, members, body, believed)
    assert (told.holds, told.factor) == (expected["holds"], float(expected["knorm"]))
    assert told.stripped.tolist() == [2, 4]
    everything = against(index.policy, index.points, members, body, members)
    assert everything.holds
    assert not len(everything.stripped)


def test_the_hull_of_the_thesis_example() -> None:
    inputs, expected = of_paper("004.ex31")
    body = symmetric_hull(np.array(inputs["delta_f"]))
    assert body.vertices.tolist() == expected["hull"]
    assert (body.content, body.l1_radius) == (Fraction(3), expected["l1"])


@pytest.mark.parametrize("case", prefixed("004.thm310"))
def test_the_error_of_thin_hulls_is_not_bounded_by_their_area(case: dict[str, Any]) -> None:
    rows = [[Fraction(value) for value in row] for row in case["inputs"]["hull"]]
    parts = math.lcm(*(value.denominator for row in rows for value in row))
    body = symmetric_hull(np.array([[int(v * parts) for v in row] for row in rows]))
    assert body.content / parts**2 == Fraction(case["expected"]["area"]) == 2
    assert body.mse(1) / parts**2 == Fraction(case["expected"]["mse"])


def test_full_disclosure_can_be_adversarially_private_for_one_prior() -> None:
    inputs, expected = of_paper("004.thm31")
    prior = np.array(inputs["prior"])
    rises = []
    for column in np.array(inputs["emission"], dtype=float).T:
        with np.errstate(divide="ignore"):
            after = posterior(prior, np.log(column))
        rises.append(np.log(after[after > 0] / prior[after > 0]).max())
    assert max(rises) == pytest.approx(expected["AP"], rel=1e-12)
    assert expected["DP"] == "inf"  # so the promise here is never stated as one prior's
