"""An oracle for shared rides in fractions: it enumerates walks and shares no code with Shoal.

A town is a table of one-way roads with weights as fractions. Sums over all walks come from Gaussian
elimination, laws of outputs from enumeration with the mechanism as a black box. Walks longer than
the enumeration are bounded exactly by what the elimination leaves over.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

Path = tuple[int, ...]
Arcs = dict[tuple[int, int], Fraction]


@dataclass(frozen=True)
class ExactTown:
    """A town of `size` crossings; `zone` are the candidates, `goals` where rides lead."""

    size: int
    arcs: Arcs
    zone: Path
    goals: Path

    def reversed(self) -> ExactTown:
        """Return the town in which every road is ridden the other way."""
        back = {(b, a): weight for (a, b), weight in self.arcs.items()}
        return ExactTown(self.size, back, self.zone, self.goals)

    def stopping(self, goal: int) -> ExactTown:
        """Return the town without roads out of the goal: walks stop there."""
        kept = {pair: weight for pair, weight in self.arcs.items() if pair[0] != goal}
        return ExactTown(self.size, kept, self.zone, self.goals)

    def sums_to(self, goal: int) -> list[Fraction]:
        """Return the sum over all walks from each crossing to the goal (I - W)^-1 e."""
        rows = [
            [Fraction(int(i == j)) - self.arcs.get((i, j), Fraction(0)) for j in range(self.size)]
            + [Fraction(int(i == goal))]
            for i in range(self.size)
        ]
        return solved(rows)

    def walks(self, start: int, goal: int, longest: int) -> dict[Path, Fraction]:
        """Return walks from start that stop at the goal, up to a number of roads, with weights."""
        after = defaultdict(list)
        for (a, b), weight in self.arcs.items():
            after[a].append((b, weight))
        found: dict[Path, Fraction] = {}
        begun: list[tuple[Path, Fraction]] = [((start,), Fraction(1))]
        for _ in range(longest):
            longer: list[tuple[Path, Fraction]] = []
            for path, weight in begun:
                for crossing, more in after[path[-1]]:
                    walk = (*path, crossing), weight * more
                    if crossing == goal:
                        found[walk[0]] = walk[1]
                    else:
                        longer.append(walk)
            begun = longer
        return found


def solved(rows: list[list[Fraction]]) -> list[Fraction]:
    """Return the solution of a linear system with its right side as the last column."""
    size = len(rows)
    for k in range(size):
        pivot = next(r for r in range(k, size) if rows[r][k])
        rows[k], rows[pivot] = rows[pivot], rows[k]
        rows[k] = [value / rows[k][k] for value in rows[k]]
        for r in range(size):
            if r != k and rows[r][k]:
                factor = rows[r][k]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[k], strict=True)]
    return [row[-1] for row in rows]


@dataclass(frozen=True)
class LegLaw:
    """The law of one leg given each candidate: enumerated walks, and the mass left over."""

    walks: dict[int, dict[Path, Fraction]]
    rest: dict[int, Fraction]


def leg_law(town: ExactTown, goal: int, longest: int, *, homeward: bool) -> LegLaw:
    """Return the law of a leg, in the direction away from the zone.

    A leg out stops at its first arrival at the goal. A leg home leaves the goal for the last time
    and stops at its first arrival at home.
    """
    walks: dict[int, dict[Path, Fraction]] = {}
    rest = {}
    for home in town.zone:
        if homeward:
            once = {pair: w for pair, w in town.arcs.items() if pair[1] != goal}
            stopping = ExactTown(town.size, once, town.zone, town.goals).stopping(home)
            found = {p[::-1]: w for p, w in stopping.walks(goal, home, longest).items()}
            whole = stopping.sums_to(home)[goal]
        else:
            stopping = town.stopping(goal)
            found = stopping.walks(home, goal, longest)
            whole = stopping.sums_to(goal)[home]
        walks[home] = {path: weight / whole for path, weight in found.items()}
        rest[home] = 1 - sum(walks[home].values(), Fraction(0))
    return LegLaw(walks, rest)


Law = dict[tuple[Path, ...], Fraction]  # outputs of some legs -> probability


def broken(
    laws: dict[int, Law], rest: dict[int, Fraction], bound: Callable[[tuple[Path, ...]], Any]
) -> float:
    """Return by what factor the worst output passes its bound; at most 1 where all hold.

    `bound(output)[i][j]` bounds P(output | i-th candidate) / P(output | j-th). Laws are lower
    bounds that miss `rest` at most, so an output counts by what is surely too much.
    """
    worst = 0.0
    homes = list(laws)
    for i, first in enumerate(homes):
        for output, chance in laws[first].items():
            most = bound(output)
            for j, second in enumerate(homes):
                if i != j:
                    allowed = laws[second].get(output, Fraction(0)) + rest[second]
                    ratio = float(chance) / (float(most[i][j]) * float(allowed) or 1e-300)
                    worst = max(worst, ratio)
    return worst


def random_town(seed: int, *, one_way: bool, two_way_weights: bool) -> ExactTown:
    """Return a tiny town: candidates, two gates, two crossings further on, two goals.

    With `two_way_weights` a road weighs the same both ways. With `one_way` some roads may be
    ridden one way only; every crossing still reaches every other one.
    """
    draw = random.Random(seed)
    candidates = draw.choice([2, 3])
    gates, far = (candidates, candidates + 1), (candidates + 2, candidates + 3)
    goals = (candidates + 4, candidates + 5)
    pairs = [(home, gate) for home in range(candidates) for gate in gates]
    pairs += [(gate, crossing) for gate in gates for crossing in far]
    pairs += [(crossing, goal) for crossing in far for goal in goals]
    pairs += [pair for pair in [gates, far, goals, (0, 1)] if draw.random() < 0.3]
    arcs: Arcs = {}
    for a, b in pairs:
        there, back = (Fraction(1, draw.choice([4, 6, 8, 16, 30])) for _ in range(2))
        if draw.random() < 0.12:
            continue
        arcs[a, b], arcs[b, a] = there, there if two_way_weights else back
        if one_way and draw.random() < 0.2:
            del arcs[draw.choice([(a, b), (b, a)])]
    town = ExactTown(candidates + 6, arcs, tuple(range(candidates)), goals)
    connected = all(reached(arcs, start) == set(range(town.size)) for start in range(town.size))
    if connected:
        return town
    return random_town(seed + 1_000_003, one_way=one_way, two_way_weights=two_way_weights)


def reached(arcs: Arcs, start: int) -> set[int]:
    """Return the crossings that walks from start reach, with itself."""
    found, after = {start}, [start]
    while after:
        here = after.pop()
        new = {b for a, b in arcs if a == here} - found
        found |= new
        after += new
    return found
