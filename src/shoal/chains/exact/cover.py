"""Every node of a chain covered by blocks: the whole chain, or windows around each node.

Near an end the rest of the chain is taken whole; further away than the window a state is held
fixed instead, and the loss is taken for its worst value. What lies beyond a held state is
independent of the node, so the cost does not depend on the length; holding facts can only raise
the loss.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from shoal.chains.exact.blocks import (
    INSIDE,
    Block,
    Cell,
    from_start,
    joint_block,
    per_node,
    whole_nodes,
)
from shoal.chains.exact.sums import (
    HELD,
    ChainSum,
    PastOrFuture,
    Sides,
    beside,
    bounded_by_ends,
    by_secret,
    marginal_laws,
    reached_in,
    secrets_of,
    separable,
    supports,
    supports_at,
)
from shoal.chains.model import communicating_classes, stationary_law
from shoal.core.codec import Bools, Floats, Ints

if TYPE_CHECKING:
    from shoal.chains.exact.extreme_outputs import Ends
    from shoal.chains.exact.past_future import PastFutureBound

MOST_WINDOW_WORK = 60_000_000_000  # multiplications a cover of windows may cost: some ten seconds
MAX_WHOLE = 5_000_000_000  # multiplications the whole chain may cost
WHOLE_WORK = 100_000_000  # multiplications up to which the whole chain is always taken
QUICK = 10_000_000  # multiplications up to which windows are quicker than a compiled module
WINDOW_FORGETS = 1e-6  # what is left of an entry's influence when a window is wide enough
NUMBER, ROW = 30, 2_000  # what evaluating a number, and one convolution, cost beside those
MAX_KEPT = 40_000_000  # numbers a cover keeps between evaluations; beyond, blocks are built again
COMPILED = 10_000_000  # numbers from which compiled convolutions and sweeps pay
MAX_INSIDE = 25_000_000  # numbers of nodes far from both ends: copies included, 800 MB
FEW_SECRETS = 24  # up to so many all pairs are looked at for what held states tell
FAINT = 1e-250  # probabilities below this may have lost digits
CYCLE = 256  # steps within which the supports of powers are seen to repeat, or nothing is concluded
LARGEST_BLOCK = 2_000_000  # numbers one block of many nodes may hold


class NodeBlocks:
    """The blocks of one task; tables that several blocks share are made once."""

    def __init__(self, task: ChainSum, apart: PastFutureBound | None = None) -> None:
        self.task = task
        self._apart = apart
        self.sides = Sides(task)
        self._whole: list[Cell] | None = None
        self._windows: tuple[int, list[Cell]] = (0, [])

    @property
    def every_length(self) -> bool:
        return self.task.length is None or self.task.shorter

    def whole_work(self) -> float:
        """Multiplications for the whole chain; inf for any length."""
        task = self.task
        if task.length is None:
            return math.inf
        count = task.reach * task.length + task.first_reach + 1
        nodes = task.length * (task.length / 6 if task.shorter else 1)
        return self._starts * task.states * nodes * count * count / 2

    @property
    def short(self) -> bool:
        """Whether the whole chain costs so little that nothing else is tried."""
        return self.whole_work() <= WHOLE_WORK

    def window_work(self, size: int) -> float:
        """What windows of `size` cost, counted in multiplications; inf when there are none.

        The chain must be long enough; one matrix per step needs one length and one initial law.
        """
        task = self.task
        if task.length is not None and 2 * size + 1 > task.length:
            return math.inf
        if not task.homogeneous and (task.shorter or task.initial is None):
            return math.inf
        nodes = 1 if task.homogeneous else (task.length or 1)
        width = task.reach * size + 1.0
        held = nodes * task.states**3 + size * (self._starts + 1) * task.states**2
        whole = self._starts * size**2 * task.states if self.every_length else 0
        return held * (width**2 + 2 * width * NUMBER + ROW) + whole * (
            width**2 / 4 + width * NUMBER + ROW
        )

    def numbers(self, size: int) -> int:
        """How many numbers the laws of windows of `size` hold on a chain with one matrix."""
        rows = self.task.states**2 + 2 * size * self._starts * self.task.states
        if self.every_length:
            rows += self._starts * size**2
        return rows * self._secrets * (2 * self.task.reach * size + 1)

    def whole(self) -> list[Cell]:
        """Every node with all that is before and after it: the loss itself."""
        if self._whole is None:
            self._whole = list(self._whole_cells())
        return self._whole

    def windows(self, size: int) -> list[Cell]:
        """Every node with at most `size` - 1 entries on each side, and a state held beyond.

        The nodes far from both ends come first: they are the most demanding as a rule.
        """
        if self._windows[0] != size:
            cells = self._shared_windows if self.task.homogeneous else self._separate_windows
            self._windows = (size, list(cells(size)))
        return self._windows[1]

    def too_wide(self, size: int) -> bool:
        """Whether the laws of nodes far from both ends would take more memory than is allowed."""
        return self._inside(size) > MAX_INSIDE

    def _inside(self, size: int) -> int:
        return self.task.states**2 * (self._secrets + 1) * (2 * self.task.reach * size + 1)

    @property
    def _secrets(self) -> int:
        return secrets_of(self.task, self.task.label)

    def revealing(self, size: int) -> float:
        """What the states held by windows of `size` tell by themselves, under any noise.

        For nodes far from both ends: below every loss of such windows but for rounding. -inf where
        it is not known, as where a law is too small for plain doubles.
        """
        task, secrets = self.task, self._secrets
        if self.apart is not None:
            return self.apart.least_held(size, 0.0)
        if not task.homogeneous or task.initial is None or secrets > FEW_SECRETS:
            return -math.inf
        steps = np.linalg.matrix_power(task.matrices[0], size)
        if (steps[reached_in(task.matrices[0] > 0, size)] < FAINT).any():
            return -math.inf
        joint = np.zeros((secrets, task.states, task.states))
        for state, secret in enumerate(task.label.tolist()):
            joint[secret] += np.outer(steps[:, state], steps[state])
        last, most = None if task.length is None else task.length - 1, -math.inf
        with np.errstate(divide="ignore", invalid="ignore"):
            for tie in self._ties(size, size, last):
                logs = np.log(joint[:, tie.held])
                for law, offset in zip(logs, tie.offset, strict=True):
                    gaps = np.where(law > -math.inf, law - logs, -math.inf).max(axis=(1, 2))
                    most = float(np.fmax.reduce(gaps + offset, initial=most))
        return most

    @cached_property
    def all_windows_infinite(self) -> bool:
        """Whether every window is infinite, because the chain never forgets: decided by supports.

        From some state that is possible again and again one value of an entry is reached in n steps
        and another that is possible there is not, for every n from k² on; then so it is for every
        window, since none is better than a larger one. False where that is not known.
        """
        task = self.task
        if not task.homogeneous or task.offset is not None:
            return False
        edges, secrets = task.matrices[0] > 0, int(task.label.max()) + 1
        far = task.states**2
        before, alive = supports_at(task, np.array([far, far + 1]))
        if not np.array_equal(before, alive) or (task.length or math.inf) < 4 * far:
            return False
        known = by_secret(alive, task.label, secrets)
        reached = reached_in(edges, far)
        seen: set[bytes] = set()
        for _ in range(CYCLE):
            shown = by_secret(reached[alive], task.label, secrets)
            if not (shown.any(axis=1) & (shown != known).any(axis=1)).any():
                return False
            if reached.tobytes() in seen:
                return True
            seen.add(reached.tobytes())
            reached = (reached.astype(np.float32) @ edges.astype(np.float32)) > 0
        return False

    @cached_property
    def apart(self) -> PastFutureBound | None:
        """Past and future by themselves; None where the chain is short or forgets fast.

        Windows with both together are quick there, and exact.
        """
        if self.short:
            return None
        if self._apart is None and separable(self.task) and self._forgetting_work() > QUICK:
            length = self.task.length
            from shoal.chains.exact.past_future import PastFutureBound

            apart = PastFutureBound(self.task, self.marginals)
            if self.all_windows_infinite and (length is None or not apart.affordable(length)):
                return None
            return apart
        return self._apart

    @cached_property
    def ends(self) -> Ends | None:
        """What outputs beyond all answers tell; None where windows are quick or it is unknown."""
        if self.apart is not None:
            return self.apart.ends
        if self.short or not bounded_by_ends(self.task) or self._forgetting_work() <= QUICK:
            return None
        from shoal.chains.exact.extreme_outputs import Ends

        return Ends(self.task)

    def _forgetting_work(self) -> float:
        """What the window costs beyond which a chain with one matrix has forgotten an entry.

        By the second eigenvalue: a guess, which only tells which way to try first.
        """
        moduli = np.sort(np.abs(np.linalg.eigvals(self.task.matrices[0])))
        second = float(moduli[-2]) if len(moduli) > 1 else 0.0
        if not 0 < second < 1:
            return math.inf if second else 0.0
        return self.window_work(max(1, math.ceil(math.log(WINDOW_FORGETS) / math.log(second))))

    @cached_property
    def marginals(self) -> Marginals:
        return follow(self.task)

    @cached_property
    def _own_marginals(self) -> tuple[Floats, Bools]:
        """The law of every node of a chain with one matrix per step, and what is possible."""
        task = self.task
        assert task.length is not None
        return marginal_laws(task, task.length), supports(task, task.length)

    @property
    def _starts(self) -> int:
        return self.task.states if self.task.initial is None else 1

    def _whole_cells(self) -> Iterator[Cell]:
        """Yield the cells of the whole chain: one per node and length at the start, blocks inside.

        The cells keep their blocks only if all of them together are small enough.
        """
        length, keep = self.task.length, self.whole_work() <= MAX_KEPT * 100
        assert length is not None
        for node in range(length if self.task.shorter else 1):
            rests = range(length - node) if self.task.shorter else range(length - 1, length)
            yield from self._start_cells(node, length, rests, None, keep)
        if self.task.shorter:
            return
        width = self.task.states * (self.task.reach * length + self.task.first_reach + 1)
        chunk = max(1, LARGEST_BLOCK // (self._starts * width))
        for first in range(1, length, chunk):
            nodes = range(first, min(first + chunk, length))
            yield self._cell(self._whole_block, nodes, keep=keep)

    def _shared_windows(self, size: int) -> Iterator[Cell]:
        """Yield the cells of windows of `size` where inner nodes share their laws.

        One cell for each tie of inner nodes, one for each number of entries before the end, and one
        for each node at the start.
        """
        last = None if self.task.length is None else self.task.length - 1
        ends = range(size if self.every_length else 0)
        keep = self.numbers(size) <= MAX_KEPT
        for rest in (HELD, *range(size)):
            first, stop = size, last
            if last is not None and not self.every_length:
                first, stop = (size, last - size) if rest == HELD else (last - rest, last - rest)
            for tie in self._ties(size, first, stop):
                if (tie.offset > -math.inf).any():
                    place = INSIDE if rest == HELD else ("end", rest)
                    held = keep or (rest == HELD and self._inside(size) <= MAX_KEPT)
                    yield self._cell(self._tied_block, size, tie, rest, keep=held, place=place)
        for node in range(size):
            yield from self._start_cells(node, size, ends, size, keep)

    def _separate_windows(self, size: int) -> Iterator[Cell]:
        """Yield the cells of windows of `size` where every node has laws of its own."""
        length = self.task.length
        assert length is not None
        width = self.task.states**3 * (2 * size * self.task.reach + 1)
        chunk = max(1, LARGEST_BLOCK // width)
        keep = length * width <= MAX_KEPT
        for first in range(size, length - size, chunk):
            nodes = np.arange(first, min(first + chunk, length - size))
            yield self._cell(self._node_block, size, nodes, HELD, keep=keep)
        for rest in range(size):
            nodes = np.array([length - 1 - rest])
            yield self._cell(self._node_block, size, nodes, rest, keep=keep)
        for node in range(size):
            yield from self._start_cells(node, size, range(0), size, True)

    def _cell(
        self,
        make: Callable[..., Block],
        *arguments: object,
        keep: bool,
        place: tuple[str, int] = INSIDE,
    ) -> Cell:
        """Return the cell whose block `make` builds from these arguments."""
        return Cell(lambda logs: make(*arguments, logs=logs), keep=keep, place=place)

    def _start_cells(
        self, node: int, count: int, rests: range, size: int | None, keep: bool
    ) -> Iterator[Cell]:
        """A node whose past is taken whole: each of its secrets, with each of its futures."""
        labels = (self.task.label, *(self.task.first_labels if node == 0 else ()))
        for label in labels:
            parts = (node, count, rests, size, label)
            yield self._cell(self._start_block, *parts, keep=keep, place=("start", node))

    def _ties(self, lag: int, first: int, last: int | None) -> tuple[Tie, ...]:
        if self.task.initial is None:
            return every_start_ties(self.task, lag)
        return held_ties(self.task, self.marginals, lag, first, last)

    def _whole_block(self, nodes: range, *, logs: bool) -> Block:
        """Nodes of the whole chain side by side."""
        length = self.task.length
        assert length is not None
        sides = [
            (
                self.sides.past(node, length, logs=logs),
                self.sides.future(node, [length - 1 - node], length, logs=logs),
            )
            for node in nodes
        ]
        return whole_nodes(self.task, sides, np.array(nodes), logs=logs)

    def _start_block(
        self, node: int, count: int, rests: range, size: int | None, label: Ints, *, logs: bool
    ) -> Block:
        """One node with its whole past; the futures `rests` whole, and one held by a window."""
        futures: list[PastOrFuture] = []
        if size is not None:
            futures.append(self.sides.held_after(np.array([node]), size, logs=logs))
        if len(rests):
            futures.append(self.sides.future(node, rests, count, logs=logs))
        right, left = beside(futures, logs=logs), self.sides.past(node, count, logs=logs)
        compiled = size is not None and self.numbers(size) > COMPILED
        return from_start(self.task, left, right, node, label, logs=logs, compiled=compiled)

    def _tied_block(self, size: int, tie: Tie, rest: int, *, logs: bool) -> Block:
        """All nodes with a state held before them, and after them too unless `rest` are left."""
        left = self.sides.held_before(np.zeros(1, np.int64), size, logs=logs).holding(tie.held)
        right = self._future_side(np.zeros(1, np.int64), size, rest, logs)
        compiled = self.numbers(size) > COMPILED
        return joint_block(self.task, left, right, tie.offset, logs=logs, compiled=compiled)

    def _node_block(self, size: int, nodes: Ints, rest: int, *, logs: bool) -> Block:
        """The same for nodes that each have their own matrices."""
        left = self.sides.held_before(nodes - size, size, logs=logs)
        right = self._future_side(nodes, size, rest, logs)
        laws, possible = self._own_marginals
        return per_node(
            self.task,
            left,
            right,
            nodes,
            laws[nodes],
            possible[nodes],
            possible[nodes - size],
            logs=logs,
        )

    def _future_side(self, nodes: Ints, size: int, rest: int, logs: bool) -> PastOrFuture:
        if rest == HELD:
            return self.sides.held_after(nodes, size, logs=logs)
        return self.sides.future(int(nodes[0]), [rest], size, logs=logs)


# How likely two values of one entry are against each other, over all nodes far from the start.


MAX_NODES = 20_000  # marginals followed one by one; later nodes are bounded together
MARGINALS_SETTLED = 1e-12  # spread of marginal / stationary at which following stops


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
    while len(laws) < limit and _log_ratio_range(law, target, alive) > MARGINALS_SETTLED:
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
        spread=_log_ratio_range(law, target, alive),
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
    offset = _possible_offsets(task, ratios + slack, ever[:, None] & ever[None, :])
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
    return _possible_offsets(task, table + known.slack, table > -math.inf)


def _later_ratios(task: ChainSum, known: Marginals) -> Floats:
    """The bound for nodes that were not followed."""
    if known.later is None:
        everything = np.full((known.logs.shape[1],) * 2, math.inf)
        return _possible_offsets(task, everything, np.ones_like(everything, dtype=np.bool_))
    possible = known.secrets[-1]
    with np.errstate(invalid="ignore"):
        ratio = known.later[None, :] - known.later[:, None] + known.spread
    both = possible[None, :] & possible[:, None]
    return _possible_offsets(task, np.where(both, ratio, 0.0) + known.slack, both)


def _possible_offsets(task: ChainSum, offset: Floats, both: Bools) -> Floats:
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


def _log_ratio_range(law: Floats, target: Floats | None, alive: Bools) -> float:
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
