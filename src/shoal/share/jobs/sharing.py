"""The whole act: a folder of rides in, cut rides out, charged to a ledger beside them.

`OUT` holds only what may be published. `OUT.private` holds the ledger, the journal that says which
ride has which legs, and a picture for the owner. A ride gets its place in the journal before any of
its legs is cut, so that a stopped run goes on where it stopped and nothing is cut twice.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import InputError, OtherHistory
from shoal.core.numbers import Number
from shoal.core.plan import Plan
from shoal.data.write import atomic_write
from shoal.ledger import open_ledger
from shoal.share.attack import (
    PlaceBeliefs,
    average_of,
    bayes,
    bayes_with_habits,
    circle_through,
    ends_outside,
)
from shoal.share.formats import (
    EXTRACTS,
    Ride,
    read_goals,
    read_parts,
    read_rides_of,
    read_rings,
    read_roads,
)
from shoal.share.jobs.cutting import REACH_METRES, SUBJECT, RideCutter, track_metres
from shoal.share.jobs.journal import Journal
from shoal.share.jobs.picture import owner_page
from shoal.share.jobs.report import CIRCLE_METRES, ShareReport
from shoal.share.maps import StreetMap, distances, street_map
from shoal.share.place import PermanentPlace, centre_offset
from shoal.share.plan import PLANNED_LEGS, machine_of, plan_share
from shoal.share.quarters import quarter_at
from shoal.share.stream import ShareStream

CENTRED = 0.25  # share of the zone's radius within which a place counts as its centre


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareWish:
    """What a person asks: where the rides, roads and goals are, what is hidden, and how well.

    `hide` are hidden places by name as (latitude, longitude); `zone` is a district drawn by hand
    instead of the public square, and `quarter` takes the place's public quarter. `goals` are places
    declared before riding.
    """

    rides: tuple[Path, ...]
    out: Path
    roads: Path | None = None
    hide: tuple[tuple[str, float, float], ...] = ()
    zone: Path | None = None
    goals: Path | None = None
    epsilon: Number = 1
    legs: int = PLANNED_LEGS
    within: Number | None = None
    goals_only: bool = False
    quarter: bool = False

    @property
    def private(self) -> Path:
        """The folder for the owner alone, beside the folder that is published."""
        return self.out.with_name(f"{self.out.name}.private")


def share_rides(wish: ShareWish) -> ShareReport:
    """Cut the rides of a wish, charge them, and write what may be published into its folder.

    Rides that were shared before are known by their content and are not cut again. Refused when
    the zone, map, epsilon or number of legs changed, or when a published ride is missing.
    """
    if wish.goals_only:
        return _goals_only(wish)
    streets, plan = plan_of(wish)
    goals = [] if wish.goals is None else read_goals(wish.goals)
    rides = read_rides_of(wish.rides)
    wish.private.mkdir(parents=True, exist_ok=True, mode=0o700)
    wish.out.mkdir(parents=True, exist_ok=True)
    journal = Journal.load(wish.private / "journal.json")
    with open_ledger(wish.private / "ledger.db") as ledger:
        if journal.plan not in ("", plan.fingerprint):
            raise OtherHistory(
                "rides were shared into this folder under another map, zone, epsilon or number of "
                "legs, and both together would tell more than either promises",
                ("give the same --roads, --hide, --epsilon and --legs as before",),
            )
        journal.refuse_missing(wish.out)
        journal.refuse_apart(len(ledger.charges(SUBJECT)))
        cutter = RideCutter(streets, plan, goals, ledger)
        report = cutter.share(rides, wish.out, journal)
    home = wish.hide[0][1:]
    report.circle_metres = circle_miss([ride.positions for ride in rides], *home)
    places = machine_of(plan).rule.places
    report.picture = write_picture(wish, rides, streets, places)
    return report


def plan_of(wish: ShareWish) -> tuple[StreetMap, Plan]:
    """Return the map and the plan of a wish; refuse a wish that names no map or no place."""
    if wish.roads is None:
        raise InputError(f"--roads is missing: without a map no way can be shown; {EXTRACTS}")
    if not wish.hide:
        raise InputError("--hide is missing; name the place as --hide home=52.5,13.4")
    if wish.zone is not None and len(wish.hide) > 1:
        raise InputError("--hide-zone is for one place; hide the others by their public squares")
    if wish.zone is not None and wish.quarter:
        raise InputError("--quarter and --hide-zone name two zones; give one of them")
    streets = street_map(read_roads(wish.roads))
    roads = streets.roads()
    places = []
    for name, latitude, longitude in wish.hide:
        if wish.quarter:
            place = quarter_at(roads, latitude, longitude, within=wish.within)
        elif wish.zone is None:
            place = PermanentPlace.square(roads, latitude, longitude, within=wish.within)
        else:
            rings = read_rings(wish.zone)
            place = PermanentPlace.district(roads, rings, within=wish.within)
            if centre_offset(roads, place.zone, latitude, longitude) < CENTRED:
                raise InputError(
                    f"--hide-zone is centred on {name}, so its shape gives the place away; draw a "
                    "district that does not depend on where in it you live"
                )
        places.append(place)
    hidden = places[0] if len(places) == 1 else places
    return streets, plan_share(roads, hidden, epsilon=wish.epsilon, legs=wish.legs)


def write_picture(
    wish: ShareWish,
    rides: Sequence[Ride],
    streets: StreetMap,
    places: Sequence[PermanentPlace],
) -> Path:
    """Write the owner's map of whole rides and published parts into the private folder."""
    shown = [part for file in sorted(wish.out.glob("ride-*.gpx")) for part in read_parts(file)]
    zones = [streets.points[place.zone] for place in places]
    homes = np.array([where for _, *where in wish.hide])
    page = owner_page([ride.positions for ride in rides], shown, zones, homes)
    path = wish.private / "map.html"
    atomic_write(path, page, private=True)
    return path


def circle_miss(tracks: Sequence[Floats], latitude: float, longitude: float) -> float | None:
    """Return how far from home a circle through the ends lies where rides are cut by a circle.

    For the owner's eyes. None where fewer than three rides begin or end at home.
    """
    ends = ends_outside(tracks, (latitude, longitude), CIRCLE_METRES)
    if len(ends) < 3:
        return None
    north, east, _ = circle_through(ends)
    return float(distances(np.array([[north, east]]), latitude, longitude)[0])


def share_attack(out: Path) -> list[tuple[str, PlaceBeliefs]]:
    """Return what the shipped attacks conclude about the first place from a folder's history."""
    history = _resumed(out)[0].history
    found = [("the model", bayes(history)), ("habits", bayes_with_habits(history))]
    members = len(history.rule.roads.weights)
    if members > 1:
        found.insert(1, ("other tastes", bayes(history, member=members - 1)))
    return found


def ends_attack(out: Path, home: tuple[float, float]) -> dict[str, float]:
    """Return how far from home two guesses from the published ends of rides lie, in metres.

    The guesses are the centre of the circle nearest to all ends that are no goals, and the mean of
    these ends. Empty where fewer than three such ends were published.
    """
    history = _resumed(out)[0].history
    goals = history.rule.roads.points[sorted({leg.goal for leg in history.shown})]
    parts = [part for file in sorted(out.glob("ride-*.gpx")) for part in read_parts(file)]
    ends = [end for part in parts if len(part) for end in (part[0], part[-1])]
    free = [end for end in ends if distances(goals, *map(float, end)).min() > REACH_METRES]
    if len(free) < 3:
        return {}
    latitude, longitude, _ = circle_through(np.array(free))
    guesses = {"circle": (latitude, longitude), "average": average_of(np.array(free))}
    return {name: float(distances(np.array([guess]), *home)[0]) for name, guess in guesses.items()}


def _goals_only(wish: ShareWish) -> ShareReport:
    """Write which declared goals each ride reached, and nothing else; no map is needed."""
    if wish.goals is None:
        raise InputError("--goals-only needs --goals, the places declared before riding")
    goals, report = read_goals(wish.goals), ShareReport(about="only goals are shown")
    lines = ["ride,lat,lon"]
    for number, ride in enumerate(read_rides_of(wish.rides), 1):
        report.rides += 1
        report.metres += track_metres(ride.positions)
        own = [goal for goal in goals if goal.is_for(ride.file)]
        ends = (ride.positions[0], ride.positions[-1])
        for goal in own or [goal for goal in goals if not goal.track]:
            where = np.array([[goal.latitude, goal.longitude]])
            if own or min(distances(where, *map(float, end))[0] for end in ends) <= REACH_METRES:
                lines.append(f"{number},{goal.latitude:.5f},{goal.longitude:.5f}")
        report.goal_alone += 1
    wish.out.mkdir(parents=True, exist_ok=True)
    atomic_write(wish.out / "goals.csv", "\n".join([*lines, ""]))
    return report


def _resumed(out: Path) -> tuple[ShareStream, Journal]:
    """The history of a folder as its ledger holds it, and its journal."""
    private = out.with_name(f"{out.name}.private")
    journal = Journal.load(private / "journal.json")
    if not journal.plan:
        raise InputError(f"{out} holds no shared rides; share some first, with `shoal share`")
    with open_ledger(private / "ledger.db") as ledger:
        plan = ledger.plan(journal.plan)
        return ShareStream.resume(plan, ledger, subject=SUBJECT), journal


def share_status(out: Path) -> dict[str, float]:
    """Return how many legs a folder's history has, what they spent, and what is left of epsilon."""
    stream, journal = _resumed(out)
    rule = stream.history.rule
    spent = max(stream.history.worst(k) for k in range(len(rule.places)))
    epsilon = float(rule.epsilon)
    return {
        "rides": len(journal.rides),
        "legs": stream.legs,
        "legs_planned": rule.legs,
        "epsilon": epsilon,
        "spent": spent,
        "left": max(epsilon - spent, 0.0),
    }
