"""The same release seen by somebody who knows less, as much, or more than the model.

Xiao 2017, Section 3.5 compares weak, standard and strong adversaries; what each may learn from one
release is not ordered by how much each knows.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.attacks.bayes import attack
from shoal.attacks.beliefs import Beliefs
from shoal.attacks.codes import MOST_STEPS, coded, told_about_each
from shoal.attacks.seen import Seen, VariableColumns, entries_seen, log_likelihood
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.task import Adversary, Model


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
    adversary = model.adversary(entries)
    rows, columns = adversary.added(seen), adversary.columns
    looks = entries_seen(seen, columns)
    likely = np.zeros(standard.after.shape) if looks is None else looks
    assert standard.logs is not None
    weak = _weak(standard.values, standard.logs[0], likely, rows, seen)
    return Knowledge(weak, standard, _strong(adversary, seen, actual, likely, rows, columns))


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
    adversary: Adversary,
    seen: Sequence[Seen],
    truth: Ints,
    likely: Floats,
    rows: Ints,
    columns: VariableColumns,
) -> Beliefs:
    """Each entry when all others are known: its law given them, times what the output tells."""
    count, values = likely.shape
    whole = rows[np.arange(count), truth].sum(axis=0)
    before, joint = np.empty((count, values)), np.empty((count, values))
    for entry in range(count):
        paths = np.tile(truth, (values, 1))
        paths[:, entry] = np.arange(values)
        logs = adversary.log_probability(paths)
        total = float(np.logaddexp.reduce(logs))
        if total == -math.inf:
            raise InputError("the truth is impossible under the model; nobody could know it")
        answers = whole - rows[entry, truth[entry]] + rows[entry]
        before[entry] = logs - total
        joint[entry] = before[entry] + log_likelihood(seen, answers) + likely[entry]
    found = Beliefs.from_joint(columns.values, before, joint)
    return Beliefs(found.values, found.before, found.after, logs=found.logs)
