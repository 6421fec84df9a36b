"""What a location stream shows at a step; everything in it may be published."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from shoal.core.codec import Value
from shoal.core.face import renamed
from shoal.core.guarantee import Guarantee

NOTHING_LEFT = (
    "only one state is possible, so there is nothing left to protect and nothing was released"
)
POLICY_SILENT = (
    "no two states that are still possible are joined by the policy: only the repair protects"
)
ON_A_LINE = (
    "all noise lies on a line, so states on parallel lines are told apart with certainty; join "
    "states in more than one direction"
)
FAR_OFF = (
    "the released point lies far from every state believed possible: the model may not describe "
    "this person"
)

EVENT_KEPT = (
    "every output would have told too much about an event, so nothing was released at this step"
)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationRelease(Value):
    """One step: the noisy answer, the best estimate, what is believed, and what was promised.

    `z` holds whole lattice steps of `step` (None: nothing was released), `estimate` the answer
    that minimises the expected error given everything released so far; it costs no privacy.
    `likely` are the most probable states, `spread` the root mean square distance of the belief
    from the estimate. `possible` = |C|, `degree` the degree of protection of the most probable
    state, `added` the edges the repair added. `loss_here` bounds the log-ratio that all outputs so
    far give away between two current states, `loss_path` between two whole sequences.
    """

    time: int
    z: tuple[int, ...] | None
    step: Fraction
    labels: tuple[str, ...]
    unit: str
    estimate: tuple[float, ...]
    likely: tuple[tuple[str, float], ...]
    spread: float
    possible: int
    degree: int
    added: tuple[tuple[str, str], ...]
    guarantee: Guarantee | None
    loss_here: float = field(metadata={"stored_as": "about_now"})
    loss_path: float = field(metadata={"stored_as": "about_all"})
    warnings: tuple[str, ...]
    secure: bool

    @property
    def point(self) -> tuple[float, ...] | None:
        """The released point as floats, in the query's unit."""
        return None if self.z is None else tuple(float(k * self.step) for k in self.z)

    @property
    def about_now(self) -> float:
        """`loss_here`, under the name it had in version 0.1."""
        return renamed("LocationRelease.about_now", "loss_here", self.loss_here)

    @property
    def about_all(self) -> float:
        """`loss_path`, under the name it had in version 0.1."""
        return renamed("LocationRelease.about_all", "loss_path", self.loss_path)

    def as_dict(self) -> dict[str, Any]:
        """A line of JSON; infinity is null."""
        return {
            "time": self.time,
            "z": None if self.point is None else list(self.point),
            "estimate": list(self.estimate),
            "unit": self.unit,
            "likely": [[name, round(share, 6)] for name, share in self.likely],
            "spread": self.spread,
            "possible": self.possible,
            "degree_of_protection": self.degree,
            "repaired": [list(pair) for pair in self.added],
            "epsilon": None if self.guarantee is None else float(self.guarantee.amount),
            "loss_here": _finite(self.loss_here),
            "loss_path": _finite(self.loss_path),
            # the names of version 0.1, for one version more
            "about_now": _finite(self.loss_here),
            "about_all": _finite(self.loss_path),
            "warnings": list(self.warnings),
        }


def _finite(value: float) -> float | None:
    return value if value < float("inf") else None
