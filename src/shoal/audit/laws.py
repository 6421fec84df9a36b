"""The law of an answer given each value of an entry, on short chains: every length at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from shoal.audit.evidence import Coded, by_value, forward, pushed
from shoal.audit.setting import Setting
from shoal.audit.testimony import Belief, Sighting
from shoal.core.value import Floats, Ints
from shoal.loss.mixture import smoothed

MOST_POINTS = 161  # of a curve


class EntryLaws(NamedTuple):
    """log P(code | value of one entry), (values, codes), for data of `nodes` nodes."""

    nodes: int
    entry: int
    prior: Floats
    laws: Floats


def entry_laws(coded: Coded, initial: Floats, nodes: int) -> Iterator[EntryLaws]:
    """The laws of every entry, for data of every length up to `nodes` nodes.

    From node i on, the table keeps the value of the entry apart: P(value, X_t = y, code), so one
    pass per entry ends in a law at every later length. Costs nodes²/2 · states² · values · codes.
    """
    tables = forward(coded, initial)
    for node in range(nodes):
        before = next(tables)
        for entry, shown in coded.walk.brought(node):
            yield from _onward(coded, before, node, entry, shown, nodes)


def laws_of_node(coded: Coded, initial: Floats, node: int, nodes: int) -> Iterator[EntryLaws]:
    """The laws of the entries one node brings, for data of every length up to `nodes` nodes."""
    tables = forward(coded, initial)
    for _ in range(node):
        next(tables)
    before = next(tables)
    for entry, shown in coded.walk.brought(node):
        yield from _onward(coded, before, node, entry, shown, nodes)


def density_curve(
    setting: Setting, coded: Coded, seen: Sighting, belief: Belief, scale: float
) -> tuple[tuple[float, float, float], ...]:
    """(output, log density given the first value, given the second) at up to 161 answers."""
    node, _ = coded.walk.place(seen.entry)
    found = next(
        law
        for law in laws_of_node(coded, belief.initial, node, seen.nodes)
        if law.entry == seen.entry and law.nodes == seen.nodes
    )
    width = found.laws.shape[1]
    density = smoothed(found.laws[list(belief.pair)], np.arange(width) / scale, logs=True)
    density += math.log(math.tanh(0.5 / scale))  # the mass of one point of the lattice of codes
    chosen = np.unique(np.linspace(0, width - 1, min(width, MOST_POINTS)).round().astype(int))
    entries = seen.nodes + coded.walk.order - 1
    unit = _unit(setting, coded)
    return tuple(
        (
            setting.output(np.array([c * unit]), entries)[0],
            float(density[0, c]),
            float(density[1, c]),
        )
        for c in chosen.tolist()
    )


def _unit(setting: Setting, coded: Coded) -> int:
    """Lattice steps per code."""
    spread = int(np.ptp(setting.multiples[:, 0]))
    return spread // int(coded.code.max()) if coded.code.max() else 1


def _onward(
    coded: Coded, before: Floats, node: int, entry: int, shown: Ints, nodes: int
) -> Iterator[EntryLaws]:
    count = len(coded.walk.values)
    prior = by_value(np.logaddexp.reduce(before, axis=1), shown, count)
    held = np.full((coded.walk.size, count, before.shape[1]), -math.inf)
    held[np.arange(coded.walk.size), shown] = before
    safe = np.where(prior > -math.inf, prior, 0.0)[:, None]
    for last in range(node, nodes):
        if last > node:
            held = pushed(held, coded.walk.matrix(last - 1))
        held = _shifted(held, coded.codes(last))
        yield EntryLaws(last + 1, entry, prior, np.logaddexp.reduce(held, axis=0) - safe)


def _shifted(held: Floats, codes: Ints) -> Floats:
    """Each state's own code added, (states, values, codes)."""
    width = held.shape[-1]
    out = np.full((*held.shape[:-1], width + int(codes.max())), -math.inf)
    for state, code in enumerate(codes.tolist()):
        out[state, :, code : code + width] = held[state]
    return out
