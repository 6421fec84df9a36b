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

RELEASED = "#d9a441"


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
    beliefs, guesses = found.beliefs, found.errors["all"].guesses
    places = list(enumerate(found.truth, 1))
    truth = [(t, beliefs.values[place]) for t, place in places if place is not None]
    released = [(t, np.array(z)) for t, z in enumerate(found.released, 1) if z is not None]
    parts = (
        ("released", released, RELEASED, "x", 1.0),
        ("truth", truth, "black", "o-", 1.6),
        ("the adversary's estimate", list(enumerate(guesses, 1)), ALARM, "o-", 1.2),
    )
    shown = []
    for name, rows, colour, style, width in parts:
        if rows:
            shown.append(_flat(rows))
            look = {"color": colour, "label": name, "linewidth": width, "markersize": 3}
            axes.plot(*shown[-1].T, style, **look)
    labels, numbers = plan.task.query.labels, beliefs.values.shape[1]
    if numbers > 1:
        _draw_states(axes, beliefs.values[:, :2], np.concatenate(shown))
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(f"{labels[0]}, {beliefs.unit}")
        axes.set_ylabel(f"{labels[1]}, {beliefs.unit}")
    else:
        axes.set_xlabel("step")
        axes.set_ylabel(f"{labels[0]}, {beliefs.unit}")
    axes.set_title(f"The way of {found.name}, and what the stream gives away")


def _draw_states(axes: Any, values: Floats, shown: Floats) -> None:
    """The states around what is drawn, as small dots."""
    low, high = shown.min(axis=0), shown.max(axis=0)
    margin = (high - low).max() * 0.05
    near = ((values >= low - margin) & (values <= high + margin)).all(axis=1)
    axes.scatter(*values[near].T, s=1, color=OTHER, zorder=0)


def _draw_errors(axes: Any, found: Attacked) -> None:
    steps = np.arange(1, len(found.truth) + 1)
    lines: tuple[tuple[Knowing, str, str], ...] = (
        ("nothing", "knowing the model alone", OTHER),
        ("past", "and the points so far", CHOSEN),
        ("all", "and the later points", ALARM),
    )
    for by, label, colour in lines:
        axes.plot(steps, found.errors[by].distance, ".-", color=colour, label=label, markersize=3)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.25)  # room for the legend
    axes.set_xlabel("step")
    axes.set_ylabel(f"error of the best guess, {found.beliefs.unit}")
    axes.set_title("How far the adversary is off")


def _flat(rows: list[tuple[int, Floats]]) -> Floats:
    """The first two numbers of each step; a single one beside its step."""
    if len(rows[0][1]) == 1:
        return np.array([(t, float(values[0])) for t, values in rows])
    return np.array([values[:2] for _, values in rows])
