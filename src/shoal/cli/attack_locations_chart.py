"""A PNG of an attack on a stream of places: the way, the released points, the estimates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cli.charts import ALARM, CHOSEN, OTHER, _figure, _plain, _png

if TYPE_CHECKING:
    from shoal.attacks.location import Knowing
    from shoal.cli.attack_locations import Attacked
    from shoal.core.plan import Plan
    from shoal.core.value import Floats


def track_chart(plan: Plan, found: Attacked) -> bytes:
    """A PNG: the true way, the released points and the adversary's estimate; errors over time."""
    figure = _figure(11, 5)
    left, right = figure.subplots(1, 2)
    _draw_way(left, plan, found)
    _draw_errors(right, found)
    for axes in (left, right):
        axes.legend(frameon=False, fontsize="small")
        _plain(axes)
    return _png(figure)


def _draw_way(axes: Any, plan: Plan, found: Attacked) -> None:
    beliefs = found.beliefs
    numbers = beliefs.values.shape[1]
    nowhere = np.full(numbers, np.nan)
    truth = [nowhere if place is None else beliefs.values[place] for place in found.truth]
    released = [nowhere if point is None else np.array(point) for point in found.released]
    parts = (
        ("released", released, OTHER, "x", 1.0),
        ("truth", truth, "black", "o-", 1.6),
        ("the adversary's estimate", found.errors["all"].guesses, ALARM, "o-", 1.2),
    )
    if numbers > 1:
        axes.scatter(*beliefs.values[:, :2].T, s=2, color=OTHER, zorder=0)
    for name, rows, colour, style, width in parts:
        axes.plot(
            *_columns(np.array(rows)),
            style,
            color=colour,
            label=name,
            linewidth=width,
            markersize=3,
        )
    labels = plan.task.query.labels
    if numbers > 1:
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(f"{labels[0]}, {beliefs.unit}")
        axes.set_ylabel(f"{labels[1]}, {beliefs.unit}")
    else:
        axes.set_xlabel("step")
        axes.set_ylabel(f"{labels[0]}, {beliefs.unit}")
    axes.set_title(f"The way of {found.name}, and what its stream gives away")


def _draw_errors(axes: Any, found: Attacked) -> None:
    steps = np.arange(1, len(found.truth) + 1)
    lines: tuple[tuple[Knowing, str, str], ...] = (
        ("nothing", "knowing the model alone", OTHER),
        ("past", "and the points so far", CHOSEN),
        ("all", "and the later points", ALARM),
    )
    for by, label, colour in lines:
        axes.plot(steps, found.errors[by].distance, color=colour, label=label)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.25)  # room for the legend
    axes.set_xlabel("step")
    axes.set_ylabel(f"error of the best guess, {found.beliefs.unit}")
    axes.set_title("How far the adversary is off")


def _columns(rows: Floats) -> tuple[Any, Any]:
    """The first two numbers; a single one beside its step."""
    if rows.shape[1] == 1:
        return np.arange(1, len(rows) + 1), rows[:, 0]
    return rows[:, 0], rows[:, 1]
