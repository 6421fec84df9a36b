"""Made-up series drawn from a released table of steps, and how near they are to it.

Drawing is post-processing: it reads the release alone, so any number of people costs nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from shoal.chains.transitions import TransitionTable
from shoal.core.charge import Rng, SystemRng, uniforms
from shoal.core.codec import Floats, Ints
from shoal.core.numbers import significant, whole
from shoal.core.registry import Shown

REDRAWN = 20  # noises drawn to say how far the noise of the release moves what follows from it


def draw_series(table: TransitionTable, people: int, length: int, rng: Rng | None = None) -> Ints:
    """State indices of made-up people, (people, length): a Markov chain with the table's rows.

    Each person starts in the table's long-run shares. Nothing but the table is read.
    """
    count, entries = whole(people, "people"), whole(length, "length")
    source = rng or SystemRng()
    bounds = np.cumsum(table.rows(), axis=1)
    bounds /= bounds[:, -1:]
    drawn = np.empty((count, entries), dtype=np.int64)
    drawn[:, 0] = _chosen(np.cumsum(table.shares())[None, :], uniforms(count, source))
    for entry in range(1, entries):
        drawn[:, entry] = _chosen(bounds[drawn[:, entry - 1]], uniforms(count, source))
    return drawn


def _chosen(bounds: Floats, draws: Floats) -> Ints:
    """The index of the slice of [0, last bound) that holds each draw."""
    found = (bounds <= draws[:, None] * bounds[:, -1:]).sum(axis=1)
    return np.asarray(np.minimum(found, bounds.shape[1] - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Fidelity(Shown):
    """How near drawn series are to the released table, and how far its noise may have moved it.

    Arrays have one number per state: `shares` of entries and mean `stays` in entries, each of the
    table and as drawn. The distances are in total variation; `row_noise` and `share_noise` are what
    the noise of the release comes to on average, estimated from the release alone.
    """

    states: tuple[str, ...]
    shares: Floats
    drawn_shares: Floats
    stays: Floats
    drawn_stays: Floats
    rows_apart: float
    shares_apart: float
    row_noise: float
    share_noise: float

    def shown_rows(self) -> list[dict[str, Any]]:
        """A row for each state."""
        columns = (self.shares, self.drawn_shares, self.stays, self.drawn_stays)
        names = ("share", "drawn_share", "stay", "drawn_stay")
        return [
            {
                "state": state,
                **{name: float(one[i]) for name, one in zip(names, columns, strict=True)},
            }
            for i, state in enumerate(self.states)
        ]

    def draw(self, ax: Any) -> None:
        """Draw the shares of the table and of the series side by side."""
        places = np.arange(len(self.states))
        ax.bar(places - 0.2, self.shares, 0.4, label="released table", color="#1b7f8c")
        ax.bar(places + 0.2, self.drawn_shares, 0.4, label="made-up series", color="#b7c4cc")
        ax.set_xticks(places, self.states, rotation=30, ha="right", fontsize=8)
        ax.set_ylabel("share of entries")
        ax.legend(fontsize=8)

    def describe(self) -> str:
        """The distances in two sentences."""
        return (
            f"The series are {significant(self.rows_apart, 2)} (steps) and "
            f"{significant(self.shares_apart, 2)} (shares) from the released table, in total "
            "variation. The noise of the release moved the table itself by about "
            f"{significant(self.row_noise, 2)} and {significant(self.share_noise, 2)}."
        )


def fidelity(table: TransitionTable, drawn: Ints, scale: float) -> Fidelity:
    """Return how near `drawn` is to the table, whose release had noise of this scale per count."""
    size, rows, shares = len(table.states), table.rows(), table.shares()
    steps = np.zeros(size * size, dtype=np.int64)
    if drawn.shape[1] > 1:
        codes = drawn[:, :-1] * size + drawn[:, 1:]
        steps = np.bincount(codes.ravel(), minlength=size * size)
    made = TransitionTable(table.states, steps.reshape(size, size).astype(np.float64), 1.0)
    own = np.bincount(drawn.ravel(), minlength=size) / drawn.size
    noise = [_changes_by_other_noise(table, scale, seed) for seed in range(REDRAWN)]
    return Fidelity(
        states=table.states,
        shares=shares,
        drawn_shares=own,
        stays=_stays(rows),
        drawn_stays=_stays(made.rows()),
        rows_apart=_apart(shares, rows, made.rows()),
        shares_apart=float(np.abs(shares - own).sum() / 2),
        row_noise=float(np.mean([one[0] for one in noise])),
        share_noise=float(np.mean([one[1] for one in noise])),
    )


def _apart(shares: Floats, one: Floats, other: Floats) -> float:
    """The mean total variation distance of two laws of steps, weighted by shares."""
    return float(shares @ np.abs(one - other).sum(axis=1) / 2)


def _stays(rows: Floats) -> Floats:
    """How many entries a stay in each state lasts on average; inf where a state is never left."""
    leaving = 1.0 - np.diag(rows)
    never = np.full(len(rows), np.inf)
    return np.asarray(np.divide(1.0, leaving, out=never, where=leaving > 0))


def _changes_by_other_noise(table: TransitionTable, scale: float, seed: int) -> tuple[float, float]:
    """How far other noise of the same law moves the rows and shares of a table. For a report."""
    noise = np.random.default_rng(seed).laplace(scale=scale, size=table.counts.shape)
    again = replace(table, counts=table.counts + noise, processed=()).balanced()
    rows, shares = table.rows(), table.shares()
    moved = float(np.abs(again.shares() - shares).sum() / 2)
    return _apart(shares, rows, again.rows()), moved
