"""How much of the way stays exact: `python -m studies.share_frontier` prints the table.

Towns with seeds from 11 on were not used for any choice. Riders follow the model exactly, with the
tastes of its first member.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import time
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.share.history import History, Leg, ShareRule
from shoal.share.quarters import quarter_at
from studies.share_towns import Rider, Town, make_town, path_metres

TOWNS = range(11, 19)
GOALS = 30  # declared goals of a rider
NEAREST, FARTHEST = 3000.0, 7500.0  # metres from home to a goal
TASTE_SPREAD = 0.2


class Outcome(NamedTuple):
    """One history: share of the way shown, median metres withheld a leg, odds spent, seconds."""

    seed: int
    candidates: int
    exact: float
    withheld: float
    spent: float
    plan_seconds: float
    cut_seconds: float


def tastes(town: Town, members: int) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Return costs of the town's roads for each member; the first one is the town's own."""
    found = [town.costs]
    for member in range(1, members):
        draw = np.random.default_rng(member)
        found.append(town.costs * draw.uniform(1 - TASTE_SPREAD, 1 + TASTE_SPREAD, len(town.costs)))
    return np.array(found)


def history_of(
    seed: int, rides: int, epsilon: Fraction, side: float | None, members: int = 1
) -> tuple[Town, History, list[tuple[Leg, float]], Outcome]:
    """Return a history of rides in one town, its legs with their metres, and what came out.

    The zone is a square of `side` metres, or the public quarter of home where it is None.
    """
    town, random = make_town(seed), np.random.default_rng(1000 + seed)
    near = town.near(random.uniform(-3000, 3000), random.uniform(-6000, 0), 400)
    home = int(random.choice(near))
    roads = town.roads(costs=tastes(town, members))
    if side is None:
        place = quarter_at(roads, *map(float, roads.points[home]))
    else:
        place = town.square_zone(home, side)
    started = time.perf_counter()
    rule = ShareRule(roads=roads, places=(place,), epsilon=epsilon, legs=2 * rides)
    rule.tables(0)
    planned = time.perf_counter()
    far = np.hypot(*(town.xy - town.xy[home]).T)
    goals = random.choice(np.flatnonzero((far > NEAREST) & (far < FARTHEST)), GOALS, replace=False)
    rider, history, legs = Rider(roads, 0, random), History(rule), []
    cutting = 0.0
    for _ in range(rides):
        goal = int(random.choice(goals))
        for homeward in (False, True):
            path = rider.leg(home, goal)
            leg = Leg(path[::-1] if homeward else path, goal, homeward)
            begun = time.perf_counter()
            shown = history.cut(leg)
            history = history.absorb(shown)
            cutting += time.perf_counter() - begun
            legs.append((leg, path_metres(town, shown.path)))
    whole = [path_metres(town, leg.path) for leg, _ in legs]
    kept = [metres for _, metres in legs]
    withheld = statistics.median(a - b for a, b in zip(whole, kept, strict=True))
    outcome = Outcome(
        seed, len(place.zone), sum(kept) / sum(whole), withheld, history.worst(),
        planned - started, cutting,
    )  # fmt: skip
    return town, history, legs, outcome


def main() -> None:
    """Print the table of towns and the frontier over epsilon and number of rides."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rides", type=int, nargs="+", default=[100])
    parser.add_argument("--epsilon", nargs="+", default=["1"])
    parser.add_argument("--side", type=float, nargs="+", default=[620.0, 1000.0])
    parser.add_argument("--quarters", action="store_true", help="public quarters, not squares")
    parser.add_argument("--members", type=int, default=1)
    parser.add_argument("--each", action="store_true", help="print every town as it ends")
    parser.add_argument("--towns", type=int, nargs="+", default=[*TOWNS])
    wish = parser.parse_args()
    for side in [None] if wish.quarters else wish.side:
        zone = "quarter" if side is None else f"zone {side:.0f} m"
        for epsilon in wish.epsilon:
            for rides in wish.rides:
                found = []
                for seed in wish.towns:
                    *_, one = history_of(seed, rides, Fraction(epsilon), side, wish.members)
                    if wish.each:
                        print(one, flush=True)  # noqa: T201
                    found.append(one)
                mean = statistics.mean(one.exact for one in found)
                shares = " ".join(f"{one.exact:.2f}" for one in found)
                plan = max(one.plan_seconds for one in found)
                cut = max(one.cut_seconds for one in found)
                memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
                print(  # noqa: T201
                    f"{zone}, epsilon {epsilon}, {rides} rides: mean {mean:.3f} of the "
                    f"way exact ({shares}); plan {plan:.1f} s, cuts {cut:.1f} s, {memory:.2f} GB",
                    flush=True,
                )


if __name__ == "__main__":
    main()
