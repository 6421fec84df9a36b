"""A random attacker of streams of places: small maps, all paths, laws and norms of its own.

Maps of 2 to 8 states with random answers on a small lattice, random policies and location sets,
transient states, zeros, tiny probabilities and known starts; one or several questions a step with
noise of any row; readings that are missing, repeated, late or impossible. What the library says is
held against counts made here: norms by linear programs, distances in graphs by breadth, beliefs
by adding up all paths.
"""

from __future__ import annotations

import itertools
import math
import random
import re
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import linprog

import shoal
from shoal.noise.primitives import SeededRng
from tests.attacker import REFUSED, attack_for_long

ROWS = ("location-knorm", "location-laplace", "location-staircase", "location-graph-exponential")
EPSILONS = ("1/1000000", "1/1000", "1/10", "1/3", "7/10", "1", "5/2", "6", "50", "1000")
NEAR = 1 + 1e-9
REACH = 9  # lattice steps beyond all answers in which outputs are tried
Pair = tuple[int, int]


class Map(NamedTuple):
    """An instance: the chain and its matrices, the policy's pairs, and the questions."""

    model: Any
    matrices: list[Any]
    initial: Any
    places: Any
    pairs: set[Pair]
    plans: list[Any]


# ---------------------------------------------------------------- instances


def law(dice: random.Random, size: int) -> Any:
    """A random law: some zeros, some values far below the others."""
    weights = [dice.random() for _ in range(size)]
    for place in range(size):
        if dice.random() < 0.35:
            weights[place] = 0.0
        elif dice.random() < 0.12:
            weights[place] *= dice.choice([1e-12, 1e-100, 1e-290])
    if sum(weights) < 0.01:
        weights[dice.randrange(size)] = 1.0
    return np.array(weights) / sum(weights)


def matrix(dice: random.Random, size: int) -> Any:
    """Rows of random laws; often one can only go on, so that states are left for good."""
    found = np.array([law(dice, size) for _ in range(size)])
    if dice.random() < 0.25:  # all moves possible: every step forgets a little
        found = found + dice.choice([0.02, 0.5])
        found /= found.sum(axis=1, keepdims=True)
    elif dice.random() < 0.4:
        found = np.triu(found) + 1e-3 * np.eye(size)
        found /= found.sum(axis=1, keepdims=True)
    elif dice.random() < 0.3:  # one place further at most: supports grow step by step
        found = np.tril(found + 0.1, 1)
        found /= found.sum(axis=1, keepdims=True)
    return found


def policy_of(dice: random.Random, states: Sequence[str]) -> tuple[Any, set[Pair]]:
    """A random policy and the pairs it joins, listed here."""
    size = len(states)
    everybody = list(itertools.combinations(range(size), 2))
    repair: Any = dice.choice(["nearest", "nearest", "least-area", "least-error"])
    kind = dice.choice(["complete", "categories", "edges", "edges", "none"])
    if kind == "complete":
        return shoal.PolicyGraph.complete(states), set(everybody)
    groups = [dice.choice([-1, 0, 1]) if kind == "categories" else -1 for _ in states]
    few = dice.random()
    edges = [pair for pair in everybody if kind == "edges" and dice.random() < few]
    pairs = {*edges, *((a, b) for a, b in everybody if groups[a] == groups[b] >= 0)}
    partners = None
    if dice.random() < 0.4:
        others = [[-1, *(b for b in range(size) if b != a)] for a in range(size)]
        partners = np.array([dice.choice(other) for other in others])
    policy = shoal.PolicyGraph(
        states=tuple(states),
        edges=np.array(edges, dtype=np.int64).reshape(-1, 2),
        groups=np.array(groups),
        title="a random policy",
        repair=repair,
        partners=partners,
    )
    return policy, pairs


def random_map(dice: random.Random, seen: Counter[str]) -> Map | None:
    """A map with one to three questions; None when no row takes it."""
    size = dice.randint(2, 8)
    states = [f"p{k}" for k in range(size)]
    initial = law(dice, size)
    if dice.random() < 0.25:
        matrices = [matrix(dice, size) for _ in range(5)]
        model: Any = shoal.DayChain.of(matrices, initial=initial, states=states)
    else:
        matrices = [matrix(dice, size)] * 5
        model = shoal.MarkovChain.of(matrices[0], initial=initial, states=states)
    policy, pairs = policy_of(dice, states)
    places = policy
    if dice.random() < 0.35:
        delta = Fraction(dice.randint(1, 9), 10)
        places = shoal.LocationSet(policy=policy, delta=delta, everywhere=dice.random() < 0.4)
    plans = []
    for _ in range(dice.choice([1, 1, 2, 3])):
        width = dice.choice([1, 2, 2, 2, 3] if size < 6 else [1, 2])
        span = dice.choice([1, 4, 7])
        points = [[dice.randint(0, span) for _ in range(width)] for _ in states]
        query = shoal.measurement(states, points, step=1)
        epsilon = Fraction(dice.choice(EPSILONS))
        try:
            plans.append(
                shoal.calibrate(query, places, model, epsilon=epsilon, mechanism=dice.choice(ROWS))
            )
        except shoal.Refused:
            seen[REFUSED] += 1
    return Map(model, matrices, initial, places, pairs, plans) if plans else None


# ------------------------------------------------- norms and laws, by hand


def gauge(vectors: Sequence[Any], move: Any) -> float:
    """min Σ λ with Σ λ_i v_i = move and v_i among ± vectors: |move|_K; inf outside the span."""
    if not np.any(move):
        return 0.0
    body = [v for v in vectors if np.any(v)]
    if not body:
        return math.inf
    corners = np.array([*body, *(-np.array(v) for v in body)], dtype=float).T
    found = linprog(np.ones(corners.shape[1]), A_eq=corners, b_eq=np.array(move, dtype=float))
    return float(found.fun) if found.status == 0 else math.inf


def losses(plan: Any, stage: Any, edges: set[Pair]) -> Any:
    """sup over outputs of |log P(z|s)/P(z|s')| for all states, as they answer; by hand.

    K-norm and Laplace: ε times the norm of the shift, by a linear program. Staircase and graph:
    the stated law, output by output, which is checked to be a law of the kind it says.
    """
    points, epsilon = np.array(plan.body.query.points), float(plan.body.epsilon)
    own = points[stage.answering]
    size = len(points)
    moves = [own[a] - own[b] for a, b in edges]
    found = np.zeros((size, size))
    if plan.mechanism == "location-graph-exponential":
        return graph_losses(stage, own, edges)
    for a, b in itertools.combinations(range(size), 2):
        shift = own[a] - own[b]
        if plan.mechanism == "location-laplace":
            reach = max((int(np.abs(move).sum()) for move in moves), default=0)
            wide = float(np.abs(shift).sum())
            norm = 0.0 if wide == 0 else wide / reach if reach else math.inf
        else:
            norm = gauge(moves, shift)
        if plan.mechanism == "location-staircase" and norm < math.inf:
            norm = stair(stage, own[a], own[b], moves, norm)
        found[a, b] = found[b, a] = epsilon * norm
    check_law(plan, stage, own, moves)
    return found


def stair(stage: Any, first: Any, second: Any, moves: Sequence[Any], norm: float) -> float:
    """Steps between the two answers at the best output found; at most ⌈norm⌉."""
    tried = [first + k * (first - second) for k in range(4)]
    tried += [first + sign * move for move in moves for sign in (1, -1)]
    noise = stage.law.noise
    best = 0.0
    for z in tried:
        logs = noise.log_weights(np.array([z - first, z - second]))
        if np.isfinite(logs).all():
            best = max(best, abs(float(logs[0] - logs[1])) / float(noise.epsilon))
    assert best <= math.ceil(norm - 1e-9) + 1e-6
    return best


def check_law(plan: Any, stage: Any, own: Any, moves: Sequence[Any]) -> None:
    """The stated likelihood of two outputs is the K-norm, Laplace or staircase law."""
    epsilon = float(plan.body.epsilon)
    for z in (own[0], own[-1] + (moves[0] if moves else 0)):
        logs = stage.law.log_likelihood(tuple(int(v) for v in z))
        for state in range(len(own)):
            if plan.mechanism == "location-laplace":
                reach = max((int(np.abs(move).sum()) for move in moves), default=0)
                wide = float(np.abs(z - own[state]).sum())
                norm = 0.0 if wide == 0 else wide / reach if reach else math.inf
            else:
                norm = gauge(moves, z - own[state])
            if plan.mechanism == "location-staircase" and norm < math.inf:
                width = float(stage.law.noise.width)
                near = abs(norm + 1 - width - round(norm + 1 - width)) < 1e-7
                norm = (
                    round(-float(logs[state]) / epsilon) if near else math.floor(norm + 1 - width)
                )
            assert -float(logs[state]) == pytest.approx(epsilon * norm, rel=1e-6, abs=1e-9)


def graph_losses(stage: Any, own: Any, edges: set[Pair]) -> Any:
    """From the law of all outputs, which must add up to 1 and fall with the distance of `edges`."""
    size = len(own)
    apart = hops(size, edges)
    nodes = sorted(set(stage.answering.tolist()))
    outputs = sorted({tuple(own[node].tolist()) for node in nodes})
    logs = np.array([stage.law.log_likelihood(z) for z in outputs])
    assert np.logaddexp.reduce(logs, axis=0) == pytest.approx(np.zeros(size), abs=1e-8)
    for state, node in enumerate(stage.answering.tolist()):
        for place, z in enumerate(outputs):
            reached = any(apart[node][k] < math.inf for k in nodes if tuple(own[k].tolist()) == z)
            assert np.isfinite(logs[place, state]) == reached
    found = np.zeros((size, size))
    for a, b in itertools.combinations(range(size), 2):
        found[a, b] = found[b, a] = max((gap(row[a], row[b]) for row in logs), default=0.0)
    return found


def hops(size: int, edges: set[Pair]) -> list[list[float]]:
    """Edges between any two states, by relaxing."""
    found = [[0.0 if a == b else math.inf for b in range(size)] for a in range(size)]
    for _ in range(size):
        for a, b in edges:
            for k in range(size):
                found[k][b] = min(found[k][b], found[k][a] + 1)
                found[k][a] = min(found[k][a], found[k][b] + 1)
    return found


def gap(first: float, second: float) -> float:
    return 0.0 if first == second else abs(first - second)


# ------------------------------------------------------------- the attack


class Seen(NamedTuple):
    """The true loss of one step: the largest over pairs that are promised, and over any pairs."""

    joined: float
    anything: float


def audit_step(case: Map, asked: Sequence[Any], stream: Any, release: Any) -> Seen:
    """One step's promise against losses computed by hand."""
    machine = asked[0].body
    stages = machine.noises(stream.state, [plan.body for plan in asked])
    members = np.flatnonzero(stages[0].members).tolist()
    names = {name: place for place, name in enumerate(case.model.states)}
    added = {(names[a], names[b]) for a, b in release.added}
    inside = {pair for pair in case.pairs if set(pair) <= set(members)}
    whole = isinstance(case.places, shoal.LocationSet) and (
        case.places.everywhere or case.places.policy.is_complete
    )
    promised = sum(float(plan.body.epsilon) for plan in asked)
    assert float(release.guarantee.amount) == pytest.approx(promised)
    true = np.zeros((len(names), len(names)))
    for plan, stage in zip(asked, stages, strict=True):
        images = whole and plan.body.noise != "graph-exponential"
        true = true + losses(plan, stage, {*(case.pairs if images else inside), *added})
    covered = case.pairs if whole else inside
    for a, b in covered:
        assert true[a, b] <= promised * NEAR, (a, b, members)
    for state in members:
        others = [true[state, other] for other in members if other != state]
        assert min(others) <= promised * NEAR, (state, members, added)
    assert release.loss_path * NEAR >= stream.state.loss_path + true.max()
    assert release.degree >= 2 or names[release.likely[0][0]] not in members
    if math.inf in true:
        assert any("line" in warning for warning in release.warnings)
    joined = max((true[a, b] for a, b in covered), default=0.0)
    return Seen(joined, float(true.max()))


def told_about(case: Map, first: Any, begin: int, rows: Sequence[Any], at: int) -> Any:
    """log P(outputs | X_at = x) of every x that is possible there, nan elsewhere: all paths."""
    size = len(first)
    joint: list[list[float]] = [[] for _ in range(size)]
    own: list[list[float]] = [[] for _ in range(size)]

    def walk(path: list[int], chance: float, seen: float) -> None:
        t = len(path)
        if t == len(rows):
            own[path[at]].append(chance)
            joint[path[at]].append(chance + seen)
            return
        for x in range(size):
            move = first[x] if not t else case.matrices[begin + t - 1][path[-1], x]
            if move > 0:
                walk([*path, x], chance + math.log(move), seen + float(rows[t][x]))

    walk([], 0.0, 0.0)
    total = [log_sum(terms) for terms in own]
    both = [log_sum(terms) for terms in joint]
    return [both[x] - total[x] if own[x] else math.nan for x in range(size)]


def log_sum(terms: Sequence[float]) -> float:
    highest = max(terms, default=-math.inf)
    if highest == -math.inf:
        return highest
    return highest + math.log(math.fsum(math.exp(term - highest) for term in terms))


def widest(told: Sequence[float], pairs: Any = None) -> float:
    known = [x for x in range(len(told)) if not math.isnan(told[x])]
    chosen = itertools.combinations(known, 2) if pairs is None else pairs
    gaps = [gap(told[a], told[b]) for a, b in chosen if a in known and b in known]
    return max(gaps, default=0.0)


def output(dice: random.Random, plan: Any, stage: Any) -> tuple[int, ...]:
    """An output somebody might see: a member's answer, perhaps some shifts beyond it."""
    points = np.array(plan.body.query.points)
    inside = np.flatnonzero(stage.members)
    z = points[dice.choice(inside.tolist())].copy()
    if plan.body.noise != "graph-exponential" and dice.random() < 0.7:
        body = stage.protected.body.vertices
        if len(body):
            z = z + dice.choice([1, 3, 8]) * body[dice.randrange(len(body))]
    return tuple(int(value) for value in z)


def attack_outputs(dice: random.Random, case: Map) -> None:
    """Chosen outputs, without drawing: what all of them tell about each position."""
    plan = case.plans[0]
    machine = plan.body
    size = len(case.initial)
    start = dice.choice([None, None, dice.randrange(size)])
    name = None if start is None else case.model.states[start]
    begin = 0 if start is None else 1
    first = case.initial if start is None else case.matrices[0][start]
    state = machine.init(name)
    outputs: list[Any] = []
    rows: list[Any] = []
    steady = dice.random() < 0.5  # the same output again and again
    seed = dice.random()
    for t in range(dice.randint(1, 3 if size > 5 else 4)):
        stage = machine.prior(state).noise
        check_constraint(case, stage, believed(case, first, begin, rows, t))
        asked = case.plans if dice.random() < 0.4 else [plan]
        if dice.random() < 0.2 or stage.count < 2:
            outputs.append(None)
            rows.append(np.zeros(size))
            state, release = machine.absorb(state, ())
            continue
        stages = machine.noises(state, [other.body for other in asked])
        own = random.Random(seed) if steady else dice
        zs = [output(own, *both) for both in zip(asked, stages, strict=True)]
        logs = sum(s.law.log_likelihood(z) for s, z in zip(stages, zs, strict=True))
        if not np.isfinite(logs[stage.members]).any():
            break  # no state gives these outputs together
        given = [(other.body, z) for other, z in zip(asked, zs, strict=True)]
        outputs.append(zs[0] if len(asked) == 1 else ...)
        rows.append(logs)
        state, release = machine.absorb(state, given)
    if not rows:
        return
    told = told_about(case, first, begin, rows, len(rows) - 1)
    if any(value > -math.inf for value in told):
        assert release.loss_here * NEAR + 1e-9 >= widest(told)
    for at in range(len(rows)):
        told = told_about(case, first, begin, rows, at)
        if any(value > -math.inf for value in told):
            assert release.loss_path * NEAR + 1e-9 >= widest(told)
    if ... not in outputs:
        attack_leakage(case, plan, outputs, name, (first, begin, rows))


def believed(case: Map, first: Any, begin: int, rows: Sequence[Any], t: int) -> list[float]:
    """log P(X_t = x, outputs before t), step by step; -inf where that is impossible."""
    logs = [math.log(value) if value > 0 else -math.inf for value in first]
    for step in range(t):
        moves = case.matrices[begin + step]
        after = [log + float(row) for log, row in zip(logs, rows[step], strict=True)]
        logs = [
            log_sum(
                [after[x] + math.log(moves[x, y]) for x in range(len(after)) if moves[x, y] > 0]
            )
            for y in range(len(after))
        ]
    return logs


def check_constraint(case: Map, stage: Any, prior: Sequence[float]) -> None:
    """Protected are all states that are possible, of a location set enough of them."""
    members = stage.members.tolist()
    possible = [log > -math.inf for log in prior]
    if not isinstance(case.places, shoal.LocationSet):
        assert members == possible
        return
    assert all(one for one, inside in zip(possible, members, strict=True) if inside)
    held = log_sum([log for log, inside in zip(prior, members, strict=True) if inside])
    assert math.exp(held - log_sum(prior)) >= 1 - float(case.places.delta) - 1e-4


def attack_leakage(case: Map, plan: Any, outputs: Any, name: Any, known: Any) -> None:
    """`sequence_leakage` against all paths."""
    found = shoal.places.sequence_leakage(plan, outputs, start=name)
    first, begin, rows = known
    state = plan.body.init(name)
    for at, z in enumerate(outputs):
        told = told_about(case, first, begin, rows, at)
        members = set(np.flatnonzero(plan.body.prior(state).noise.members).tolist())
        pairs = [pair for pair in case.pairs if set(pair) <= members]
        state, _ = plan.body.absorb(state, () if z is None else ((plan.body, z),))
        if all(math.isnan(value) or value == -math.inf for value in told):
            continue
        assert found.any_two[at] * NEAR + 1e-9 >= widest(told)
        assert found.joined[at] * NEAR + 1e-9 >= widest(told, pairs)
        learned = widest(told)
        assert found.learned_any_two[at] == pytest.approx(learned, rel=1e-8, abs=1e-8)


def attack_stream(dice: random.Random, case: Map, where: Path) -> None:
    """A stream with a ledger: readings missing, repeated, late and impossible."""
    plan, states = case.plans[0], case.model.states
    start = dice.choice([None, dice.choice(states)])
    joined = anything = 0.0
    charges = 0
    with shoal.open_ledger(where) as ledger:
        stream = earlier = shoal.LocationStream.begin(plan, start)
        for step in range(3):
            asked = case.plans if dice.random() < 0.5 else case.plans[:1]
            if dice.random() < 0.2:
                stream, _ = stream.read(None)
                continue
            late = dice.random() < 0.2
            account: Any = {"ledger": ledger, "subject": "ann", "key": f"{step}"}
            before = earlier if late else stream  # late: once more from where it stood
            after, release = before.ask(dice.choice(states), asked[1:], **account)
            again, same = before.ask(dice.choice(states), asked[1:], **account)
            assert (again.state, same.z) == (after.state, release.z)  # the key was used
            earlier, stream = stream, after
            if release.z is None:
                continue
            seen = audit_step(case, asked, before, release)
            joined, anything = joined + seen.joined, anything + seen.anything
            charges += len(asked)
        total = ledger.spent("ann")
        assert ledger.verify().intact
    if not charges:
        assert total is None
        return
    assert total is not None
    assert total.charges == charges
    assert float(total.amount) * NEAR >= joined
    said = re.search(r"any position, differ by at most ([\d.,e+-]+)", total.explanation)
    if said:
        assert float(said[1].rstrip(".,").replace(",", "")) * NEAR >= anything


def attack_live(dice: random.Random, case: Map) -> None:
    """Steps of one question without a ledger, which compiled code takes where it can."""
    plan, rng = dice.choice(case.plans), SeededRng(dice.randrange(10**6))
    states = case.model.states
    stream = shoal.LocationStream.begin(plan, dice.choice([None, dice.choice(states)]))
    for _ in range(3):
        after, release = stream.read(dice.choice(states), rng=rng)
        if release.z is not None:
            audit_step(case, [plan], stream, release)
        stream = after


def attack_forged(dice: random.Random, case: Map) -> None:
    """A plan with something changed in its document does not pass."""
    plan = dice.choice(case.plans)
    machine, guarantee, rule = plan.body, plan.guarantee, plan.composition[0]
    assert shoal.verify_promise(plan) <= float(guarantee.amount) * NEAR
    more = machine.epsilon * dice.choice([2, Fraction(101, 100)])
    other = dice.choice([row for row in ROWS if row != plan.mechanism])
    forged = dice.choice(
        [
            replace(plan, body=replace(machine, epsilon=more)),
            replace(plan, mechanism=other),
            replace(plan, guarantee=replace(guarantee, amount=guarantee.amount / 2)),
            replace(plan, composition=(replace(rule, epsilon=rule.epsilon / 2),)),
            replace(plan, composition=(replace(rule, eta=Fraction(1, 10**9)),)),
            replace(
                plan,
                body=replace(
                    machine,
                    query=replace(
                        machine.query,
                        points=machine.query.points
                        + np.arange(machine.query.points.size).reshape(machine.query.points.shape),
                    ),
                ),
            ),
        ]
    )
    found = shoal.verify_promise(shoal.loads(shoal.dumps(forged)))
    assert found > float(forged.guarantee.amount) * NEAR


def attack(seed: int, seen: Counter[str], where: Path) -> None:
    dice = random.Random(seed)
    case = random_map(dice, seen)
    if case is None:
        return
    seen.update(plan.mechanism for plan in case.plans)
    for _ in range(2):
        attack_outputs(dice, case)
    attack_stream(dice, case, where / f"{seed}.db")
    attack_live(dice, case)
    attack_forged(dice, case)


# 608477192: two stand-ins for one state; 50165: laws whose rare states floats near 1 do not know
@pytest.mark.parametrize("seed", [*range(6), 608477192, 50165])
def test_random_maps_keep_their_promises(seed: int, tmp_path: Path) -> None:
    attack(seed, Counter(), tmp_path)


@pytest.mark.slow
def test_random_maps_keep_their_promises_for_long(tmp_path: Path, record_property: Any) -> None:
    first = time.time_ns() % 10**9  # other maps in every run
    attack_for_long(partial(attack, where=tmp_path), record_property, first)
