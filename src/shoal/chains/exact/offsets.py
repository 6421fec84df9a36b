"""How likely two values of one entry are against each other, over all nodes far from the start."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from shoal.additive.mixture import NOTHING, WorstOutput
from shoal.chains.exact.sums import ChainSum, by_secret, secrets_of
from shoal.chains.model import communicating_classes, stationary_law
from shoal.core.codec import Bools, Floats, Ints

MAX_NODES = 20_000  # marginals followed one by one; later nodes are bounded together
SETTLED = 1e-12  # spread of marginal / stationary at which following stops


class Tie(NamedTuple):
    """States that may be held `lag` before a node, and the offsets of the nodes they go with."""

    held: Bools
    offset: Floats


class Marginals(NamedTuple):
    """The laws of the first nodes, and one bound for all nodes after them.

    `logs` (nodes, secrets) is -inf where a value is impossible or its probability underflowed;
    `secrets` and `states` say which are possible. `later` is log of the stationary law by secret
    and `spread` how far (log max - log min of law / stationary) any later node is from it; None
    when nothing bounds the later nodes.
    """

    logs: Floats
    secrets: Bools
    states: Bools
    later: Floats | None
    spread: float
    slack: float


def follow(task: ChainSum) -> Marginals:
    """The marginals of a homogeneous chain until they settle, and the bound for the rest.

    With π stationary, μ_{i+1}(x)/π(x) is an average of μ_i(y)/π(y), with the reversed chain's
    weights, so log max - log min of μ_i/π never grows: one value of it bounds all later nodes.
    There is no such bound when the possible states keep changing (a period) or are not one
    closed class (transient states, several recurrent classes).
    """
    assert task.initial is not None
    matrix, secrets = task.matrices[0], secrets_of(task, task.label)
    limit = MAX_NODES if task.length is None else min(MAX_NODES, task.length)
    law, alive = task.initial, task.initial > 0
    laws, supports = [law], [alive]
    target = _limit_law(matrix, alive)
    while len(laws) < limit and _spread(law, target, alive) > SETTLED:
        after = (matrix[alive] > 0).any(axis=0)
        law = law @ matrix
        if not np.array_equal(after, alive):
            alive, target = after, _limit_law(matrix, after)
        laws.append(law)
        supports.append(alive)
    possible = np.array(supports)
    return Marginals(
        logs=_log_by_secret(np.array(laws), task.label, secrets),
        secrets=by_secret(possible, task.label, secrets),
        states=possible,
        later=None if target is None else _log_by_secret(target, task.label, secrets),
        spread=_spread(law, target, alive),
        slack=2.0**-50 * (len(laws) + task.states**2) * (task.states + 2),
    )


def held_ties(
    task: ChainSum, known: Marginals, lag: int, first: int, last: int | None
) -> tuple[Tie, ...]:
    """sup over nodes i in first..last (None: all) of log μ_i(x') - log μ_i(x), (secrets, secrets).

    Holding X_{i-lag} = y, the joint law of y and what follows given X_i = x is
    μ_{i-lag}(y) · (a part free of i) / μ_i(x): only μ_i(x')/μ_i(x) depends on the node. Nodes
    are grouped by the states possible at i - lag. -inf where a value is impossible or the pair is
    not asked for; inf where a possible value underflowed, or nothing bounds the nodes. Rounds up.
    """
    followed = len(known.logs)
    stop = followed if last is None else min(last + 1, followed)
    nodes = np.arange(min(first, stop), stop)
    ties = []
    for held in np.unique(known.states[nodes - lag], axis=0):
        group = nodes[(known.states[nodes - lag] == held).all(axis=1)]
        ties.append(Tie(held, _largest_ratios(task, known, group)))
    if last is None or last >= followed:
        early = min(max(first, followed) - lag, followed - 1)
        ties.extend(
            Tie(held, _later_ratios(task, known))
            for held in np.unique(known.states[early:], axis=0)
        )
        if known.later is None:
            ties.append(Tie(np.ones(task.states, np.bool_), _later_ratios(task, known)))
    return tuple(ties)


def every_start_ties(task: ChainSum, lag: int) -> tuple[Tie, ...]:
    """The same for all initial laws and all nodes from `lag` on.

    A ratio of linear functions of the initial law is largest at a point mass: the largest
    P^d(y, x') / P^d(y, x) over y. A row of P^(d+1) is a mixture of rows of P^d, so it falls with
    the distance d, and d = lag covers all later nodes.
    """
    secrets = secrets_of(task, task.label)
    reached, law = np.eye(task.states, dtype=np.bool_), np.eye(task.states)
    for _ in range(lag):
        reached = (reached[:, :, None] & (task.matrices[0] > 0)[None]).any(axis=1)
        law = law @ task.matrices[0]
    shown = by_secret(reached, task.label, secrets)
    logs = _log_by_secret(law, task.label, secrets)
    with np.errstate(invalid="ignore"):
        ratios = logs[:, None, :] - logs[:, :, None]
    ratios = np.where(np.isfinite(ratios), ratios, math.inf)  # x impossible, or underflowed
    ratios = np.where(shown[:, None, :], ratios, -math.inf).max(axis=0)
    ever = np.asarray(shown.any(axis=0))
    slack = 2.0**-50 * (lag + 1) * (task.states + 2)
    offset = _asked(task, ratios + slack, ever[:, None] & ever[None, :])
    return (Tie(np.ones(task.states, dtype=np.bool_), offset),)


def _largest_ratios(task: ChainSum, known: Marginals, nodes: Ints) -> Floats:
    """max over `nodes` of log μ(x') - log μ(x), rounded up."""
    logs, possible = known.logs[nodes], known.secrets[nodes]
    rows = []
    for secret in range(logs.shape[1]):
        with np.errstate(invalid="ignore"):
            ratio = logs - logs[:, secret, None]
        ratio = np.where(np.isfinite(ratio), ratio, math.inf)
        both = possible & possible[:, secret, None]
        rows.append(np.where(both, ratio, -math.inf).max(axis=0, initial=-math.inf))
    table = np.array(rows)
    return _asked(task, table + known.slack, table > -math.inf)


def _later_ratios(task: ChainSum, known: Marginals) -> Floats:
    """The bound for nodes that were not followed."""
    if known.later is None:
        everything = np.full((known.logs.shape[1],) * 2, math.inf)
        return _asked(task, everything, np.ones_like(everything, dtype=np.bool_))
    possible = known.secrets[-1]
    with np.errstate(invalid="ignore"):
        ratio = known.later[None, :] - known.later[:, None] + known.spread
    both = possible[None, :] & possible[:, None]
    return _asked(task, np.where(both, ratio, 0.0) + known.slack, both)


def _asked(task: ChainSum, offset: Floats, both: Bools) -> Floats:
    """Offsets of the pairs that are possible and asked for; no cost from a value to itself."""
    if task.offset is not None:
        both = both & (task.offset > -math.inf)
    both = both & ~np.eye(len(offset), dtype=np.bool_)
    return np.where(both, offset, -math.inf)


def _limit_law(matrix: Floats, alive: Bools) -> Floats | None:
    """The stationary law on `alive` when that is one closed class, else None."""
    members = np.flatnonzero(alive)
    inner = matrix[np.ix_(members, members)]
    if (matrix[members][:, ~alive] > 0).any() or len(communicating_classes(inner)) > 1:
        return None
    law = np.zeros(len(matrix))
    law[members] = stationary_law(inner)
    return law


def _spread(law: Floats, target: Floats | None, alive: Bools) -> float:
    """log max - log min of law / target over the possible states."""
    if target is None:
        return math.inf
    ratio = law[alive] / target[alive]
    low = float(ratio.min())
    return math.log(float(ratio.max()) / low) if low > 0 else math.inf


def _log_by_secret(laws: Floats, label: Ints, secrets: int) -> Floats:
    totals = np.zeros((*laws.shape[:-1], secrets))
    for state, secret in enumerate(label.tolist()):
        totals[..., secret] += laws[..., state]
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(totals))


# The worst initial law of a chain: it puts its weight on one or two states.


BISECTIONS = 54


def two_point_worst(density: Floats, starts: Floats, offset: Floats | None) -> WorstOutput:
    """The largest log-ratio between two secrets over outputs AND over all initial laws q.

    density[g, y, x, u] = log A_y(x), the joint density of output u and secret x from first state
    y; starts[g, y, x] = log B_y(x), the probability of x from y. The ratio is
    (Σ q_y A_y(x) / Σ q_y B_y(x)) · (Σ q_y B_y(x') / Σ q_y A_y(x')). Where its first factor is
    held at a value, q lies on a slice of the simplex whose corners have at most two non-zero
    entries, and the second factor, a ratio of linear functions, is largest at a corner: so the
    supremum over q is over pairs of first states. Each pair is solved by `two_point`.
    Secrets impossible from every y are left out.
    """
    given = density - np.where(starts > -math.inf, starts, math.nan)[..., None]
    best = NOTHING
    for secret in range(given.shape[2]):
        for other in range(given.shape[2]):
            extra = 0.0 if offset is None else float(offset[secret, other])
            if secret == other or extra == -math.inf:
                continue
            found = _worst_pair(
                given[:, :, secret],
                given[:, :, other],
                starts[:, :, secret],
                starts[:, :, other],
                best.value - extra,
            )
            if found.value + extra > best.value:
                best = found._replace(value=found.value + extra, secret=secret, other=other)
    return best


def two_point(top: Floats, bottom: Floats, top_start: Floats, bottom_start: Floats) -> Floats:
    """log sup over r ≥ 0 of (A1 + r A2)(B1' + r B2') / ((B1 + r B2)(A1' + r A2')), row by row.

    Columns are the two first states; top = log A/B, bottom = log A'/B'. λ bounds the ratio when
    the quadratic λ·denominator - numerator is nowhere negative on r ≥ 0. With r rescaled so that
    the outer coefficients of the denominator are 1, that says λ ≥ f0, f∞ (the two pure laws) and
    λ C - G ≥ -2 sqrt((λ - f0)(λ - f∞)), C = κ + 1/κ, G = sqrt(f0 f∞)(η + 1/η). The left side
    less the right grows with λ: bisect between max(f0, f∞) and G/C, keep the upper end.

    A secret impossible from one of the two states (nan) frees the laws given x and given x' from
    each other: then the answer is the largest quotient that exists. Rounds up within 1e-15 of
    the bracket.
    """
    with np.errstate(invalid="ignore"):
        free = no_nan(np.fmax.reduce(top, axis=1) - np.fmin.reduce(bottom, axis=1))
    tied = np.isfinite(top).all(axis=1) & np.isfinite(bottom).all(axis=1)
    if not tied.any():
        return free
    top, bottom = top[tied], bottom[tied]
    weight = top_start[tied] - bottom_start[tied]
    ends = top - bottom
    peak = ends.max(axis=1)
    log_c = _log_cosh2(_half_gap(weight - bottom))
    log_g = (ends.sum(axis=1) / 2 - peak) + _log_cosh2(_half_gap(weight + top))
    free[tied] = peak + _least_excess(ends - peak[:, None], log_c, log_g)
    return free


def no_nan(values: Floats) -> Floats:
    """nan (an impossible secret, or 0/0) as no constraint."""
    return np.where(np.isnan(values), -math.inf, values)


def _least_excess(ends: Floats, log_c: Floats, log_g: Floats) -> Floats:
    """The least L ≥ 0 with exp(L) C - G ≥ -2 sqrt((e^L - f0)(e^L - f∞)), f = exp(ends) ≤ 1.

    Divided by e^L C, so that nothing overflows where it matters.
    """
    bound = np.maximum(log_g - log_c, 0.0)
    low, high = np.zeros_like(bound), bound.copy()
    with np.errstate(over="ignore"):
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            room = np.expm1(ends - middle[:, None]).prod(axis=1)
            enough = np.expm1(bound - middle) <= 2 * np.sqrt(np.maximum(room, 0)) * np.exp(-log_c)
            high, low = np.where(enough, middle, high), np.where(enough, low, middle)
    return np.asarray(high)


def _worst_pair(
    top: Floats, bottom: Floats, top_start: Floats, bottom_start: Floats, known: float
) -> WorstOutput:
    """The largest value for one ordered pair of secrets, if above `known`.

    top[g, y, u] = log A_y(x)/B_y(x), nan where B_y(x) = 0; bottom the same for x'. Only outputs
    whose free bound (any y for x, any other for x') beats the best so far are solved.
    """
    with np.errstate(invalid="ignore"):
        free = no_nan(np.fmax.reduce(top, axis=1) - np.fmin.reduce(bottom, axis=1))
        single = no_nan(np.fmax.reduce(top - bottom, axis=1))
    place = np.unravel_index(int(np.argmax(single)), single.shape)
    best = WorstOutput(float(single[place]), int(place[0]), 0, 0, int(place[1]))
    groups, outputs = np.nonzero(free > max(known, best.value))
    for one, two in zip(*np.tril_indices(top.shape[1], -1), strict=True):
        if groups.size == 0:
            return best
        where = (groups[:, None], np.array([[one, two]]), outputs[:, None])
        values = two_point(top[where], bottom[where], top_start[where[:2]], bottom_start[where[:2]])
        found = int(np.argmax(values))
        if values[found] > best.value:
            best = WorstOutput(float(values[found]), int(groups[found]), 0, 0, int(outputs[found]))
            alive = free[groups, outputs] > max(known, best.value)
            groups, outputs = groups[alive], outputs[alive]
    return best


def _half_gap(columns: Floats) -> Floats:
    return np.asarray((columns[:, 0] - columns[:, 1]) / 2)


def _log_cosh2(values: Floats) -> Floats:
    """log(e^v + e^-v)."""
    return np.asarray(np.logaddexp(values, -values))
