"""Section 5.2 of the Pufferfish paper: error against the family Θ = [α, 1 - α] of binary chains.

Binary chains of length 100, every initial law; the query is the share of state 1. Errors are the
exact expectations under the noise, not averages over trials. `markov-quilt` and
`markov-quilt-bound` are proved over the whole continuum. `exact` and `lift` are taken over a grid
of stationary chains, which proves nothing about the continuum, and are marked so.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from shoal.chains.families import IntervalChains
from shoal.chains.model import MarkovChain
from shoal.core.task import Task
from shoal.mechanisms.queries import mean
from studies.chains import entry_task, plan_or_none
from studies.report import Figure, Report, Table

LENGTH = 100
ALPHAS = (0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4)
EPSILONS = (Fraction(1, 5), Fraction(1), Fraction(5))
GRID = 3  # stay probabilities per axis, corners included
GROUP_PAPER = {Fraction(1, 5): 5.0, Fraction(1): 1.0, Fraction(5): 0.2}
QUERY = mean(("0", "1"), {"1": 1}, length=LENGTH, unit="share of entries")


def run() -> Report:
    """One table and one panel of the figure per epsilon."""
    tables = tuple(_table(epsilon) for epsilon in EPSILONS)
    return Report(
        name="chain-synthetic",
        source="Song, Wang & Chaudhuri 2017, Section 5.2 and Figure 4 (upper row).",
        tables=tables,
        figures=(
            Figure(
                name="chain-synthetic",
                caption="error of the share of state 1 against α",
                draw=lambda figure: _draw(figure, tables),
            ),
        ),
    )


def _table(epsilon: Fraction) -> Table:
    rows = []
    for alpha in ALPHAS:
        family = entry_task(QUERY, IntervalChains.around(alpha, length=LENGTH))
        fixed = entry_task(QUERY, *_stationary(alpha))
        rows.append(
            (
                alpha,
                _error("group", family, epsilon),
                _error("influence-matrix", fixed, epsilon),
                _error("markov-quilt-bound", family, epsilon),
                _error("markov-quilt", family, epsilon),
                _error("exact", fixed, epsilon),
                _error("lift", fixed, epsilon),
            )
        )
    return Table(
        title=f"Expected error of the share of state 1, ε = {float(epsilon):g}, T = {LENGTH}",
        columns=("α", "group", "influence-matrix*", "quilt-bound", "quilt", "exact*", "lift*"),
        rows=tuple(rows),
        notes=(
            f"the paper reports about {GROUP_PAPER[epsilon]} for GroupDP, a figure for the rest",
            f"* over a {GRID} × {GRID} grid of matrices only (corners included), not proved for "
            "the continuum, and with the stationary law to begin with",
        ),
    )


def _error(name: str, task: Task, epsilon: Fraction) -> float | None:
    plan = plan_or_none(name, task, epsilon)
    error = None if plan is None else plan.error()
    return None if error is None else error.expected


def _matrices(alpha: float) -> list[list[list[float]]]:
    stays = np.linspace(alpha, 1 - alpha, GRID)
    return [[[p, 1 - p], [1 - q, q]] for p, q in product(stays.tolist(), repeat=2)]


def _stationary(alpha: float) -> list[MarkovChain]:
    return [MarkovChain.of(matrix, length=LENGTH) for matrix in _matrices(alpha)]


def _draw(figure: Any, tables: tuple[Table, ...]) -> None:
    axes = figure.subplots(1, len(tables), sharex=True)
    for axis, table, epsilon in zip(axes, tables, EPSILONS, strict=True):
        for column, label in enumerate(table.columns[2:], start=2):
            points = [(row[0], row[column]) for row in table.rows if row[column] is not None]
            if points:
                style = "--" if label.startswith("lift") else "-"  # it lies on exact here
                axis.plot(*zip(*points, strict=True), style, marker="o", ms=4, label=label)
        axis.set_yscale("log")
        axis.set_title(f"ε = {float(epsilon):g}")
        axis.set_xlabel("α: the family is [α, 1 - α]")
    axes[0].set_ylabel("expected error of the share of state 1")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=5)
