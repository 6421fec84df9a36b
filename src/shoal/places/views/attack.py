"""What an attack on a stream of places found, in sentences with units, and as one JSON object."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from shoal.cli import show
from shoal.cli.attack import AttackOptions, AttackView, held_by
from shoal.cli.charts import ALARM, CHOSEN, OTHER, _figure, _hide_frame, _png
from shoal.core.errors import DataError
from shoal.core.numbers import finite, significant
from shoal.noise.primitives import SeededRng
from shoal.places.attack import attack_locations, path_distance
from shoal.places.events import event_curve
from shoal.places.machine import machine_of
from shoal.places.rows import watch_for, without_watch
from shoal.places.tracks import tracks_of
from shoal.places.views.fit import check_states, off_the_map, track_positions
from shoal.places.views.tracks import initial_stream

if TYPE_CHECKING:
    from shoal.cli.sources import NamedColumns
    from shoal.core.codec import Floats
    from shoal.core.plan import Plan
    from shoal.core.task import Model
    from shoal.places.attack import By, Knowing, LocationBeliefs, LocationErrors, OddsOverTime
    from shoal.places.packed import LocationRelease
    from shoal.places.tracks import Track


def track_lines(plan: Plan, held: Model, found: Attacked) -> list[tuple[str, str]]:
    """What somebody knew before, along the way and afterwards, and what was promised."""
    fields = track_object(plan, held, found)
    error, right, others = fields["error"], fields["right_guesses"], fields["plan_model_error"]
    points, skipped, off = (
        fields["released"],
        fields["steps"] - fields["released"],
        error["released"],
    )

    def far(distance: float) -> str:
        """A distance in words, short ones on a map in metres."""
        near = fields["unit"] == "km" and distance < 1
        return f"{distance * 1000:.0f} m" if near else f"{significant(distance)} {fields['unit']}"

    def describe_belief(by: Knowing, seeing: str) -> str:
        return (
            f"{seeing}, the best guess is off by {far(error[by])} on average (expected: "
            f"{far(fields['believed_error'][by])}); the likeliest place is right at "
            f"{right[by]:.1%} of the steps; {fields['entropy_bits'][by]:.2f} bits of uncertainty."
        )

    lines = [
        (
            "In short",
            "an adversary who knows the movement model and sees the stream places "
            f"{found.name} within {far(error['all'])} instead of {far(error['nothing'])} (means "
            f"over {sum(place is not None for place in found.truth)} positions).",
        ),
        (
            "Released",
            f"{fields['steps']} steps of {found.name} by {plan.mechanism}: {points} points"
            + (f" ({skipped} without one)" if skipped else "")
            + (f", off by {far(off)} on average." if off is not None else "."),
        ),
        ("Adversary", f"knows {held.describe()}, the policy and the noise."),
        ("Before", describe_belief("nothing", "seeing nothing")),
        ("On the way", describe_belief("past", "seeing the points up to each step")),
        ("Afterwards", describe_belief("all", "seeing all points, later ones too")),
        (
            "Likeliest path",
            f"right at {right['path']:.1%} of the steps, off by {far(error['path'])}.",
        ),
        ("Most learned", _learned_line(fields["most_learned"])),
        ("Promised", _promise_line(plan, found)),
        *((f"Event {i}", _event_line(plan, one)) for i, one in enumerate(found.events, 1)),
    ]
    if others is not None:
        words = (
            f"somebody who holds it instead would be off by {far(others['nothing'])} before, "
            f"{far(others['past'])} on the way and {far(others['all'])} afterwards."
        )
        lines.append(("Plan's model", words))
    return lines + [("Note", note) for note in found.notes]


def track_object(plan: Plan, held: Model, found: Attacked) -> dict[str, Any]:
    """The attack as one JSON object; distances in `unit`, infinite odds and unknowns null."""
    beliefs, path = found.beliefs, found.beliefs.path.tolist()
    kinds: tuple[By, ...] = ("own", "past", "all")
    known = [(t, place) for t, place in enumerate(found.truth) if place is not None]
    away = [
        _distance(z, beliefs.values[p]) for t, p in known if (z := found.released[t]) is not None
    ]

    def each(measure: Callable[[LocationErrors], float]) -> dict[str, Any]:
        return {by: measure(one) for by, one in found.errors.items()}

    return {
        "series": found.name,
        "mechanism": plan.mechanism,
        "adversary": held.describe(),
        "steps": len(found.truth),
        "released": sum(point is not None for point in found.released),
        "unit": beliefs.unit,
        "error": {
            **each(lambda one: one.mean),
            "path": float(np.nanmean(path_distance(path, beliefs.values, found.truth))),
            "released": float(np.mean(away)) if away else None,
        },
        "believed_error": each(lambda one: float(one.expected.mean())),
        "correctness": each(lambda one: one.privacy().correctness),
        "entropy_bits": each(lambda one: one.privacy().certainty),
        "right_guesses": {
            **each(lambda one: one.privacy().accuracy),
            "path": float(np.mean([path[t] == place for t, place in known])),
        },
        "log_odds": {by: _largest_odds(beliefs.odds(by)) for by in kinds},
        "promised": float(plan.guarantee.amount),
        "loss_here": finite(float(beliefs.loss_here.max())),
        "loss_path": finite(float(beliefs.loss_path[-1])),
        "most_learned": _most_learned(found),
        "plan_model_error": None
        if found.others is None
        else {by: one.mean for by, one in found.others.items()},
        "events": [
            {
                "event": one.event,
                "promised": one.promised,
                "beliefs": one.beliefs.tolist(),
                "plain": None if one.plain is None else one.plain.tolist(),
            }
            for one in found.events
        ],
        "track": [_step_object(found, t) for t in range(len(found.truth))],
        "notes": list(found.notes),
    }


def _learned_line(most: dict[str, Any] | None) -> str:
    """Return in words the step at which the belief in the true place changed most; None:
    impossible.
    """
    if most is None:
        return "nothing: the model calls every true place impossible."
    shares = (
        f"at step {most['step']}, really at {most['truth']!r}: the belief in it went from "
        f"{_share(most['truth_before'])} to {_share(most['truth_after'])}"
    )
    if most["other"] == most["truth"]:
        return f"{shares}; no place joined to it was possible."
    return (
        f"{shares}, in {most['other']!r}, joined to it, from {_share(most['other_before'])} to "
        f"{_share(most['other_after'])}: odds changed by "
        f"{show.odds(np.inf if most['log_odds'] is None else most['log_odds'])}."
    )


def _promise_line(plan: Plan, found: Attacked) -> str:
    """Return in words what one output may change, what it did, and what all outputs together
    did.
    """
    own, every = found.beliefs.odds("own"), found.beliefs.odds("all", truth=found.truth)
    worst = int(own.joined.argmax())
    together, anywhere = (float(np.nanmax(e, initial=0.0)) for e in (every.joined, every.any_two))
    return (
        f"that one output changes the odds between joined places by at most "
        f"{show.odds(float(plan.guarantee.amount))}, given those before; here one did by "
        f"{show.odds(float(own.joined[worst]))} (step {worst + 1}). Nothing like it is promised "
        "for all outputs together: they changed the odds of the true place against a joined one "
        f"by up to {show.odds(together)}, against any place by up to {show.odds(anywhere)}."
    )


def _event_line(plan: Plan, one: EventTold) -> str:
    """What the whole stream revealed of an event, promised or not."""
    first, last = float(one.beliefs[0]), float(one.beliefs[-1])
    ends = f"between {float(one.beliefs.min()):.2f} and {float(one.beliefs.max()):.2f}"
    if one.promised is None:
        return (
            f"this stream hides each step at epsilon = {float(plan.guarantee.amount):g}; that one "
            f"was {one.event} it shows: {first:.2f} -> {last:.2f} ({ends} on the way; not "
            "promised: ask for it with [[secrets.event]])."
        )
    said = f"that one was {one.event}: {first:.2f} -> {last:.2f} ({ends} on the way)"
    if one.plain is not None:
        said += f"; a stream that watches no events leads to {float(one.plain[-1]):.2f}"
    return f"{said}. Promised: its odds change by at most {show.odds(one.promised)}."


def _most_learned(found: Attacked) -> dict[str, Any] | None:
    """The step at which the odds for the true place rose most, and the joined one that lost most.

    None when the adversary's model calls the true place impossible at every step.
    """
    beliefs = found.beliefs
    odds = beliefs.odds("all", truth=found.truth)
    if np.isnan(odds.joined).all():
        return None
    before, after = found.errors["nothing"].belief, found.errors["all"].belief
    with np.errstate(divide="ignore", invalid="ignore"):
        rise = np.log(after / (1 - after)) - np.log(before / (1 - before))
    # where the place was known before and after, both are infinite and nothing rose
    step = int(np.argmax(np.where(np.isnan(rise) | np.isnan(odds.joined), -np.inf, rise)))
    truth, other = (int(place) for place in odds.pairs[step])
    return {
        "step": step + 1,
        "truth": beliefs.states[truth],
        "other": beliefs.states[other],
        "log_odds": finite(float(odds.joined[step])),
        "truth_before": float(before[step]),
        "truth_after": float(after[step]),
        "other_before": float(np.exp(beliefs.log_before[step, other])),
        "other_after": float(np.exp(beliefs.log_smoothed[step, other])),
    }


def _step_object(found: Attacked, t: int) -> dict[str, Any]:
    """One step: where somebody was, what was released, what is believed."""
    beliefs, place, point = found.beliefs, found.truth[t], found.released[t]
    errors = found.errors.items()
    return {
        "step": t + 1,
        "truth": None if place is None else beliefs.states[place],
        "released": None if point is None else list(point),
        "guess": {by: one.guesses[t].tolist() for by, one in errors},
        "distance": {by: finite(float(one.distance[t])) for by, one in errors},
        "belief_in_truth": {by: finite(float(one.belief[t])) for by, one in errors},
        "entropy_bits": {by: float(one.bits[t]) for by, one in errors},
        "path": beliefs.trajectory[t],
    }


def _largest_odds(odds: OddsOverTime) -> dict[str, float | None]:
    return {
        "joined": finite(float(odds.joined.max())),
        "any_two": finite(float(odds.any_two.max())),
    }


def _distance(point: tuple[float, ...], place: Floats) -> float:
    return float(np.sqrt(((np.array(point) - place) ** 2).sum()))


def _share(belief: float) -> str:
    return f"{belief:.1%}" if belief >= 0.001 else f"{belief * 100:.2g}%"


# A PNG of an attack on a stream of places: the way, the released points, the estimates.


RELEASED = "#d9a441"


def track_chart(plan: Plan, found: Attacked) -> bytes:
    """A PNG: the true way, the released points and the adversary's estimate; errors over time."""
    figure = _figure(11, 5)
    left, right = figure.subplots(1, 2)
    _draw_way(left, plan, found)
    _draw_errors(right, found)
    for axes in (left, right):
        axes.legend(frameon=False, fontsize="small")
        _hide_frame(axes)
    return _png(figure)


def _draw_way(axes: Any, plan: Plan, found: Attacked) -> None:
    """In the plane among the states around it; a single number over the steps."""
    values, unit = found.beliefs.values, found.beliefs.unit
    titles = [f"{label}, {unit}" for label in plan.task.query.labels]
    plane = slice(1, 3) if len(titles) > 1 else slice(2)  # of a step's number and its answer
    parts: tuple[tuple[str, Iterable[Any], str, str, float], ...] = (
        ("released", found.released, RELEASED, "x", 1.0),
        ("truth", [None if p is None else values[p] for p in found.truth], "black", "o-", 1.6),
        ("the adversary's estimate", found.errors["all"].guesses, ALARM, "o-", 1.2),
    )
    shown = []
    for name, answers, colour, style, width in parts:
        rows = [(t, *answer)[plane] for t, answer in enumerate(answers, 1) if answer is not None]
        if rows:
            look = {"color": colour, "label": name, "linewidth": width, "markersize": 3}
            axes.plot(*np.array(rows).T, style, **look)
        shown += rows
    if len(titles) > 1:
        low, high = np.min(shown, axis=0), np.max(shown, axis=0)
        low, high = low - (high - low).max() * 0.05, high + (high - low).max() * 0.05
        near = ((values[:, :2] >= low) & (values[:, :2] <= high)).all(axis=1)
        axes.scatter(*values[near, :2].T, s=1, color=OTHER, zorder=0)
        axes.set_aspect("equal", adjustable="datalim")
    across, along = ["step", *titles][plane]
    axes.set_xlabel(across)
    axes.set_ylabel(along)
    axes.set_title(f"The way of {found.name}, and what the stream gives away")


def _draw_errors(axes: Any, found: Attacked) -> None:
    """Draw the error of the best guess at each step, for an adversary with no, past and all
    outputs.
    """
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


MOST_STEPS = 500  # of a track, unless more are asked for
KNOWING: tuple[Knowing, ...] = ("nothing", "past", "all")


@dataclass(frozen=True, slots=True, eq=False)
class EventTold:
    """The belief in one event before all steps, and after each: by this stream, and by a plain one.

    `promised` is the most its log-odds may move; None where nothing is promised. `plain` is a
    stream of the same noise that watches no events; None where the plan is such a one.
    """

    event: str
    promised: float | None
    beliefs: Floats
    plain: Floats | None


@dataclass(frozen=True, slots=True, eq=False)
class Attacked:
    """A stream drawn for the demonstration, what it makes somebody believe, and the errors.

    `truth` are the true states, `released` the points in the query's unit, None where there is
    none; `errors` and `others` are by what is known ("nothing", "past", "all"), for the adversary
    and for one who holds the plan's own chain, when that is another one.
    """

    name: str
    truth: tuple[int | None, ...]
    released: tuple[tuple[float, ...] | None, ...]
    beliefs: LocationBeliefs
    errors: dict[Knowing, LocationErrors]
    others: dict[Knowing, LocationErrors] | None
    notes: tuple[str, ...]
    events: tuple[EventTold, ...] = ()


def attack_track(plan: Plan, data: str, columns: NamedColumns, options: AttackOptions) -> None:
    """Runs one person's track through the plan and shows what the outputs give away."""
    held = held_by(plan, options)
    track, notes = _track(plan, data, columns, options)
    with show.working("attacking"):
        found = _attack_on_track(plan, held, track, options, notes)
    if options.as_json:
        show.print_json(track_object(plan, held, found))
    else:
        lines = track_lines(plan, held, found)
        words = "\n".join(f"{title}: {text}" for title, text in lines)
        show.console().print(show.paragraphs(words))
    drawn = None if options.plot is None else track_chart(plan, found)
    show.write_chart(options.plot, drawn, as_json=options.as_json)


def _track(
    plan: Plan, data: str, columns: NamedColumns, options: AttackOptions
) -> tuple[Track, list[str]]:
    """The longest stretch of a person's track, cut to what is attacked, and what was left out."""
    machine = machine_of(plan)
    table, where = track_positions(plan, data, columns, options.every)
    check_states(table, machine.chain)
    name = options.who if options.who is not None else str(table["user"][0])
    own = table.filter(table["user"] == name)
    if own.height == 0:
        shown = ", ".join(map(str, table["user"].unique(maintain_order=True)[:8].to_list()))
        raise DataError(f"--who is {name!r}; the data has {shown}")
    stretches = list(tracks_of(own, where))
    longest = max(stretches, key=lambda one: len(one.readings))
    notes = []
    if len(stretches) > 1:
        notes.append(f"the longest of {len(stretches)} stretches between pauses was attacked.")
    most, why = _most_steps(machine.runtime.motion.length, options)
    if len(longest.readings) > most:
        notes.append(f"the first {most} of {len(longest.readings)} steps were attacked; {why}.")
    outside = off_the_map(own, machine.chain)
    if outside:
        notes.append(f"{outside} position(s) off the map were taken as its nearest state.")
    return longest._replace(readings=longest.readings[:most]), notes


def _most_steps(covered: int | None, options: AttackOptions) -> tuple[int, str]:
    """How many steps are attacked at most, and why no more; `covered` are those of the model."""
    wanted = options.steps or MOST_STEPS
    if covered is None:
        return wanted, "--steps takes more"
    left = covered if options.start is None else covered - 1  # a known place was the model's first
    return min(wanted, left), "--steps takes more" if wanted < left else "the model covers no more"


def _attack_on_track(
    plan: Plan, held: Model, track: Track, options: AttackOptions, notes: list[str]
) -> Attacked:
    """The track run through the plan, and what its outputs make the adversary believe."""
    start = options.start
    releases = _released_track(plan, track, options)
    place_of = machine_of(plan).runtime.locator.state_of
    truth = tuple(None if reading is None else place_of(reading) for reading in track.readings)
    if all(place is None for place in truth):
        raise DataError(f"the track of {track.user} has no position; choose another with --series")
    outputs = [release.z for release in releases]
    own = plan.task.family[0]
    beliefs = attack_locations(plan, outputs, start=start, adversary=held)
    errors = {by: beliefs.errors(truth, by) for by in KNOWING}
    others = None
    if held.fingerprint != own.fingerprint:
        other = attack_locations(plan, outputs, start=start)
        others = {by: other.errors(truth, by) for by in KNOWING}
    return Attacked(
        name=track.user,
        truth=truth,
        released=tuple(release.point for release in releases),
        beliefs=beliefs,
        errors=errors,
        others=others,
        notes=(*notes, *_surprises(beliefs, truth)),
        events=_event_changes(plan, track, outputs, options),
    )


def _released_track(plan: Plan, track: Track, options: AttackOptions) -> list[LocationRelease]:
    """What a stream of the plan shows of the track, with predictable noise."""
    stream, rng, releases = initial_stream(plan, options.start), SeededRng(options.seed), []
    for reading in track.readings:
        stream, release = stream.read(reading, rng=rng)
        releases.append(release)
    return releases


def _event_changes(
    plan: Plan, track: Track, outputs: list[Any], options: AttackOptions
) -> tuple[EventTold, ...]:
    """What the outputs tell of the events the plan watches, or of those asked about."""
    own = machine_of(plan).watch
    watch = own if options.secrets is None else watch_for(plan, options.secrets)
    if watch is None:
        return ()
    start, plain = options.start, None
    beliefs = event_curve(plan, outputs, watch, start)
    if own is not None:
        bare = without_watch(plan)
        shown = [release.z for release in _released_track(bare, track, options)]
        plain = event_curve(bare, shown, watch, start)
    amounts = {} if own is None else dict(zip(own.events.pairs, own.amounts, strict=True))
    return tuple(
        EventTold(
            pair[0].describe(),
            float(amounts[pair]) if pair in amounts else None,
            beliefs[:, i],
            None if plain is None else plain[:, i],
        )
        for i, pair in enumerate(watch.events.pairs)
    )


def _surprises(beliefs: LocationBeliefs, truth: tuple[int | None, ...]) -> list[str]:
    """A word on steps at which the adversary's model calls the true place impossible."""
    known = [(t, place) for t, place in enumerate(truth) if place is not None]
    lost = sum(bool(beliefs.log_smoothed[t, place] == -float("inf")) for t, place in known)
    if not lost:
        return []
    return [
        f"at {significant(lost)} of {len(known)} steps the adversary's model calls the true place "
        "impossible, so it is not found there."
    ]


def view_of(plan: Plan, held: Model | None) -> AttackView:
    """How a stream of places is attacked."""
    return AttackView(attack_track, ("track", "adversary", "secrets"))
