"""`shoal attack` for streams of places: where somebody is believed to be, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from shoal.cli import show
from shoal.cli.attack_wish import TrackWish, Wish, held_by
from shoal.core.errors import DataError
from shoal.core.numbers import significant

if TYPE_CHECKING:
    from shoal.attacks.location import Knowing, LocationBeliefs
    from shoal.attacks.location_errors import LocationErrors
    from shoal.cli.sources import Columns
    from shoal.core.plan import Plan
    from shoal.core.task import Model
    from shoal.streams.batch_location import Track

MOST_STEPS = 500  # of a track, unless more are asked for
KNOWING: tuple[Knowing, ...] = ("nothing", "past", "all")


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


def attack_track(plan: Plan, data: str, columns: Columns, wish: Wish) -> None:
    """Runs one person's track through the plan and shows what the outputs give away."""
    from shoal.cli.attack_locations_words import print_track, track_object

    held = held_by(plan, wish)
    track, notes = _track(plan, data, columns, wish)
    with show.working("attacking"):
        found = _attacked(plan, held, track, wish, notes)
    if wish.as_json:
        show.print_json(track_object(plan, held, found))
    else:
        print_track(plan, held, found)
    if wish.plot is not None:
        from shoal.cli.attack_locations_chart import track_chart
        from shoal.data.files import atomic_write

        atomic_write(wish.plot, track_chart(plan, found))
        if not wish.as_json:
            typer.echo(f"\nThe chart is in {wish.plot}")


def _track(plan: Plan, data: str, columns: Columns, wish: Wish) -> tuple[Track, list[str]]:
    """The longest stretch of a person's track, cut to what is attacked, and what was left out."""
    from shoal.cli.location_table import off_the_map
    from shoal.mechanisms.location_task import machine_of
    from shoal.streams.batch_location import tracks_of

    machine = machine_of(plan)
    table, where = _positions(plan, data, columns, wish.track)
    name = wish.who if wish.who is not None else str(table["user"][0])
    own = table.filter(table["user"] == name)
    if own.height == 0:
        shown = ", ".join(map(str, table["user"].unique(maintain_order=True)[:8].to_list()))
        raise DataError(f"--who is {name!r}; the data has {shown}")
    stretches = list(tracks_of(own, where))
    longest = max(stretches, key=lambda one: len(one.readings))
    notes = []
    if len(stretches) > 1:
        notes.append(f"the longest of {len(stretches)} stretches between pauses was attacked.")
    most, why = _most_steps(machine.runtime.motion.length, wish.track)
    if len(longest.readings) > most:
        notes.append(f"the first {most} of {len(longest.readings)} steps were attacked; {why}.")
    outside = off_the_map(own, machine.chain)
    if outside:
        notes.append(f"{outside} position(s) off the map were taken as its nearest state.")
    return longest._replace(readings=longest.readings[:most]), notes


def _most_steps(covered: int | None, track: TrackWish) -> tuple[int, str]:
    """How many steps are attacked at most, and why no more; `covered` are those of the model."""
    wanted = track.steps or MOST_STEPS
    if covered is None:
        return wanted, "--steps takes more"
    left = covered if track.start is None else covered - 1  # a known place was the model's first
    return min(wanted, left), "--steps takes more" if wanted < left else "the model covers no more"


def _positions(plan: Plan, data: str, columns: Columns, track: TrackWish) -> tuple[Any, Any]:
    """The table of positions, and where it keeps what."""
    from shoal.cli.location_table import check_states, read_positions
    from shoal.data.durations import parse_duration
    from shoal.streams.batch_location import TrackColumns

    on_map = columns.latitude is not None
    table = read_positions(
        data,
        series=columns.series,
        time=columns.time,
        latitude=columns.latitude,
        longitude=columns.longitude,
        state=columns.state,
    )
    check_states(table, plan.task.family[0])
    every, gap = track.every, columns.gap
    where = TrackColumns(
        user="user",
        time="seconds" if columns.time else None,
        state="state" if columns.state else None,
        latitude="lat" if on_map else None,
        longitude="lon" if on_map else None,
        every=None if every is None else parse_duration(every, "every").total_seconds(),
        gap=None if gap is None else parse_duration(gap).total_seconds(),
    )
    return table, where


def _attacked(plan: Plan, held: Model, track: Track, wish: Wish, notes: list[str]) -> Attacked:
    """The track run through the plan, and what its outputs make the adversary believe."""
    from shoal.attacks.location import attack_locations
    from shoal.cli.stream_location import begun
    from shoal.mechanisms.location_task import machine_of
    from shoal.noise.bits import SeededRng

    start = wish.track.start
    stream, rng, releases = begun(plan, start), SeededRng(wish.seed), []
    for reading in track.readings:
        stream, release = stream.read(reading, rng=rng)
        releases.append(release)
    place_of = machine_of(plan).runtime.atlas.state_of
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
