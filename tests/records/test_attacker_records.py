"""An attacker on records: tied ones under their worst law, neighbouring data sets with odd ones.

It drives public names only and judges by code of its own. Tied records: all values of a component
are enumerated, places inside cells included; the worst joint law with the given pairs is a linear
program, and where places are free each outcome takes its worst. Learning queries: the same noise
is drawn for two data sets that differ in one record, so that the releases differ by what the truth
does, and discrete Laplace noise of scale s tells ‖difference‖₁/s at most and at its tails exactly.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.special import logsumexp

import shoal
from shoal.core.plan import UselessRelease
from tests.attacker import REFUSED, attack_for_long

Array = np.ndarray[Any, Any]
EPSILONS = ("1/1000000", "1/3", "1", "3", "50")
ODD: tuple[Any, ...] = (
    math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, 10**400, "x", "", None, True, 1j, [1], {},
)  # fmt: skip


# --- tied records -----------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Tied:
    """A component of n records: what each value adds, and which joint laws an adversary may hold.

    adds[x, a] is what place a of cell x adds to the answer, (cells, places, labels).
    """

    query: Any
    model: Any
    adds: Array
    joint: Array
    ties: tuple[tuple[int, int], ...]
    pairs_only: bool
    places: Array | None  # the law of places in each cell, where they are own

    @property
    def count(self) -> int:
        return self.joint.ndim


class BoxSum:
    """The sum of places in a box, per coordinate, in multiples of 1/64: a query of a user's own."""

    states: tuple[str, ...] = ()
    labels = ("x", "y")
    unit = "units"
    lattice = Fraction(1, 64)
    lipschitz = Fraction(2)
    fingerprint = "box-sum"

    def describe(self) -> str:
        return "the sum of places"

    def read(self, data: Any) -> Any:
        return np.asarray(data)

    def evaluate(self, records: Any) -> tuple[int, ...]:
        return tuple(int(v) for v in np.rint(records * 64).sum(axis=0))

    def contributions(self, domain: Any) -> tuple[Array, Array]:
        return np.floor(domain.low * 64) / 64, np.ceil(domain.high * 64) / 64


def rounded_mean(value: float, low: float, high: float, records: int) -> float:
    share = (Fraction(value) - Fraction(low)) / Fraction(high - low)
    share = min(max(share, Fraction(0)), Fraction(1))
    return float(round(share * 1024) * Fraction(high - low) / (1024 * records))


def in_bins(value: float, edges: list[float]) -> list[float]:
    inner = edges[1:-1]
    place = sum(value >= edge for edge in inner)
    return [float(place == k) for k in range(len(edges) - 1)]


def tied(rng: np.random.Generator) -> Tied:
    """A few records, tied along a path, to one of them or all, by pairs or as a field."""
    kind = str(rng.choice(["bits", "points", "interval", "interval", "box"]))
    count = int(rng.choice([2, 3, 3, 5] if kind == "bits" else [2, 3]))
    own = bool(rng.random() < 0.3)
    if kind == "bits":
        domain: Any = shoal.records.RecordDomain.points([0, 1])
        query: Any = shoal.count(["0", "1"], "1")
        adds = np.array([[[0.0]], [[1.0]]])
    elif kind == "box":
        domain = shoal.records.RecordDomain.box([0, 0], [1, 1], cells=2, own_places=own)
        query = BoxSum()
        adds = box_adds(domain)
    else:
        domain, query, adds = numbers(kind, count, own, rng)
    size = domain.size
    shapes = {
        "path": ((k, k + 1) for k in range(count - 1)),
        "star": ((0, k) for k in range(1, count)),
        "all": itertools.combinations(range(count), 2),
    }
    ties = tuple(shapes[str(rng.choice(list(shapes)))])
    pairs_only = bool(rng.random() < 0.6)
    places = None
    if own or adds.shape[1] == 1:
        places = rng.dirichlet(np.full(adds.shape[1], 0.5), size=size)
    if pairs_only:
        joint = random_joint(size, count, rng)
        laws = [joint.sum(axis=tuple(set(range(count)) - set(tie))) for tie in ties]
        model: Any = shoal.Dependence.of(domain, count, ties, laws, range(len(ties)))
    else:
        strength = rng.choice([0.05, 0.5, 2.0])
        tables = np.exp(strength * rng.normal(size=(len(ties), size, size)))
        tables[rng.random(tables.shape) < rng.choice([0.0, 0.1])] = 0.0
        own_laws = rng.dirichlet(np.ones(size), size=count)
        tables[:, 0, :] += 1e-3
        tables[:, :, 0] += 1e-3
        model = shoal.records.PairwiseField.of(
            domain, count, ties, tables, range(len(ties)), own_laws
        )
        joint = written_out(tables, own_laws, ties)
    return Tied(
        query=query,
        model=model,
        adds=adds,
        joint=joint,
        ties=ties,
        pairs_only=pairs_only,
        places=places,
    )


def random_joint(size: int, count: int, rng: np.random.Generator) -> Array:
    """Independent even values, whose pairs allow the worst, or anything, zeros included."""
    joint = np.ones((size,) * count)
    if rng.random() < 0.7:
        joint = rng.gamma(rng.choice([0.1, 0.5, 3.0]), size=joint.shape)
        joint[rng.random(joint.shape) < rng.choice([0.0, 0.4])] = 0.0
        joint.flat[0] += 1e-3
    return np.asarray(joint / joint.sum())


def numbers(kind: str, count: int, own: bool, rng: np.random.Generator) -> tuple[Any, Any, Array]:
    low, high = float(rng.choice([-1, 0])), float(rng.choice([1, 3]))
    if kind == "points":
        values = np.sort(rng.uniform(low, high, 3))
        domain: Any = shoal.records.RecordDomain(low=values[:, None], high=values[:, None])
        inside = values[:, None]
    else:
        cells = int(rng.integers(2, 5 if count == 2 else 4))
        domain = shoal.records.RecordDomain.interval(low, high, cells=cells, own_places=own)
        ends = low + (high - low) * np.arange(cells + 1) / cells
        gap = (high - low) / cells
        inside = np.stack(
            [ends[:-1] + 1e-9 * gap, ends[:-1] + rng.random(cells) * gap, ends[1:] - 1e-9 * gap],
            axis=1,
        )
    if rng.random() < 0.6:
        query: Any = shoal.records.number_mean(low=low, high=high, records=count)
        adds = [[[rounded_mean(v, low, high, count)] for v in row] for row in inside.tolist()]
    else:
        edges = [low, float(rng.integers(1, 4)) / 4 * (high - low) + low, high]
        query = shoal.records.number_histogram(edges)
        adds = [[in_bins(v, edges) for v in row] for row in inside.tolist()]
    return domain, query, np.array(adds)


def box_adds(domain: Any) -> Array:
    rows = []
    for low, high in zip(domain.low.tolist(), domain.high.tolist(), strict=True):
        corners = itertools.product(*zip(low, high, strict=True))
        rows.append([[round(v * 64) / 64 for v in corner] for corner in corners])
    return np.array(rows)


def written_out(tables: Array, own: Array, ties: tuple[tuple[int, int], ...]) -> Array:
    """The joint law of a field, outcome by outcome."""
    count, size = own.shape
    joint = np.zeros((size,) * count)
    for outcome in itertools.product(range(size), repeat=count):
        weight = math.prod(own[i, x] for i, x in enumerate(outcome))
        joint[outcome] = weight * math.prod(
            tables[t, outcome[i], outcome[j]] for t, (i, j) in enumerate(ties)
        )
    return np.asarray(joint / joint.sum())


def log_likelihoods(case: Tied, output: Array, scale: float) -> Array:
    """-‖output - answer‖₁/scale for all cells and all places, (cells^n, places^n)."""
    size, places, labels = case.adds.shape
    total = np.zeros((1, 1, labels))
    for _ in range(case.count):
        both = total[:, None, :, None, :] + case.adds[None, :, None, :, :]
        total = both.reshape(total.shape[0] * size, total.shape[1] * places, labels)
    return np.asarray(-np.abs(total - output).sum(axis=2) / scale)


def worst_conditional(
    case: Tied, up: Array, down: Array, record: int, pair: tuple[int, int]
) -> float:
    """The largest log of E[e^up | cell pair[0]] / E[e^down | cell pair[1]] over the joint laws.

    The law written out is one of them; where pairs alone are known and the logarithms are small
    enough for it, a linear program finds the worst (Charnes & Cooper's form of a ratio).
    """
    laws = [case.joint.ravel()]
    if case.pairs_only and max(np.ptp(up), np.ptp(down)) < 8:
        found = program(case, up, down, record, pair)
        laws += [] if found is None else [found]
    cells = np.indices(case.joint.shape)[record].ravel()
    worst = -math.inf
    for law in laws:
        sides = []
        for cell, logs in zip(pair, (up, down), strict=True):
            here = np.where(cells == cell, law, 0.0)
            if not here.sum() > 1e-6:  # the program's laws are good to about 1e-9
                return worst
            sides.append(float(logsumexp(logs, b=here / here.sum())))
        worst = max(worst, sides[0] - sides[1])
    return worst


def program(case: Tied, up: Array, down: Array, record: int, pair: tuple[int, int]) -> Array | None:
    cells = np.indices(case.joint.shape).reshape(case.count, -1)
    marginal = case.joint.sum(axis=tuple(set(range(case.count)) - {record}))
    if not min(marginal[list(pair)]) > 1e-6:
        return None
    top = max(up.max(), down.max())
    gain = np.where(cells[record] == pair[0], np.exp(up - top), 0.0) / marginal[pair[0]]
    cost = np.where(cells[record] == pair[1], np.exp(down - top), 0.0) / marginal[pair[1]]
    rows, size = [], case.joint.shape[0]
    for i, j in case.ties:
        law = case.joint.sum(axis=tuple(set(range(case.count)) - {i, j}))
        for x, y in itertools.product(range(size), repeat=2):
            rows.append(np.append((cells[i] == x) & (cells[j] == y), -law[x, y]))
    equal = np.array([*rows, np.append(cost, 0.0)], dtype=float)
    right = np.append(np.zeros(len(rows)), 1.0)
    found = linprog(np.append(-gain, 0.0), A_eq=equal, b_eq=right, method="highs")
    if found.status != 0 or not found.x[-1] > 0:
        return None
    return np.asarray(np.maximum(found.x[:-1] / found.x[-1], 0.0))


def outputs(case: Tied, rng: np.random.Generator) -> list[Array]:
    """Both ends of the answers, one record short of the middle, and a point of their grid."""
    ends = case.adds.reshape(-1, case.adds.shape[2])
    low, high = ends.min(axis=0), ends.max(axis=0)
    half = case.count // 2
    point = [rng.choice(ends[:, k], size=case.count).sum() for k in range(ends.shape[1])]
    middle = low * (case.count - half) + high * half
    return [low * case.count, high * case.count, middle, np.array(point)]


def some(rng: np.random.Generator, values: Any, most: int) -> list[Any]:
    """At most so many of all ordered pairs of values."""
    pairs = list(itertools.permutations(values, 2))
    return [pairs[k] for k in rng.permutation(len(pairs))[:most]]


def loss_about_cells(case: Tied, scale: float, rng: np.random.Generator) -> float:
    """Which cell a record lies in, places being free: each outcome takes its worst place."""
    worst = 0.0
    for output in outputs(case, rng):
        logs = log_likelihoods(case, output, scale)
        up, down = logs.max(axis=1), logs.min(axis=1)
        for record in range(case.count):
            for pair in some(rng, range(case.joint.shape[0]), 4):
                worst = max(worst, worst_conditional(case, up, down, record, pair))
    return worst


def loss_about_values(case: Tied, scale: float, rng: np.random.Generator) -> float:
    """Which value a record has, the others' places being drawn from their own cell alone."""
    assert case.places is not None
    size, places, _ = case.adds.shape
    shape = (size,) * case.count + (places,) * case.count
    worst = 0.0
    for output in outputs(case, rng):
        logs = log_likelihoods(case, output, scale).reshape(shape)
        for record in range(case.count):
            averaged = logs
            for other in set(range(case.count)) - {record}:
                law = np.expand_dims(
                    case.places, tuple(set(range(2 * case.count)) - {other, case.count + other})
                )
                averaged = logsumexp(averaged, axis=case.count + other, b=law, keepdims=True)
            seen = np.moveaxis(averaged, case.count + record, 0).reshape(places, -1)
            values = list(itertools.product(range(size), range(places)))
            for one, two in some(rng, values, 4):
                up, down = seen[one[1]], seen[two[1]]
                worst = max(worst, worst_conditional(case, up, down, record, (one[0], two[0])))
    return worst


def largest_change(case: Tied, records: int) -> float:
    """The most the answer moves when that many records change their values."""
    ends = case.adds.reshape(-1, case.adds.shape[2])
    return float(np.abs(ends[:, None] - ends[None, :]).sum(axis=2).max()) * records


def attack_tied(seed: int, seen: Counter[str]) -> None:
    rng = np.random.default_rng(seed)
    case = tied(rng)
    epsilon = Fraction(str(rng.choice(EPSILONS)))
    for row in (
        "dependent-means",
        "dependent-field",
        "lift",
        "group",
        "laplace",
        "best",
    ):
        try:
            plan: Any = shoal.calibrate(
                case.query, shoal.EachEntry(), case.model, epsilon=epsilon, mechanism=row
            )
        except shoal.Refused:
            seen[REFUSED] += 1
            continue
        assert plan.guarantee.proved
        scale, notion = float(plan.body.noise.scale), plan.guarantee.notion
        if notion in ("group", "entry-dp"):
            about, loss = (
                notion,
                largest_change(case, case.count if notion == "group" else 1) / scale,
            )
        elif case.places is None:
            about, loss = "cells", loss_about_cells(case, scale, rng)
            named = "which cell" in plan.guarantee.over
            assert named or plan.body.noise.scale >= case.count * case.query.lipschitz / epsilon
        else:
            about, loss = "values", loss_about_values(case, scale, rng)
            assert "which cell" not in plan.guarantee.over
        assert loss <= float(epsilon) * (1 + 1e-6), (seed, row, about, loss, epsilon)
        seen[f"{row} {about}"] += 1


# --- neighbouring data sets --------------------------------------------------------------------


def outcome(release: Callable[[Any], Any], data: Any) -> tuple[str, Any]:
    """What a release gives: its numbers, or the type and the words of the error. No warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # from the plan alone, so that it tells nothing of the data
        warnings.simplefilter("ignore", UselessRelease)
        try:
            return "answer", release(data)
        except shoal.ShoalError as error:
            return type(error).__name__, str(error)


def told(one: tuple[int, ...], two: tuple[int, ...], step: Fraction, scale: Fraction) -> Fraction:
    """The largest log-ratio between two answers under discrete Laplace noise."""
    assert len(one) == len(two)
    return sum((abs(a - b) for a, b in zip(one, two, strict=True)), 0) * step / scale


def compared(release: Callable[[Any], Any], data: tuple[Any, Any], epsilon: Fraction) -> None:
    """Two releases (plan, release) with the same noise differ by no more than epsilon allows."""
    (kind, first), (other, second) = (outcome(release, one) for one in data)
    assert kind == other, (kind, first, other, second)
    if kind != "answer":
        assert first == second
        return
    (plan, a), (again, b) = first, second
    assert plan.fingerprint == again.fingerprint
    assert a.answer.labels == b.answer.labels
    scale = plan.body.noise.scale
    assert told(a.answer.multiples, b.answer.multiples, a.answer.step, scale) <= epsilon


def compared_rounds(query: Any, plan: Any, data: tuple[Any, Any], epsilon: Fraction) -> None:
    """Round by round, after the same answers."""
    released = plan.release(data[0], rng=shoal.SeededRng(5)).answer
    one, two = (outcome(query.read, records) for records in data)
    assert one[0] == two[0] == "answer"
    size = len(released.multiples) // query.rounds
    sizes = range(0, len(released.multiples), size)
    history = tuple(released.multiples[start : start + size] for start in sizes)
    total = Fraction(0)
    for turn in range(query.rounds):
        asked = [query.ask(records[1], history[:turn]) for records in (one, two)]
        total += told(asked[0], asked[1], query.lattice, plan.body.noise.scale)
    assert total <= epsilon


def odd_or(rng: np.random.Generator, usual: Any) -> Any:
    return ODD[int(rng.integers(len(ODD)))] if rng.random() < 0.6 else usual


def planned(query: Any, epsilon: Fraction, group: int = 1) -> Any:
    return shoal.calibrate(
        query, shoal.EachEntry(), shoal.records.RecordGroups(group), epsilon=epsilon
    )


def attack_numbers(rng: np.random.Generator, epsilon: Fraction) -> None:
    count = int(rng.integers(2, 6))
    values: list[Any] = rng.uniform(-1, 2, count).tolist()
    if rng.random() < 0.3:
        values[-1] = odd_or(rng, 0.5)  # in both data sets
    group = int(rng.integers(1, count + 1))
    other = [odd_or(rng, float(rng.uniform(-9, 9))) for _ in range(group)] + values[group:]
    queries = (
        shoal.records.number_mean(low=0, high=1, records=count),
        shoal.records.number_histogram([0, "0.25", "0.5", 1]),
    )
    for query in queries:
        plan = planned(query, epsilon, group)
        compared(lambda data, plan=plan: released(plan, data), (values, other), epsilon)  # type: ignore[misc]


def released(plan: Any, data: Any) -> tuple[Any, Any]:
    return plan, plan.release(data, rng=shoal.SeededRng(3))


def attack_clusters(rng: np.random.Generator, epsilon: Fraction) -> None:
    count, width = int(rng.integers(2, 7)), int(rng.integers(1, 4))
    rows: list[Any] = rng.uniform(-0.2, 1.2, (count, width)).tolist()
    group = int(rng.integers(1, count + 1))
    changed = [[odd_or(rng, float(rng.uniform(-5, 5))) for _ in range(width)] for _ in range(group)]
    data = rows, changed + rows[group:]
    rounds = int(rng.integers(1, 4))
    query = shoal.records.centroids(
        [str(k) for k in range(width)], low=0, high=1, clusters=2, rounds=rounds
    )
    compared_rounds(query, planned(query, epsilon, group), data, epsilon)
    fitted = [
        shoal.records.PrivateKMeans(2, rounds=rounds, epsilon=epsilon, random_state=1).fit(records)
        for records in data
    ]
    assert fitted[0].plan_ == fitted[1].plan_
    assert fitted[0].n_features_in_ == fitted[1].n_features_in_


def attack_classifier(rng: np.random.Generator, epsilon: Fraction) -> None:
    count, width = int(rng.integers(2, 25)), int(rng.integers(1, 4))
    rows: list[Any] = (rng.normal(size=(count, width)) * rng.choice([0.1, 1, 100])).tolist()
    pairs: list[list[Any]] = [[0, 1], ["no", "yes"], [1, 2], [True, False]]
    named = pairs[int(rng.integers(4))]
    one_class = rng.random() < 0.4
    labels: list[Any] = [named[0 if one_class else int(rng.integers(2))] for _ in range(count)]
    changed = [odd_or(rng, float(rng.normal())) for _ in range(width)]
    other_label = odd_or(rng, named[int(rng.integers(2))])
    kind: Any = (
        shoal.records.PrivateLinearSVC
        if rng.random() < 0.5
        else shoal.records.PrivateLogisticRegression
    )
    settings: dict[str, Any] = {
        "alpha": Fraction(str(rng.choice(["1/10000", "1/100", "1", "100"]))),
        "norm": Fraction(str(rng.choice(["1/1000", "1", "1000"]))),
        "fit_intercept": bool(rng.random() < 0.7),
    }

    def fit(data: tuple[Any, Any]) -> tuple[Any, Any]:
        estimator = kind(classes=named, epsilon=epsilon, random_state=2, **settings).fit(*data)
        assert estimator.classes_.tolist() == named
        return estimator.plan_, estimator.release_

    first, second = (rows, labels), ([changed, *rows[1:]], [other_label, *labels[1:]])
    compared(fit, (first, second), epsilon)


def kept_degrees(edges: set[tuple[int, int]], nodes: int, cap: int) -> list[int]:
    degrees = [0] * nodes
    for a, b in sorted(edges):
        if max(degrees[a], degrees[b]) < cap:
            degrees[a] += 1
            degrees[b] += 1
    return degrees


def attack_degrees(rng: np.random.Generator, epsilon: Fraction) -> None:
    nodes = int(rng.integers(3, 9))
    cap = int(rng.integers(1, nodes))
    level = str(rng.choice(["edge", "node"]))
    pairs = list(itertools.combinations(range(nodes), 2))
    edges = {pair for pair in pairs if rng.random() < rng.choice([0.2, 0.5, 0.9])}
    node = int(rng.integers(nodes))
    moving = (
        {pairs[int(rng.integers(len(pairs)))]}
        if level == "edge"
        else {p for p in pairs if node in p}
    )
    other = (edges - moving) | {pair for pair in moving if rng.random() < 0.5}
    junk: list[Any] = [(nodes, 0), (1, 1), (-1, 2), (0.5, 1), (None, "x"), (math.nan, 1e308)]
    for cumulative in (False, True):
        query = shoal.records.degree_distribution(
            nodes, cap=cap, level=level, cumulative=cumulative
        )
        plan = planned(query, epsilon)
        answers: list[Any] = []
        for data, more in ((edges, junk), (other, [])):
            listed = [*data, *more]
            rng.shuffle(listed)
            answers.append(query.evaluate(query.read(listed)))
            kept = kept_degrees(data, nodes, cap if level == "node" else nodes)
            counts = [sum(min(d, cap) == k for d in kept) for k in range(cap + 1)]
            more_than = [sum(d > k for d in kept) for k in range(cap)]
            assert list(answers[-1]) == (more_than if cumulative else counts)
        assert told(answers[0], answers[1], query.lattice, plan.body.noise.scale) <= epsilon


def attack_neighbours(seed: int, seen: Counter[str]) -> None:
    rng = np.random.default_rng(seed)
    epsilon = Fraction(str(rng.choice(EPSILONS)))
    for attack in (attack_numbers, attack_clusters, attack_classifier, attack_degrees):
        attack(rng, epsilon)
        seen[attack.__name__] += 1


# --- the attacks -------------------------------------------------------------------------------


def test_no_tied_records_tell_more_than_promised() -> None:
    seen: Counter[str] = Counter()
    for seed in range(14):
        attack_tied(seed, seen)
    for row in ("dependent-means", "dependent-field"):
        assert seen[f"{row} cells"], seen
        assert seen[f"{row} values"], seen
    assert seen["group group"]
    assert seen["laplace entry-dp"]


def test_no_record_tells_more_than_promised_whatever_it_holds() -> None:
    seen: Counter[str] = Counter()
    for seed in range(12):
        attack_neighbours(seed, seen)
    assert set(seen.values()) == {12}


@pytest.mark.parametrize(
    "kind", [shoal.records.PrivateLinearSVC, shoal.records.PrivateLogisticRegression]
)
@pytest.mark.parametrize("label", [0, 2, None])
def test_one_label_among_two_thousand_tells_what_one_record_may(kind: Any, label: Any) -> None:
    """Classes read off the labels would turn every weight over: 122 and 176 at epsilon = 1."""
    rows = np.random.default_rng(0).normal(size=(2000, 3))

    def fit(labels: Any) -> tuple[Any, Any]:
        fitted = kind(classes=[0, 1], epsilon=1, random_state=0).fit(rows, labels)
        return fitted.plan_, fitted.release_

    compared(fit, ([1] * 2000, [label] + [1] * 1999), Fraction(1))


def test_a_law_of_cells_is_a_promise_about_cells() -> None:
    """Ten cells of [0, 1]: kept about cells under the worst law, broken about values by another."""
    law = np.full((10, 10), 0.01)
    domain = shoal.records.RecordDomain.interval(0, 1, cells=10)
    model = shoal.Dependence.of(domain, 2, [(0, 1)], law)
    query = shoal.records.number_mean(low=0, high=1, records=2)
    plan: Any = shoal.calibrate(
        query, shoal.EachEntry(), model, epsilon=1, mechanism="dependent-means"
    )
    scale = float(plan.body.noise.scale)
    assert "which cell, up to 0.1 wide" in plan.guarantee.describe()
    assert "not where in it" in plan.guarantee.describe()
    (hidden,) = [line for line in plan.explain().splitlines() if line.startswith("Protected:")]
    assert hidden.split(":")[1].strip() == (
        "which cell, up to 0.1 wide, any single entry lies in, not where in it"
    )
    values = shoal.calibrate(query, shoal.EachEntry(), model, epsilon=1, mechanism="group")
    assert "the value of every single entry" in values.explain()
    ends = [(k / 10 + 1e-9, (k + 1) / 10 - 1e-9) for k in range(10)]
    adds = np.array([[[rounded_mean(v, 0, 1, 2)] for v in row] for row in ends])
    case = Tied(
        query=query, model=model, adds=adds, joint=law, ties=((0, 1),), pairs_only=True, places=None
    )
    logs = log_likelihoods(case, np.array([1.0]), scale)
    worst = worst_conditional(case, logs.max(axis=1), logs.min(axis=1), 0, (9, 0))
    assert 0.7 < worst <= 1
    # the first record lies in the k-th tenth of its cell when the second lies in cell k: the cells
    # keep their law, and two values of the first record are two answers
    low, high = (0.0 + 0.0005, 0.0 + 0.0005), (1 - 0.0005, 1 - 0.0005)
    answers = [sum(rounded_mean(v, 0, 1, 2) for v in pair) for pair in (low, high)]
    assert 1.2 < (answers[1] - answers[0]) / scale < 1.4
    own = shoal.records.RecordDomain.interval(0, 1, cells=10, own_places=True)
    declared = shoal.calibrate(
        query, shoal.EachEntry(), shoal.Dependence.of(own, 2, [(0, 1)], law), epsilon=1
    )
    assert "any single entry, under every model" in declared.guarantee.over


def test_a_field_of_cells_pays_for_their_width() -> None:
    """Weak ties, places by one common coin: the reach of cells alone would be broken."""
    domain = shoal.records.RecordDomain.interval(0, 1, cells=2)
    table = np.array([[1.0, 0.9], [0.9, 1.0]])
    ties = ((0, 1), (1, 2))
    model = shoal.records.PairwiseField.of(domain, 3, ties, table)
    query = shoal.records.number_mean(low=0, high=1, records=3)
    plan: Any = shoal.calibrate(
        query, shoal.EachEntry(), model, epsilon=1, mechanism="dependent-field"
    )
    joint = written_out(np.stack([table, table]), np.full((3, 2), 0.5), ties)
    ends = [(1e-9, 0.5 - 1e-9), (0.5 + 1e-9, 1 - 1e-9)]
    adds = np.array([[[rounded_mean(v, 0, 1, 3)] for v in row] for row in ends])
    case = Tied(
        query=query, model=model, adds=adds, joint=joint, ties=ties, pairs_only=False, places=None
    )
    rng = np.random.default_rng(0)
    assert loss_about_cells(case, float(plan.body.noise.scale), rng) <= 1
    own = shoal.records.RecordDomain.interval(0, 1, cells=2, own_places=True)
    less: Any = shoal.calibrate(
        query,
        shoal.EachEntry(),
        shoal.records.PairwiseField.of(own, 3, ties, table),
        epsilon=1,
        mechanism="dependent-field",
    )
    assert loss_about_cells(case, float(less.body.noise.scale), rng) > 1.2
    # a query that is no sum has nothing to go by but the group
    clusters = shoal.records.centroids("x", low=0, high=1, clusters=2, rounds=1)
    for row in ("dependent-field", "lift", "group"):
        plan = shoal.calibrate(clusters, shoal.EachEntry(), model, epsilon=1, mechanism=row)
        assert float(plan.body.noise.scale / clusters.lipschitz) == pytest.approx(3, rel=1e-6)


def test_what_has_no_shape_of_records_is_refused_by_its_shape() -> None:
    """Empty tables and tables of another width: public, and the same whatever is in them."""
    query = shoal.records.centroids("xy", low=0, high=1)
    for data in ([], [[1]], [[1, 2], [3]], np.zeros((0, 2)), 3):
        with pytest.raises(shoal.DataError, match=r"the data has shape .* rows of 2 numbers"):
            query.read(data)
    with pytest.raises(shoal.DataError, match="2 numbers in a row"):
        shoal.records.number_mean(low=0, high=1, records=2).read([])
    assert shoal.records.number_histogram([0, 1, 2]).evaluate(
        shoal.records.number_histogram([0, 1, 2]).read([])
    ) == (0, 0)
    degrees = shoal.records.degree_distribution(3, cap=1)
    assert degrees.evaluate(degrees.read([])) == (0,)


@pytest.mark.parametrize("odd", [[1], (1, 2), [[1]], np.array([1.0]), np.array([[1.0]])])
def test_records_that_are_all_lists_are_answered_like_any_other(odd: Any) -> None:
    """All of a group may hold something odd: then data has another shape, and is no other data."""
    for query in (
        shoal.records.number_mean(low=0, high=1, records=2),
        shoal.records.number_histogram([0, "0.5", 1]),
    ):
        plan = planned(query, Fraction(1, 3), 2)
        data = ([0.2, 0.7], [odd, odd])
        compared(lambda data, plan=plan: released(plan, data), data, Fraction(1, 3))  # type: ignore[misc]


@pytest.mark.slow
def test_records_withstand_a_long_attack(record_property: Any) -> None:
    def attack(seed: int, seen: Counter[str]) -> None:
        attack_tied(seed, seen)
        attack_neighbours(seed, seen)

    attack_for_long(attack, record_property, 1000)
