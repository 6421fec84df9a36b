"""What a noisy count tells about a star of tied bits, in logarithms and without the library.

The hub takes 0 or 1; given it, leaf i takes 1 with odds of its own. Everything is a sum over the
hub of products of two-point laws, so logarithms of the law of the count given any record follow
from one convolution a leaf, however unlikely a value is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

NEVER = -math.inf
Logs = list[float]


def log_sum(values: Sequence[float]) -> float:
    top = max(values, default=NEVER)
    return top if top == NEVER else top + math.log(math.fsum(math.exp(v - top) for v in values))


def log(value: float) -> float:
    return math.log(value) if value > 0 else NEVER


def count_laws(
    hub: Sequence[float],
    leaves: Sequence[Sequence[float]],
    ties: Sequence[Sequence[Sequence[float]]],
    asked: int | None = None,
) -> list[tuple[int, int, Logs]]:
    """(record, value, log P(count = c, value)) for the hub, record 0, and the first `asked` leaves.

    hub[h] and leaves[i][x] weigh values, ties[i][h][x] pairs of them; nothing is normalised.
    """
    weights = [
        [
            [log(own[x]) + log(tie[h][x]) for x in (0, 1)]
            for own, tie in zip(leaves, ties, strict=True)
        ]
        for h in (0, 1)
    ]
    found = []
    sides = []
    for h in (0, 1):
        law = _shifted([log(hub[h])], h)
        before = [law]
        for own in weights[h]:
            before.append(_joined(before[-1], own))
        after: list[Logs] = [[0.0]]
        for own in reversed(weights[h]):
            after.append(_joined(after[-1], own))
        found.append((0, h, before[-1]))
        sides.append((before, after[::-1]))
    for i in range(len(leaves) if asked is None else asked):
        for x in (0, 1):
            halves = []
            for h in (0, 1):
                before, after = sides[h]
                law = [v + weights[h][i][x] for v in _shifted(before[i], x)]
                halves.append(_convolved(law, after[i + 1], len(leaves) + 2))
            found.append((i + 1, x, [log_sum(pair) for pair in zip(*halves, strict=True)]))
    return found


def noisy_loss(laws: Sequence[tuple[int, int, Logs]], scale: float) -> float:
    """The largest log-ratio of count + Laplace(scale) between the values of one record."""
    given: dict[int, list[Logs]] = {}
    for record, _, law in laws:
        total = log_sum(law)
        if total > NEVER:
            given.setdefault(record, []).append([v - total for v in law])
    worst = 0.0
    for rows in given.values():
        if len(rows) < 2:
            continue
        for u in range(len(rows[0])):
            seen = [log_sum([v - abs(u - c) / scale for c, v in enumerate(row)]) for row in rows]
            worst = max(worst, max(seen) - min(seen))
    return worst


def _shifted(law: Logs, by: int) -> Logs:
    return [NEVER, *law] if by else [*law, NEVER]


def _joined(law: Logs, own: Sequence[float]) -> Logs:
    """One more bit: log-weights own[0] and own[1] of 0 and 1."""
    longer = [*law, NEVER]
    moved = [NEVER, *law]
    return [log_sum([a + own[0], b + own[1]]) for a, b in zip(longer, moved, strict=True)]


def _convolved(one: Logs, two: Logs, width: int) -> Logs:
    out: list[Logs] = [[] for _ in range(width)]
    for a, first in enumerate(one):
        if first > NEVER:
            for b, second in enumerate(two):
                if second > NEVER:
                    out[a + b].append(first + second)
    return [log_sum(values) for values in out]
