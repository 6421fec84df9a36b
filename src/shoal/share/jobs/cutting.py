"""Matching rides to roads, cutting their legs by one plan, and writing what may be published."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.data.write import atomic_write
from shoal.ledger.store import SqlLedger
from shoal.share.formats import Goal, Ride, gpx_of
from shoal.share.history import ShownLeg
from shoal.share.jobs.journal import Journal
from shoal.share.jobs.report import ShareReport
from shoal.share.maps import StreetMap, distances
from shoal.share.matching import Matched, Matcher
from shoal.share.plan import machine_of
from shoal.share.rides import Piece, pieces_of_ride
from shoal.share.stream import ShareStream

REACH_METRES = 150.0  # how far from a declared place a ride may begin, end or turn
SUBJECT = "rider"  # the one person of a ledger made by `shoal share`


class RideCutter:
    """Matches, cuts and writes rides by one plan."""

    def __init__(
        self, streets: StreetMap, plan: Plan, goals: Sequence[Goal], ledger: SqlLedger
    ) -> None:
        self.streets, self.plan, self.ledger = streets, plan, ledger
        self.places = machine_of(plan).rule.places
        self.matcher = Matcher(streets)
        self.goals = [(goal, *streets.nearest(goal.latitude, goal.longitude)) for goal in goals]

    def share(self, rides: Sequence[Ride], out: Path, journal: Journal) -> ShareReport:
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
            stream = self._share_one(stream, *waiting[one["ride"]], out / one["file"], report)
            one["done"] = True
            journal.save()
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


def track_metres(positions: Floats) -> float:
    """Return the length of a track in metres."""
    if len(positions) < 2:
        return 0.0
    latitude, longitude = np.radians(positions).T
    east = np.diff(longitude) * np.cos(latitude[:-1])
    return float(6_371_000.0 * np.hypot(np.diff(latitude), east).sum())
