"""What a noisy count tells about a forest of tied bits, in logarithms and without the library.

Record i weighs its value x by own[i][x], and a tie (i, j) weighs their values by tie[x_i][x_j];
nothing has to be normalised. Seen from any record the law of the count is one convolution for
every other record, and logarithms follow it however unlikely a value is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

NEVER = -math.inf
Logs = list[float]
Ties = Mapping[tuple[int, int], Sequence[Sequence[float]]]


def log_sum(values: Sequence[float]) -> float:
    top = max(values, default=NEVER)
    return top if top == NEVER else top + math.log(math.fsum(math.exp(v - top) for v in values))


def log(value: float) -> float:
    return math.log(value) if value > 0 else NEVER


def count_laws(own: Sequence[Sequence[float]], ties: Ties, root: int) -> tuple[Logs, Logs]:
    """log P(count of ones in the component of `root` = c, X_root = x) + a constant, x = 0, 1."""
    near: dict[int, dict[int, list[list[float]]]] = {i: {} for i in range(len(own))}
    for (one, other), tie in ties.items():
        near[one][other] = [list(row) for row in tie]
        near[other][one] = [list(row) for row in zip(*tie, strict=True)]
    order, parent = [root], {root: -1}
    for record in order:
        for other in near[record]:
            if other not in parent:
                parent[other] = record
                order.append(other)
    laws = {i: [[log(own[i][0]), NEVER], [NEVER, log(own[i][1])]] for i in order}
    for record in reversed(order[1:]):
        above = parent[record]
        for x in (0, 1):
            tied = [log(weight) for weight in near[above][record][x]]
            behind = [
                log_sum([laws[record][y][c] + tied[y] for y in (0, 1)])
                for c in range(len(laws[record][0]))
            ]
            laws[above][x] = _convolved(laws[above][x], behind)
    return laws[root][0], laws[root][1]


def noisy_loss(laws: Sequence[Logs], scale: float) -> float:
    """The largest log-ratio of the count + Laplace(scale) between the laws that are possible."""
    return _shown(laws, lambda apart: apart / scale, beyond=0)


def count_in_steps_loss(laws: Sequence[Logs], fall: float, width: int, lead: int) -> float:
    """The same of noise in steps, for outputs up to two widths beyond all answers."""
    return _shown(laws, lambda apart: fall * ((apart + lead) // width), beyond=2 * width)


def _shown(laws: Sequence[Logs], price: Callable[[int], float], beyond: int) -> float:
    totals = [log_sum(law) for law in laws]
    rows = [
        [v - total for v in law] for law, total in zip(laws, totals, strict=True) if total > NEVER
    ]
    worst = 0.0
    for u in range(-beyond, len(rows[0]) + beyond if len(rows) > 1 else -beyond):
        seen = [log_sum([v - price(abs(u - c)) for c, v in enumerate(row)]) for row in rows]
        worst = max(worst, max(seen) - min(seen))
    return worst


def _convolved(one: Logs, two: Logs) -> Logs:
    out: list[Logs] = [[] for _ in range(len(one) + len(two) - 1)]
    for a, first in enumerate(one):
        if first > NEVER:
            for b, second in enumerate(two):
                if second > NEVER:
                    out[a + b].append(first + second)
    return [log_sum(values) for values in out]
