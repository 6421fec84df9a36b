"""What a run of `shoal share` did, in numbers that a person can check."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from shoal.core.numbers import significant

CIRCLE_METRES = 400.0  # radius of the usual circle around home, for comparison


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
    picture: Path | None = None

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
        if self.picture is not None:
            lines.append(
                f"What is shown and what was cut is drawn in {self.picture}. It shows your home: "
                "look at it, and never publish it."
            )
        return "\n".join(lines)
