"""Who is told how far a long audit is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.contexts.day import DayChain
from shoal.contexts.secrets import SensitiveContexts
from shoal.core.codec import Floats, Ints

Progress = Callable[[int, int], None]  # what is done, and of how much

_watching: ContextVar[Progress | None] = ContextVar("audit progress", default=None)


@contextmanager
def watched(progress: Progress) -> Iterator[None]:
    """Inside, audits of long days say how far they are."""
    token = _watching.set(progress)
    try:
        yield
    finally:
        _watching.reset(token)


@contextmanager
def part(number: int, count: int) -> Iterator[None]:
    """Inside, work is one of `count` equal parts, and `number` of them are done."""
    outer = _watching.get()
    if outer is None:
        yield
        return
    with watched(lambda done, total: outer(number * total + done, count * total)):
        yield


def tell(done: int, total: int) -> None:
    """Tells whoever watches."""
    progress = _watching.get()
    if progress is not None:
        progress(done, total)


# What an adversary may become surer of on a day, as weights on the contexts of a slot.


HALF_ULP = 2.0**-53
TINY = 1e-90  # absolute: what may vanish from a belief
END = -1  # in place of a context: nothing is shown up to the end of the day
MOST_SETS = 64  # sets of states written out for those who may learn any label


class Facts(NamedTuple):
    """Beliefs to follow: E[weight(X_t)] for fact f, t = slot[f], weight[f] in [0, 1] per context.

    Its rise over `prior[f]` counts share[f] times. `prior` is rounded down. Facts of one `kind`
    compete for the highest rise. Sorted by slot; `name` says what is believed.
    """

    slot: Ints
    weight: Floats
    share: Floats
    prior: Floats
    kind: Ints
    name: tuple[str, ...]
    kinds: int


def rounding(steps: float, size: int) -> float:
    """A bound on the relative error of a belief carried over so many steps of a day.

    A mass is a sum of products of non-negative numbers: each step adds n + 2 rounding errors to a
    law, and 2n + 6 to a mass that is kept as belief times law; nothing cancels.
    """
    return 1.01 * steps * (3 * size + 10) * HALF_ULP


def sensitive_facts(day: DayChain, secrets: SensitiveContexts) -> Facts:
    """Being in each sensitive context at each slot at which that is possible: the promise."""
    shares = secrets.shares(day)
    slot, state = np.nonzero((shares > 0) & day.support())
    weight = np.eye(day.size)[state]
    names = [repr(day.states[one]) for one in state]
    return _facts(day, slot, weight, shares[slot, state], np.zeros(len(slot), np.int64), names)


def labelled_facts(day: DayChain, secrets: SensitiveContexts) -> Facts | None:
    """Being in a sensitive context when states stand for sets of contexts; kind 0 LC2, kind 1 LC1.

    LC2 takes every label of a state for alike; LC1 may know any of them, so that any set of the
    states that may hide a context counts. None when there are too many such sets to write out.
    """
    slots: list[int] = []
    weights: list[Floats] = []
    kinds: list[int] = []
    said: list[str] = []
    possible = day.support()
    for names, when in secrets.facts(day.slots):
        labels = [secrets.stands_for(state) for state in day.states]
        fair = np.array([len(set(own) & set(names)) / len(own) for own in labels])
        hiding = np.flatnonzero(fair > 0)
        if 2 ** len(hiding) > MOST_SETS:
            return None
        for t in when:
            if not possible[t, hiding].any():
                continue
            sets = [one for one in _sets(hiding.tolist(), day.size) if one[possible[t]].any()]
            slots += [t] * (1 + len(sets))
            weights += [fair, *sets]
            kinds += [0, *([1] * len(sets))]
            said += [" or ".join(map(repr, names))] * (1 + len(sets))
    found = np.array(weights).reshape(-1, day.size)
    return _facts(day, np.array(slots), found, np.ones(len(slots)), np.array(kinds), said)


def together(first: Facts, second: Facts) -> Facts:
    """Both, as different kinds: those of `second` are counted after those of `first`."""
    pairs = zip(first[:4], second[:4], strict=True)
    slot, weight, share, prior = (np.concatenate(pair) for pair in pairs)
    kind = np.concatenate([first.kind, second.kind + first.kinds])
    order = np.argsort(slot, kind="stable")
    found = slot[order], weight[order], share[order], prior[order], kind[order]
    names = (*first.name, *second.name)
    return Facts(*found, tuple(names[one] for one in order), first.kinds + second.kinds)


def _sets(states: Sequence[int], size: int) -> list[Floats]:
    """Every non-empty set of states, as ones and zeros."""
    sizes = range(1, len(states) + 1)
    chosen = [some for count in sizes for some in combinations(states, count)]
    return [np.isin(np.arange(size), some).astype(np.float64) for some in chosen]


def _facts(
    day: DayChain, slot: Ints, weight: Floats, share: Floats, kind: Ints, name: Sequence[str]
) -> Facts:
    order = np.argsort(slot, kind="stable")
    slot, weight = np.asarray(slot, dtype=np.int64)[order], weight[order]
    prior = (weight * day.marginals()[slot]).sum(axis=1)
    low = prior * (1 - rounding(day.slots, day.size))
    kind = np.asarray(kind, dtype=np.int64)[order]
    names = tuple(name[one] for one in order)
    return Facts(slot, weight, share[order], low, kind, names, int(kind.max(initial=0)) + 1)
