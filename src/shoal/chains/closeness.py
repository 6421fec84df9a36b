"""How far an adversary's own chain is from a chain of the family, given one entry."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats, Value
from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.walk import LOST, Wide
from shoal.mechanisms.mixture import largest_finite


@dataclass(frozen=True, slots=True, eq=False)
class Closeness(Value):
    """Δ = the largest log-ratio between the two laws of a whole sequence given one entry.

    `node` (from 0) and `state` say which entry. An adversary who believes the other chain gets at
    most epsilon + 2Δ from a release that is epsilon-private under the first.
    """

    kind = "closeness"

    value: float
    node: int
    state: str
    length: int

    def describe(self) -> str:
        """Return in words what an adversary who believes the other chain gains in epsilon at
        most.
        """
        if not math.isfinite(self.value):
            return (
                "the two chains are infinitely far apart: one allows a step the other excludes, "
                "so a guarantee under one says nothing under the other"
            )
        return (
            "an adversary who believes the other chain gains at most "
            f"2 × {significant(self.value)} in epsilon (worst given entry {self.node} = "
            f"{self.state!r}); the bound grows with the length, here {self.length}: "
            "put the other chain into the family instead"
        )


def chain_closeness(chain: MarkovChain, other: MarkovChain, length: int | None = None) -> Closeness:
    """max over entries i and values s of D∞ between the two laws of X given X_i = s, both ways.

    D∞(θ|s ‖ θ'|s) = max over sequences of log θ(x | X_i = s) - log θ'(x | X_i = s), by a max-plus
    recursion: edge weights log P(x,y) - log P'(x,y), summed along the worst path before and after
    entry i, less the log-ratio of the two probabilities of X_i = s. Rounds up. inf when a sequence
    is possible under one and not under the other. Song, Wang & Chaudhuri 2017, Theorem 2.4.
    """
    if chain.states != other.states:
        raise InputError(
            f"the chains have states {list(chain.states)} and {list(other.states)}; "
            "they must be the same, in the same order"
        )
    count = length if length is not None else chain.length
    if count is None or count < 1:
        raise InputError("closeness grows with the length; give length, a whole number of entries")
    worst = Closeness(0.0, 0, chain.states[0], count)
    for one, two in ((chain, other), (other, chain)):
        table = _one_way(one, two, count)
        node, state = (int(i) for i in np.unravel_index(int(table.argmax()), table.shape))
        if table[node, state] > worst.value:
            worst = Closeness(float(table[node, state]), node, chain.states[state], count)
    return worst


def max_divergence(law: Sequence[float] | Floats, other: Sequence[float] | Floats) -> float:
    """D∞(law ‖ other) = max over outcomes possible under `law` of log law - log other.

    Rounds up; 0 where the largest ratio is 1.
    """
    ratio = _log_ratio(np.asarray(law, dtype=np.float64), np.asarray(other, dtype=np.float64))
    value = float(ratio.max())
    return value + 2.0**-50 * (1.0 + abs(value)) if value and math.isfinite(value) else value


def _one_way(chain: MarkovChain, other: MarkovChain, count: int) -> Floats:
    """Entry (i, s): D∞ of `chain` from `other` given X_i = s; -inf where X_i = s is impossible."""
    weights = [_log_ratio(chain.matrix(t), other.matrix(t)) for t in _steps(chain, other, count)]

    def weight(t: int) -> Floats:
        return weights[t if len(weights) > 1 else 0]

    before = _iterate_steps(
        _log_ratio(chain.initial, other.initial),
        count,
        lambda t, best: _plus(best[:, None], weight(t)).max(axis=0),
    )
    after = _iterate_steps(
        np.zeros(len(chain.states)),
        count,
        lambda t, best: _plus(weight(count - 2 - t), best[None, :]).max(axis=1),
    )[::-1]
    own, theirs = _marginals(chain, count), _marginals(other, count)
    given = own.log_over(theirs)
    with np.errstate(invalid="ignore"):
        table = before + after - given
    size = max(largest_finite(rows) for rows in (before, after, given))
    slack = 2.0**-50 * count * (4 + size)
    unsure = own.possible & ~np.isfinite(table)  # a path or a value only one of the two allows
    return np.where(own.possible, np.where(unsure, np.inf, table + slack), -np.inf)


def _marginals(chain: MarkovChain, count: int) -> Wide:
    """The laws of the first entries, (count, k): 0 exactly where a value is impossible."""
    plain = chain.marginals(count)
    if (plain >= LOST).all():
        return Wide.of(plain)
    rows = [Wide.of(chain.initial)]
    for t in range(count - 1):
        start = rows[-1].map_layout(lambda law: law[:, None])
        rows.append(start.times(Wide.of(chain.matrix(t))).total(0))
    return Wide(np.array([row.part for row in rows]), np.array([row.power for row in rows]))


def _steps(chain: MarkovChain, other: MarkovChain, count: int) -> range:
    return range(1 if chain.homogeneous and other.homogeneous else count - 1)


def _iterate_steps(start: Floats, count: int, step: Callable[[int, Floats], Floats]) -> Floats:
    rows = [start]
    for t in range(count - 1):
        rows.append(step(t, rows[-1]))
    return np.array(rows)


def _plus(one: Floats, two: Floats) -> Floats:
    """one + two, where an impossible step (-inf) stays impossible after every step."""
    with np.errstate(invalid="ignore"):
        total = one + two
    return np.where(np.isnan(total), -np.inf, total)


def _log_ratio(law: Floats, other: Floats) -> Floats:
    """log law - log other where law > 0 (inf when other is 0); -inf where no step is taken."""
    return Wide.of(law).log_over(Wide.of(other))
