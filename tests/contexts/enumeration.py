"""Beliefs under suppression by writing out every path and every output: the oracle of the masks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from shoal.contexts.search.beliefs import Day, prepare

HIDDEN = -1
Output = tuple[int, ...]
# (slot, states so far with the current one, outputs before) -> probability of suppression
Policy = Callable[[int, tuple[int, ...], Output], Any]


def joint(
    initial: Any, transition: Any, policy: Policy
) -> dict[Output, dict[tuple[int, ...], Any]]:
    """P(output, path) for every output and path of positive probability. Works on Fractions too."""
    found: dict[Output, dict[tuple[int, ...], Any]] = defaultdict(dict)
    slots = len(transition) + 1

    def follow(path: tuple[int, ...], shown: Output, weight: Any) -> None:
        t = len(path)
        if t == slots:
            found[shown][path] = weight
            return
        row = initial if t == 0 else transition[t - 1][path[-1]]
        for state, chance in enumerate(row):
            if chance == 0:
                continue
            hide = policy(t, (*path, state), shown)
            if hide != 0:
                follow((*path, state), (*shown, HIDDEN), weight * chance * hide)
            if hide != 1:
                follow((*path, state), (*shown, state), weight * chance * (1 - hide))

    follow((), (), 1)
    return found


def beliefs(
    outputs: dict[Output, dict[tuple[int, ...], Any]], slot: int, state: int
) -> Iterator[tuple[Output, Any]]:
    """P(X_slot = state | output), for every output."""
    for shown, paths in outputs.items():
        total = sum(paths.values())
        yield shown, sum(w for path, w in paths.items() if path[slot] == state) / total


def highest_rise(
    initial: Any, transition: Any, policy: Policy, secrets: list[tuple[int, int]]
) -> Any:
    """max over outputs and (slot, state) secrets of posterior - prior."""
    outputs = joint(initial, transition, policy)
    worst = 0
    for slot, state in secrets:
        prior = sum(
            w for paths in outputs.values() for path, w in paths.items() if path[slot] == state
        )
        worst = max([worst, *(belief - prior for _, belief in beliefs(outputs, slot, state))])
    return worst


def highest_prefix_rise(
    initial: Any, transition: Any, policy: Policy, secrets: list[tuple[int, int]]
) -> Any:
    """As `highest_rise`, over all prefixes of outputs."""
    outputs = joint(initial, transition, policy)
    worst = 0
    for length in range(len(transition) + 2):
        cut: dict[Output, dict[tuple[int, ...], Any]] = defaultdict(lambda: defaultdict(int))
        for shown, paths in outputs.items():
            for path, w in paths.items():
                cut[shown[:length]][path] += w
        for slot, state in secrets:
            prior = sum(
                w for paths in outputs.values() for path, w in paths.items() if path[slot] == state
            )
            worst = max([worst, *(belief - prior for _, belief in beliefs(cut, slot, state))])
    return worst


def expected_releases(initial: Any, transition: Any, policy: Policy) -> Any:
    """The mean number of slots shown."""
    outputs = joint(initial, transition, policy)
    return sum(
        w * sum(item != HIDDEN for item in shown)
        for shown, paths in outputs.items()
        for w in paths.values()
    )


def vector(suppression: Any) -> Policy:
    """The policy of one probability per slot and state."""
    return lambda t, path, shown: suppression[t][path[-1]]


def last_release(path: tuple[int, ...], shown: Output) -> tuple[int, int]:
    """Slot and state of the last release before now; (-1, 0) is "start"."""
    slots = [t for t, item in enumerate(shown) if item != HIDDEN]
    return (slots[-1], path[slots[-1]]) if slots else (-1, 0)


def random_chain(rng: np.random.Generator, *, states: int, slots: int, sparse: float = 0.0) -> Any:
    """An initial law and matrices; `sparse` is the share of zeros."""

    def rows(*shape: int) -> Any:
        weight = rng.random(shape) * (rng.random(shape) >= sparse)
        empty = weight.sum(axis=-1) == 0
        weight[empty, ..., 0] = 1.0
        return weight / weight.sum(axis=-1, keepdims=True)

    return rows(1, states)[0], rows(slots - 1, states, states)


def day_of(initial: Any, transition: Any, sensitive: Any, delta: float) -> Day:
    """The arrays of a day whose contexts `sensitive` are secret at every slot."""
    first = np.array([float(x) for x in initial])
    size = len(first)
    matrices = np.array(transition, dtype=np.float64).reshape(len(transition), size, size)
    shares = np.zeros((len(matrices) + 1, size))
    shares[:, list(sensitive)] = 1.0
    return prepare(first, matrices, shares, float(delta))
