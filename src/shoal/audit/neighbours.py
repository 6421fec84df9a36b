"""Two data sets side by side: how well a release tells them apart, at least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.additive.plans import Measured, eta_above
from shoal.audit.adaptive_testing import Looked, Scope
from shoal.audit.black_box import FunctionBox, PlanBox, Progress, as_box
from shoal.audit.fact_pairs import Contrast, Pool
from shoal.audit.lengths import Budget
from shoal.audit.statistical import CONFIDENCE, DRAWS, Estimate, Sampling, estimated
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.numbers import Number, positive
from shoal.core.plan import Additive, Plan, Sampler
from shoal.core.rng import Rng, SystemRng
from shoal.noise.primitives import SeededRng


@dataclass(frozen=True, slots=True)
class TwoDataSets:
    """A release of one of two data sets: every row of `paths` holds which."""

    release: PlanBox | FunctionBox
    data: tuple[Any, Any]

    @property
    def seeded(self) -> bool:
        """Whether its outputs follow from a seed."""
        return self.release.seeded

    def draw(self, paths: Ints, seed: int) -> Floats:
        chosen = [self.data[i] for i in paths[:, 0].tolist()]
        if isinstance(self.release, FunctionBox):
            return self.release.outputs(chosen, seed)
        body = self.release.plan.body
        assert isinstance(body, Sampler)  # `as_box` has checked it
        rng: Rng = SeededRng(seed) if self.seeded else SystemRng()
        return np.array([body.draw(one, rng).values for one in chosen], dtype=np.float64)


def audit_neighbours(
    release: Any,
    first: Any,
    second: Any,
    *,
    claimed: Number | None = None,
    draws: int = DRAWS,
    confidence: float = CONFIDENCE,
    seed: int = 0,
    workers: int = 1,
    progress: Progress | None = None,
) -> Estimate:
    """A lower bound on log P(output | first) / P(output | second), or the other way round.

    `release` is a plan for single releases (in rounds too) or a function of one data set. For data
    sets that differ in one entry this is what entry-level DP limits, and `claimed` is by default
    the epsilon a plan's noise gives one entry. Draws, confidence and seed as in `audit_black_box`.
    """
    sampling = Sampling(draws, confidence, seed, workers, progress).checked()
    box = as_box(release, ())
    if not isinstance(box, PlanBox | FunctionBox):
        raise InputError("release is a black box of states; give a plan or a function of the data")
    data: tuple[Any, Any] = (first, second)
    words: tuple[tuple[str, ...], str] = ((), "")
    if isinstance(release, Plan):
        data = (release.task.read(first), release.task.read(second))
        words = (release.task.query.labels, release.task.query.unit)
        if claimed is None and isinstance(release.body, Additive | Measured):
            claimed = eta_above(release.body.eta)
    promised = None if claimed is None else float(positive(claimed, "claimed"))
    claim = {"promised": promised, "notion": None if claimed is None else "one changed entry"}
    pools = tuple(Pool(f"the {name} of two", Always(i), 1) for i, name in enumerate(NAMES))
    contrast = Contrast(0, "two given data sets", "the data", pools, ((0, 1),))
    scope = Scope([contrast], Budget(draws), Looked())
    return estimated(TwoDataSets(box, data), scope, claim, sampling, words)


NAMES = ("first", "second")


@dataclass(frozen=True, slots=True)
class Always:
    """Draws the same data set every time."""

    which: int

    def __call__(self, count: int, rng: np.random.Generator) -> Ints:
        return np.full((count, 1), self.which, dtype=np.int64)
