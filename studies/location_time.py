"""Figures 3.4 of the thesis and 10, 11 of the DPHMM paper: sets, drift, errors and time by step.

Twenty tracks of a hundred steps, ε = 1, the first position known, one chain for everybody. The
estimate (the posterior mean, free post-processing) stands beside the released point.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from shoal.core.codec import Floats
from studies.location_study import SUMMARY, Run, Trails, follow, standard_runs
from studies.location_traces import Town, towns
from studies.report import Cell, Figure, Report, Table

TIMES = (1, 5, 20, 50, 100)
DRAWN = (0, 1, 3, 6)  # the runs of the figure: PIM, Laplace, G_util on the support, G_trs


def run() -> Report:
    """Two tables and a figure per town, and one walk of the generated town."""
    tables, figures = [], []
    for town in towns():
        runs = standard_runs(town)
        trails = [follow(town, one, town.tracks) for one in runs]
        tables += [_means(town, runs, trails), _over_time(town, runs, trails)]
        figures.append(_curves(town, runs, trails))
        if town.name == "generated town":
            figures.append(_walk(trails[2]))
    return Report(
        name="location-time",
        source=(
            "Xiao 2017, Section 3.5, Figure 3.4; Xiao & Xiong 2016, Section 8, Figures 10 and 11."
        ),
        tables=tuple(tables),
        figures=tuple(figures),
    )


def _means(town: Town, runs: list[Run], trails: list[Trails]) -> Table:
    rows: list[tuple[Cell, ...]] = [
        (one.title, *trail.summary()) for one, trail in zip(runs, trails, strict=True)
    ]
    return Table(
        title=(
            f"{town.name}, {town.chain.size} cells of {float(town.query.step):g} km, "
            f"{len(town.tracks)} tracks: means over all steps"
        ),
        columns=("release", *SUMMARY),
        rows=tuple(rows),
        notes=(
            "raw is the released point, estimate the posterior mean of the same stream",
            "the chain is fitted on all readings, those of the tracks among them",
            "the paper: G_trs hides the true state among about 100 (GeoLife) and 70 (Gowalla)",
        ),
    )


def _over_time(town: Town, runs: list[Run], trails: list[Trails]) -> Table:
    places = [time - 1 for time in TIMES]
    rows: list[tuple[Cell, ...]] = [
        (one.title, *(float(trail.size[:, t].mean()) for t in places))
        for one, trail in zip(runs, trails, strict=True)
    ]
    return Table(
        title=f"{town.name}: size of C at step t",
        columns=("release", *(f"t = {time}" for time in TIMES)),
        rows=tuple(rows),
        notes=(
            "with exact inference the set grows with time for the complete graph; the text on "
            "Figure 3.4d says it stays level",
        ),
    )


def _smooth(values: Floats) -> Floats:
    """Means over tracks and over nine steps."""
    return np.convolve(values.mean(axis=0), np.ones(9) / 9, mode="valid")


def _curves(town: Town, runs: list[Run], trails: list[Trails]) -> Figure:
    def draw(canvas: Any) -> None:
        canvas.set_size_inches(12, 3.4)
        axes = canvas.subplots(1, 4)
        for place in DRAWN:
            trail = trails[place]
            series = (trail.size, trail.degree, trail.raw, trail.estimate)
            for axis, values in zip(axes, series, strict=True):
                axis.plot(_smooth(values), label=runs[place].title)
        for axis, title in zip(axes, ("size of C", "DoP", "raw km", "estimate km"), strict=True):
            axis.set_title(title)
            axis.set_xlabel("step")
        axes[0].legend(fontsize=7)

    name = f"location-time-{town.name.split()[0].lower()}"
    return Figure(name=name, caption=f"{town.name}: over time, smoothed", draw=draw)


def _walk(trail: Trails) -> Figure:
    widest = int(np.ptp(trail.truth, axis=1).sum(axis=1).argmax())

    def draw(canvas: Any) -> None:
        canvas.set_size_inches(6, 5)
        axis = canvas.subplots()
        axis.scatter(*trail.shown[widest].T, s=8, c="tab:orange", label="released")
        axis.plot(*trail.truth[widest].T, c="black", label="true")
        axis.plot(*trail.guessed[widest].T, c="tab:blue", lw=1, label="estimate")
        axis.set_aspect("equal")
        axis.set_xlabel("km east")
        axis.set_ylabel("km north")
        axis.legend()

    return Figure(
        name="location-walk",
        caption="One walk: true, released, estimated",
        draw=draw,
    )
