"""Two legs of a history on a tiny town: the law of what is shown, with the rule as a black box."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np

from shoal.share.history import History, Leg, ShareRule, ShownLeg
from shoal.share.place import PermanentPlace
from shoal.share.roads import Roads
from tests.share.enumeration import ExactTown, Law, LegLaw, Path, broken, leg_law

LONGEST = 5  # roads of an enumerated walk
FOLLOWED = 4  # first outputs after which a second leg is enumerated: the most likely ones
KINDS = ("fresh", "copied", "reversed", "mixed", "uninformative")

Cutter = Callable[[History, Leg], ShownLeg]


def roads_of(town: ExactTown, *, both_ways: bool = True) -> Roads:
    """Return the town as the library takes it."""
    pairs = sorted(town.arcs)
    points = [(0.01 * k, 0.01 * (k * k % 7)) for k in range(town.size)]
    weights = [float(town.arcs[pair]) for pair in pairs]
    return Roads.of(points, pairs, weights, both_ways=both_ways)


def begun(roads: Roads, zone: Path, epsilon: Fraction, legs: int = 2) -> History:
    """Return an empty history that hides one place."""
    place = PermanentPlace.of(zone)
    return History(ShareRule(roads=roads, places=(place,), epsilon=epsilon, legs=legs))


def usual(history: History, leg: Leg) -> ShownLeg:
    """Cut a leg by the rule."""
    return history.cut(leg)


@dataclass
class TwoLegs:
    """Enumerates two legs; `cut` is the rule or a broken one, remembered for equal legs."""

    town: ExactTown
    start: History
    cut: Cutter = usual
    longest: int = LONGEST
    after: dict[tuple[Path, ...], History] = field(default_factory=dict)
    known: dict[tuple[tuple[Path, ...], Leg], Path] = field(default_factory=dict)

    def shown(self, before: tuple[Path, ...], path: Path, goal: int, homeward: bool) -> Path:
        """Return what is shown of a walk (away from the zone), and remember the history after."""
        leg = Leg(path[::-1] if homeward else path, goal, homeward)
        key = before, leg
        if key not in self.known:
            history = self.after.setdefault((), self.start) if not before else self.after[before]
            output = self.cut(history, leg)
            after = (*before, output.encoded)
            if after not in self.after:
                self.after[after] = history.absorb(output)
            self.known[key] = output.encoded
        return self.known[key]

    def worst(self, kind: str, goal: int, homeward: bool) -> float:
        """Return how far the worst output passes its charges: at most 1 where the rule holds."""
        first = leg_law(self.town, goal, self.longest, homeward=homeward)
        laws: dict[int, Law] = {home: {} for home in self.town.zone}
        rest = dict(first.rest)
        likely: dict[Path, Fraction] = {}
        for home, walks in first.walks.items():
            for path, chance in walks.items():
                one = self.shown((), path, goal, homeward)
                likely[one] = likely.get(one, Fraction(0)) + chance
                add(laws[home], (one,), chance)
        single = broken(laws, rest, self.bound)
        kept = set(sorted(likely, key=lambda one: -likely[one])[:FOLLOWED])
        joint: dict[int, Law] = {home: {} for home in self.town.zone}
        if kind in ("copied", "reversed", "mixed"):
            share = Fraction(1, 2) if kind == "mixed" else Fraction(1)
            back = homeward if kind == "copied" else not homeward
            for home, walks in first.walks.items():
                for path, chance in walks.items():
                    one = self.shown((), path, goal, homeward)
                    if one in kept:
                        two = self.shown((one,), path, goal, back)
                        add(joint[home], (one, two), chance * share)
        if kind in ("fresh", "mixed", "uninformative"):
            share = Fraction(1, 2) if kind == "mixed" else Fraction(1)
            self._fresh(laws, joint, rest, kept, share, kind, homeward)
        return max(single, broken(joint, rest, self.bound))

    def _fresh(
        self,
        laws: dict[int, Law],
        joint: dict[int, Law],
        rest: dict[int, Fraction],
        kept: set[Path],
        share: Fraction,
        kind: str,
        homeward: bool,
    ) -> None:
        """Add second legs that are new; goal and direction depend on what the first one showed."""
        most = {home: Fraction(0) for home in rest}
        for one in kept:
            goal = self.town.goals[len(one) % 2]
            back = (len(one) % 3 > 0) != homeward
            second = leg_law(self.town, goal, self.longest, homeward=back)
            if kind == "uninformative":
                some = second.walks[self.town.zone[0]]
                second = LegLaw(dict.fromkeys(rest, some), second.rest)
            for home, walks in second.walks.items():
                most[home] = max(most[home], second.rest[home])
                before = laws[home].get((one,), Fraction(0))
                for path, chance in walks.items():
                    two = self.shown((one,), path, goal, back)
                    add(joint[home], (one, two), before * chance * share)
        for home, missing in most.items():
            rest[home] += missing

    def bound(self, output: tuple[Path, ...]) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        """Return e^D, or e^epsilon where that is less."""
        spent = self.after[output].spent()
        return np.exp(np.minimum(spent, float(self.start.rule.epsilon)))


def add(law: Law, output: tuple[Path, ...], chance: Fraction) -> None:
    """Add a probability to an output of a law."""
    law[output] = law.get(output, Fraction(0)) + chance
