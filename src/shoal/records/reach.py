"""How far one record of a pairwise field reaches: the weight of all walks along ties."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from shoal.core.codec import Floats
from shoal.core.progress import time_over
from shoal.records.field import PairwiseField


@dataclass(frozen=True)
class ReachSettings:
    """How long the equations of reach are iterated."""

    max_rounds: int = 400  # every round is a bound by itself
    settled_change: float = 1e-7  # relative change of the largest reach at which the rounds stop
    relative_raise: float = 1e-12  # amount added for rounding in every round


REACH = ReachSettings()


# How far one record of a pairwise field reaches: the weight of all walks along ties.


def potential_contractions(potentials: Floats) -> Floats:
    """Return κ = tanh(δ/4) of each potential, δ its largest log cross-ratio.

    δ = max over a, a', y, y' of log ψ(a,y)ψ(a',y') / (ψ(a',y)ψ(a,y')); 1 where ψ has a zero. The
    contraction of Birkhoff's theorem for the rows of ψ. Rounds up.
    """
    out = np.ones(len(potentials))
    for place, table in enumerate(potentials):
        if (table <= 0).any():
            continue
        logs = np.log(table)
        gaps = logs[:, None, :] - logs[None, :, :]
        delta = (
            float(np.ptp(gaps, axis=2).max()) * (1 + REACH.relative_raise) + REACH.relative_raise
        )
        out[place] = min(math.tanh(delta / 4) * (1 + REACH.relative_raise), 1.0)
    return out


def field_reach(model: PairwiseField, inside: float = 1.0) -> Floats:
    """Return W_i: any release that is η-DP for one record loses at most η·W_i about record i.

    On a domain of cells whose places are free it is min(n_i, W_i + n_i·inside), n_i being the size
    of the component and `inside` the most that a move within its cell changes a release by, as a
    share of η: 1, and n_i in all, unless given.
    """
    share = 0.0 if model.domain.known_inside else inside
    sizes = model.component_sizes().astype(np.float64)
    return np.minimum(
        _walk_weights(model, sizes) + sizes * share * (1 + REACH.relative_raise), sizes
    )


def _walk_weights(model: PairwiseField, sizes: Floats) -> Floats:
    """Return the weight of all walks from each record, at most the sizes of the components.

    W_i = 1 + Σ_j κ_ij M(i→j), M(i→j) = 1 + Σ over ties (j, k), k ≠ i, of κ_jk M(j→k): the weight
    of all walks from i that never turn straight back, κ being each tie's contraction. Never more
    than the size of the component. The equations are iterated from the component sizes downwards,
    and every round is a bound by itself, so stopping early only adds noise. Exact sums on a
    forest. Rounds up. Proof: records/dependent_field.md.
    """
    if not len(model.ties):
        return sizes
    one, other = model.ties[:, 0].astype(np.int64), model.ties[:, 1].astype(np.int64)
    start, end = np.concatenate([one, other]), np.concatenate([other, one])
    kappa = np.tile(potential_contractions(model.potentials)[model.potential_of], 2)
    back = np.concatenate([np.arange(len(one)) + len(one), np.arange(len(one))])
    cap = sizes[start] - 1.0
    walk, before = cap, math.inf
    for turn in range(REACH.max_rounds):
        if turn and time_over():  # every round is a bound
            break
        carried = kappa * walk
        out = np.bincount(start, carried, model.records)
        reach = np.minimum(1.0 + out * (1 + REACH.relative_raise), sizes)
        largest = float(reach.max())
        if before - largest <= REACH.settled_change * largest:
            break
        before = largest
        # the walks that leave `end`, without the one that goes straight back to `start`
        onward = out[end] * (1 + REACH.relative_raise) - carried[back]
        walk = np.minimum(walk, 1.0 + np.maximum(onward, 0.0) + REACH.relative_raise * out[end])
    return np.asarray(reach)
