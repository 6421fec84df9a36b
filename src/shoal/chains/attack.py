"""The adversary who holds a chain: forward and backward over states and sums."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from shoal.attacks.beliefs import (
    Beliefs,
    Seen,
    SumSeen,
    VariableColumns,
    VariablesSeen,
    entries_seen,
    log_likelihood,
)
from shoal.attacks.codes import encode_sums as as_code
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.progress import in_time, report_progress
from shoal.core.task import Model
from shoal.core.walk import Coded, Walk, add_own_entries, backward, by_value, push_step

MOST_ATTACK_WORK = 2_000_000_000  # nodes × states² × codes of one pass
MOST_PATHS = 200_000_000  # cells of the best-path table


class ChainAdversary:
    """Somebody who holds a walk through the entries of one series, or of several in a row."""

    def __init__(self, model: Model, entries: int | Sequence[int]) -> None:
        path = model.walk()
        if isinstance(path, str) or path.initial is None:
            raise Refused(f"an adversary holds one law; {model.describe()} is not one")
        self._path, self._nodes = joined_walk(path, entries)

    @property
    def columns(self) -> VariableColumns:
        """Every entry may take every value."""
        values = self._path.values
        total = self._nodes + self._path.order - 1
        return VariableColumns(values, (np.arange(len(values)),) * total)

    def added(self, seen: Sequence[Seen]) -> Ints:
        """What each value of each entry adds to all released numbers side by side.

        (entries, values, numbers). The variables of a sum with weights of their own are the
        entries in their order; each takes the states of the chain.
        """
        return added_in_chain(self._path.values, len(self.columns.places), seen)

    def beliefs(self, seen: Sequence[Seen]) -> Beliefs:
        """The posterior of every entry."""
        coded, likelihood = self._likelihood_of_sums(seen)
        joint = np.concatenate(_joints(coded, self._nodes, likelihood))
        prior = _log_priors(self._path, self._nodes)
        return Beliefs.from_joint(self._path.values, prior, joint)

    def over_time(self, seen: Sequence[Seen]) -> Floats:
        """The posterior of each entry given what was seen of the entries up to it."""
        coded, _ = self._likelihood_of_sums(seen)
        path = coded.walk
        assert path.initial is not None
        with np.errstate(divide="ignore"):
            law = np.log(path.initial)
        rows = []
        for node in range(self._nodes):
            for entry, shown in path.entries_read_at(
                node
            ):  # the first of a longer memory brings several
                law = law + (0.0 if coded.tilt is None else coded.tilt[entry][shown])
                total = np.logaddexp.reduce(law)
                if total == -math.inf:
                    raise InputError("what was seen is impossible under the model")
                law = law - total
                rows.append(by_value(law, shown, len(path.values)))
            if node + 1 < self._nodes:
                law = push_step(law[:, None], path.matrix(node))[:, 0]
        return np.exp(np.array(rows))

    def likeliest(self, seen: Sequence[Seen]) -> tuple[str, ...]:
        """The data that is likeliest as a whole: Viterbi over states and sums."""
        coded, likelihood = self._likelihood_of_sums(seen)
        path, nodes = self._path, self._nodes
        if nodes * path.size * coded.width(nodes) > MOST_PATHS:
            raise Refused("the data is too long for its best path; attack a shorter stretch")
        states = _best_states(coded, nodes, likelihood)
        first = [int(values[states[0]]) for values in path.first]
        rest = [int(path.shown[state]) for state in states[1:]]
        return tuple(path.values[value] for value in first + rest)

    def log_probability(self, rows: Ints) -> Floats:
        """log P(data) of rows of data (rows, entries), values given as columns."""
        path, nodes = self._path, self._nodes
        assert path.initial is not None
        steps = np.zeros(nodes - 1, np.int64) if path.homogeneous else np.arange(nodes - 1)
        digits = tuple(rows[:, i : nodes + i] for i in range(path.order))
        states = np.ravel_multi_index(digits, (len(path.values),) * path.order)
        moves = path.matrices[steps, states[:, :-1], states[:, 1:]]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(path.initial[states[:, 0]]) + np.log(moves).sum(axis=1))

    def _likelihood_of_sums(self, seen: Sequence[Seen]) -> tuple[Coded, Floats]:
        """The walk with all sums as one code, and the likelihood of each code."""
        path, nodes = self._path, self._nodes
        tilts = entries_seen(seen, self.columns)
        code = as_code(self.added(seen))
        cells = code.width * nodes * path.size**2
        if cells > MOST_ATTACK_WORK:
            raise Refused(
                f"the attack on {len(code.start)} numbers at once would take {cells:.1g} steps; "
                "look at one of them, or at a shorter stretch of data"
            )
        alike = bool((code.added == code.added[:1]).all())
        coded = Coded(path, code.added[0] if alike else code.added, tilts)
        return coded, log_likelihood(seen, code.numbers()[: coded.width(nodes)])


def joined_walk(path: Walk, entries: int | Sequence[int]) -> tuple[Walk, int]:
    """One walk through all chains, and its nodes: a new chain draws its first state afresh.

    Chains without entries are left out. A model with one matrix per step also gives the law of
    data that ends earlier, never of data that goes on for longer.
    """
    lengths = [n for n in ([entries] if isinstance(entries, int) else entries) if n != 0]
    shortest, longest = min(lengths, default=0), max(lengths, default=0)
    if shortest < path.order:
        raise Refused(f"data of {shortest} entries is shorter than the model's order")
    if path.fixed and longest > len(path.matrices) + 1:
        raise Refused(
            f"data of {longest} entries is longer than the model, which has one matrix for each "
            f"step of {len(path.matrices) + 1}; give it more, or attack a shorter stretch"
        )
    if len(lengths) == 1:
        return path, longest - path.order + 1
    if path.order > 1:
        raise Refused("several chains of higher order are not attacked together; take one")
    assert path.initial is not None
    restart = np.broadcast_to(path.initial, (path.size, path.size))
    matrices = []
    for length in lengths:
        matrices += [path.matrix(step) for step in range(length - 1)] + [restart]
    joined = Walk(
        path.values, path.initial, np.array(matrices[:-1]), path.shown, path.first, sum(lengths)
    )
    return joined, sum(lengths)


def added_in_chain(states: tuple[str, ...], entries: int, seen: Sequence[Seen]) -> Ints:
    """What each value of each entry of a chain adds to all released numbers side by side.

    (entries, values, numbers). The variables of a sum with weights of their own are the entries in
    their order; each takes the states of the chain.
    """
    tables = []
    for one in seen:
        if isinstance(one, VariablesSeen):
            if len(one.variables) != entries or any(own != states for own in one.domains):
                raise InputError(
                    f"the release is about {len(one.variables)} variables of their own; the chain "
                    f"has {entries} entries with the values {list(states)}"
                )
            tables.append(np.stack(one.weights))
        elif isinstance(one, SumSeen):
            weights = one.weights_of(states)
            tables.append(np.broadcast_to(weights, (entries, *weights.shape)))
    if not tables:
        return np.zeros((entries, len(states), 1), dtype=np.int64)
    return np.concatenate(tables, axis=2)


def _joints(coded: Coded, nodes: int, likelihood: Floats) -> list[Floats]:
    """log P(entry = value, output) of every entry, in order.

    Forward tables are kept at every √nodes-th node only and made again where they are needed.
    """
    path = coded.walk
    assert path.initial is not None
    block = max(1, math.isqrt(nodes))
    with np.errstate(divide="ignore"):
        table = np.log(path.initial)[:, None]
    kept = [table]
    for node in range(nodes - 1):
        table = push_step(add_own_entries(coded, table, node), path.matrix(node))
        if (node + 1) % block == 0:
            kept.append(table)
            report_progress(node, 3 * nodes)
            in_time("the attack")
    later = backward(coded, nodes, likelihood)
    rows: list[Floats] = []
    for number in range(len(kept) - 1, -1, -1):
        report_progress(3 * nodes - 2 * number * block, 3 * nodes)
        in_time("the attack")
        first, last = number * block, min((number + 1) * block, nodes)
        earlier = [kept[number]]
        for node in range(first, last - 1):
            earlier.append(push_step(add_own_entries(coded, earlier[-1], node), path.matrix(node)))
        for node in range(last - 1, first - 1, -1):
            joint = np.logaddexp.reduce(earlier[node - first] + next(later), axis=1)
            contributions = [
                by_value(joint, shown, len(path.values)) for _, shown in path.entries_read_at(node)
            ]
            rows.append(np.array(contributions))
    return rows[::-1]


def _log_priors(path: Walk, nodes: int) -> Floats:
    """log P(entry = value) of every entry; in logs, so that no rare value becomes impossible."""
    assert path.initial is not None
    with np.errstate(divide="ignore"):
        law = np.log(path.initial)
    rows = []
    for node in range(nodes):
        rows += [by_value(law, shown, len(path.values)) for _, shown in path.entries_read_at(node)]
        law = push_step(law[:, None], path.matrix(node))[:, 0] if node + 1 < nodes else law
    return np.array(rows)


def _best_states(coded: Coded, nodes: int, likelihood: Floats) -> list[int]:
    """The states of the likeliest path: the largest over predecessors instead of their sum."""
    path = coded.walk
    assert path.initial is not None
    with np.errstate(divide="ignore"):
        table = np.log(path.initial)[:, None]
    pointers: list[Ints] = []
    for node in range(nodes - 1):
        ready = add_own_entries(coded, table, node)
        with np.errstate(divide="ignore"):
            moves = np.log(path.matrix(node))[:, :, None] + ready[:, None, :]
        pointers.append(np.argmax(moves, axis=0).astype(np.int16))
        table = moves.max(axis=0)
    last = add_own_entries(coded, table, nodes - 1) + likelihood
    if last.max() == -math.inf:
        raise InputError("what was seen is impossible under the model")
    state, code = (int(i) for i in np.unravel_index(int(np.argmax(last)), last.shape))
    states = [state]
    code -= int(coded.codes(nodes - 1)[state])
    for node in range(nodes - 2, -1, -1):
        state = int(pointers[node][state, code])
        code -= int(coded.codes(node)[state])
        states.append(state)
    return states[::-1]
