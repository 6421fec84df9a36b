"""PNG charts of location streams: policy and hull, traces, protection and error over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cli.charts import ALARM, CHOSEN, OTHER, _figure, _plain, _png

if TYPE_CHECKING:
    from shoal.core.plan import Plan
    from shoal.core.value import Floats

MOST_EDGES = 4000  # more would fill the page


def policy_chart(plan: Plan) -> bytes:
    """A PNG: the states with the edges of the policy, and the hull around 0."""
    from shoal.cli.location_plan import centre_of
    from shoal.mechanisms.location_task import machine_of, reference_stage

    machine = machine_of(plan)
    stage, _ = reference_stage(machine)
    figure = _figure(10, 5)
    left, right = figure.subplots(1, 2)
    values, step = _flat(machine.query.values), float(machine.query.step)
    edges = machine.runtime.index.policy.edges_among(stage.members)
    for a, b in edges[:: max(1, len(edges) // MOST_EDGES)]:
        left.plot(*values[[a, b]].T, color=OTHER, linewidth=0.5)
    for a, b in stage.protected.added:
        left.plot(*values[[a, b]].T, color=ALARM, linewidth=1.5)
    left.scatter(*values[stage.members].T, s=6, color=CHOSEN)
    centre = values[centre_of(machine, stage)]
    hull = _flat(stage.protected.body.vertices * step)
    closed = np.vstack([hull, hull[:1]])
    left.plot(*(closed + centre).T, color="black", linewidth=1)
    left.set_title(f"{len(edges)} edges (repairs in red) and one hull")
    right.fill(*closed.T, color=CHOSEN, alpha=0.3)
    right.plot(*closed.T, color=CHOSEN)
    right.axhline(0, color=OTHER, linewidth=0.5)
    right.axvline(0, color=OTHER, linewidth=0.5)
    right.set_title("the sensitivity hull")
    for axes in (left, right):
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(machine.query.unit)
        _plain(axes)
    return _png(figure)


def trace_chart(truth: Floats, released: Floats, estimated: Floats, unit: str) -> bytes:
    """A PNG: one trace as it was, as released, and as estimated; rows that are not a number
    (nothing released) are left out."""
    figure = _figure(7, 6)
    axes = figure.subplots()
    parts = (
        ("released", released, OTHER, "."),
        ("estimate", estimated, CHOSEN, "-"),
        ("true", truth, "black", "-"),
    )
    for name, rows, colour, style in parts:
        flat = _flat(rows)
        shown = flat[np.isfinite(flat).all(axis=1)]
        axes.plot(*shown.T, style, color=colour, label=name, linewidth=1)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(unit)
    axes.legend(frameon=False)
    _plain(axes)
    return _png(figure)


def time_chart(
    truth: Floats, released: Floats, estimated: Floats, degrees: Any, possible: Any, unit: str
) -> bytes:
    """A PNG: degree of protection and possible states above, errors below, step by step."""
    figure = _figure(8, 6)
    above, below = figure.subplots(2, 1, sharex=True)
    steps = np.arange(1, len(truth) + 1)
    above.plot(steps, possible, color=OTHER, label="possible states")
    above.plot(steps, degrees, color=CHOSEN, label="degree of protection")
    above.set_ylim(bottom=0)
    above.legend(frameon=False)
    for name, rows, colour in (("released", released, OTHER), ("estimate", estimated, CHOSEN)):
        errors = np.sqrt(((np.asarray(rows) - truth) ** 2).sum(axis=1))
        below.plot(steps, errors, color=colour, label=f"error of the {name}")
    below.set_ylabel(unit)
    below.set_xlabel("step")
    below.set_ylim(bottom=0)
    below.legend(frameon=False)
    for axes in (above, below):
        _plain(axes)
    return _png(figure)


def _flat(rows: Any) -> Floats:
    """The first two coordinates, a 0 beside a single one."""
    table = np.asarray(rows, dtype=np.float64)
    if table.shape[1] == 1:
        table = np.hstack([table, np.zeros_like(table)])
    return table[:, :2]
