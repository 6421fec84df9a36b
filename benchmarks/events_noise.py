"""How fast noise for events is: the event lift and the exact least scale, against plain SciPy.

Run: python -m benchmarks.events_noise

A day of 1,440 minutes, "visited state 0 in an hour of it". The plain version is the same recursion
with NumPy and one linear program of SciPy (HiGHS) for each pair of states: anchored at the slot
before the window only, with this library's bounds for the rest of the day. It runs whole, for 20
states some three minutes; with --quick for 3 states only, and of others forty programs are timed
and multiplied, which gives no bound ("-"). The library takes the best anchor, so its bound is at
most the plain one's. Processor seconds.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable
from typing import TypeVar

import numpy as np

import shoal
from shoal.chains.events.answers import event_laws, events_lift
from shoal.chains.events.given import Given
from shoal.chains.events.lift import EventLift
from shoal.core.codec import Floats

LENGTH, FIRST, LAST = 1440, 690, 749
ETA = 0.01
SAMPLE = 40  # programs of the plain version that are timed where all would take too long


def chain(size: int) -> shoal.MarkovChain:
    """Mostly stays where it is; state 0 is rare."""
    rng = np.random.default_rng(size)
    moves = rng.dirichlet(np.ones(size), size=size)
    moves[1:, 0] *= 0.05
    moves /= moves.sum(axis=1, keepdims=True)
    return shoal.MarkovChain.of(0.7 * np.eye(size) + 0.3 * moves, length=LENGTH)


def program(p: Floats, q: Floats, moves: Floats) -> float:
    """Λ by a public solver."""
    from scipy.optimize import linprog

    above, below = np.flatnonzero(p > 0), np.flatnonzero(q > 0)
    p, q, moves = p[above], q[below], moves[np.ix_(above, below)]
    rows = np.zeros((moves.size, len(p) + len(q)))
    y, z = np.divmod(np.arange(moves.size), len(q))
    rows[np.arange(moves.size), y] = 1.0
    rows[np.arange(moves.size), len(p) + z] = -np.exp(moves.ravel())
    done = linprog(
        -np.concatenate([p, np.zeros(len(q))]),
        A_ub=rows,
        b_ub=np.zeros(len(rows)),
        A_eq=np.concatenate([np.zeros(len(p)), q])[None],
        b_eq=[1.0],
    )
    return math.log(-done.fun)


def plain(lift: EventLift, eta: float, most: int | None) -> tuple[float, int, int]:
    """The larger direction's bound, programs solved, programs there are; stops after `most`."""
    assert lift.plain is not None
    head, tail = FIRST - 1, LAST
    outer = lift.plain.added_bound(eta, -head), lift.plain.added_bound(eta, LENGTH - 1 - tail)
    bound, solved, whole = 0.0, 0, 0
    for one, two in ((lift.event, lift.other), (lift.other, lift.event)):
        whole += sum(len(one.layers[t].x) * len(two.layers[t].x) for t in range(head, tail))
        message = outer[1][np.ix_(one.layers[tail].x, two.layers[tail].x)]
        for t in range(tail - 1, head - 1, -1):
            growth = _moved(one, two, t + 1, eta) + message
            ahead, below = one.ahead(t).rows, two.ahead(t).rows
            message = np.zeros((len(ahead), len(below)))
            for i, p in enumerate(ahead):
                for j, q in enumerate(below):
                    message[i, j] = program(p, q, growth)
                    solved += 1
                    if most is not None and solved >= most:
                        return math.nan, solved, 2 * whole
        growth = _moved(one, two, head, eta) + message
        growth = growth + outer[0][np.ix_(one.layers[head].x, two.layers[head].x)]
        bound = max(bound, program(one.law(head).rows[0], two.law(head).rows[0], growth))
    return bound, solved, whole


def _moved(one: Given, two: Given, t: int, eta: float) -> Floats:
    return np.asarray(eta * (one.layers[t].x[:, None] != two.layers[t].x[None, :]))


Found = TypeVar("Found")


def timed(work: Callable[[], Found]) -> tuple[float, Found]:
    start = time.process_time()
    found = work()
    return time.process_time() - start, found


def measured(size: int, whole_up_to: int) -> tuple[float, ...]:
    """The numbers of one line of the table; the plain bound is nan where it was not finished."""
    model, event = chain(size), shoal.visit("0", between=(FIRST, LAST))
    secrets, query = shoal.Events.of(event), shoal.count(model.states, "0")
    seconds, found = timed(lambda: events_lift(model, secrets).loss(ETA))
    exact_seconds, loss = timed(lambda: event_laws(model, query, secrets).loss(1 / ETA))
    lift = events_lift(model, secrets).lifts[0]
    most = None if size <= whole_up_to else SAMPLE
    plain_seconds, (bound, solved, whole) = timed(lambda: plain(lift, ETA, most))
    scaled = plain_seconds * whole / solved
    assert not found > bound * (1 + 1e-6), "the library's bound is above the plain one's"
    entry = shoal.leakage(model, ETA).value
    numbers = (event.prior(model), found, seconds, loss, exact_seconds, entry, LENGTH * ETA)
    return (*numbers, bound, scaled, scaled / seconds)


def main() -> None:
    for size in (2, 3):  # compile
        events_lift(chain(size), shoal.Events.of(shoal.visit("0", between=(5, 9)))).loss(ETA)
    print(f"T = {LENGTH}, window of {LAST - FIRST + 1} slots, eta = {ETA}; processor seconds")
    titles = ["P(E)", "lift", "s", "exact", "s", "one-entry", "group", "plain", "s", "times"]
    print("states", *(f"{title:>9}" for title in titles))
    for size in (3, 6, 20):
        numbers = measured(size, 3 if "--quick" in sys.argv else size)
        told = ("-" if math.isnan(number) else f"{number:.3f}" for number in numbers)
        print(f"{size:6}", *(f"{each:>9}" for each in told), flush=True)


if __name__ == "__main__":
    main()
