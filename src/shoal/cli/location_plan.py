"""A location plan on the screen: the map of its policy, its hull, and every row's errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cli import show
from shoal.cli.stream_location import follows_places

if TYPE_CHECKING:
    from shoal.cli.comparison import Comparison
    from shoal.core.plan import Plan
    from shoal.mechanisms.location_machine import LocationMachine
    from shoal.mechanisms.location_stage import Stage

WIDEST, HIGHEST = 60, 24  # cells of a map that fit a screen
CENTRE, JOINED, WITHIN, OTHER = "@", "#", "+", "."
USELESS = 0.98  # an estimate this close to a guess without release is hardly worth its noise

__all__ = ["follows_places", "places_object", "print_places"]


def print_places(comparison: Comparison) -> None:
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
            f"noise as well, {OTHER} other states:"
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
    from shoal.models.grid import SquareGrid
    from shoal.models.grid_chain import SparseChain

    machine, stage = _parts(plan)
    chain = machine.chain
    if not isinstance(chain, SparseChain) or not isinstance(chain.grid, SquareGrid):
        return []
    centre = centre_of(machine, stage)
    joined, within = _around(machine, stage, centre)
    grid, cells = chain.grid, chain.cells
    marks = np.full((grid.rows, grid.columns), " ")
    rows, columns = np.divmod(np.asarray(cells), grid.columns)
    signs = np.select([joined, within, stage.members], [JOINED, WITHIN, OTHER], " ")
    marks[rows, columns] = signs
    marks[rows[centre], columns[centre]] = CENTRE
    top, left = (
        _window(int(rows[centre]), grid.rows, HIGHEST),
        _window(int(columns[centre]), grid.columns, WIDEST),
    )
    window = marks[top : top + HIGHEST, left : left + WIDEST]
    return ["".join(line) for line in window[::-1]]


def centre_of(machine: LocationMachine, stage: Stage) -> int:
    """The member nearest to the middle of all members."""
    points = machine.query.points
    middle = points[stage.members].mean(axis=0)
    inside = np.flatnonzero(stage.members)
    return int(inside[((points[inside] - middle) ** 2).sum(axis=1).argmin()])


def _around(machine: LocationMachine, stage: Stage, centre: int) -> tuple[Any, Any]:
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


def _parts(plan: Plan) -> tuple[LocationMachine, Stage]:
    from shoal.mechanisms.location_task import machine_of, reference_stage

    machine = machine_of(plan)
    return machine, reference_stage(machine)[0]


def _rows(comparison: Comparison) -> list[tuple[str, ...]]:
    from shoal.cli.comparison import standing
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
