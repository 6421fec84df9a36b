"""PNG charts of location streams: policy and hull, traces, protection and error over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cli import show
from shoal.cli.charts import ALARM, CHOSEN, OTHER, _figure, _plain, _png
from shoal.cli.plan import PlanView
from shoal.places.views.stream import follows_places

if TYPE_CHECKING:
    from shoal.cli.charts import RowComparison
    from shoal.core.codec import Floats
    from shoal.core.plan import Plan
    from shoal.places.machine import LocationMachine
    from shoal.places.step import StepNoise

MOST_EDGES = 4000  # more would fill the page


def policy_chart(plan: Plan) -> bytes:
    """A PNG: the states with the edges of the policy, and the hull around 0."""
    from shoal.places.machine import machine_of
    from shoal.places.rows import reference_stage

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


# A location plan on the screen: the map of its policy, its hull, and every row's errors.


WIDEST, HIGHEST = 60, 24  # cells of a map that fit a screen
CENTRE, JOINED, WITHIN, ELSEWHERE = "@", "#", "+", "."
USELESS = 0.98  # an estimate this close to a guess without release is hardly worth its noise


def print_places(comparison: RowComparison) -> None:
    """The rows side by side, then the map, the hull and a word of warning where one is due."""
    out = show.console()
    unit = comparison.plan.task.query.unit
    out.print(f"Errors of every mechanism (root mean squares, in {unit}), after some steps:")
    titles = ("mechanism", "point", "estimate", "any two", "promise")
    out.print(show.table(titles, _rows(comparison), numbers=(1, 2, 3)))
    out.print(
        "(any two: the most that one output tells between any two states, in epsilon; the errors "
        "are simulated, so best compares two digits of the estimate's, and the first row wins)"
    )
    found = places_object(comparison.plan)
    out.print()
    out.print(_hull_line(found, unit))
    drawn = drawn_map(comparison.plan)
    if drawn:
        out.print()
        out.print(
            f"The policy around {found['centre']}: {JOINED} joined to it, {WITHIN} within the "
            f"noise as well, {ELSEWHERE} other states:"
        )
        for line in drawn:
            out.print(f"  {line}")
    if found["estimate_error"] > USELESS * found["guess_error"]:
        out.print()
        out.print(
            "The release tells hardly more than a guess: join fewer states (a radius, nearest "
            "states, categories), or spend more epsilon."
        )


def places_object(plan: Plan) -> dict[str, Any]:
    """The policy at the chain's own law, for `shoal plan --json`; infinity is null."""
    machine, stage = _parts(plan)
    certificate: Any = plan.certificate
    step = float(machine.query.step)
    centre = centre_of(machine, stage)
    names = machine.query.states
    joined, within = _around(machine, stage, centre)
    body = stage.protected.body
    return {
        "centre": names[centre],
        "joined": [names[i] for i in np.flatnonzero(joined)],
        "degree_of_protection": stage.degree(centre),
        "within": [names[i] for i in np.flatnonzero(within)],
        "hull": (body.vertices * step).tolist(),
        "area": float(body.content) * step ** len(machine.query.labels),
        "possible": stage.count,
        "repaired": [[names[a], names[b]] for a, b in stage.protected.added],
        "point_error": certificate.raw_error,
        "estimate_error": certificate.estimate_error,
        "guess_error": certificate.guess_error,
        "any_two_states": show.finite(stage.spread),
    }


def drawn_map(plan: Plan) -> list[str]:
    """The map around the centre, north on top; empty when the states are no map."""
    from shoal.places.map import SquareGrid
    from shoal.places.walk import SparseChain

    machine, stage = _parts(plan)
    chain = machine.chain
    if not isinstance(chain, SparseChain) or not isinstance(chain.grid, SquareGrid):
        return []
    centre = centre_of(machine, stage)
    joined, within = _around(machine, stage, centre)
    grid, cells = chain.grid, chain.cells
    marks = np.full((grid.rows, grid.columns), " ")
    rows, columns = np.divmod(np.asarray(cells), grid.columns)
    signs = np.select([joined, within, stage.members], [JOINED, WITHIN, ELSEWHERE], " ")
    marks[rows, columns] = signs
    marks[rows[centre], columns[centre]] = CENTRE
    top, left = (
        _window(int(rows[centre]), grid.rows, HIGHEST),
        _window(int(columns[centre]), grid.columns, WIDEST),
    )
    window = marks[top : top + HIGHEST, left : left + WIDEST]
    return ["".join(line) for line in window[::-1]]


def centre_of(machine: LocationMachine, stage: StepNoise) -> int:
    """The member nearest to the middle of all members."""
    points = machine.query.points
    middle = points[stage.members].mean(axis=0)
    inside = np.flatnonzero(stage.members)
    return int(inside[((points[inside] - middle) ** 2).sum(axis=1).argmin()])


def _around(machine: LocationMachine, stage: StepNoise, centre: int) -> tuple[Any, Any]:
    """Members joined to the centre, and members within its noise."""
    edges = np.concatenate(
        [machine.runtime.index.policy.edges_among(stage.members), stage.protected.added]
    )
    joined = np.zeros(len(machine.query.states), dtype=np.bool_)
    joined[edges[edges[:, 0] == centre, 1]] = True
    joined[edges[edges[:, 1] == centre, 0]] = True
    points = machine.query.points
    inside = stage.protected.body.contains(points - points[centre])
    within = stage.members & inside & ~joined
    within[centre] = False
    return joined, within


def _parts(plan: Plan) -> tuple[LocationMachine, StepNoise]:
    from shoal.places.machine import machine_of
    from shoal.places.rows import reference_stage

    machine = machine_of(plan)
    return machine, reference_stage(machine)[0]


def _rows(comparison: RowComparison) -> list[tuple[str, ...]]:
    from shoal.cli.charts import standing
    from shoal.core.numbers import significant
    from shoal.core.plan import Plan

    plans = [p for p in comparison.alternatives.values() if isinstance(p, Plan)]
    plans = [plan for plan in plans if follows_places(plan)]
    rows: list[tuple[str, ...]] = []
    for plan in plans:
        certificate: Any = plan.certificate
        chosen = "chosen, " if plan.mechanism == comparison.plan.mechanism else ""
        rows.append(
            (
                plan.mechanism,
                significant(certificate.raw_error),
                significant(certificate.estimate_error),
                "no bound" if certificate.eta is None else significant(certificate.eta),
                chosen + standing(plan),
            )
        )
    return rows


def _hull_line(found: dict[str, Any], unit: str) -> str:
    from shoal.core.numbers import significant

    shown = ", ".join(f"({', '.join(f'{v:g}' for v in row)})" for row in found["hull"][:8])
    more = ", …" if len(found["hull"]) > 8 else ""
    repaired = len(found["repaired"])
    return (
        f"The hull of the policy among {found['possible']} states: {shown}{more} {unit}; area "
        f"{significant(found['area'])}; {repaired} edge(s) added by the repair."
    )


def _window(centre: int, size: int, most: int) -> int:
    """The first row or column of a window of `most` around the centre."""
    return max(0, min(centre - most // 2, size - most))


PLAN = PlanView(print_places, lambda plan: {"places": places_object(plan)}, policy_chart)
