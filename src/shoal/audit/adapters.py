"""Other people's private releases, in the form the black-box auditor takes.

Nothing here imports the other library: an OpenDP measurement is anything that is called with a
list and has `map`, `input_metric` and `output_measure`; a mechanism in the manner of diffprivlib
is anything with `randomise` and `epsilon`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from shoal.core.errors import InputError
from shoal.core.numbers import positive, significant
from shoal.mechanisms.external import entry_eta
from shoal.queries.linear import LinearQuery


@dataclass(frozen=True, slots=True)
class MeasurementRelease:
    """An OpenDP measurement as a release of a list of states.

    `values` says what the measurement is handed for each state, such as {"walk": 1, "sit": 0};
    without it the state names themselves.
    """

    measurement: Any
    values: Mapping[str, Any] | None = None

    def __call__(self, data: Sequence[str]) -> Any:
        rows = list(data) if self.values is None else [self.values[state] for state in data]
        return self.measurement(rows)

    @property
    def notion(self) -> str:
        """What the claim is about: one entry when all others are fixed."""
        return "entry-dp"

    def claimed(self) -> float:
        """The epsilon the measurement promises when one entry changes its value.

        Refuses metrics for which that is no distance, measures other than pure DP, and
        measurements that promise nothing.
        """
        try:
            return float(entry_eta(self.measurement))
        except OverflowError:  # its map says infinity
            raise InputError(
                "the measurement's privacy map is infinite for one changed entry: it promises "
                "nothing; give claimed= to hold it to a number"
            ) from None


@dataclass(frozen=True, slots=True)
class RandomisedQuery:
    """A query of one number whose exact answer a mechanism with `randomise` makes noisy."""

    mechanism: Any
    query: LinearQuery

    def __post_init__(self) -> None:
        if not hasattr(self.mechanism, "randomise"):
            raise InputError(
                f"{type(self.mechanism).__name__} has no randomise(value), so it cannot be called"
            )
        if len(self.query.labels) != 1:
            raise InputError(
                f"the query has {len(self.query.labels)} numbers; a mechanism takes one at a time"
            )

    def __call__(self, data: Sequence[str]) -> float:
        weight = {s: row[0] for s, row in zip(self.query.states, self.query.weights, strict=True)}
        answer = sum(weight[state] for state in data)
        exact = int(answer) if self.query.lattice == 1 else float(answer)
        return float(self.mechanism.randomise(exact))

    @property
    def notion(self) -> str:
        """What the claim is about: one entry when all others are fixed."""
        return "entry-dp"

    def claimed(self) -> float:
        """The epsilon the mechanism promises when one entry changes its value.

        Its own epsilon is for answers that are `sensitivity` apart. One entry moves the query by
        up to its Lipschitz constant L, which is ⌈L / sensitivity⌉ times as far: group privacy.
        Refuses mechanisms with a delta: no bound on a log-ratio holds for them.
        """
        delta = float(getattr(self.mechanism, "delta", None) or 0.0)
        if delta > 0:
            raise InputError(
                f"{type(self.mechanism).__name__} has delta = {significant(delta)}, so its claim "
                "limits no log-ratio; give claimed= to hold it to an epsilon"
            )
        epsilon = float(positive(self.mechanism.epsilon, "epsilon of the mechanism"))
        sensitivity = getattr(self.mechanism, "sensitivity", None)
        if sensitivity is None:
            return epsilon
        distance = positive(sensitivity, "sensitivity of the mechanism")
        return math.ceil(self.query.lipschitz / distance) * epsilon
