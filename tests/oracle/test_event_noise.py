"""Noise and lifts for events against every path of small chains; shares no code with them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.chains.events.answers import event_laws, events_lift
from shoal.core.errors import InputError
from tests.event_oracle import happens, paths, random_chain, random_event

Case = tuple[shoal.MarkovChain, Any, Any]  # a chain, E, and E' or None


def random_cases(seed: int, count: int, *, most: int = 5) -> Iterator[Case]:
    """Chains with zeros and near-deterministic rows, and events that may happen or not."""
    rng = np.random.default_rng(seed)
    while count:
        size = int(rng.integers(2, 4))
        slots = int(rng.integers(2, most if size == 2 else most - 1))
        initial, transitions = random_chain(rng, size, slots)
        event = random_event(rng, size, slots)
        other = random_event(rng, size, slots) if rng.random() < 0.3 else None
        chain = shoal.MarkovChain.of(transitions, initial=initial, length=slots)
        try:
            shoal.Events.of(event if other is None else (event, other)).check((chain,))
        except InputError:
            continue
        yield chain, event, other
        count -= 1


def path_laws(case: Case) -> tuple[list[tuple[int, ...]], np.ndarray, np.ndarray]:
    """Every path, with its probability given E and given E'."""
    chain, event, other = case
    assert chain.length is not None
    steps = [chain.matrix(t) for t in range(chain.length - 1)]
    listed = list(paths(chain.initial, steps))
    names = [[chain.states[x] for x in path] for path, _ in listed]
    chances = np.array([chance for _, chance in listed])
    held = np.array([happens(event, name) for name in names])
    against = ~held if other is None else np.array([happens(other, name) for name in names])
    above, below = chances * held, chances * against
    return [path for path, _ in listed], above / above.sum(), below / below.sum()


def log_density(law: np.ndarray, sums: np.ndarray, scale: float, outputs: np.ndarray) -> np.ndarray:
    with np.errstate(divide="ignore"):
        terms = np.log(law) - np.abs(outputs[:, None] - sums) / scale
        return np.asarray(np.logaddexp.reduce(terms, axis=1))


def true_loss(case: Case, weights: np.ndarray, scale: float) -> float:
    listed, above, below = path_laws(case)
    sums = np.array([weights[list(path)].sum() for path in listed], dtype=float)
    outputs = np.unique(np.concatenate([sums, np.linspace(sums.min() - 9, sums.max() + 9, 41)]))
    gap = log_density(above, sums, scale, outputs) - log_density(below, sums, scale, outputs)
    return float(np.abs(gap).max())


def secrets_of(case: Case) -> shoal.Events:
    _, event, other = case
    return shoal.Events.of(event if other is None else (event, other))


def check_loss(case: Case, rng: np.random.Generator) -> None:
    chain = case[0]
    weights = rng.choice([-1, 0, 1, 2, 5], size=chain.size)
    if len(set(weights.tolist())) == 1:
        weights[0] += 1
    query = shoal.weighted_sum(chain.states, dict(zip(chain.states, weights.tolist(), strict=True)))
    found = event_laws(chain, query, secrets_of(case))
    lattice = float(query.lattice)
    scale = float(rng.choice([0.3, 1.0, 4.0]))
    truth = true_loss(case, weights, scale)
    loss = found.loss(scale / lattice)
    assert truth - 1e-12 <= loss <= truth + 1e-9 * (1 + truth)
    least = found.least_scale(0.5).scale * lattice
    assert true_loss(case, weights, least) <= 0.5 + 1e-9
    if least > lattice / 32:
        assert true_loss(case, weights, least * 0.999) > 0.5 - 1e-9


def largest_of_all_mechanisms(case: Case, eta: float) -> float:
    """The linear program over the densities of all eta-DP mechanisms at one output."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    chain, slots = case[0], case[0].length
    assert slots is not None
    everything = list(itertools.product(range(chain.size), repeat=slots))
    place = {path: i for i, path in enumerate(everything)}
    rows: list[tuple[int, int]] = []
    for path in everything:
        for t, x in itertools.product(range(slots), range(chain.size)):
            if x != path[t]:
                rows.append((place[path], place[(*path[:t], x, *path[t + 1 :])]))
    listed, above, below = path_laws(case)
    p, q = np.zeros((2, len(everything)))
    p[[place[path] for path in listed]] = above
    q[[place[path] for path in listed]] = below
    count = np.arange(len(rows))
    one, two = np.array(rows).T
    bounds = coo_matrix(
        (
            np.concatenate([np.ones(len(rows)), np.full(len(rows), -math.exp(eta))]),
            (np.concatenate([count, count]), np.concatenate([one, two])),
        )
    )
    best = 0.0
    for top, bottom in ((p, q), (q, p)):
        done = linprog(-top, A_ub=bounds, b_ub=np.zeros(len(rows)), A_eq=bottom[None], b_eq=[1.0])
        assert done.status == 0
        best = max(best, math.log(-done.fun))
    return best


def check_lift(case: Case, eta: float) -> float:
    chain = case[0]
    found = events_lift(chain, secrets_of(case)).loss(eta)
    truth = largest_of_all_mechanisms(case, eta)
    assert found >= truth - 2e-7  # what the program itself is off by
    assert chain.length is not None
    assert found <= chain.length * eta * (1 + 1e-12)
    return found / truth if truth > 1e-6 else 1.0


def test_losses_and_scales_are_those_of_all_paths() -> None:
    rng = np.random.default_rng(0)
    for case in random_cases(1, 100):
        check_loss(case, rng)


@pytest.mark.slow
def test_losses_and_scales_are_those_of_all_paths_at_length() -> None:
    rng = np.random.default_rng(2)
    for case in random_cases(3, 2000, most=7):
        check_loss(case, rng)


def test_lifts_are_never_below_the_program_over_all_mechanisms() -> None:
    rng = np.random.default_rng(4)
    shares = [
        check_lift(case, float(rng.choice([0.1, 0.5, 1.5])))
        for case in random_cases(5, 100, most=4)
    ]
    assert np.mean(shares) < 1.05  # EVENTS: 1.006 on average, 1.19 at most
    assert max(shares) < 1.5


@pytest.mark.slow
def test_lifts_are_never_below_the_program_over_all_mechanisms_at_length() -> None:
    rng = np.random.default_rng(6)
    shares = [
        check_lift(case, float(rng.choice([0.1, 0.5, 1.5]))) for case in random_cases(7, 2000)
    ]
    assert np.mean(shares) < 1.02


def rational_chain(rng: np.random.Generator, size: int, slots: int) -> tuple[Any, Any]:
    """Laws of doubles, some as small as 1e-300, whose rows add up to 1 as closely as they can."""

    def law() -> list[float]:
        row = rng.choice([1e-300, 1e-160, 1e-9, 0.0, 0.3, 1.0], size=size)
        row[rng.integers(size)] = 1.0
        return [float(chance) for chance in row / row.sum()]

    return law(), [[law() for _ in range(size)] for _ in range(slots - 1)]


@pytest.mark.parametrize("seed", range(60))
def test_what_is_nearly_impossible_keeps_its_say(seed: int) -> None:
    """Priors far below what a double holds: conditional laws against exact rationals."""
    rng = np.random.default_rng(seed)
    size, slots = 2, 4
    initial, transitions = rational_chain(rng, size, slots)
    event = random_event(rng, size, slots)
    chain = shoal.MarkovChain.of(transitions, initial=initial, length=slots)
    secrets = shoal.Events.of(event)
    try:
        secrets.check((chain,))
    except InputError:
        return
    masses: list[dict[int, Fraction]] = [{}, {}]
    for path in itertools.product(range(size), repeat=slots):
        chance = Fraction(chain.initial[path[0]])
        for t in range(slots - 1):
            chance *= Fraction(chain.transition[t, path[t], path[t + 1]])
        side = masses[0 if happens(event, [str(x) for x in path]) else 1]
        side[sum(path)] = side.get(sum(path), Fraction(0)) + chance
    found = event_laws(chain, shoal.count(chain.states, "1"), secrets).sums[0].laws
    for rows, side in ((found.above, masses[0]), (found.below, masses[1])):
        total = sum(side.values())
        for value, mass in zip(found.values[:, 0].tolist(), rows[0].tolist(), strict=True):
            truth = side.get(value, Fraction(0)) / total
            if truth > Fraction(1, 10**290):
                assert mass == pytest.approx(float(truth), rel=1e-9)
            else:
                assert mass <= 1e-289
    eta = 0.4
    lifted = events_lift(chain, secrets).loss(eta)
    assert lifted >= event_laws(chain, shoal.count(chain.states, "1"), secrets).loss(1 / eta) - 1e-9


def test_a_chain_of_higher_order_and_any_first_law() -> None:
    rng = np.random.default_rng(8)
    for _ in range(15):
        conditional = rng.dirichlet(np.ones(2), size=4)
        order = shoal.chains.OrderChain(
            states=("0", "1"),
            order=2,
            conditional=conditional,
            initial=rng.dirichlet(np.ones(4)),
            length=5,
        )
        event = random_event(rng, 2, 5)
        listed, above, below = [], [], []
        for path in itertools.product(range(2), repeat=5):
            chance = order.initial[2 * path[0] + path[1]]
            for t in range(2, 5):
                chance *= conditional[2 * path[t - 2] + path[t - 1], path[t]]
            held = happens(event, [str(x) for x in path])
            listed.append(sum(path))
            above.append(chance * held)
            below.append(chance * (not held))
        if not (sum(above) and sum(below)):
            continue
        secrets = shoal.Events.of(event)
        found = event_laws(order, shoal.count(("0", "1"), "1"), secrets)
        sums = np.array(listed, dtype=float)
        outputs = np.arange(-3.0, 9.0)
        laws = [np.array(side) / sum(side) for side in (above, below)]
        gap = np.subtract(*(log_density(law, sums, 2.0, outputs) for law in laws))
        assert found.loss(2.0) == pytest.approx(float(np.abs(gap).max()), abs=1e-9)
        assert events_lift(order, secrets).loss(0.5) >= found.loss(2.0) - 1e-9


def test_every_first_law_is_covered_by_the_family_of_them() -> None:
    rng = np.random.default_rng(9)
    for _ in range(20):
        transition = rng.dirichlet(np.ones(2), size=2)
        family = shoal.AnyInitialLaw.of(transition, length=4)
        event = random_event(rng, 2, 4)
        secrets, query = shoal.Events.of(event), shoal.count(("0", "1"), "1")
        try:
            wide, lifted = event_laws(family, query, secrets), events_lift(family, secrets)
        except InputError:
            continue
        for share in (0.01, 0.3, 0.9):
            member = shoal.MarkovChain.of(transition, initial=[share, 1 - share], length=4)
            try:
                secrets.check((member,))
            except InputError:
                continue
            assert wide.loss(1.5) >= event_laws(member, query, secrets).loss(1.5) - 1e-9
            assert lifted.loss(0.5) >= events_lift(member, secrets).loss(0.5) * (1 - 1e-9) - 0.0
