"""Hulls, norms, moments and DoP of the papers' examples and of stored random cases, exactly.

Xiao & Xiong 2016 (000), Xiao 2017 (004). Rationals are scaled to a common lattice: areas by s²,
errors by s², norms not at all.
"""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.core.codec import Ints
from shoal.geometry.body import Body, difference_body, symmetric_hull

DATA = Path(__file__).parent / "data"
CASES: list[dict[str, Any]] = json.loads((DATA / "location.json").read_text())["cases"]
PAPERS: list[dict[str, Any]] = json.loads((DATA / "location_paper.json").read_text())
RANDOM = [case for case in PAPERS if case["id"].startswith("rnd.geom")]
BY_ID = {case["id"]: case for case in PAPERS}


def scaled(rows: list[list[str]]) -> tuple[Ints, int]:
    """Rational rows as integers, and the common denominator they were multiplied by."""
    values = [[Fraction(value) for value in row] for row in rows]
    scale = math.lcm(*(value.denominator for row in values for value in row))
    return np.array([[int(value * scale) for value in row] for row in values]), scale


def hull_of(points: Ints, edges: list[list[int]]) -> Body:
    pairs = np.array(edges, dtype=np.int64).reshape(-1, 2)
    return symmetric_hull(points[pairs[:, 0]] - points[pairs[:, 1]])


def degrees(body: Body, points: Ints, members: list[int]) -> dict[str, int]:
    inside = points[members]
    return {str(s): int(body.contains(inside - points[s]).sum()) for s in members}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_stored_case(case: dict[str, Any]) -> None:
    points, scale = scaled(case["points"])
    body = hull_of(points, case["constrained_edges"])
    assert body.dimension == case["dim"]
    assert [[Fraction(int(x), scale) for x in row] for row in body.vertices] == [
        [Fraction(x) for x in row] for row in case["hull"]
    ]
    if case["dim"] == 2:
        assert body.content / scale**2 == Fraction(case["area"])
    if case["half_length_sq"] is not None:
        length = sum(int(x) ** 2 for x in body.vertices[0])
        assert Fraction(length, scale**2) == Fraction(case["half_length_sq"])
    assert Fraction(body.l1_radius, scale) == Fraction(case["l1_sensitivity"])
    assert body.mse(1) / scale**2 == Fraction(case["noise_mse_eps1"])
    assert degrees(body, points, case["constraint"]) == case["dop"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_stored_norms(case: dict[str, Any]) -> None:
    body = hull_of(scaled(case["points"])[0], case["constrained_edges"])
    scale = scaled(case["points"])[1]
    for entry in case["knorms"]:
        vector = [Fraction(value) * scale for value in entry["v"]]
        more = math.lcm(*(value.denominator for value in vector))
        norms = body.norm(np.array([[int(value * more) for value in vector]]))
        expected = None if entry["norm"] is None else Fraction(entry["norm"]) * more
        assert norms.fraction(0) == expected


@pytest.mark.parametrize("case", RANDOM, ids=lambda case: case["id"])
def test_random_hull(case: dict[str, Any]) -> None:
    given, expected = case["inputs"], case["expected"]
    members = [str(state) for state in given["C"]]
    points = np.array([given["f"][state] for state in members])
    index = {state: place for place, state in enumerate(members)}
    edges = [
        [index[str(a)], index[str(b)]]
        for a, b in given["edges"]
        if str(a) in index and str(b) in index
    ]
    body = hull_of(points, edges)
    assert body.vertices.tolist() == expected["hull_ccw"]
    assert body.dimension == expected["rank"]
    assert body.content == Fraction(expected["area"])
    assert body.mse(1) == Fraction(expected["knorm_mse_eps1"])
    norms = body.norm(given["vectors"])
    wanted = [None if value in (None, "inf") else Fraction(value) for value in expected["knorms"]]
    assert [norms.fraction(k) for k in range(len(wanted))] == wanted
    found = degrees(body, points, list(range(len(members))))
    assert {members[int(s)]: count for s, count in found.items()} == expected["DoP"]


def running_example(edges: list[tuple[int, int]]) -> Body:
    points = np.array([[1, 0], [2, 1], [3, 0], [0, 1], [4, 2], [1, 2]])
    return symmetric_hull([points[a - 1] - points[b - 1] for a, b in edges])


def test_example_5_1() -> None:
    body = running_example([(2, 3), (4, 5), (4, 6), (5, 6)])
    assert body.content == 11
    assert body.l1_radius == 5
    assert body.second_moment == Fraction(118, 33)


@pytest.mark.parametrize(("partner", "area", "error"), [(4, 14, 54), (5, 16, 47), (6, 20, 50)])
def test_example_6_1(partner: int, area: int, error: int) -> None:
    """The least area (s4) is not the least error (s5)."""
    body = running_example([(4, 5), (4, 6), (5, 6), (3, partner)])
    assert body.content == area
    assert body.mse(1) == error


def test_example_3_1_of_the_thesis() -> None:
    case = BY_ID["004.ex31"]
    body = symmetric_hull(case["inputs"]["delta_f"])
    assert body.vertices.tolist() == case["expected"]["hull"]
    assert (body.content, body.l1_radius) == (Fraction(case["expected"]["area"]), 2)


@pytest.mark.parametrize("name", ["004.thm310.M1", "004.thm310.M10", "004.thm310.M100"])
def test_error_is_not_the_root_of_the_area(name: str) -> None:
    """Theorem 3.10 is false: thin hulls of one area have any error."""
    case = BY_ID[name]
    corners, scale = scaled(case["inputs"]["hull"])
    body = symmetric_hull(corners)
    assert body.content / scale**2 == Fraction(case["expected"]["area"])
    assert body.mse(1) / scale**2 == Fraction(case["expected"]["mse"])


def test_laplace_can_beat_k_norm_in_space() -> None:
    case = BY_ID["000.cor51.3d"]["expected"]
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    body = symmetric_hull([[98, a, b] for a, b in signs])
    assert float(body.mse(1)) / 100**2 == pytest.approx(case["knorm_mse"], rel=1e-12)
    laplace = symmetric_hull(body.l1_radius * np.eye(3, dtype=np.int64))
    assert float(laplace.mse(1)) / 100**2 == pytest.approx(case["laplace_mse"], rel=1e-12)


def test_blowfish_norms() -> None:
    case = BY_ID["000.ex111"]
    body = symmetric_hull(case["inputs"]["delta_f"])
    norms = body.norm(list(case["inputs"]["secrets"].values()))
    assert [str(norms.fraction(k)) for k in range(6)] == case["expected"]["knorms"]
    assert (str(body.content), body.l1_radius) == (case["expected"]["area"], 2)


def test_difference_body_is_the_hull_of_the_complete_graph() -> None:
    case = next(case for case in CASES if case["policy"] == "complete")
    points, _ = scaled(case["points"])
    assert difference_body(points) == hull_of(points, case["constrained_edges"])
