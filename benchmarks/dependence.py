"""How fast tied records are: coefficients of a million ties against a plain loop, and plans.

Run: python -m benchmarks.dependence
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from fractions import Fraction

import numpy as np

from shoal.core.codec import Floats
from shoal.core.task import EachEntry, Task
from shoal.mechanisms.choice import choose
from shoal.mechanisms.queries import weighted_sum
from shoal.records.coefficients import printed_loss, ratio_loss
from shoal.records.domain import RecordDomain
from shoal.records.field import friend_field
from shoal.records.reach import field_reach
from shoal.records.sources import FriendModel

TIES, SIZE, BLOCK, LOOPED = 1_000_000, 20, 50_000, 40
SCALE = 3.0
WEAK = FriendModel(b=20, c=0.1)


def plain_ratio(law: list[list[float]], points: list[float]) -> float:
    """Eq. (14) for one tie: over outputs, and over pairs of values of the other record."""
    best = 0.0
    for output in points:
        seen = []
        for row in law:
            total = 0.0
            for p, y in zip(row, points, strict=True):
                total += p * math.exp(-abs(output - y) / SCALE)
            seen.append(total)
        for one in seen:
            for other in seen:
                best = max(best, math.log(one / other))
    return best


def plain_printed(law: list[list[float]], points: list[float]) -> float:
    """Eq. (18) for one tie."""
    best = 0.0
    for row in law:
        total = 0.0
        for p, y in zip(row, points, strict=True):
            total += p * math.exp(max(abs(y - z) for z in points) / SCALE)
        best = max(best, math.log(total))
    return best


def one_by_one(evaluate: Callable[[Floats], Floats], laws: Floats) -> float:
    """Seconds for a million ties with the same arrays, but one tie at a time."""
    start = time.perf_counter()
    for law in laws[: 10 * LOOPED]:
        evaluate(law[None])
    return (time.perf_counter() - start) / (10 * LOOPED) * TIES


def million(evaluate: Callable[[Floats], Floats], laws: Floats) -> float:
    """Seconds for a million ties, each with a law of its own, in blocks that fit in memory."""
    evaluate(laws[:100])
    start = time.perf_counter()
    for _ in range(TIES // BLOCK):
        evaluate(laws)
    return time.perf_counter() - start


def looped(plain: Callable[[list[list[float]], list[float]], float], laws: Floats) -> float:
    """Seconds a plain loop would take for a million ties, from a few of them."""
    points = [float(value) for value in range(SIZE)]
    start = time.perf_counter()
    for law in laws[:LOOPED]:
        plain(law.tolist(), points)
    return (time.perf_counter() - start) / LOOPED * TIES


def edges(records: int, ties: int, seed: int = 1) -> Floats:
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, records, (ties + ties // 50, 2))
    drawn = np.unique(np.sort(drawn[drawn[:, 0] != drawn[:, 1]], axis=1), axis=0)
    return np.asarray(rng.permutation(drawn)[:ties])


def main() -> None:
    rng = np.random.default_rng(7)
    laws = rng.dirichlet(np.full(SIZE, 0.5), size=(BLOCK, SIZE))
    points = np.arange(float(SIZE))[:, None]
    radius = np.abs(points - points.T).max(axis=1)
    print(f"coefficients of {TIES:,} ties, each with a law of its own on {SIZE} values")
    print(f"{'':<24}{'seconds':>10}{'plain loop':>12}{'ratio':>9}{'one by one':>12}{'ratio':>9}")
    for name, evaluate, plain in (
        ("Eq. (14), supremum", lambda block: ratio_loss(block, points, SCALE), plain_ratio),
        ("Eq. (18), as printed", lambda block: printed_loss(block, radius, SCALE), plain_printed),
    ):
        ours, theirs = million(evaluate, laws), looped(plain, laws)
        single = one_by_one(evaluate, laws)
        print(
            f"{name:<24}{ours:>10.2f}{theirs:>12.0f}{theirs / ours:>9.0f}"
            f"{single:>12.0f}{single / ours:>9.0f}"
        )
    _plans()


def _plans() -> None:
    print("\nplans for 100,000 records with 1,000,000 ties of the friend model, 20 values")
    domain = RecordDomain.points(np.arange(SIZE))
    drawn = edges(100_000, TIES)
    start = time.perf_counter()
    model = WEAK.ties(domain, 100_000, drawn)
    held = (model.ties.nbytes + model.law_of.nbytes + model.laws.nbytes) / 2**20
    print(f"{'building the model':<28}{time.perf_counter() - start:>8.2f} s, {held:.0f} MiB")
    query = weighted_sum(model.states or (), {str(v): v for v in range(SIZE)})
    task = Task(query=query, secrets=EachEntry(), family=(model,))
    for row in ("group", "dependent-means", "dependent-published"):
        _timed_plan(row, task)
    field = friend_field(WEAK, domain, 100_000, drawn)
    start = time.perf_counter()
    reach = float(field_reach(field).max())
    print(f"{'reach in the field':<28}{time.perf_counter() - start:>8.2f} s, {reach:.3f} records")


def _timed_plan(row: str, task: Task) -> None:
    start = time.perf_counter()
    plan = choose(task, Fraction(1), row).plan
    spent = time.perf_counter() - start
    scale = float(plan.body.noise.scale)  # type: ignore[union-attr]
    print(f"{row:<28}{spent:>8.2f} s, scale {scale:,.0f}")


if __name__ == "__main__":
    main()
