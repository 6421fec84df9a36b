"""How often each state follows each other one: the query, and tables made of its release.

Proof: transitions.md. Everything made of a released table is post-processing and costs nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np

from shoal.chains.fit import TRANSITION_SENSITIVITY, transition_counts
from shoal.chains.model import MarkovChain, stationary_law
from shoal.core.codec import Floats, Value
from shoal.core.errors import InputError
from shoal.core.numbers import significant, whole
from shoal.core.plan import Release
from shoal.core.records import Sequences, checked_states, sequences
from shoal.core.registry import Shown

ARROW = " -> "
BALANCED = "balanced"
DUAL_MAX_STEPS = 20_000  # evaluations of the dual; tables of 60 noisy states took 300


@dataclass(frozen=True, slots=True, eq=False)
class Transitions(Value):
    """How often each state is followed directly by each other one, inside the series.

    The labels are "x -> y", row by row. One entry takes part in at most two steps; another value
    takes each out of one cell and adds it to another: 4 in the l1 norm. All entries of a series of
    n take part in n - 1 steps: 2 (n - 1).
    """

    kind = "transitions"
    reads_series: ClassVar[bool] = True  # tables are read as series of states

    states: tuple[str, ...]
    unit: str = "steps"

    def __post_init__(self) -> None:
        """Refuse fewer than two states, and names that hold an arrow."""
        object.__setattr__(self, "states", checked_states(self.states))
        if len(self.states) < 2:
            raise InputError("states has one state, so every step is the same; name two at least")
        arrow = next((name for name in self.states if ARROW in name), None)
        if arrow is not None:
            raise InputError(
                f"states has {arrow!r}, and {ARROW!r} stands between the two states of a step; "
                "rename it"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(f"{x}{ARROW}{y}" for x in self.states for y in self.states)

    @property
    def lattice(self) -> Fraction:
        return Fraction(1)

    @property
    def lipschitz(self) -> Fraction:
        """4: two steps, each taken from one cell and added to another."""
        return Fraction(TRANSITION_SENSITIVITY)

    def moved_by(self, entries: int) -> Fraction:
        """The most a whole series of at most `entries` entries can move the table, in l1."""
        return Fraction(2 * max(entries - 1, 1))

    def read(self, data: Any) -> Sequences:
        return sequences(data, self.states)

    def evaluate(self, records: Sequences) -> tuple[int, ...]:
        """The counts, row by row."""
        return tuple(int(count) for count in transition_counts(records).ravel())

    def describe(self) -> str:
        return (
            f"how often each of {len(self.states)} states follows each of them (in {self.unit}; "
            f"one entry moves the table by at most {self.lipschitz})"
        )


def transitions(states: Sequence[Any], *, unit: str = "steps") -> Transitions:
    """How often each state follows each other one directly: a table of steps."""
    return Transitions(tuple(states), unit)


@dataclass(frozen=True, slots=True, eq=False)
class TransitionTable(Shown):
    """A released table of steps: `counts` (k, k), a row for the state before a step.

    Counts may be negative until the table is `balanced`. `total` is the number of steps, and
    `processed` names what was done to the release.
    """

    states: tuple[str, ...]
    counts: Floats
    total: float
    processed: tuple[str, ...] = ()

    @classmethod
    def of(cls, release: Release, total: int | None = None) -> TransitionTable:
        """The table of a release of `transitions`; see `from_values`."""
        return cls.from_values(release.as_dict(), total, release.processed)

    @classmethod
    def from_values(
        cls, values: Mapping[str, float], total: int | None = None, processed: Sequence[str] = ()
    ) -> TransitionTable:
        """The table of released values by their labels.

        `total` is the number of steps, entries less series, which is public. Without it the sum of
        the released counts stands for it. Refuses other labels, and a sum of 0 or less.
        """
        names = tuple(dict.fromkeys(label.split(ARROW)[0] for label in values))
        if tuple(values) != tuple(f"{x}{ARROW}{y}" for x in names for y in names):
            raise InputError("the release is no table of steps; release shoal.transitions(states)")
        counts = np.array([*values.values()]).reshape(len(names), len(names))
        known = float(counts.sum()) if total is None else float(whole(total, "total"))
        if not known > 0:
            raise InputError(
                "the released counts add up to 0 or less, so the noise is wider than the data; "
                "give total, the public number of steps"
            )
        return cls(names, counts, known, tuple(processed))

    def balanced(self) -> TransitionTable:
        """The nearest table without negative counts that flows in and out of each state alike.

        In a long series a state is entered as often as it is left, up to the two ends. Least
        squares over {N >= 0, N 1 = N' 1, sum N = total}: post-processing, so it costs nothing.
        """
        nearest = self.total * balanced_flows(self.counts / self.total)
        return replace(self, counts=nearest, processed=(*self.processed, BALANCED))

    def rows(self) -> Floats:
        """The law of the next state after each state, (k, k); even where a state was never left."""
        kept = np.maximum(self.counts, 0.0)
        sums = kept.sum(axis=1, keepdims=True)
        even = np.full_like(kept, 1 / len(self.states))
        return np.asarray(np.divide(kept, sums, out=even, where=sums > 0))

    def shares(self) -> Floats:
        """How much of a long series is spent in each state.

        Of a balanced table the row sums; else the stationary law of `rows`.
        """
        if BALANCED in self.processed:
            return np.asarray(self.counts.sum(axis=1) / self.counts.sum())
        return stationary_law(self.rows())

    def chain(self, length: int | None = None) -> MarkovChain:
        """The Markov chain of `rows` that starts in `shares`."""
        return MarkovChain.of(self.rows(), states=self.states, initial=self.shares(), length=length)

    def dot(self, least: float = 0.01) -> str:
        """The table as a graph in DOT: an edge for every step of probability `least` or more."""
        quoted = [name.replace("\\", "\\\\").replace('"', '\\"') for name in self.states]
        lines = [
            f'  "{quoted[x]}" -> "{quoted[y]}" [label="{row[y]:.2f}", '
            f"penwidth={1 + 4 * row[y]:.2f}];"
            for x, row in enumerate(self.rows().tolist())
            for y in range(len(row))
            if row[y] >= least
        ]
        return "\n".join(["digraph steps {", *lines, "}", ""])

    def shown_rows(self) -> list[dict[str, Any]]:
        """A row for each step: from, to, count, and its probability after `from`."""
        rows = self.rows()
        return [
            {"from": x, "to": y, "count": float(self.counts[i, j]), "probability": rows[i, j]}
            for i, x in enumerate(self.states)
            for j, y in enumerate(self.states)
        ]

    def draw(self, ax: Any) -> None:
        """Draw a heat map of `rows` on matplotlib axes."""
        places = range(len(self.states))
        shown = ax.imshow(self.rows(), vmin=0.0, vmax=1.0, cmap="viridis", aspect="auto")
        ax.figure.colorbar(shown, ax=ax, label="probability")
        ax.set_xticks(places, self.states, rotation=45, ha="right", fontsize=8)
        ax.set_yticks(places, self.states, fontsize=8)
        ax.set_xlabel("next state")
        ax.set_ylabel("state")

    def describe(self) -> str:
        """How many steps the table has, and what was done to it."""
        done = f" ({', '.join(self.processed)})" if self.processed else ""
        return f"{significant(self.total)} steps among {len(self.states)} states{done}"


def balanced_flows(weights: Floats) -> Floats:
    """The point of {N >= 0, row sums = column sums, sum 1} nearest to `weights`, (k, k).

    Its dual is a smooth convex function of k + 1 prices, minimised by SciPy's L-BFGS-B: the nearest
    point is N = max(weights - u_x + u_y - c, 0) at the prices u, c where the sums agree.
    """
    from scipy.optimize import minimize

    def at(prices: Floats) -> Floats:
        u = prices[:-1]
        return np.asarray(np.maximum(weights - u[:, None] + u[None, :] - prices[-1], 0.0))

    def dual(prices: Floats) -> tuple[float, Floats]:
        """Half the squared length of N plus c, and its slopes in u and c."""
        flow = at(prices)
        slopes = np.append(flow.sum(axis=0) - flow.sum(axis=1), 1.0 - flow.sum())
        return 0.5 * float((flow**2).sum()) + float(prices[-1]), slopes

    start = np.append(np.zeros(len(weights)), (weights.sum() - 1.0) / weights.size)
    options = {"maxiter": DUAL_MAX_STEPS, "maxfun": DUAL_MAX_STEPS, "ftol": 0.0, "gtol": 1e-13}
    found = minimize(dual, start, jac=True, method="L-BFGS-B", options=options)
    flow = at(found.x)
    return np.asarray(flow / flow.sum())
