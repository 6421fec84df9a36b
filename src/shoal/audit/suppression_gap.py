"""The gaps after many releases, followed together slot by slot."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from shoal.audit.suppression_facts import END, HALF_ULP, TINY, rounding
from shoal.audit.suppression_steps import (
    THIN,
    Truths,
    in_logarithms,
    in_plain,
    levelled,
    log_step,
    plain_step,
)
from shoal.core.value import Floats, Ints

if TYPE_CHECKING:
    from shoal.audit.suppression_sweep import Sweep

CONVERSION = 8 * (1 - math.log(THIN)) * HALF_ULP  # relative error of logarithms made plain
Columns = tuple[Floats, Ints, Ints]  # beliefs, the releases they belong to, their facts


class Group:
    """Releases whose laws are kept in one way, and the beliefs that are still followed.

    Columns of `law` belong to releases, those of `beliefs` to (release, fact) pairs.
    """

    def __init__(self, size: int, *, logs: bool) -> None:
        self.logs = logs
        self.origins = np.zeros((0, 2), dtype=np.int64)
        self.law, self.error = np.zeros((size, 0)), np.zeros(0)
        self.beliefs = np.zeros((size, 0))
        self.owner, self.fact = np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)

    def __len__(self) -> int:
        return len(self.origins)

    def add(self, origins: Ints, law: Floats, error: Floats, columns: Columns) -> None:
        """Further releases; `columns` are beliefs, their owners among these, and their facts."""
        beliefs, owner, fact = columns
        self.owner = np.concatenate([self.owner, owner + len(self.origins)])
        self.origins = np.concatenate([self.origins, origins])
        self.law = np.concatenate([self.law, law], axis=1)
        self.error = np.concatenate([self.error, error])
        self.beliefs = np.concatenate([self.beliefs, beliefs], axis=1)
        self.fact = np.concatenate([self.fact, fact])

    def part(self, which: Truths) -> tuple[Ints, Floats, Floats, Columns]:
        """Some releases with their columns, as `add` takes them."""
        number = np.cumsum(which) - 1
        columns = which[self.owner]
        owner = number[self.owner[columns]]
        own = self.beliefs[:, columns], owner, self.fact[columns]
        return self.origins[which], self.law[:, which], self.error[which], own

    def keep(self, which: Truths) -> None:
        """Drops the other releases."""
        if not which.all():
            kept = self.part(which)
            self.origins, self.law, self.error = kept[:3]
            self.beliefs, self.owner, self.fact = kept[3]

    def keep_columns(self, which: Truths) -> None:
        """Drops the other beliefs."""
        if not which.all():
            self.beliefs, self.owner = self.beliefs[:, which], self.owner[which]
            self.fact = self.fact[which]

    def follow(self, facts: range, weight: Floats) -> None:
        """Begins to follow the facts of today, which the context of today decides."""
        if facts:
            count = len(self)
            fresh = np.repeat(weight.T, count, axis=1)
            self.beliefs = np.concatenate([self.beliefs, fresh], axis=1)
            self.owner = np.concatenate([self.owner, np.tile(np.arange(count), len(facts))])
            self.fact = np.concatenate([self.fact, np.repeat(np.array(facts), count)])

    def possible(self) -> Truths:
        """Which contexts today can have, for each release."""
        return np.asarray(np.isfinite(self.law) if self.logs else self.law > 0)

    def suppressed(self, hidden: Floats) -> Floats:
        """The laws of today given that nothing is shown, as plain numbers up to a factor each."""
        return in_plain(self.law + in_logarithms(hidden)) if self.logs else self.law * hidden


class Gap:
    """Everything that is followed at one slot: in plain numbers, or in logarithms if need be."""

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        size = sweep.day.size
        self.plain, self.logs = Group(size, logs=False), Group(size, logs=True)
        self.waiting: dict[int, list[tuple[Ints, Floats, Floats, Columns]]] = {}

    def empty(self) -> bool:
        """Whether nothing is left to follow."""
        return not (len(self.plain) or len(self.logs) or self.waiting)

    def join(self, t: int, origins: Ints, law: Floats) -> None:
        """Takes up releases whose laws at slot t are given, unless nothing is shown after them."""
        mute = self.sweep.tables.last(*origins.T) < t
        begun = np.full(len(mute), rounding(1, len(law)))
        self.sweep.silence(t, law[:, mute], origins[mute], begun[mute])
        none = np.zeros((len(law), 0)), np.zeros(0, np.int64), np.zeros(0, np.int64)
        error, law = np.zeros(int((~mute).sum())), law[:, ~mute]
        if self.sweep.thin:
            self.logs.add(origins[~mute], in_logarithms(law), error, none)
        else:
            self.plain.add(origins[~mute], law, error, none)

    def wait(self, t: int, origins: Ints, law: Floats, error: Floats, columns: Columns) -> None:
        """Releases that join at slot t, laws in logarithms, with beliefs in what came before."""
        self.waiting.setdefault(t, []).append((origins, levelled(law), error, columns))

    def _rejoin(self, origins: Ints, law: Floats, error: Floats, columns: Columns) -> None:
        """In plain numbers, unless something is too small for them."""
        thin = np.isfinite(law) & (law < np.log(THIN))
        if self.sweep.thin or thin.any():
            self.logs.add(origins, law, error, columns)
        else:
            self.plain.add(origins, np.exp(law), error + CONVERSION, columns)

    def step(self, t: int) -> None:
        """What slot t may show, and what is believed when it shows nothing."""
        for part in self.waiting.pop(t, []):
            self._rejoin(*part)
        for group in (self.plain, self.logs):
            if len(group):
                self._step(t, group)
        law = self.plain.law
        thin = np.asarray(((law > 0) & (law < THIN)).any(axis=0))
        if thin.any():
            origins, thin_law, error, columns = self.plain.part(thin)
            self.logs.add(origins, in_logarithms(thin_law), error, columns)
            self.plain.keep(~thin)

    def _step(self, t: int, group: Group) -> None:
        tables = self.sweep.tables
        hidden = tables.hidden(t, *group.origins.T)
        self._released(t, group, group.possible() & (hidden < 1))
        here = self.sweep.here(t)
        group.follow(here, self.sweep.facts.weight[here.start : here.stop])
        mute = tables.last(*group.origins.T) <= t
        mute |= t == tables.slots - 1
        if mute.any():
            self._finish(t, group, hidden, mute)
            hidden = hidden[:, ~mute]
            group.keep(~mute)
        if len(group):
            self._hide(t, group, hidden)

    def _released(self, t: int, group: Group, shown: Truths) -> None:
        """The beliefs after each context that may be shown at t."""
        sweep = self.sweep
        for context in np.flatnonzero(shown.any(axis=1)).tolist():
            origin = group.origins[int(np.argmax(shown[context]))]
            sweep.note_release(t, context, (int(origin[0]), int(origin[1])))
        if not len(group.owner):
            return
        beliefs = np.where(np.take(shown, group.owner, axis=1), group.beliefs, -1.0)
        highest = beliefs.max(axis=0)
        told = np.flatnonzero(highest > sweep.floors(group.fact) * (1 - 1e-8))
        own = group.owner[told]
        shown_there = beliefs[:, told].argmax(axis=0)
        sweep.note_all(
            group.fact[told], highest[told], group.error[own], group.origins[own], t, shown_there
        )

    def _finish(self, t: int, group: Group, hidden: Floats, mute: Truths) -> None:
        """After t nothing can be shown: a belief is then the average over today's context."""
        sweep = self.sweep
        origins, _, error, (beliefs, owner, fact) = group.part(mute)
        kept = group.suppressed(hidden)[:, mute]
        total = kept.sum(axis=0)
        there = total > 0
        kept = kept / np.where(there, total, 1.0)
        averages = (beliefs * np.take(kept, owner, axis=1)).sum(axis=0)
        error = error + rounding(2, len(kept))
        end = np.full(len(fact), END)
        sweep.note_all(fact, averages, error[owner], origins[owner], sweep.day.slots, end)
        after = sweep.moves[t].T @ kept
        sweep.silence(t + 1, after[:, there], origins[there], error[there])

    def _hide(self, t: int, group: Group, hidden: Floats) -> None:
        """Nothing is shown at t: laws and beliefs move on to the next slot."""
        sweep = self.sweep
        step = log_step if group.logs else plain_step
        law, group.beliefs, added = step(
            group.law, hidden, group.beliefs, group.owner, sweep.moves[t]
        )
        group.law = levelled(law) if group.logs else law
        group.error = group.error + added
        top = group.beliefs.max(axis=0, initial=0.0) * (1 + group.error[group.owner]) + TINY
        group.keep_columns(top > sweep.floors(group.fact))
        group.keep(np.asarray(group.possible().any(axis=0)))
