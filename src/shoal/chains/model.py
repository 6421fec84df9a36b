"""Markov chains: the law of a time series whose next entry depends on the last one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt

from shoal.core.charge import Rng, categorical, uniforms
from shoal.core.codec import Floats, Ints, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import whole
from shoal.core.records import Sequences, checked_states, label, labels as texts
from shoal.core.task import (
    AnswerLaws,
    EntryLift,
    Influences,
    Law,
    Query,
    Quilts,
    Secrets,
    as_events,
)
from shoal.core.walk import LEAST_NORMAL, TooUnlikely, Walk, is_exact_in_doubles, laws_along

if TYPE_CHECKING:
    from shoal.core.motion import Motion

SUM_TOLERANCE = 1e-9  # rows further from 1 than this are refused
FOLLOWED = 4096  # entries whose sum is followed one by one when its variance is wanted
EXACT_TOLERANCE = 1e-12  # rows closer to 1 than this are kept bit for bit


class ChainLaw(Law):
    """A law of a series that moves in time: what exact, wasserstein and the lift ask of it."""

    __slots__ = ()
    in_time: ClassVar[bool] = True

    @property
    def tied(self) -> int | None:
        """The longest series the law covers; None when there is no limit."""
        raise NotImplementedError

    @property
    def one_law(self) -> bool:
        """Whether it is one law whose next entry depends on the last one alone."""
        return False

    def walk(self) -> Walk:
        """The law as one walk."""
        raise NotImplementedError

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        from shoal.chains.exact.windows import chain_laws

        return chain_laws(self, query, secrets)

    def lift_about(self, query: Query | None, secrets: Secrets) -> EntryLift | str:
        """Return the lift for these secrets and this query, or the sentence of its refusal."""
        events = as_events(secrets)
        if events is None:
            return Law.lift_about(self, query, secrets)
        from shoal.chains.events.answers import events_lift, refusal

        return refusal(self, events) or events_lift(self, events, query)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MarkovChain(ChainLaw):
    """X_1, X_2, … with P(X_{t+1} = y | X_t = x) = transition[x, y].

    `transition` is (k, k), or (length - 1, k, k) for one matrix per step. `length` is the longest
    sequence the law covers, and every shorter one is covered too; None covers every length. With
    `exactly`, or with one matrix per step, only data of that very length is covered. Arrays are
    checked, copied and locked.
    """

    kind = "markov-chain"
    lift_covers_quilts: ClassVar[bool] = True

    states: tuple[str, ...]
    transition: Floats
    initial: Floats
    length: int | None = None
    exactly: bool = field(default=False, metadata={"later": True})

    def __post_init__(self) -> None:
        """Refuse states, matrices, an initial law or a length out of range, or that do not fit
        together.
        """
        states = checked_states(self.states)
        transition = checked_transition(self.transition, len(states))
        initial = checked_rows(self.initial, "initial", (len(states),))
        length = checked_length(self.length)
        if transition.ndim == 3 and length != len(transition) + 1:
            raise InputError(
                f"transition holds {len(transition)} matrices and length is {length}; "
                f"one matrix per step needs length {len(transition) + 1}"
            )
        if type(self.exactly) is not bool:
            raise InputError(f"exactly is {self.exactly!r}; it must be True or False")
        if self.exactly and length is None:
            raise InputError("exactly is True, but there is no length; give the chain a length")
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "transition", transition)
        object.__setattr__(self, "initial", initial)
        object.__setattr__(self, "length", length)

    @classmethod
    def of(
        cls,
        transition: npt.ArrayLike,
        *,
        states: Sequence[Any] | None = None,
        initial: npt.ArrayLike | Literal["stationary"] = "stationary",
        length: int | None = None,
        exactly: bool = False,
    ) -> Self:
        """A chain from plain lists: states named 0, 1, … and a stationary start by default.

        With `exactly` the data always has `length` entries, and shorter data is refused: on some
        chains less noise is enough then.
        """
        transition, states = in_order(transition, states, "transition")
        matrix = numbers(transition, "transition")
        labels = state_names(states, matrix)
        if isinstance(initial, str):
            if initial != "stationary":
                raise InputError(f"initial is {initial!r}; it must be a list or 'stationary'")
            checked = checked_transition(matrix, len(labels))
            if checked.ndim != 2:
                raise InputError("initial is 'stationary', but there is one matrix per step")
            law = stationary_law(checked)
        else:
            law = numbers(initial, "initial")
        return cls(states=labels, transition=matrix, initial=law, length=length, exactly=exactly)

    @classmethod
    def normalised(
        cls, weights: npt.ArrayLike, *, states: Sequence[Any] | None = None, **rest: Any
    ) -> Self:
        """A chain from non-negative weights: each row is divided by its sum."""
        weights, states = in_order(weights, states, "weights")
        matrix = numbers(weights, "weights")
        totals = matrix.sum(axis=-1, keepdims=True)
        if not (np.isfinite(matrix).all() and (matrix >= 0).all() and (totals > 0).all()):
            raise InputError("weights must be finite and non-negative with a positive row sum")
        return cls.of(matrix / totals, states=states, **rest)

    @property
    def size(self) -> int:
        return len(self.states)

    @property
    def tied(self) -> int | None:
        return self.length

    @property
    def one_law(self) -> bool:
        return True

    @property
    def homogeneous(self) -> bool:
        """Whether every step uses the same matrix."""
        return self.transition.ndim == 2

    @property
    def fixed_length(self) -> bool:
        """Whether data of `length` entries alone is covered, and no shorter data."""
        return self.exactly or not self.homogeneous

    @property
    def stationary(self) -> bool:
        """Whether every entry has the same law: initial P = initial, within 1e-12."""
        if not self.homogeneous:
            return False
        moved = self.initial @ self.transition
        return bool(np.abs(moved - self.initial).max() <= EXACT_TOLERANCE)

    def matrix(self, step: int) -> Floats:
        """P(X_{step+1} | X_step), counted from 0."""
        chosen: Floats = self.transition if self.homogeneous else self.transition[step]
        return chosen

    def power(self, steps: int) -> Floats:
        """The law `steps` later, from each state; homogeneous chains only."""
        matrix = self._one_matrix("power")
        powered: Floats = np.linalg.matrix_power(matrix, whole(steps, "steps", least=0))
        return powered

    def marginals(self, count: int) -> Floats:
        """The laws of the first `count` entries, one row each."""
        return laws_along(self.initial, self.matrix, count)

    def marginal(self, t: int) -> Floats:
        """The law of entry t, counted from 0."""
        whole(t, "t", least=0)
        if self.homogeneous:
            return np.asarray(self.initial @ self.power(t))
        law: Floats = self.marginals(t + 1)[t]
        return law

    def support(self, t: int) -> npt.NDArray[np.bool_]:
        """Which values entry t can take; followed as booleans, so underflow hides nothing."""
        possible = np.asarray(self.initial > 0)
        for step in range(t):
            possible = np.asarray((self.matrix(step)[possible] > 0).any(axis=0))
        return possible

    def stationary_law(self) -> Floats:
        """The one law that the transition matrix keeps."""
        return stationary_law(self._one_matrix("stationary_law"))

    @property
    def reversible(self) -> bool:
        return self.homogeneous and is_reversible(self.transition)

    @property
    def gap(self) -> float:
        """How fast the chain forgets, counted with multiplicity; 0 when it does not mix."""
        return spectral_gap(self._one_matrix("gap"))

    def communicating_classes(self) -> tuple[tuple[int, ...], ...]:
        """The classes of states that reach each other, in order of their first state."""
        return communicating_classes(self._one_matrix("communicating_classes"))

    def sum_variance(self, weights: Floats, entries: int) -> Floats:
        """The variance of Σ_t weights[X_t] over `entries` entries, one per column of `weights`.

        E[S; X_t = x] and E[S²; X_t = x] followed entry by entry; beyond 4,096 entries extended in
        a straight line. In floating point: a guide to how much is known without any release.
        """
        near = min(entries, FOLLOWED)
        law = self.initial[:, None]
        first, second = law * weights, law * weights**2
        half = np.zeros(weights.shape[1])
        steps = [self.transition] * (near - 1) if self.homogeneous else self.transition[: near - 1]
        for t, step in enumerate(steps, start=1):
            moved = step.T
            law, first, second = moved @ law, moved @ first, moved @ second
            first, second = first + law * weights, second + (2 * first + law * weights) * weights
            if t + 1 == near // 2:
                half = second.sum(axis=0) - first.sum(axis=0) ** 2
        variance = second.sum(axis=0) - first.sum(axis=0) ** 2
        slope = (variance - half) / max(near - near // 2, 1)
        return np.asarray(np.maximum(variance + (entries - near) * slope, 0.0))

    def sample(self, length: int, rng: Rng) -> Ints:
        """State indices of one random sequence. Model data only: not a private release."""
        if self.length is not None and length > self.length:
            raise InputError(f"length is {length}; this chain covers at most {self.length} entries")
        draws = uniforms(length, rng)
        path = np.empty(length, dtype=np.int64)
        row = self.initial
        for t in range(length):
            path[t] = categorical(row, draws[t])
            if t + 1 < length:
                row = self.matrix(t)[path[t]]
        return path

    def _one_matrix(self, asked: str) -> Floats:
        """Return the transition matrix; refused, in the name of `asked`, when there is one per
        step.
        """
        if not self.homogeneous:
            raise InputError(
                f"{asked} needs one matrix for all steps, and this chain has one per step; "
                "look at matrix(step) instead"
            )
        return self.transition

    def walk(self) -> Walk:
        shown = np.arange(self.size)
        matrices = self.transition[None] if self.homogeneous else self.transition
        length, fixed = self.length, self.fixed_length
        return Walk(self.states, self.initial, matrices, shown, (shown,), length, fixed)

    def motion(self) -> Motion:
        from shoal.core.motion import first_order

        matrices = self.transition[None] if self.homogeneous else self.transition
        return first_order(list(matrices), self.initial, self.length, self.homogeneous)

    def lift(self, query: Query | None) -> EntryLift:
        from shoal.chains.lift.chain import chain_lift

        return chain_lift(self, query)

    def quilts(self, reach: int | None = None) -> Quilts | str:
        from shoal.chains.quilt.row import surveyed_quilts

        return surveyed_quilts(self, reach)

    def mixing(self) -> Quilts | str:
        from shoal.chains.quilt.row import mixing_of_matrix

        if not self.homogeneous:
            return "mixing needs one transition matrix for all steps, and there is one per step"
        return mixing_of_matrix(self)

    def influences(self) -> Influences:
        from shoal.chains.quilt.influence_matrix import chain_influences

        return chain_influences(self)

    def admit(self, records: Sequences) -> None:
        """Refuse sequences that are longer than the law covers, or shorter where it fixes that."""
        admit_length(records, self.length)
        if self.fixed_length and any(len(chain) != self.length for chain in records.chains):
            why = "one matrix per step" if not self.homogeneous else "exactly"
            raise DataError(
                f"a chain of the data is shorter than length {self.length} of the model; with "
                f"{why} every chain must have exactly that many entries"
            )

    def describe(self) -> str:
        length = "of any length" if self.length is None else f"of at most {self.length} entries"
        length = f"of exactly {self.length} entries" if self.exactly else length
        start = "stationary" if self.stationary else "given initial law"
        steps = "" if self.homogeneous else ", one matrix per step"
        return f"a Markov chain {length} on {self.size} states ({start}{steps})"


def admit_length(records: Sequences, length: int | None) -> None:
    """Refuse data whose longest chain exceeds `length`."""
    if length is not None and records.longest > length:
        raise DataError(
            f"the longest chain of the data exceeds length {length} of the model; "
            "cut the data at a gap or calibrate for a longer model"
        )


def checked_length(length: int | None) -> int | None:
    """The longest sequence a law covers, as a Python integer; None covers every length."""
    return None if length is None else whole(length, "length")


def state_names(states: Sequence[Any] | None, matrix: Floats) -> tuple[str, ...]:
    """Labels of the given states, or 0, 1, … for the columns of `matrix`."""
    if states is not None:
        return tuple(label(state) for state in states)
    return tuple(str(column) for column in range(matrix.shape[-1] if matrix.ndim else 0))


def in_order(
    table: Any, states: Sequence[Any] | None, field: str
) -> tuple[Any, Sequence[Any] | None]:
    """`table` and its states: a table with labels (pandas) has its rows and columns put in order.

    Rows and columns must carry the same labels; `states`, if given, must name just these, and says
    the order. A table without labels, or with pandas' own 0, 1, …, is taken as it is.
    """
    if not (hasattr(table, "index") and hasattr(table, "columns") and hasattr(table, "loc")):
        return table, states
    rows, columns = texts(table.index), texts(table.columns)
    plain = tuple(map(str, range(len(rows))))
    if states is not None and rows == columns == plain:
        return table, states
    wanted = rows if states is None else texts(states)
    for side, found in (("rows", rows), ("columns", columns)):
        if sorted(found) != sorted(wanted):
            raise InputError(
                f"{field} has {side} labelled {list(found)}, the states are {list(wanted)}; they "
                "must be the same names (in any order)"
            )
    order = [[side.index(state) for state in wanted] for side in (rows, columns)]
    return numbers(table, field)[np.ix_(*order)], wanted


def checked_transition(transition: npt.ArrayLike, size: int) -> Floats:
    """A locked (size, size) stochastic matrix, or a stack of them."""
    array = numbers(transition, "transition")
    if array.ndim not in (2, 3) or array.shape[-2:] != (size, size):
        raise InputError(
            f"transition has shape {array.shape}; {size} states need ({size}, {size}), "
            f"or (length - 1, {size}, {size}) for one matrix per step"
        )
    return checked_rows(array, "transition", array.shape)


def checked_rows(values: npt.ArrayLike, field: str, shape: tuple[int, ...]) -> Floats:
    """A locked array of the given shape whose last axis sums to 1, within 1e-9."""
    array = numbers(values, field)
    if array.shape != shape:
        raise InputError(f"{field} has shape {array.shape}; it must have shape {shape}")
    if not np.isfinite(array).all():
        raise InputError(f"{field} holds a number that is not finite; probabilities are in [0, 1]")
    if (array < 0).any():
        raise InputError(f"{field} holds {array.min():g}; probabilities must not be negative")
    totals = array.sum(axis=-1)
    off = np.abs(totals - 1.0)
    if off.max() > SUM_TOLERANCE:
        place = np.unravel_index(int(off.argmax()), off.shape)
        row = " row " + ", ".join(str(int(i)) for i in place) if place else ""
        raise InputError(
            f"{field}{row} sums to {float(totals[place]):.12g}; each row must be non-negative and "
            "sum to 1 (rescale with MarkovChain.normalised)"
        )
    if off.max() > EXACT_TOLERANCE:
        array = array / totals[..., None]
    return as_read_only(array + 0.0)  # a negative zero would have its own fingerprint


def numbers(values: npt.ArrayLike, field: str) -> Floats:
    """`values` as floats; refused when they are not a rectangular table of numbers."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{field} must be a rectangular table of numbers") from None


# What a transition matrix implies: stationary law, classes, reversibility, gap.


REVERSIBLE_TOLERANCE = 1e-9  # relative: flows between rare states count as much as others
FEW_STATES = 128  # up to which plain products find classes sooner than a graph module loads
GAP_TOLERANCE = 1e-12  # eigenvalues closer to the unit circle than this count as on it


def communicating_classes(transition: Floats) -> tuple[tuple[int, ...], ...]:
    """The classes of states that reach each other, each sorted, in order of their first state."""
    if len(transition) <= FEW_STATES:
        reached = np.eye(len(transition), dtype=np.float32) + (transition > 0)
        for _ in range(len(transition).bit_length()):
            reached = (reached @ reached > 0).astype(np.float32)
        names = ((reached > 0) & (reached.T > 0)).argmax(axis=1)  # the first state of each class
    else:
        from scipy.sparse.csgraph import connected_components

        _, names = connected_components(transition > 0, directed=True, connection="strong")
    groups: dict[int, list[int]] = {}
    for state, name in enumerate(names.tolist()):
        groups.setdefault(name, []).append(state)
    return tuple(tuple(group) for group in groups.values())


def recurrent_classes(transition: Floats) -> tuple[tuple[int, ...], ...]:
    """The communicating classes no chain leaves."""
    closed = []
    for group in communicating_classes(transition):
        inside = np.array(group)
        outside = np.setdiff1d(np.arange(len(transition)), inside)
        if not transition[np.ix_(inside, outside)].any():
            closed.append(group)
    return tuple(closed)


def stationary_law(transition: Floats) -> Floats:
    """The one law pi with pi P = pi; refused when there are several.

    Solved on the recurrent class without subtractions (Grassmann, Taksar & Heyman), so that small
    probabilities keep their relative accuracy. Transient states get exactly 0. Refused when a
    recurrent state is less likely than 2.2e-308: as a 0 it would count as impossible.
    """
    classes = recurrent_classes(transition)
    if len(classes) > 1:
        raise InputError(
            f"the chain has {len(classes)} separate recurrent classes, so its stationary law is "
            "not unique; give the initial law explicitly"
        )
    members = list(classes[0])
    law = np.zeros(len(transition))
    law[members] = _stationary_by_elimination(transition[np.ix_(members, members)])
    if not is_exact_in_doubles(law, np.isin(np.arange(len(law)), members)):
        raise TooUnlikely(
            f"the stationary law of a state is below {LEAST_NORMAL:.2g}, which no double "
            "holds; leave "
            "such states out, or give the initial law explicitly"
        )
    return law


def is_reversible(transition: Floats) -> bool:
    """Whether pi(x) P(x, y) = pi(y) P(y, x) in every recurrent class, within 1e-9 of either."""
    return all(_is_balanced(transition[np.ix_(g, g)]) for g in recurrent_classes(transition))


def spectral_gap(transition: Floats) -> float:
    """How fast the chain forgets: 2(1 - |λ2|) when reversible, else 1 - λ2 of P P*.

    λ2 is the second largest eigenvalue counted WITH multiplicity: a repeated eigenvalue 1 gives
    gap 0, "does not mix", and so do several recurrent classes. As printed (distinct eigenvalues
    only) the bound built on it is not private. Transient states are left out.
    Song, Wang & Chaudhuri 2017, Eq. (7) and (14), corrected. Rounds down.
    """
    classes = recurrent_classes(transition)
    if len(classes) > 1:
        return 0.0
    members = list(classes[0])
    within = transition[np.ix_(members, members)]
    if len(members) == 1:
        return 1.0
    law = _stationary_by_elimination(within)
    if not (law >= LEAST_NORMAL).all():
        return 0.0  # some state is too unlikely for a double, so nothing is known of mixing
    root = np.sqrt(law)
    balanced = root[:, None] * within / root[None, :]
    # singular values: equal to |λ| when reversible, and sound when it is so only nearly
    second = float(np.linalg.svd(balanced, compute_uv=False)[1])
    gap = 2.0 * (1.0 - second) if _is_balanced(within) else 1.0 - second**2
    return float(gap) - GAP_TOLERANCE if gap > 2 * GAP_TOLERANCE else 0.0


def _is_balanced(transition: Floats) -> bool:
    flow = _stationary_by_elimination(transition)[:, None] * transition
    return bool((np.abs(flow - flow.T) <= REVERSIBLE_TOLERANCE * np.maximum(flow, flow.T)).all())


def _stationary_by_elimination(transition: Floats) -> Floats:
    """The stationary law of an irreducible matrix by state reduction, no subtraction."""
    work = np.array(transition, dtype=np.float64)
    size = len(work)
    law: npt.NDArray[np.float64] = np.ones(size)
    with np.errstate(all="ignore"):  # what no double holds comes out as 0, inf or nan
        for last in range(size - 1, 0, -1):
            work[:last, last] /= work[last, :last].sum()
            work[:last, :last] += np.outer(work[:last, last], work[last, :last])
        for state in range(1, size):
            law[state] = law[:state] @ work[:state, state]
        return np.asarray(law / law.sum())
