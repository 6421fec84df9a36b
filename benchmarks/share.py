"""How long `shoal share` takes on a town of 16 km: `python -m benchmarks.share` prints it.

The map has 10,000 crossings and six tastes. Rides are drawn from the model, with a position every
ten metres and noise of three metres. The processor's seconds stand beside those of the clock.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise

import numpy as np

from shoal.core.codec import Floats
from shoal.share.history import Leg
from shoal.share.maps import Line, street_map
from shoal.share.matching import Matcher
from shoal.share.place import PermanentPlace
from shoal.share.plan import machine_of, plan_share
from studies.share_towns import Rider, make_town

METRES = np.array([111_195.0, 67_700.0])  # in a degree at 52.5 degrees north
SEED, RIDES, POINTS, GOALS = 11, 200, 2000, 30


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Print how long an act took, and the largest memory so far."""
    clock, processor = time.perf_counter(), time.process_time()
    yield
    seconds, own = time.perf_counter() - clock, time.process_time() - processor
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"{what}: {seconds:.1f} s, {own:.1f} s of processor; {memory:.2f} GB so far", flush=True)


def track(points: Floats, path: tuple[int, ...], random: np.random.Generator) -> Floats:
    """Return noisy positions along a path over crossings in degrees."""
    found = []
    for a, b in pairwise(path):
        way = points[b] - points[a]
        steps = max(1, int(np.hypot(*(way * METRES)) // 10))
        found += [points[a] + k / steps * way for k in range(steps)]
    noisy: Floats = np.array(found) + random.normal(0, 3e-5, (len(found), 2))
    return noisy


def main() -> None:
    """Print the times of the map, the plan, matching, and a fleet of rides."""
    town, random = make_town(SEED), np.random.default_rng(1)
    places = town.points[:, ::-1].tolist()
    lines = [Line((tuple(places[a]), tuple(places[b]))) for a, b in town.pairs.tolist()]
    with timed("map of 10,000 crossings"):
        streets = street_map(lines)
        roads = streets.roads()
        matcher = Matcher(streets)
    home = streets.nearest(*town.points[int(town.near(0.0, -3000.0, 300)[0])])[0]
    place = PermanentPlace.square(roads, *map(float, streets.points[home]))
    with timed(f"plan, {len(place.zone)} candidates, {roads.members} tastes"):
        plan = plan_share(roads, place)
    rider = Rider(roads, 0, random)
    far = np.hypot(*((streets.points - streets.points[home]) * METRES).T)
    near = np.flatnonzero((far > 3000) & (far < 7500))
    goals = random.choice(np.setdiff1d(near, place.hidden), GOALS, replace=False)
    legs = []
    for _ in range(RIDES):
        goal = int(random.choice(goals))
        out, back = rider.leg(home, goal), rider.leg(home, goal)
        legs += [Leg(out, goal), Leg(back[::-1], goal, homeward=True)]
    tracks = [track(streets.points, leg.path, random) for leg in legs[:20]]
    positions = np.vstack(tracks)[:POINTS]  # there and back, one ride after the other
    with timed(f"matching of {len(positions)} positions"):
        matcher.match(positions)
    with timed(f"cuts of {RIDES} rides to {GOALS} goals"):
        history = machine_of(plan).init()
        for leg in legs:
            history = history.absorb(history.cut(leg))
    print(f"spent {history.worst():.3f} of 1")


if __name__ == "__main__":
    main()
