"""The same release seen by somebody who knows less, as much, or more than the model.

Xiao 2017, Section 3.5 compares weak, standard and strong adversaries; what each may learn from one
release is not ordered by how much each knows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.attacks.bayes import attack, joined_walk
from shoal.attacks.beliefs import Beliefs
from shoal.attacks.codes import MOST_STEPS, coded, told_about_each
from shoal.attacks.seen import Seen
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.task import Model
from shoal.networks.attack import (
    VariableColumns,
    added_by,
    added_in_chain,
    columns_of,
    entries_seen,
    log_likelihood,
)
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable

NAMED = BayesNet | JointTable | Contagion


class Knowledge(NamedTuple):
    """Beliefs of three adversaries about every entry, before and after the same release.

    `weak` knows how frequent values are and takes entries for independent, `standard` knows the
    model, `strong` knows the model and every other entry. Each belief of the strong one is about
    an output of its own, so its log_evidence is nan.
    """

    weak: Beliefs
    standard: Beliefs
    strong: Beliefs

    def log_ratios(self) -> tuple[float, float, float]:
        """The largest log(belief after / before) of the weak, standard and strong adversary."""
        weak, standard, strong = (found.largest_rise().log_ratio for found in self)
        return weak, standard, strong

    def log_odds(self) -> tuple[float, float, float]:
        """The largest change of odds, in logs, of the weak, standard and strong adversary."""
        weak, standard, strong = (found.largest_change().log_odds for found in self)
        return weak, standard, strong


def by_knowledge(
    model: Model, seen: Sequence[Seen], entries: int | Sequence[int], truth: npt.ArrayLike
) -> Knowledge:
    """What a weak, a standard and a strong adversary believe after `seen`.

    `truth` holds the true values as numbers of columns of the beliefs; the strong adversary knows
    all of them but one. What the strong one learns from sums never exceeds the entry-level η of
    the noise.
    """
    standard = attack(model, seen, entries)
    actual = np.asarray(truth, dtype=np.int64)
    standard.privacy(actual)  # an error when these are no values of the entries
    rows, columns = _added(model, seen, standard)
    looks = entries_seen(seen, columns)
    likely = np.zeros(standard.after.shape) if looks is None else looks
    assert standard.logs is not None
    weak = _weak(standard.values, standard.logs[0], likely, rows, seen)
    return Knowledge(weak, standard, _strong(model, seen, entries, actual, likely, rows, columns))


def _added(model: Model, seen: Sequence[Seen], found: Beliefs) -> tuple[Ints, VariableColumns]:
    """What every column of every entry adds to all released numbers, and the columns."""
    if not isinstance(model, NAMED):
        count, values = found.after.shape
        columns = VariableColumns(found.values, (np.arange(values),) * count)
        return added_in_chain(found.values, count, seen), columns
    columns = columns_of(model)
    own = added_by(model, seen)
    rows = np.zeros((len(own), len(columns.values), own[0].shape[1]), dtype=np.int64)
    for v, places in enumerate(columns.places):
        rows[v] = own[v][0]  # a value that is not the variable's own weighs nothing of its own
        rows[v, places] = own[v]
    return rows, columns


def _weak(
    values: tuple[str, ...], log_before: Floats, likely: Floats, rows: Ints, seen: Sequence[Seen]
) -> Beliefs:
    """Entries independent of each other, each with the law it has under the model."""
    code = coded(rows)
    width = int(code.added.max(axis=1).sum()) + 1
    if 0.5 * float(width) ** 2 > MOST_STEPS:
        raise Refused(f"the released sums have {width} values, too many to be told apart here")
    logs = log_before + likely
    laws = []
    for added, row in zip(code.added, logs, strict=True):
        law = np.full(int(added.max()) + 1, -math.inf)
        np.logaddexp.at(law, added, row)
        laws.append(law)
    told = told_about_each(laws, log_likelihood(seen, code.numbers()[:width]))
    joint = np.array([row[added] for row, added in zip(told, code.added, strict=True)]) + logs
    return Beliefs.from_joint(values, log_before, joint)


def _strong(
    model: Model,
    seen: Sequence[Seen],
    entries: int | Sequence[int],
    truth: Ints,
    likely: Floats,
    rows: Ints,
    columns: VariableColumns,
) -> Beliefs:
    """Each entry when all others are known: its law given them, times what the output tells."""
    count, values = likely.shape
    whole = rows[np.arange(count), truth].sum(axis=0)
    before, joint = np.empty((count, values)), np.empty((count, values))
    probability = _log_probability(model, entries, columns)
    for entry in range(count):
        paths = np.tile(truth, (values, 1))
        paths[:, entry] = np.arange(values)
        logs = probability(paths)
        total = float(np.logaddexp.reduce(logs))
        if total == -math.inf:
            raise InputError("the truth is impossible under the model; nobody could know it")
        answers = whole - rows[entry, truth[entry]] + rows[entry]
        before[entry] = logs - total
        joint[entry] = before[entry] + log_likelihood(seen, answers) + likely[entry]
    found = Beliefs.from_joint(columns.values, before, joint)
    return Beliefs(found.values, found.before, found.after, logs=found.logs)


def _log_probability(
    model: Model, entries: int | Sequence[int], columns: VariableColumns
) -> Callable[[Ints], Floats]:
    """A function: log P(data) of rows of data (rows, entries), values given as columns."""
    if isinstance(model, NAMED):
        return lambda paths: _named(model, paths, columns)
    path, nodes = joined_walk(model, entries)
    steps = np.zeros(nodes - 1, np.int64) if path.homogeneous else np.arange(nodes - 1)

    def chain(paths: Ints) -> Floats:
        assert path.initial is not None
        digits = tuple(paths[:, i : nodes + i] for i in range(path.order))
        states = np.ravel_multi_index(digits, (len(path.values),) * path.order)
        moves = path.matrices[steps, states[:, :-1], states[:, 1:]]
        with np.errstate(divide="ignore"):
            return np.asarray(np.log(path.initial[states[:, 0]]) + np.log(moves).sum(axis=1))

    return chain


def _own(paths: Ints, columns: VariableColumns) -> tuple[Ints, npt.NDArray[np.bool_]]:
    """Columns as numbers of each variable's own values, and which rows hold nothing else."""
    own = np.zeros_like(paths)
    possible = np.ones(len(paths), dtype=bool)
    for v, places in enumerate(columns.places):
        number = np.full(len(columns.values), -1)
        number[places] = np.arange(len(places))
        own[:, v] = np.maximum(number[paths[:, v]], 0)
        possible &= number[paths[:, v]] >= 0
    return own, possible


def _named(
    model: BayesNet | JointTable | Contagion, paths: Ints, columns: VariableColumns
) -> Floats:
    """log P(data) of models with named variables; -inf where a value is not the variable's own."""
    own, possible = _own(paths, columns)
    with np.errstate(divide="ignore"):
        if isinstance(model, JointTable):
            logs = np.log(model.probability[tuple(own.T)])
        elif isinstance(model, BayesNet):
            logs = np.zeros(len(own))
            for v, (above, table) in enumerate(zip(model.above, model.tables, strict=True)):
                logs += np.log(table[(*(own[:, p] for p in above), own[:, v])])
        else:
            logs = _crowd(model, own)
    return np.where(possible, logs, -math.inf)


def _crowd(model: Contagion, own: Ints) -> Floats:
    logs = np.zeros(len(own))
    for g, group in enumerate(model.groups):
        states, law = own[:, list(group)], model.law_of(g)
        if model.exchangeable(g):
            ill = states.sum(axis=1)
            sets = np.array([math.log(math.comb(len(group), n)) for n in ill.tolist()])
            logs += np.log(law[ill]) - sets
        else:
            logs += np.log(law[tuple(states.T)])
    return logs
