"""How near the online check comes to the most any causal mechanism can show.

The oracle is one linear program over the tree of all outputs whose variables belong to private
*paths*, not to states of an automaton: Theorem 2 of mask_online.md is not assumed.
"""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linprog
from scipy.sparse import coo_array

import shoal
from shoal.contexts.online import mean_releases
from shoal.events.automaton import law_of
from shoal.events.cuts import future_of, improved
from shoal.events.event import TimeEvent
from shoal.events.filter import maximise, program_of
from tests.event_oracle import happens, paths, random_chain, random_event

Path = tuple[int, ...]
Sum = dict[int, float]  # variable to its weight; CONSTANT for what is no variable
CONSTANT = -1


class Tree:
    """max expected releases with P(E | outputs) ≤ most after every history of outputs."""

    def __init__(self, day: shoal.DayChain, event: TimeEvent, most: float) -> None:
        self.mass: dict[Path, float] = defaultdict(float)
        self.excess: dict[Path, float] = defaultdict(float)
        for path, chance in paths(day.initial, day.transition):
            over = chance * (happens(event, [day.states[x] for x in path]) - most)
            for end in range(len(path) + 1):
                self.mass[path[:end]] += chance
                self.excess[path[:end]] += over
        self.size, self.slots = day.size, day.slots
        self.gains: list[float] = []
        self.rows: list[tuple[Sum, float]] = []
        self.grow({(): {CONSTANT: 1.0}})

    def grow(self, alive: dict[Path, Sum]) -> None:
        """A history, with P(history | path so far) for each path so far."""
        if len(next(iter(alive))) == self.slots:
            return
        shown: dict[Path, Sum] = {}
        hidden: dict[Path, Sum] = {}
        for path, chance in alive.items():
            for x in range(self.size):
                after = (*path, x)
                if self.mass.get(after, 0.0) > 0:
                    shown[after] = {len(self.gains): 1.0}
                    hidden[after] = {**chance, len(self.gains): -1.0}
                    self.gains.append(self.mass[after])
                    self.limit({after: hidden[after]}, {after: -1.0})
        self.limit(hidden, self.excess)
        self.grow(hidden)
        for x in range(self.size):
            own = {path: chance for path, chance in shown.items() if path[-1] == x}
            if own:
                self.limit(own, self.excess)
                self.grow(own)

    def limit(self, chances: dict[Path, Sum], weights: dict[Path, float]) -> None:
        """Σ weight · P(history | path) ≤ 0."""
        total: Sum = defaultdict(float)
        for path, chance in chances.items():
            for variable, share in chance.items():
                total[variable] += weights[path] * share
        self.rows.append((total, -total.pop(CONSTANT, 0.0)))

    def value(self) -> float:
        entries = [(i, j, v) for i, (row, _) in enumerate(self.rows) for j, v in row.items()]
        i, j, v = (np.array(part) for part in zip(*entries, strict=True))
        shape = (len(self.rows), len(self.gains))
        matrix = coo_array((v, (i, j)), shape=shape).tocsr()
        limits = [limit for _, limit in self.rows]
        done = linprog(-np.array(self.gains), A_ub=matrix, b_ub=limits, bounds=(0, 1))
        assert done.status == 0
        return float(-done.fun)


def instance(seed: int) -> tuple[shoal.DayChain, TimeEvent, Fraction]:
    """A random day and event that can happen and fail to, and a rise that leaves a bound."""
    rng = np.random.default_rng([seed, 77])
    while True:
        size = int(rng.integers(2, 4))
        initial, transitions = random_chain(rng, size, int(rng.integers(3, 7 - size)))
        day = shoal.DayChain.of(transitions, initial=initial)
        event = random_event(rng, size, day.slots)
        delta = Fraction(str(rng.choice([0.05, 0.1, 0.2])))
        if 1e-3 < event.prior(day) < 0.95 - float(delta):
            return day, event, delta


def shares(seed: int) -> tuple[float, float, float]:
    """Greedy, looking ahead, and the proved bound, each over the optimum."""
    day, event, delta = instance(seed)
    best = Tree(day, event, event.prior(day) + float(delta)).value()
    program = program_of([law_of(day)], shoal.Events.of(event).as_rise(), delta)
    cuts, most = improved(program, 16)
    greedy, ahead = mean_releases(program), mean_releases(future_of(program, cuts))
    assert max(greedy, ahead) <= best * (1 + 1e-6) + 1e-9
    assert most >= best * (1 - 1e-6) - 1e-9
    return greedy / best, ahead / best, most / best


def test_greedy_and_looking_ahead_come_near_the_optimum() -> None:
    found = np.array([shares(seed) for seed in range(20)])
    greedy, ahead, most = found.mean(axis=0)
    assert greedy >= 0.97
    assert ahead >= 0.999
    assert most <= 1.01


@pytest.mark.slow
def test_greedy_and_looking_ahead_come_near_the_optimum_of_many() -> None:
    found = np.array([shares(seed) for seed in range(100, 220)])
    greedy, ahead, most = found.mean(axis=0)
    assert greedy >= 0.98
    assert ahead >= 0.999
    assert most <= 1.005


@pytest.mark.parametrize("seed", range(150))
def test_the_simplex_agrees_with_another_solver(seed: int) -> None:
    rng = np.random.default_rng(seed)
    size, count = int(rng.integers(1, 16)), int(rng.integers(1, 20))
    rows = rng.normal(size=(count, size)) * (rng.random((count, size)) < 0.6)
    limits = np.where(rng.random(count) < 0.5, 0.0, rng.random(count))
    gain, most = rng.normal(size=size) + 0.3, rng.random(size)
    found = maximise(gain, rows, limits, most)
    other = linprog(-gain, A_ub=rows, b_ub=limits, bounds=list(zip(0 * most, most, strict=True)))
    assert found.optimal
    assert found.value == pytest.approx(-other.fun, abs=1e-9)
    assert (rows @ found.point <= limits + 1e-9).all()
    assert ((found.point >= 0) & (found.point <= most + 1e-12)).all()
    prices = found.multipliers
    assert (prices >= 0).all()
    dual = prices @ limits + np.maximum(gain - prices @ rows, 0) @ most
    assert dual == pytest.approx(found.value, abs=1e-9)
