"""Location streams: a full step against the papers' algorithms, exact draws, memory per stream.

Run: python -m benchmarks.location [--quick]. A step is all of it: prior, constraint, hull, repair
check, draw, posterior, estimate. `stream` is `LocationMachine.step`, with the release's words,
warnings and accounts. The reference works
on whole arrays in NumPy and SciPy. Ratios are taken in one run on one machine, in seconds of the
process.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks.location_reference import PlainStream
from shoal.core.charge import SystemRng
from shoal.events.event import visit
from shoal.events.secrets import Events
from shoal.geometry.body import difference_body, symmetric_hull
from shoal.mechanisms.choice import calibrate
from shoal.noise.knorm import LatticeKNorm, Staircase
from shoal.places.machine import LocationMachine
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.queries import Measurement, measurement
from shoal.places.stream import LocationStream
from shoal.places.walk import SparseChain

STEPS = 60
PLAIN_SECONDS = 4.0  # the reference is stopped after this, and after three steps at least


def town(side: int, seed: int = 0) -> tuple[SparseChain, Measurement]:
    """A side × side map with uneven moves to the eight neighbours and staying."""
    from scipy.sparse import coo_array

    rng = np.random.default_rng(seed)
    cells = np.stack(np.meshgrid(np.arange(side), np.arange(side)), axis=-1).reshape(-1, 2)
    steps = np.array([(x, y) for x in (-1, 0, 1) for y in (-1, 0, 1)])
    targets = cells[:, None, :] + steps[None, :, :]
    kept = ((targets >= 0) & (targets < side)).all(axis=2)
    rows, moves = np.nonzero(kept)
    columns = targets[rows, moves] @ np.array([1, side])
    weights = rng.gamma(0.5, size=len(rows)) + 0.01
    weights /= np.bincount(rows, weights)[rows]
    matrix = coo_array((weights, (rows, columns)), shape=(side**2, side**2)).tocsr()
    chain = SparseChain.of(matrix, initial=np.full(side**2, side**-2))
    return chain, measurement(chain.states, cells.tolist(), labels=("east", "north"))


def walk(chain: SparseChain, steps: int) -> list[int]:
    rng, here, path = np.random.default_rng(1), chain.size // 2, []
    for _ in range(steps):
        row = slice(int(chain.starts[here]), int(chain.starts[here + 1]))
        here = int(rng.choice(chain.targets[row], p=chain.weights[row]))
        path.append(here)
    return path


def policies(chain: SparseChain, query: Measurement) -> dict[str, PolicyGraph]:
    return {
        "complete": PolicyGraph.complete(chain.states),
        "radius 3": PolicyGraph.within(query, 3),
        "transitions": PolicyGraph.transitions(chain),
    }


def ours(machine: LocationMachine, path: list[int]) -> float:
    """Median seconds of a step, after the first ones."""
    rng, state, names = SystemRng(), machine.init(), machine.query.states
    times = []
    for place in path:
        begun = time.process_time()
        state, _ = machine.step(state, names[place], rng)
        times.append(time.process_time() - begun)
    return float(np.median(times[5:]))


def plain(
    chain: SparseChain,
    query: Measurement,
    policy: PolicyGraph,
    delta: float | None,
    path: list[int],
) -> float:
    joined = matrix_of(policy)
    stream = PlainStream(
        moves=np.asarray(chain.matrix().todense()),
        joined=joined,
        points=query.values,
        epsilon=1.0,
        delta=delta,
        belief=chain.initial.copy(),
        rng=np.random.default_rng(2),
    )
    times: list[float] = []
    for place in path:
        begun = time.process_time()
        stream.step(place)
        times.append(time.process_time() - begun)
        if len(times) >= 3 and sum(times) > PLAIN_SECONDS:
            break
    return float(np.median(times[min(5, len(times) - 2) :]))


def matrix_of(policy: PolicyGraph) -> npt.NDArray[np.bool_]:
    joined = np.zeros((policy.size, policy.size), dtype=np.bool_)
    if policy.is_complete:
        joined[:] = True
        np.fill_diagonal(joined, False)
    else:
        edges = policy.all_edges()
        joined[edges[:, 0], edges[:, 1]] = joined[edges[:, 1], edges[:, 0]] = True
    return joined


def steps(sides: tuple[int, ...]) -> None:
    print("full step                stream ms   plain ms   ratio")
    for side in sides:
        chain, query = town(side)
        path = walk(chain, STEPS)
        for name, policy in policies(chain, query).items():
            for delta in (None, Fraction(1, 100)):
                places: Any = policy if delta is None else LocationSet(policy=policy, delta=delta)
                machine = LocationMachine(
                    chain=chain, query=query, places=places, epsilon=Fraction(1)
                )
                fast = ours(machine, path)
                slow = plain(chain, query, policy, None if delta is None else 0.01, path)
                title = f"{side**2:5} {name:<11} {'support' if delta is None else 'δ = .01':<7}"
                print(f"{title} {fast * 1e3:9.3f} {slow * 1e3:10.1f} {slow / fast:7.0f}")


def draws() -> None:
    paper = symmetric_hull([[4, 1], [3, 0], [1, -1], [1, 1]])
    bodies = {
        "paper hull": paper,
        "12-gon": symmetric_hull([[3, 0], [0, 3], [2, 2], [-2, 2], [1, 3], [3, 1], [-1, 3]]),
        "sliver 1000:3": symmetric_hull([[1000, 3], [0, 3]]),
        "fine lattice": difference_body(np.array([[0, 0], [31, 4], [11, 40]]) * 10**5),
        "segment": symmetric_hull([[340, 170]]),
    }
    rng, count = SystemRng(), 300_000
    print("exact draws                    a second   one at a time")
    for name, body in bodies.items():
        noise = LatticeKNorm(body=body, epsilon=Fraction(1))
        noise.draws(1000, rng)
        begun = time.process_time()
        noise.draws(count, rng)
        many = count / (time.process_time() - begun)
        begun = time.process_time()
        for _ in range(3000):
            noise.draw(rng)
        print(f"K-norm {name:<18} {many:14,.0f} {3000 / (time.process_time() - begun):15,.0f}")
    begun = time.process_time()
    Staircase.best(paper, Fraction(4)).draws(count // 10, rng)
    rate = count / 10 / (time.process_time() - begun)
    print(f"staircase paper hull     {rate:15,.0f}")


def memory(streams: int) -> None:
    chain, query = town(32)
    policy = PolicyGraph.within(query, 3)
    machine = LocationMachine(chain=chain, query=query, places=policy, epsilon=Fraction(1))
    rng, names = SystemRng(), query.states
    state = machine.init()
    for place in walk(chain, 3):
        state, _ = machine.step(state, names[place], rng)
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    live = [machine.step(state, names[k % chain.size], rng)[0] for k in range(streams)]
    each = (tracemalloc.get_traced_memory()[0] - before) / len(live)
    tracemalloc.stop()
    total = each * 100_000 / 2**30
    print(f"memory over one {chain.size}-cell model: {each:,.0f} bytes a live stream,")
    print(f"100,000 streams {total:.2f} GB (aim: 2 GB), measured on {streams:,}")


def watched(side: int = 20, count: int = 24) -> None:
    """Steps of a stream that watches an event, against those of the same stream without it."""
    chain, query = town(side)
    names, path = query.states, walk(chain, count)
    evening = Events.of(
        visit([names[side * side // 2], names[side * side // 2 + 1]], between=(6, 12))
    )
    print(f"a watched event, {side * side} cells: processor ms of a step, median and worst of all;")
    print("to begin once a plan; worst where the start is known, so that constraints are new")
    print(f"{'':<28} {'plain':>8} {'watched':>8} {'worst':>8} {'begin':>8} {'known':>8}")
    policy = PolicyGraph.within(query, 3)
    rows = ("location-knorm", "location-laplace", "location-graph-exponential")
    for row in rows:
        plan = calibrate(query, policy, chain, epsilon=1, mechanism=row)
        plain = stepped(LocationStream.begin(plan), [names[place] for place in path])
        begun = time.process_time()
        held = LocationStream.begin(plan, events=evening, event_epsilon=1)
        begin = 1e3 * (time.process_time() - begun)
        times = stepped(held, [names[place] for place in path])
        start = LocationStream.begin(plan, names[path[0]], events=evening, event_epsilon=1)
        known = stepped(start, [names[place] for place in path[1:]])
        told = (np.median(plain), np.median(times), max(times), begin, max(known))
        print(f"{row:<28}", *(f"{each:8.2f}" for each in told))


def stepped(stream: LocationStream, places: list[str]) -> list[float]:
    """Processor milliseconds of each step."""
    times = []
    for place in places:
        begun = time.process_time()
        stream, _ = stream.read(place)
        times.append(1e3 * (time.process_time() - begun))
    return times


if __name__ == "__main__":
    quick = "--quick" in sys.argv
    steps((10, 20) if quick else (10, 20, 45))
    draws()
    memory(500 if quick else 5000)
    watched()
