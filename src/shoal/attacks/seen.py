"""What an adversary sees: noisy sums over all entries, and something of each entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.additive.queries import LinearQuery, linear
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Additive, Plan, Release
from shoal.networks.queries import VariableSum, per_variable
from shoal.noise.laplace import is_zero_sum


class SumSeen(NamedTuple):
    """A release about Σ weights[value of the entry], several numbers at once.

    `weights` (values, numbers) are whole; `log_likelihood` says, up to a constant, how likely the
    released numbers are when the true sums are each of its rows. `states` names the values, for a
    model that lists them in another order; without names they are the model's, in its order.
    """

    weights: Ints
    log_likelihood: Callable[[Ints], Floats]
    states: tuple[str, ...] | None = None

    def weights_of(self, states: tuple[str, ...]) -> Ints:
        """The weights of a model's states, in its order."""
        named = self.states if self.states is not None else states
        if len(self.weights) != len(states) or set(named) != set(states):
            raise InputError(
                f"the release has weights for {len(self.weights)} values"
                f"{'' if self.states is None else f', {list(self.states)}'}; the model has the "
                f"values {list(states)}"
            )
        return self.weights[[named.index(state) for state in states]]


class VariablesSeen(NamedTuple):
    """A release about Σ over variables v of weights[v][value of v]: weights of their own.

    `weights[v]` (values of v, numbers) are whole; `domains[v]` names the values of variable v.
    """

    variables: tuple[str, ...]
    domains: tuple[tuple[str, ...], ...]
    weights: tuple[Ints, ...]
    log_likelihood: Callable[[Ints], Floats]


class EntriesSeen(NamedTuple):
    """Something seen of each entry: log P(what was seen of entry t | its value), (entries, values).

    -inf rules a value out. Rows of zeros say nothing.
    """

    log_likelihood: Floats


Seen = SumSeen | VariablesSeen | EntriesSeen


def laplace_sum(query: LinearQuery, output: Sequence[float], scale: float) -> SumSeen:
    """The release of `output` under Laplace noise of `scale` on each number of `query`.

    Noise that keeps the total has the same density, on fewer outputs, so it serves for that too.
    """
    weights = np.array(query.multiples(), dtype=np.int64)
    return SumSeen(weights, _laplace(query, output, scale), query.states)


def laplace_variables(query: VariableSum, output: Sequence[float], scale: float) -> VariablesSeen:
    """The same for a sum in which every variable has weights of its own."""
    weights = tuple(np.array(row, dtype=np.int64)[:, None] for row in query.multiples())
    law = _laplace(query, output, scale)
    return VariablesSeen(query.variables, query.domains, weights, law)


def _laplace(
    query: LinearQuery | VariableSum, output: Sequence[float], scale: float
) -> Callable[[Ints], Floats]:
    """-|sums - output|_1/scale, up to a constant, for rows of sums in lattice steps."""
    if len(output) != len(query.labels):
        raise InputError(f"output has {len(output)} numbers; the query has {len(query.labels)}")
    if not np.isfinite(np.asarray(output, dtype=np.float64)).all():
        raise InputError(f"output is {tuple(output)}; every number must be finite")
    if not (scale > 0 and np.isfinite(scale)):
        raise InputError(f"scale is {scale}; it must be positive and finite")
    steps = float(query.lattice) / scale
    place = np.asarray(output, dtype=np.float64) / float(query.lattice)
    return lambda sums: -steps * np.abs(sums - place).sum(axis=1)


def released(plan: Plan, release: Release) -> SumSeen | VariablesSeen:
    """What a release of an additive plan, or of a table of laws, shows, as it was drawn.

    Refused are values processed since (a raised 0 is not the answer with its noise) and releases of
    another plan, whose noise is another.
    """
    _check_drawn(plan, release)
    body, query = plan.additive, plan.task.query
    one_by_one, named = linear(query), per_variable(query)
    if body is not None and one_by_one is not None:
        return laplace_sum(one_by_one, _as_drawn(body, release), float(body.noise.scale))
    if body is not None and named is not None:
        return laplace_variables(named, _as_drawn(body, release), float(body.noise.scale))
    table: Any = plan.body  # which says itself how likely an output is
    if hasattr(table, "log_likelihood"):
        told = table.log_likelihood(release.answer.multiples)
        if one_by_one is not None:
            rows = np.array(one_by_one.multiples(), dtype=np.int64)
            return SumSeen(rows, told, one_by_one.states)
        if named is not None:
            own = tuple(np.array(row, dtype=np.int64)[:, None] for row in named.multiples())
            return VariablesSeen(named.variables, named.domains, own, told)
    raise Refused(
        f"no attack is known on a release by {plan.mechanism} of {query.describe()}; attacks are "
        "for noise on counts, sums, means and histograms of states, and on sums over variables"
    )


def _check_drawn(plan: Plan, release: Release) -> None:
    if release.plan != plan.fingerprint:
        raise InputError("the release is not of this plan; hand over the plan that made it")
    if release.processed:
        raise InputError(
            f"the release was processed ({', '.join(release.processed)}); attack it as it was drawn"
        )


def _as_drawn(body: Additive, release: Release) -> tuple[float, ...]:
    """The values before they were divided by the number of entries, which an adversary knows."""
    return tuple(float(body.noise.step * multiple) for multiple in release.answer.multiples)


def one_number(plan: Plan, release: Release, label: int) -> SumSeen:
    """One number of a release by itself: less than the adversary sees, cheap for histograms."""
    _check_drawn(plan, release)
    body, query = plan.body, plan.task.query
    assert isinstance(body, Additive)
    assert isinstance(query, LinearQuery)
    weights = np.array(query.multiples(), dtype=np.int64)[:, [label]]
    place = _as_drawn(body, release)[label] / float(query.lattice)
    decay = float(query.lattice / body.noise.scale)
    if not is_zero_sum(body.noise):
        return SumSeen(weights, lambda sums: -decay * np.abs(sums[:, 0] - place), query.states)
    others = body.noise.dimension - 1
    return SumSeen(
        weights,
        lambda sums: _one_bar(decay, others, np.asarray(sums[:, 0] - place)),
        query.states,
    )


def suppressed(
    output: Sequence[str | None], states: Sequence[str], suppression: Mapping[str, float]
) -> EntriesSeen:
    """A stream with gaps: each entry shown as it is, or None.

    `suppression` is the probability with which each state is hidden (0 when not named).
    """
    hidden = np.array([suppression.get(state, 0.0) for state in states], dtype=np.float64)
    if not ((hidden >= 0) & (hidden <= 1)).all():
        raise InputError(f"suppression is {dict(suppression)}; probabilities are in [0, 1]")
    strange = [shown for shown in output if shown is not None and shown not in states]
    if strange:
        raise InputError(f"output shows {strange[0]!r}, which is not one of {list(states)}")
    rows = np.empty((len(output), len(states)))
    for t, shown in enumerate(output):
        rows[t] = hidden if shown is None else (1 - hidden) * (np.array(list(states)) == shown)
    with np.errstate(divide="ignore"):
        return EntriesSeen(np.log(rows))


def _one_bar(decay: float, others: int, gaps: npt.NDArray[Any]) -> Floats:
    """The log-law of one coordinate of noise that adds up to 0, up to a constant.

    e^{-decay·|g|} P(S = -g) with S the sum of the `others`, each a difference of two geometric
    numbers. So S is the difference of two negative binomials b, P(S = k) = Σ_i b(i) b(i + |k|), a
    sum of positive terms: no mass is lost, however far out.
    """
    from scipy.special import gammaln

    far, place = np.unique(np.abs(np.rint(gaps)).astype(np.int64), return_inverse=True)
    terms = int(np.ceil((2 * others + 45) / decay)) + 1  # beyond, all together are below e^-80
    i = np.arange(terms + int(far.max()))
    logs = gammaln(others + i) - gammaln(i + 1.0) - decay * i
    law = np.empty(len(far))
    for row, k in enumerate(far.tolist()):
        pair = logs[:terms] + logs[k : k + terms]
        top = float(pair.max())
        law[row] = top + np.log(np.exp(pair - top).sum())
    return np.asarray(-decay * np.abs(gaps) + law[place.ravel()].reshape(gaps.shape))


# Everything that was seen, together.


class VariableColumns(NamedTuple):
    """Every value any variable may take, and which of them are each variable's own.

    In order of first appearance, as `VariableSum.states`; `places[v]` are columns of a table of
    beliefs.
    """

    values: tuple[str, ...]
    places: tuple[Ints, ...]

    def spread(self, rows: Sequence[Floats], empty: float) -> Floats:
        """A row of numbers per variable as one table, `empty` where a value is not the variable's.

        Each row holds a number for each value of its variable.
        """
        found = np.full((len(rows), len(self.values)), empty)
        for v, row in enumerate(rows):
            found[v, self.places[v]] = row
        return found


def log_likelihood(seen: Sequence[Seen], answers: Ints) -> Floats:
    """log P(released | true numbers), for rows of all numbers side by side as in `added_by`."""
    out = np.zeros(len(answers))
    place = 0
    for one in seen:
        if isinstance(one, EntriesSeen):
            continue
        weights = one.weights if isinstance(one, SumSeen) else one.weights[0]
        count = weights.shape[1]
        out += one.log_likelihood(answers[:, place : place + count])
        place += count
    return out


def entries_seen(seen: Sequence[Seen], columns: VariableColumns) -> Floats | None:
    """The log-likelihood of all that was seen of single variables, by column; None if nothing."""
    logs = [one.log_likelihood for one in seen if isinstance(one, EntriesSeen)]
    shape = (len(columns.places), len(columns.values))
    for rows in logs:
        if not (rows < np.inf).all():
            raise InputError("what was seen of entries holds a likelihood that is no number")
        if len(rows) != shape[0]:
            raise InputError(f"something was seen of a number of entries other than {shape[0]}")
        if rows.shape != shape:
            raise InputError(
                f"what was seen of entries has {rows.shape[1]} columns; there is one for each of "
                f"{list(columns.values)}"
            )
    return np.asarray(np.sum(logs, axis=0)) if logs else None
