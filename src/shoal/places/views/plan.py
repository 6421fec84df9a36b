"""Places in `shoal plan` and `shoal leak`: charts, sentences, what plain noise leaks over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from shoal.cli import show
from shoal.cli.charts import ALARM, CHOSEN, OTHER, _figure, _hide_frame, _png
from shoal.cli.leak import StreamLeak
from shoal.cli.plan import PlanView, print_refusals
from shoal.core.errors import Refused
from shoal.core.numbers import finite, positive, significant
from shoal.core.plan import Plan
from shoal.mechanisms.choice import choose
from shoal.mechanisms.table import standing
from shoal.noise.primitives import SeededRng
from shoal.places.audit import sequence_leakage
from shoal.places.machine import LocationMachine, machine_of
from shoal.places.map import SquareGrid
from shoal.places.rows import (
    Rehearsal,
    reference_stage,
    rehearse_streams,
    sample_path,
    without_watch,
)
from shoal.places.stream import LocationStream
from shoal.places.walk import grid_of

if TYPE_CHECKING:
    from shoal.cli.plan import RowComparison
    from shoal.core.codec import Bools, Floats, Ints
    from shoal.places.queries import EventWatch
    from shoal.places.step import StepNoise
    from shoal.spec.request import Request


MOST_EDGES = 4000  # more would fill the page
# of parts of a policy; far from the grey of those alone and the red of repairs
PART_COLOURS = ["#1b7f8c", "#7a5195", "#bc8f00", "#2f6db5", "#3d8c40", "#8c564b", "#c2559f"]


def policy_chart(plan: Plan) -> bytes:
    """A PNG: the states with the edges of the policy, and the hull around 0."""
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
    left.scatter(*values[stage.members].T, s=6, c=_colours_of_parts(edges, stage.members))
    centre = values[centre_of(machine, stage)]
    hull = _flat(stage.protected.body.vertices * step)
    closed = np.vstack([hull, hull[:1]])
    left.plot(*(closed + centre).T, color="black", linewidth=1)
    left.set_title(
        f"who looks like whom: {len(edges)} edges (repairs in red), one hull\n"
        "one colour: alike, directly or by others between; grey: joined to nobody",
        fontsize=9,
    )
    right.fill(*closed.T, color=CHOSEN, alpha=0.3)
    right.plot(*closed.T, color=CHOSEN)
    right.axhline(0, color=OTHER, linewidth=0.5)
    right.axvline(0, color=OTHER, linewidth=0.5)
    right.set_title("the sensitivity hull")
    for axes in (left, right):
        axes.set_aspect("equal", adjustable="datalim")
        axes.set_xlabel(machine.query.unit)
        _hide_frame(axes)
    return _png(figure)


def _colours_of_parts(edges: Ints, members: Bools) -> list[str]:
    """A colour for each member: one for each connected part of the policy, grey for those alone."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    size = len(members)
    links = coo_array((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(size, size))
    part = connected_components(links, directed=False)[1]
    counts = np.bincount(part, minlength=size)
    shown = {own: k for k, own in enumerate(dict.fromkeys(part[counts[part] > 1].tolist()))}
    colours = [CHOSEN] if len(shown) <= 1 else PART_COLOURS
    return [
        colours[shown[own] % len(colours)] if own in shown else OTHER
        for own in part[members].tolist()
    ]


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
    axes.set_ylabel(unit)
    axes.legend(frameon=False)
    _hide_frame(axes)
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
        _hide_frame(axes)
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
    out.print(show.table(titles, _mechanism_rows(comparison), numbers=(1, 2, 3)))
    out.print(
        "(any two: the most that one output tells between any two states, in epsilon; the errors "
        "are simulated, so best compares two digits of the estimate's, and the first row wins)"
    )
    print_refusals(comparison, "location-")
    found = places_object(comparison.plan)
    out.print()
    out.print(_hull_line(found, unit))
    out.print(_alike_line(found["alike"]))
    drawn = drawn_map(comparison.plan)
    if drawn:
        out.print()
        out.print(
            f"The policy around {found['centre']}: {JOINED} joined to it, {WITHIN} within the "
            f"noise as well, {ELSEWHERE} other states:"
        )
        for line in drawn:
            out.print(f"  {line}")
    for line in event_lines(found["events"], unit):
        out.print()
        out.print(line)
    if found["estimate_error"] > USELESS * found["guess_error"]:
        out.print()
        out.print(
            "The release tells hardly more than a guess: join fewer states (a radius, nearest "
            "states, categories), or spend more epsilon."
        )


def places_object(plan: Plan) -> dict[str, Any]:
    """The policy at the chain's own law, for `shoal plan --json`; infinity is null."""
    machine, certificate = machine_of(plan), cast("Any", plan.certificate)
    stage, _ = reference_stage(machine)
    centre, joined, within = _around(machine, stage)
    names, step, body = machine.query.states, float(machine.query.step), stage.protected.body
    return {
        "centre": names[centre],
        "joined": [names[i] for i in np.flatnonzero(joined)],
        "degree_of_protection": stage.degree(centre),
        "within": [names[i] for i in np.flatnonzero(within)],
        "hull": (body.vertices * step).tolist(),
        "area": float(body.content) * step ** len(machine.query.labels),
        "possible": stage.count,
        "alike": _alike(machine, stage),
        "repaired": [[names[a], names[b]] for a, b in stage.protected.added],
        "point_error": certificate.raw_error,
        "estimate_error": certificate.estimate_error,
        "guess_error": certificate.guess_error,
        "any_two_states": finite(stage.spread),
        "events": events_object(plan),
    }


def _alike(machine: LocationMachine, stage: StepNoise) -> dict[str, int]:
    """How many others each possible state is joined to by the policy, before any repair."""
    edges = machine.runtime.index.policy.edges_among(stage.members)
    joined = np.bincount(edges.ravel(), minlength=len(stage.members))[stage.members]
    some = np.sort(joined[joined > 0])
    ends = (some[0], some[len(some) // 2], some[-1]) if len(some) else (0, 0, 0)
    names = ("least", "median", "most")
    found = {name: int(count) for name, count in zip(names, ends, strict=True)}
    return {"joined": len(some), "alone": int((joined == 0).sum()), **found}


def _alike_line(found: dict[str, int]) -> str:
    """Return in words how many other states each state looks like: least, median and most."""
    if not found["joined"]:
        return "The policy joins no two of these states: the repair joins each to another."
    alone = (
        f"; {found['alone']} are joined to nobody, and hidden by noise meant for others or by the "
        "repair"
        if found["alone"]
        else ""
    )
    return (
        f"Who looks like whom: {found['joined']} states look like {found['least']} to "
        f"{found['most']} others each, half of them like {found['median']} or more{alone}. "
        "--plot draws it."
    )


def events_object(plan: Plan) -> dict[str, Any] | None:
    """What streams of made-up walks show and tell under a plan that watches events; else None."""
    watch = machine_of(plan).watch
    if watch is None:
        return None
    found = rehearse_streams(plan, watch)
    shown = {"steps": found.steps, "skipped": found.skipped, "mean_epsilon": found.epsilon}
    return {**shown, "estimate_error": found.error, "beliefs": event_rows(watch, found)}


def event_lines(found: dict[str, Any] | None, unit: str) -> list[str]:
    """The same in sentences."""
    if found is None:
        return []
    lines = [
        f"Over {found['steps']} steps of made-up walks, {found['skipped']:.0%} show nothing, so "
        f"that no output tells too much of an event; the others take an epsilon of "
        f"{significant(found['mean_epsilon'] / max(1e-9, 1 - found['skipped']))} on average, and "
        f"the estimate is off by {significant(found['estimate_error'])} {unit}."
    ]
    lines += [
        f"That one was {row['event']}: {row['before']:.2f} before, {row['lowest']:.2f} to "
        f"{row['highest']:.2f} along these walks; log-odds moved by {row['told']:.2f} of the "
        f"{row['promised']:g} that are allowed."
        for row in found["beliefs"]
    ]
    return lines


def drawn_map(plan: Plan) -> list[str]:
    """The map around the centre, north on top; empty when the states are no map."""
    machine, grid = machine_of(plan), grid_of(plan.task.family[0])
    if not isinstance(grid, SquareGrid):
        return []
    stage, _ = reference_stage(machine)
    centre, joined, within = _around(machine, stage)
    marks = np.full((grid.rows, grid.columns), " ")
    rows, columns = np.divmod(cast("Any", machine.chain).cells, grid.columns)
    signs = np.select([joined, within, stage.members], [JOINED, WITHIN, ELSEWHERE], " ")
    marks[rows, columns] = signs
    marks[rows[centre], columns[centre]] = CENTRE
    top = _window(int(rows[centre]), grid.rows, HIGHEST)
    left = _window(int(columns[centre]), grid.columns, WIDEST)
    window = marks[top : top + HIGHEST, left : left + WIDEST]
    return ["".join(line) for line in window[::-1]]


def centre_of(machine: LocationMachine, stage: StepNoise) -> int:
    """The member nearest to the middle of all members, of those joined to others if some are."""
    points = machine.query.points
    middle = points[stage.members].mean(axis=0)
    edges = machine.runtime.index.policy.edges_among(stage.members)
    inside = np.unique(edges) if len(edges) else np.flatnonzero(stage.members)
    return int(inside[((points[inside] - middle) ** 2).sum(axis=1).argmin()])


def _around(machine: LocationMachine, stage: StepNoise) -> tuple[int, Bools, Bools]:
    """Return the centre's index, and two masks: states joined to it, and others within its
    noise.
    """
    centre, points = centre_of(machine, stage), machine.query.points
    inside = machine.runtime.index.policy.edges_among(stage.members)
    edges = np.concatenate([inside, stage.protected.added])
    joined = np.isin(np.arange(len(points)), edges[(edges == centre).any(axis=1)])
    near = stage.protected.body.contains(points - points[centre])
    within = stage.members & near & ~joined
    joined[centre] = within[centre] = False
    return centre, joined, within


def _mechanism_rows(comparison: RowComparison) -> list[tuple[str, ...]]:
    """Return the table's rows: mechanism, two errors, bound between any two states, and
    standing.
    """
    plans: list[Any] = [
        plan
        for plan in comparison.alternatives.values()
        if isinstance(plan, Plan) and isinstance(plan.body, LocationMachine)
    ]
    return [
        (
            plan.mechanism,
            significant(plan.certificate.raw_error),
            significant(plan.certificate.estimate_error),
            "no bound" if plan.certificate.eta is None else significant(plan.certificate.eta),
            "chosen, " * (plan.mechanism == comparison.plan.mechanism) + standing(plan),
        )
        for plan in plans
    ]


def _hull_line(found: dict[str, Any], unit: str) -> str:
    """Return in words the first eight vertices of the hull, its area, and the edges of the
    repair.
    """
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


PLAN: PlanView = PlanView(print_places, lambda plan: {"places": places_object(plan)}, policy_chart)


ORDINARY = "location-laplace"  # noise for each step by itself, as one would add it without Shoal
HORIZONS = (1, 2, 4, 8, 16)
SEED = 0  # of the made-up walk: the same spec gives the same figures


class Horizon(NamedTuple):
    """What all outputs of so many steps tell about one position, in epsilon.

    `largest_change` is the exact log-ratio between two joined states that the outputs of one
    made-up walk reach; `at_most` bounds it for all outputs. Both are about the position that
    suffers most. `largest_change` is None on maps too large to follow pairs of states; `at_most`
    is then about any two states.
    """

    steps: int
    largest_change: float | None
    at_most: float


def leak_of_places(request: Request, eta: str | None) -> StreamLeak:
    """What a stream of ordinary noise tells about a position over time."""
    task = request.task
    epsilon = request.epsilon() if eta is None else positive(eta, "--eta")
    with show.working("calibrating"):
        asked = choose(task, epsilon, ORDINARY).plan
        plan = without_watch(asked)
    rows = over_time(plan)
    watch = machine_of(asked).watch
    events = [] if watch is None else event_rows(watch, rehearse_streams(plan, watch))
    last, model = rows[-1], task.family[0].describe()
    pair = "two joined states" if last.largest_change is not None else "any two states"
    words = (
        f"An ordinary stream of noisy places, epsilon = {float(epsilon):g} at every step, promises "
        f"that no output changes the odds between two joined states by more than "
        f"{show.odds(float(epsilon))}, given the outputs before it. Somebody who knows how people "
        "move also learns about a position from the outputs after it, and from all of them "
        "together:",
        f"Under {model}, {_sentence(rows, pair, sets=task.secrets.notion == 'location-set')}.",
        *(_event_sentence(row) for row in events),
    )
    return StreamLeak(
        {
            "eta": float(epsilon),
            "mechanism": ORDINARY,
            "promised": {"epsilon": float(epsilon), "over": task.secrets.subject},
            "epsilon": finite(last.at_most),
            "about": pair,
            "models": [{"model": model, "steps": [_horizon_object(row) for row in rows]}],
            "events": events,
        },
        words,
        ("steps", "told (epsilon)", "at most (epsilon)", ""),
        _horizon_cells(rows),
        ([f"{row.steps} step(s)" for row in rows], [row.at_most for row in rows], float(epsilon)),
    )


def over_time(plan: Plan, horizons: Sequence[int] = HORIZONS) -> list[Horizon]:
    """What the outputs of a stream tell about a position, after ever more steps.

    One walk is drawn from the model and released with predictable noise: no data is looked at.
    """
    length = machine_of(plan).runtime.motion.length
    horizons = [steps for steps in horizons if length is None or steps <= length]
    rng, stream = SeededRng(SEED), LocationStream.begin(plan)
    outputs, losses = [], []
    for place in sample_path(machine_of(plan), horizons[-1], rng):
        stream, released = stream.read(plan.task.query.states[place], rng=rng)
        outputs.append(released.z)
        losses.append(released.loss_path)
    found = []
    try:
        for steps in show.with_progress([*map(str, horizons)], "measuring"):
            leakage = sequence_leakage(plan, outputs[: int(steps)])
            found.append(Horizon(int(steps), max(leakage.learned_joined), max(leakage.joined)))
        return found
    except Refused:  # too many pairs of states: what the stream itself reports
        return [Horizon(steps, None, losses[steps - 1]) for steps in horizons]


def event_rows(watch: EventWatch, found: Rehearsal) -> list[dict[str, Any]]:
    """What streams of made-up walks tell of each event of a watch."""
    return [
        {
            "event": event.describe(),
            "before": found.before[i],
            "lowest": found.low[i],
            "highest": found.high[i],
            "told": finite(found.largest_changes[i]),
            "promised": float(watch.amounts[i]),
        }
        for i, (event, _) in enumerate(watch.events.pairs)
    ]


def _event_sentence(row: dict[str, Any]) -> str:
    """Return in words the belief in one event before, and its range after streams of made-up
    walks.
    """
    return (
        f"Each step is hidden; that one was {row['event']} such streams of made-up walks show: "
        f"{row['before']:.2f} before, from {row['lowest']:.2f} to {row['highest']:.2f} afterwards "
        f"(event_epsilon = {row['promised']:g} lets its odds change by at most "
        f"{show.odds(row['promised'])})."
    )


def _sentence(rows: list[Horizon], pair: str, *, sets: bool) -> str:
    """Return in words what all outputs up to the last horizon tell; `sets`: with location sets."""
    last = rows[-1]
    same = ", with the location sets of that walk," if sets else ""
    bound = f"no outputs of {last.steps} steps{same} change the odds between {pair} by more than "
    if last.largest_change is None:
        return f"{bound}{show.odds(last.at_most)}"
    return (
        f"the outputs of one made-up walk of {last.steps} steps changed the odds between {pair} "
        f"at some step by {show.odds(last.largest_change)}; {bound}{show.odds(last.at_most)}. "
        "A stream of `shoal stream` tells with every output how far it has come (loss_here, "
        "loss_path), and a limit of a ledger ends it in time"
    )


def _horizon_cells(rows: list[Horizon]) -> list[tuple[str, ...]]:
    """Return the table's rows: steps, largest change, bound and bar of each horizon."""
    most = max(row.at_most for row in rows)
    plain = show.console().options.ascii_only
    return [
        (
            str(row.steps),
            "-" if row.largest_change is None else significant(row.largest_change),
            significant(row.at_most),
            show.bar(row.at_most, most, ascii_only=plain),
        )
        for row in rows
    ]


def _horizon_object(row: Horizon) -> dict[str, Any]:
    change = None if row.largest_change is None else finite(row.largest_change)
    return {"steps": row.steps, "told": change, "at_most": finite(row.at_most)}
