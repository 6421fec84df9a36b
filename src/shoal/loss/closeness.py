"""How far an adversary's own chain is from a chain of the family, given one entry."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from shoal.core.errors import InputError
from shoal.core.numbers import significant
from shoal.core.task import Model, Secrets
from shoal.core.value import Floats, Value
from shoal.models.chain import MarkovChain

if TYPE_CHECKING:
    from shoal.loss.network_closeness import SecretCloseness


@dataclass(frozen=True, slots=True, eq=False)
class Closeness(Value):
    """Δ = the largest log-ratio between the two laws of a whole sequence given one entry.

    `node` (from 0) and `state` say which entry. An adversary who believes the other chain gets at
    most epsilon + 2Δ from a release that is epsilon-private under the first.
    """

    value: float
    node: int
    state: str
    length: int

    def describe(self) -> str:
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


def closeness(
    chain: MarkovChain | Model | Sequence[Model],
    other: MarkovChain | Model,
    length: int | None = None,
    *,
    secrets: Secrets | None = None,
) -> Closeness | SecretCloseness:
    """How much an adversary outside a family gains: epsilon + 2Δ instead of epsilon.

    Δ for two chains of some length (`chain_closeness`), or for a family of tables, networks or
    contagion models and the secrets (`secret_closeness`, every single entry by default).
    Song, Wang & Chaudhuri 2017, Theorem 2.4.
    """
    from shoal.loss.network_closeness import secret_closeness

    if isinstance(chain, MarkovChain) and isinstance(other, MarkovChain):
        return chain_closeness(chain, other, length)
    return secret_closeness(chain, other, secrets)


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
    """D∞(law ‖ other) = max over outcomes possible under `law` of log law - log other."""
    ratio = _log_ratio(np.asarray(law, dtype=np.float64), np.asarray(other, dtype=np.float64))
    return float(ratio.max())


def _one_way(chain: MarkovChain, other: MarkovChain, count: int) -> Floats:
    """Entry (i, s): D∞ of `chain` from `other` given X_i = s; -inf where X_i = s is impossible."""
    weights = [_log_ratio(chain.matrix(t), other.matrix(t)) for t in _steps(chain, other, count)]

    def weight(t: int) -> Floats:
        return weights[t if len(weights) > 1 else 0]

    before = _walk(
        _log_ratio(chain.initial, other.initial),
        count,
        lambda t, best: _plus(best[:, None], weight(t)).max(axis=0),
    )
    after = _walk(
        np.zeros(len(chain.states)),
        count,
        lambda t, best: _plus(weight(count - 2 - t), best[None, :]).max(axis=1),
    )[::-1]
    own, theirs = chain.marginals(count), other.marginals(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        given = np.log(own) - np.log(theirs)
        table = before + after - given
    slack = 2.0**-50 * count * (4 + np.abs(table[np.isfinite(table)]).max(initial=0.0))
    possible = np.isfinite(np.log(own, where=own > 0, out=np.full_like(own, -np.inf)))
    unsure = possible & ~np.isfinite(table)  # a path or a value only one of the two allows
    return np.where(possible, np.where(unsure, np.inf, table + slack), -np.inf)


def _steps(chain: MarkovChain, other: MarkovChain, count: int) -> range:
    return range(1 if chain.homogeneous and other.homogeneous else count - 1)


def _walk(start: Floats, count: int, step: Callable[[int, Floats], Floats]) -> Floats:
    rows = [start]
    for t in range(count - 1):
        rows.append(step(t, rows[-1]))
    return np.array(rows)


def _plus(one: Floats, two: Floats) -> Floats:
    """one + two, where an impossible step (-inf) stays impossible whatever follows."""
    with np.errstate(invalid="ignore"):
        total = one + two
    return np.where(np.isnan(total), -np.inf, total)


def _log_ratio(law: Floats, other: Floats) -> Floats:
    """log law - log other where law > 0 (inf when other is 0); -inf where no step is taken."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.log(law) - np.log(other)
    return np.where(law > 0, np.where(other > 0, ratio, np.inf), -np.inf)
