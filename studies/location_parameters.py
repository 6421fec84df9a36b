"""Figures 3.5 to 3.7 of the thesis and 12, 13 of the DPHMM paper: against ε, δ, r, k and the model.

Ten tracks of a hundred steps for every row; ε = 1 and δ = .01 where not varied.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

from shoal.places.policy import PolicyGraph
from studies.location_study import COVERAGE, SUMMARY, Run, follow
from studies.location_traces import Town, towns
from studies.report import Cell, Figure, Report, Table

FEW = 10  # tracks
EPSILONS = tuple(Fraction(k, 2) for k in (1, 2, 4, 8))
DELTAS = (Fraction(1, 1000), COVERAGE, Fraction(3, 100), Fraction(1, 10))
WIDER = tuple(Fraction(k, 2) for k in (1, 2, 3, 4))
NEAREST = (4, 9, 16, 25)
FEWER = 4  # tracks of the graph-exponential law, whose matrices are made anew for each set
KEPT = (0, 1, 2, 3, 4)  # of the summary: size, drift, raw, estimate, DoP
COLUMNS = tuple(SUMMARY[k] for k in KEPT)


def run() -> Report:
    """Tables per town; the figure shows errors against ε in the generated town."""
    tables: list[Table] = []
    figures: list[Figure] = []
    for town in towns():
        swept = _epsilons(town)
        tables += [swept, _deltas(town), _graphs(town), _models(town)]
        figures.append(_figure(town, swept))
        if town.name == "generated town":
            tables.append(_noises(town))
    return Report(
        name="location-parameters",
        source=(
            "Xiao 2017, Section 3.5, Figures 3.5 to 3.7; Xiao & Xiong 2016, Section 8.3, "
            "Figures 12 and 13."
        ),
        tables=tuple(tables),
        figures=tuple(figures),
    )


def _row(town: Town, one: Run, *, own: bool = False, most: int = FEW) -> tuple[float, ...]:
    summary = follow(town, one, town.tracks[:most], own=own).summary()
    return tuple(summary[k] for k in KEPT)


def _base(town: Town) -> list[Run]:
    names = town.query.states
    complete = PolicyGraph.complete(names)
    near = PolicyGraph.within(town.query, town.radius_km)
    radius = f"G_util({float(town.radius_km):g} km)"
    return [
        Run("PIM, complete, δ-set", complete, COVERAGE),
        Run("Laplace, complete, δ-set", complete, COVERAGE, "laplace"),
        Run(f"{radius}, δ-set", near, COVERAGE),
        Run(f"{radius}, support", near),
        Run("G_trs, δ-set", PolicyGraph.transitions(town.chain), COVERAGE),
    ]


def _epsilons(town: Town) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in _base(town):
        for epsilon in EPSILONS:
            varied = replace(one, epsilon=epsilon)
            rows.append((one.title, float(epsilon), *_row(town, varied)))
    return Table(
        title=f"{town.name}: against ε",
        columns=("release", "ε", *COLUMNS),
        rows=tuple(rows),
        notes=("the paper: DoP does not change with ε on the support; errors fall with ε",),
    )


def _deltas(town: Town) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in _base(town)[:3]:
        rows += [
            (one.title, float(delta), *_row(town, replace(one, delta=delta))) for delta in DELTAS
        ]
    return Table(
        title=f"{town.name}: against δ",
        columns=("release", "δ", *COLUMNS),
        rows=tuple(rows),
        notes=("drift is at most δ only if the chain is true: one chain for all is not",),
    )


def _graphs(town: Town) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for times in WIDER:
        radius = times * town.radius_km
        one = Run(f"within {float(radius):g} km", PolicyGraph.within(town.query, radius))
        rows.append((one.title, *_row(town, one)))
    for k in NEAREST:
        one = Run(f"{k} nearest", PolicyGraph.nearest(town.query, k))
        rows.append((one.title, *_row(town, one)))
    return Table(
        title=f"{town.name}: against the radius r of G_util and k of the nearest, on the support",
        columns=("policy", *COLUMNS),
        rows=tuple(rows),
        notes=(
            "one hull serves all states: a far nearest neighbour on the outskirts stretches it",
        ),
    )


def _models(town: Town) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for one in (_base(town)[0], _base(town)[2]):
        for own in (False, True):
            title = "personal" if own else "popular"
            rows.append((one.title, title, *_row(town, one, own=own)))
    return Table(
        title=f"{town.name}: the chain of everybody against one's own (leaning on it)",
        columns=("release", "model", *COLUMNS),
        rows=tuple(rows),
        notes=(
            "the thesis: a personal model gives smaller sets, less drift and less distance",
            "both are fitted on all readings, those of the tracks among them, as in the thesis",
        ),
    )


def _noises(town: Town) -> Table:
    near = PolicyGraph.within(town.query, town.radius_km)
    rows: list[tuple[Cell, ...]] = []
    for epsilon in EPSILONS[1:]:
        for noise in ("k-norm", "staircase", "graph-exponential"):
            one = Run(noise, near, COVERAGE, noise, epsilon)
            rows.append((noise, float(epsilon), *_row(town, one, most=FEWER)))
    return Table(
        title=f"{town.name}: laws under the same policy, G_util on the δ-set, {FEWER} tracks",
        columns=("law", "ε", *COLUMNS),
        rows=tuple(rows),
        notes=("staircase and graph-exponential protect states that are not joined less",),
    )


def _figure(town: Town, table: Table) -> Figure:
    def draw(canvas: Any) -> None:
        canvas.set_size_inches(9, 3.4)
        axes = canvas.subplots(1, 2)
        for title in dict.fromkeys(row[0] for row in table.rows):
            rows = [row for row in table.rows if row[0] == title]
            at = [row[1] for row in rows]
            for axis, column in zip(axes, ("raw km", "estimate km"), strict=True):
                place = table.columns.index(column)
                axis.plot(at, [row[place] for row in rows], marker="o", label=title)
        for axis, column in zip(axes, ("raw km", "estimate km"), strict=True):
            axis.set_xscale("log", base=2)
            axis.set_yscale("log")
            axis.set_xlabel("ε")
            axis.set_title(column)
        axes[0].legend(fontsize=7)

    name = f"location-epsilon-{town.name.split()[0].lower()}"
    return Figure(name=name, caption=f"{town.name}: errors against ε", draw=draw)
