"""The whole act: a folder of rides in, cut rides out, charged to a ledger beside them.

`OUT` holds only what may be published. `OUT.private` holds the ledger, the journal that says which
ride has which legs, and a picture for the owner. A ride gets its place in the journal before any of
its legs is cut, so that a stopped run goes on where it stopped and nothing is cut twice.
"""

from __future__ import annotations

import hashlib
import json
import math
import secrets
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import DataError, InputError, OtherHistory
from shoal.core.numbers import Number, significant
from shoal.core.plan import Plan
from shoal.data.write import atomic_write
from shoal.ledger import open_ledger
from shoal.ledger.store import SqlLedger
from shoal.share.attack import (
    PlaceBeliefs,
    bayes,
    bayes_with_habits,
    circle_through,
    ends_outside,
)
from shoal.share.files import (
    EXTRACTS,
    Goal,
    Ride,
    gpx_of,
    read_goals,
    read_rides_of,
    read_rings,
    read_roads,
)
from shoal.share.history import ShownLeg
from shoal.share.maps import StreetMap, distances, street_map
from shoal.share.matching import Matched, Matcher
from shoal.share.place import PermanentPlace, centre_offset
from shoal.share.plan import PLANNED_LEGS, machine_of, plan_share
from shoal.share.rides import Piece, pieces_of_ride
from shoal.share.stream import ShareStream

SUBJECT = "rider"  # the one person of a ledger made by this act
CIRCLE_METRES = 400.0  # radius of the usual circle around home, for comparison
REACH_METRES = 150.0  # how far from a declared place a ride may begin, end or turn
CENTRED = 0.25  # share of the zone's radius within which a place counts as its centre


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareWish:
    """What a person asks: where the rides, roads and goals are, what is hidden, and how well.

    `hide` are hidden places by name as (latitude, longitude); `zone` is a district drawn by hand
    instead of the public square. `goals` are places declared before riding.
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

    @property
    def private(self) -> Path:
        """The folder for the owner alone, beside the folder that is published."""
        return self.out.with_name(f"{self.out.name}.private")


@dataclass(slots=True)
class ShareReport:
    """What was shown of the rides of one run, in numbers that a person can check."""

    about: str = ""
    candidates: int = 0
    epsilon: float = 0.0
    spent: float = 0.0
    legs: int = 0
    rides: int = 0
    in_part: int = 0
    goal_alone: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    metres: float = 0.0
    shown_metres: float = 0.0
    stripped: set[str] = field(default_factory=set)
    circle_metres: float | None = None

    def describe(self) -> str:
        """The report in the words that a person is told."""
        odds = significant(math.exp(self.epsilon), 2)
        lines = [
            f"{self.rides} rides: {self.in_part} shown in part, {self.goal_alone} only where you "
            f"went, {sum(self.left_out.values())} left out; {self.shown_metres / 1000:,.1f} of "
            f"{self.metres / 1000:,.1f} km shown as ridden, none altered.",
            *(f"Left out, {count}: {reason}." for reason, count in sorted(self.left_out.items())),
            f"Removed from every file: {', '.join(sorted(self.stripped) or ['nothing was there'])}"
            ", and the names of the files.",
            f"Hidden among {self.candidates} crossings: {self.about}.",
            "Your home and the roads we withheld reach the files only through which roads are "
            "shown. For a simulated rider who follows this map's model, independently or repeating "
            f"whole rides, the odds between two crossings move at most {odds}-fold over all rides "
            f"ever shared (so far {significant(math.exp(self.spent), 2)}-fold, {self.legs} legs). "
            "You are not that rider: favourite ways out tell more, and we give no number for that. "
            "Where, when and how often you ride is not hidden. Tracks published elsewhere are not "
            "covered.",
        ]
        if self.circle_metres is not None:
            lines.append(
                f"Had you cut a circle of {CIRCLE_METRES:.0f} m around home instead, a circle "
                f"through the ends of these rides would lie {self.circle_metres:.0f} m from it."
            )
        return "\n".join(lines)


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
        cutter = RideCutter(streets, plan, goals, ledger)
        return cutter.share(rides, wish, journal)


def plan_of(wish: ShareWish) -> tuple[StreetMap, Plan]:
    """Return the map and the plan of a wish; refuse a wish that names no map or no place."""
    if wish.roads is None:
        raise InputError(f"--roads is missing: without a map no way can be shown; {EXTRACTS}")
    if not wish.hide:
        raise InputError("--hide is missing; name the place as --hide home=52.5,13.4")
    if wish.zone is not None and len(wish.hide) > 1:
        raise InputError("--hide-zone is for one place; hide the others by their public squares")
    streets = street_map(read_roads(wish.roads))
    roads = streets.roads()
    places = []
    for name, latitude, longitude in wish.hide:
        if wish.zone is None:
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


@dataclass(slots=True)
class Journal:
    """Which rides were shared, in which order, with how many legs; for the owner alone.

    Rides are known by a salted hash of their positions, so that the journal holds no place.
    """

    path: Path
    plan: str = ""
    salt: str = ""
    rides: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Journal:
        """Return the journal at a path, a new one where there is none."""
        if not path.exists():
            return cls(path, salt=secrets.token_hex(16))
        try:
            return cls(path, **json.loads(path.read_text()))
        except (ValueError, TypeError):
            raise DataError(f"{path} cannot be read; restore it from a copy") from None

    def save(self) -> None:
        """Write the journal whole, readable by its owner alone."""
        content = {"plan": self.plan, "salt": self.salt, "rides": self.rides}
        atomic_write(self.path, json.dumps(content, indent=1), private=True)

    def name_of(self, ride: Ride) -> str:
        """Return the name of a ride: equal positions have equal names."""
        content = self.salt.encode() + np.round(ride.positions, 7).tobytes()
        return hashlib.sha256(content).hexdigest()

    def refuse_missing(self, out: Path) -> None:
        """Refuse when a ride that was published is no longer there: dropping one tells."""
        gone = [
            one["file"] for one in self.rides if one["done"] and not (out / one["file"]).exists()
        ]
        if gone:
            raise InputError(
                f"{gone[0]} was shared and is missing from {out}; put it back: what is dropped "
                "after its cut was seen tells of the part that was withheld"
            )


class RideCutter:
    """Matches, cuts and writes rides by one plan."""

    def __init__(
        self, streets: StreetMap, plan: Plan, goals: Sequence[Goal], ledger: SqlLedger
    ) -> None:
        self.streets, self.plan, self.ledger = streets, plan, ledger
        self.places = machine_of(plan).rule.places
        self.matcher = Matcher(streets)
        self.goals = [(goal, *streets.nearest(goal.latitude, goal.longitude)) for goal in goals]

    def share(self, rides: Sequence[Ride], wish: ShareWish, journal: Journal) -> ShareReport:
        """Share the rides that are new, and finish those that a stopped run left."""
        report = self._begin_report()
        begun = {one["ride"]: one for one in journal.rides}
        waiting: dict[str, tuple[Ride, Matched, list[Piece]]] = {}
        number = sum(one["legs"] for one in journal.rides)
        for ride in rides:
            name = journal.name_of(ride)
            report.stripped |= set(ride.beside)
            if name in waiting or begun.get(name, {}).get("done"):
                continue
            found = self._pieces(ride)
            if isinstance(found, str):
                report.rides += 1
                report.left_out[found] += 1
                continue
            waiting[name] = (ride, *found)
            if name not in begun:
                legs = sum(piece.leg is not None for piece in found[1])
                file = f"ride-{len(journal.rides) + 1:04d}.gpx"
                entry = {"ride": name, "file": file, "first": number, "legs": legs, "done": False}
                journal.rides.append(entry)
                number += legs
        journal.plan = self.plan.fingerprint
        journal.save()
        undone = [one for one in journal.rides if not one["done"]]
        stream = self._stream_before(undone[0]["first"] if undone else number)
        for one in undone:
            if one["ride"] not in waiting:
                raise InputError(
                    f"the run that was to write {one['file']} was stopped; give its ride again"
                )
            stream = self._share_one(stream, *waiting[one["ride"]], wish.out / one["file"], report)
            one["done"] = True
            journal.save()
        report.circle_metres = circle_miss([ride.positions for ride in rides], *wish.hide[0][1:])
        report.spent = max(stream.history.worst(k) for k in range(len(self.places)))
        report.legs = stream.legs
        return report

    def _begin_report(self) -> ShareReport:
        return ShareReport(
            about="; ".join(place.about for place in self.places),
            candidates=min(len(place.zone) for place in self.places),
            epsilon=float(self.plan.guarantee.amount),
        )

    def _stream_before(self, legs: int) -> ShareStream:
        """The history with its first `legs` legs."""
        return ShareStream.resume(self.plan, self.ledger, subject=SUBJECT, legs=legs)

    def _pieces(self, ride: Ride) -> tuple[Matched, list[Piece]] | str:
        """The walk of a ride and its parts, or why it is left out, from public reasons alone."""
        goals = self._goals_of(ride)
        if not goals:
            return "no goal was declared for the ride (--goals)"
        matched = self.matcher.match(ride.positions)
        for goal in goals:
            joined = self._joined(matched, goal)
            if joined is None:
                return "the ride misses a goal that was declared for it"
            matched = joined
        matched = self._trimmed(ride, matched, goals)
        pieces = pieces_of_ride(matched.path, goals, self.places)
        hidden = [goal for goal in goals for place in self.places if goal in place.hidden]
        if hidden:
            return "a declared goal lies in a hidden zone"
        return (matched, pieces) if pieces else "no part of the ride leads to or from its goals"

    def _trimmed(self, ride: Ride, matched: Matched, goals: list[int]) -> Matched:
        """The walk without what lies before a goal it begins at, or behind one it ends at."""
        first, last = 0, len(matched.path) - 1
        if self._is_near(ride.positions[0], goals[0]):
            first = matched.path.index(goals[0])
        if self._is_near(ride.positions[-1], goals[-1]):
            last = max(k for k, crossing in enumerate(matched.path) if crossing == goals[-1])
        part = slice(first, max(last, first) + 1)
        return Matched(matched.path[part], matched.passed[part])

    def _is_near(self, position: Floats, goal: int) -> bool:
        where = self.streets.points[[goal]]
        return bool(distances(where, float(position[0]), float(position[1]))[0] <= REACH_METRES)

    def _goals_of(self, ride: Ride) -> list[int]:
        """The crossings declared for a ride: by its name, or because it begins or ends there."""
        own = [crossing for goal, crossing, _ in self.goals if goal.is_for(ride.file)]
        if own:
            return own
        found = []
        for end in (ride.positions[0], ride.positions[-1]):
            for goal, crossing, _ in self.goals:
                where = np.array([[goal.latitude, goal.longitude]])
                near = distances(where, float(end[0]), float(end[1]))[0] <= REACH_METRES
                if not goal.track and near:
                    found.append(crossing)
                    break
        return found

    def _joined(self, matched: Matched, goal: int) -> Matched | None:
        """The walk with a short way to a goal where it passes near it; None where it does not."""
        if goal in matched.path:
            return matched
        best: tuple[float, int, tuple[int, ...]] | None = None
        latitude, longitude = self.streets.points[goal]
        points = self.streets.points[list(matched.path)]
        far = distances(points, float(latitude), float(longitude))
        for at in np.flatnonzero(far <= REACH_METRES).tolist():
            way = self.matcher.way_between(matched.path[at], goal, 2 * REACH_METRES)
            if way is not None and (best is None or far[at] < best[0]):
                best = float(far[at]), at, way
        if best is None:
            return None
        _, at, way = best
        back = way[-2::-1] if at < len(matched.path) - 1 else ()
        added = (*way[1:], *back)
        return Matched(
            matched.path[: at + 1] + added + matched.path[at + 1 :],
            matched.passed[: at + 1]
            + (matched.passed[at],) * len(added)
            + matched.passed[at + 1 :],
        )

    def _share_one(
        self,
        stream: ShareStream,
        ride: Ride,
        matched: Matched,
        pieces: list[Piece],
        file: Path,
        report: ShareReport,
    ) -> ShareStream:
        """Cut and charge the legs of a ride, then write what may be shown of it."""
        parts = []
        for piece in pieces:
            if piece.leg is None:
                parts.append(self._between(ride, matched, piece.first, piece.last))
                continue
            stream, shown = stream.show(piece.leg, ledger=self.ledger, subject=SUBJECT)
            parts.append(self._beyond(ride, matched, piece, shown))
        kept = [part for part in parts if len(part) > 1]
        atomic_write(file, gpx_of(kept))
        report.rides += 1
        report.in_part += bool(kept)
        report.goal_alone += not kept
        report.metres += track_metres(ride.positions)
        report.shown_metres += sum(map(track_metres, kept))
        return stream

    def _between(self, ride: Ride, matched: Matched, first: int, last: int) -> Floats:
        return ride.positions[matched.passed[first] : matched.passed[last] + 1]

    def _beyond(self, ride: Ride, matched: Matched, piece: Piece, shown: ShownLeg) -> Floats:
        """The positions of a shown leg from one crossing after its first one on.

        They are matched again without the withheld ones; where that gives another way, what is
        shown begins where both ways agree, so that no withheld position decides what is shown.
        """
        count = len(shown.path)
        if count < 3:
            return ride.positions[:0]
        if shown.homeward:
            last = piece.first + count - 2
            part = ride.positions[matched.passed[piece.first] : matched.passed[last] + 1]
            part = part[::-1]
        else:
            first = piece.last - count + 2
            part = ride.positions[matched.passed[first] : matched.passed[piece.last] + 1]
        if len(part) < 2:
            return part[:0]
        again = self.matcher.match(part[::-1] if shown.homeward else part)
        path = again.path[::-1] if shown.homeward else again.path
        whole = shown.path[::-1] if shown.homeward else shown.path
        known = set(whole)
        strange = [k for k, crossing in enumerate(path) if crossing not in known]
        begin = strange[-1] + 1 if strange and strange[-1] < len(path) // 2 else 0
        if begin:
            passed = again.passed[::-1] if shown.homeward else again.passed
            from_end = len(part) - 1 - passed[begin] if shown.homeward else passed[begin]
            part = part[from_end:]
        return part[::-1] if shown.homeward else part


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


def track_metres(positions: Floats) -> float:
    """Return the length of a track in metres."""
    if len(positions) < 2:
        return 0.0
    latitude, longitude = np.radians(positions).T
    east = np.diff(longitude) * np.cos(latitude[:-1])
    return float(6_371_000.0 * np.hypot(np.diff(latitude), east).sum())


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
