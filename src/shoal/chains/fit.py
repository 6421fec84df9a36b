"""Chains from data: transition counts, smoothing, groups, higher order, and a private fit.

A model fitted on private data tells about that data; only `fit_private` bounds how much.
docs/fitting.md says when that matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

import numpy as np

from shoal.chains.families import MAX_TUPLES, OrderChain
from shoal.chains.model import MarkovChain, stationary_law
from shoal.core.charge import AsEntryDP, Rng, source_for
from shoal.core.codec import Floats, Ints, Value, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import Number, exact, positive, significant
from shoal.core.records import Sequences, entries_of
from shoal.core.registry import load
from shoal.noise.laplace import LatticeLaplace
from shoal.noise.primitives import WIDEST_RATIO

Start = Literal["stationary", "empirical"]
StatesGiven = Sequence[Any] | None

# Changing one entry takes at most two transitions away and puts two in their place.
TRANSITION_SENSITIVITY = 4


def fit_chain(
    data: Any,
    *,
    states: StatesGiven = None,
    smoothing: Number = 0,
    length: int | None = None,
    initial: Start = "stationary",
    **columns: Any,
) -> MarkovChain:
    """The chain with P(x, y) = (n_xy + s) / (n_x + k s): s = smoothing, k states.

    n_xy counts transitions inside chains only: a gap joins nothing. s = 0 is maximum likelihood,
    which calls impossible what was never seen; then a state that is never left is refused.
    `initial` is the stationary law of the matrix, or the smoothed law of the chains' first entries.
    `data` may be sequences, lists of states, a table or a file, whose `columns` are named as in
    `shoal.read`; `states` are those that occur unless given.
    """
    data = entries_of(data, states, **columns)
    pseudo = _smoothing(smoothing)
    counts = transition_counts(data)
    _refuse_unknown_rows(counts, data, pseudo)
    transition = _normalise_counts(counts, pseudo)
    if _start(initial) == "empirical":
        firsts = [int(chain[0]) for chain in data.chains if len(chain)]
        law = _normalise_counts(np.bincount(firsts, minlength=len(data.states)), pseudo)
    else:
        law = _stationary(transition)
    return MarkovChain(states=data.states, transition=transition, initial=law, length=length)


def fit_groups(
    groups: Any,
    *,
    smoothing: Number = 0,
    length: int | None = None,
    initial: Start = "stationary",
    group: str | None = None,
    states: StatesGiven = None,
    **columns: Any,
) -> dict[str, MarkovChain]:
    """One chain per group, all on the same states; a refusal names the group.

    `groups` maps names to sequences, or is a table or a file, whose column `group` tells them apart
    and whose `columns` are named as in `shoal.read`.
    """
    if group is not None or columns:
        groups = load("shoal.data.entries:sequences_by_group")(groups, group, states, columns)
    if not groups:
        raise InputError("groups is empty; give at least one group of sequences")
    first = next(iter(groups.values()))
    chains = {}
    for name, data in groups.items():
        if data.states != first.states:
            raise DataError(
                f"group {name!r} has states {list(data.states)}, another {list(first.states)}; "
                "encode all groups with the same states"
            )
        try:
            chains[name] = fit_chain(data, smoothing=smoothing, length=length, initial=initial)
        except DataError as error:
            raise DataError(f"group {name!r}: {error}") from None
    return chains


def fit_order(
    data: Any,
    order: int,
    *,
    smoothing: Number = 0,
    length: int | None = None,
    initial: Start = "stationary",
    states: StatesGiven = None,
    **columns: Any,
) -> OrderChain:
    """The chain whose next entry depends on the last `order`: counts of (tuple, next), smoothed.

    Equal to `fit_chain` for order 1. Without smoothing every tuple of states must be followed by
    something in the data. `data`, `states` and `columns` are as in `fit_chain`.
    """
    data = entries_of(data, states, **columns)
    pseudo = _smoothing(smoothing)
    size = len(data.states)
    _check_order(order, size)
    counts = np.bincount(_windows(data, order + 1), minlength=size ** (order + 1))
    counts = counts.reshape(size**order, size)
    _refuse_unknown_tuples(counts, data, order, pseudo)
    conditional = _normalise_counts(counts, pseudo)
    flat = np.full(size**order, 1 / size**order)
    chain = OrderChain(
        states=data.states, order=order, conditional=conditional, initial=flat, length=length
    )
    if _start(initial) == "empirical":
        firsts = [chain_[:order] for chain_ in data.chains if len(chain_) >= order]
        digits = np.array(firsts, dtype=np.int64) @ size ** np.arange(order)[::-1]
        return replace(
            chain, initial=_normalise_counts(np.bincount(digits, minlength=len(flat)), pseudo)
        )
    return replace(chain, initial=_stationary(chain.on_tuples().transition))


def transition_counts(data: Sequences) -> Ints:
    """n[x, y]: how often y follows x directly, inside the chains."""
    size = len(data.states)
    counts = np.bincount(_windows(data, 2), minlength=size * size)
    return np.asarray(counts.reshape(size, size), dtype=np.int64)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PrivateFit(Value):
    """A chain made from noisy transition counts, and what it cost.

    `counts` are the counts as released, before clipping at `floor`; `scale` is the scale of their
    noise. `secure` is False when the noise was seeded: then nothing is protected.
    """

    kind = "private-fit"

    chain: MarkovChain
    eta: Fraction
    counts: Ints
    scale: Fraction
    floor: Fraction
    secure: bool

    def __post_init__(self) -> None:
        object.__setattr__(self, "counts", as_read_only(self.counts, np.int64))

    @property
    def composition(self) -> AsEntryDP:
        """How a ledger adds this fit to releases about the same data."""
        return AsEntryDP(self.eta)

    def describe(self) -> str:
        """What the fit protects, and what it does not."""
        warning = "" if self.secure else " The noise was seeded: it protects nothing."
        return (
            f"The chain comes from transition counts with noise of scale "
            f"{significant(self.scale)}: it is entry-level DP with eta = {significant(self.eta)}, "
            "so it hides any one entry from somebody who knows all the others. It does not by "
            "itself hide an entry from somebody who knows how entries hang together: that loss is "
            "larger (shoal.leakage converts eta), and eta adds to every other release about the "
            "same data. The states, the number of chains and their lengths are taken as public."
            + warning
        )


def fit_private(
    data: Any,
    *,
    eta: Number,
    rng: Rng | int | None = None,
    floor: Number = 1,
    length: int | None = None,
    states: StatesGiven = None,
    **columns: Any,
) -> PrivateFit:
    """A chain from transition counts released with entry-level DP at `eta`.

    An entry in the middle of a chain takes part in two transitions, so changing it takes two from
    the counts and adds two: 4 in the l1 norm (2 at the ends of a chain). Lattice Laplace noise of
    scale 4 / eta, exactly, on each count; then counts below `floor` are raised to it and rows are
    normalised, which costs nothing. The initial law is the stationary one of the noisy matrix.
    The states must be public (not read off the data), like the lengths of the chains: they are
    given, unless `data` are sequences, which have them.
    """
    if states is None and not isinstance(data, Sequences):
        raise InputError("states is missing; give the public states, which the data must not tell")
    data = entries_of(data, states, **columns)
    amount = positive(eta, "eta")
    least = positive(floor, "floor")
    noise = LatticeLaplace(scale=TRANSITION_SENSITIVITY / amount, step=Fraction(1))
    if noise.scale > WIDEST_RATIO:
        raise InputError(f"eta is {eta}; it must be at least 4 / 2^54, or nothing is left to fit")
    source = source_for(None, rng)
    size = len(data.states)
    drawn = noise.draw(size * size, source)
    noisy = np.asarray(transition_counts(data).ravel() + drawn).reshape(size, size)
    raised = np.maximum(noisy.astype(np.float64), float(least))
    return PrivateFit(
        chain=MarkovChain.normalised(raised, states=data.states, length=length),
        eta=amount,
        counts=noisy,
        scale=noise.scale,
        floor=least,
        secure=source.secure,
    )


def _windows(data: Sequences, width: int) -> Ints:
    """Every `width` consecutive entries of a chain as one number in base k, the oldest first."""
    flat = np.concatenate(data.chains)
    lengths = np.array([len(chain) for chain in data.chains])
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(len(flat))  # entries to chain's end
    starts = np.flatnonzero(left >= width)
    codes = np.zeros(len(starts), dtype=np.int64)
    for offset in range(width):
        codes = codes * len(data.states) + flat[starts + offset]
    return codes


def _normalise_counts(counts: Ints, pseudo: Fraction) -> Floats:
    raised = np.asarray(counts, dtype=np.float64) + float(pseudo)
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def _stationary(transition: Floats) -> Floats:
    """Return the stationary law of a fitted matrix; DataError when it has more than one."""
    try:
        return stationary_law(transition)
    except InputError:
        raise DataError(
            "the fitted chain falls into parts that never reach each other, so it has no single "
            "stationary law; use smoothing above 0 or initial='empirical'"
        ) from None


def _smoothing(value: Number) -> Fraction:
    number = exact(value, "smoothing")
    if number < 0:
        raise InputError(f"smoothing is {value}; it must be 0 or more (added to every count)")
    return number


def _start(initial: str) -> str:
    if initial not in ("stationary", "empirical"):
        raise InputError(f"initial is {initial!r}; it must be 'stationary' or 'empirical'")
    return initial


def _check_order(order: int, size: int) -> None:
    """Refuse an order below 1, and one with more tuples of states than are handled."""
    if isinstance(order, bool) or order < 1:
        raise InputError(f"order is {order}; it must be a whole number of at least 1")
    if size**order > MAX_TUPLES:
        raise InputError(
            f"order {order} on {size} states has {size**order} tuples; at most {MAX_TUPLES} are "
            "handled: lower the order or merge states"
        )


def _refuse_unknown_rows(counts: Ints, data: Sequences, pseudo: Fraction) -> None:
    """Without smoothing, a state that is never left has no row."""
    if not counts.any():
        raise DataError(
            "no chain holds two entries in a row, so there is no transition to count; "
            "cut at longer gaps"
        )
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if pseudo or not len(empty):
        return
    state = data.states[empty[0]]
    if data.counts()[empty[0]]:
        raise DataError(
            f"state {state!r} occurs only at the end of chains, so nothing is known about what "
            "follows it; use smoothing above 0 (such as 1), or merge it with another state"
        )
    raise DataError(
        f"state {state!r} never occurs in the data, so nothing is known about what follows it; "
        "use smoothing above 0 (such as 1), or leave it out of the states"
    )


def _refuse_unknown_tuples(counts: Ints, data: Sequences, order: int, pseudo: Fraction) -> None:
    """Refuse data without a tuple that is followed, and tuples without a count when none is
    added.
    """
    if not counts.any():
        raise DataError(
            f"no chain is longer than order {order}; fit a lower order or cut at longer gaps"
        )
    empty = np.flatnonzero(counts.sum(axis=1) == 0)
    if pseudo or not len(empty):
        return
    digits = np.unravel_index(int(empty[0]), (len(data.states),) * order)
    shown = ", ".join(data.states[int(i)] for i in digits)
    raise DataError(
        f"{len(empty)} of {len(counts)} tuples of states are never followed by anything, the first "
        f"is ({shown}); use smoothing above 0 (such as 1), or a lower order"
    )
