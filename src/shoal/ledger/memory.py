"""Conversions remembered, so that a slow one never runs while a ledger is locked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import TypeVar

from shoal.additive.queries import LinearQuery
from shoal.core.errors import Refused
from shoal.core.plan import Plan
from shoal.core.task import Model
from shoal.ledger.totals import Conversions, tallied

LARGEST = 4096  # remembered numbers; beyond it the oldest are forgotten
BEATEN = 3  # times that other writers may change what a conversion was prepared for

Settled = TypeVar("Settled")


class Missing(Exception):
    """A conversion that is not remembered yet; `compute` works it out and remembers it.

    `outrun` says whether it depends on what others write meanwhile: a plan's own loss does not.
    """

    def __init__(self, compute: Callable[[], None], outrun: bool) -> None:
        super().__init__("a conversion has to be computed first")
        self.compute = compute
        self.outrun = outrun


class Memory:
    """The results of conversions, which are pure functions of public values."""

    def __init__(self, conversions: Conversions) -> None:
        self._conversions = conversions
        self._known: dict[object, float | Refused] = {}

    def patiently(self, work: Callable[[Conversions], Settled]) -> Settled:
        """`work` done with what is remembered; what is missing is computed outside of it.

        Only when others have outrun that `BEATEN` times does `work` compute, under its lock.
        """
        beaten = 0
        while beaten < BEATEN:
            try:
                return work(self.recalled())
            except Missing as missing:
                missing.compute()  # may take seconds: not while the ledger is locked
                beaten += missing.outrun
        return work(self.computed())

    def recalled(self) -> Conversions:
        """Conversions that answer from memory and raise `Missing` otherwise."""
        return self._conversions_by(self._recall)

    def computed(self) -> Conversions:
        """Conversions that answer from memory, or compute and remember."""
        return self._conversions_by(self._compute)

    def _conversions_by(
        self, answer: Callable[[object, Callable[[], float]], float]
    ) -> Conversions:
        def leakage(family: tuple[Model, ...], eta: Fraction) -> float:
            return answer((family, eta), lambda: self._conversions.leakage(family, eta))

        def composed_loss(plans: Sequence[Plan]) -> float:
            return answer(tallied(plans), lambda: self._conversions.composed_loss(plans))

        def recheck(plan: Plan) -> float:
            return answer(plan, lambda: self._conversions.recheck(plan))

        def same_answer(number: LinearQuery, model: Model, eta: Fraction) -> float:
            return answer(
                (number, model, eta), lambda: self._conversions.same_answer(number, model, eta)
            )

        return Conversions(leakage, composed_loss, recheck, same_answer)

    def _recall(self, key: object, compute: Callable[[], float]) -> float:
        if key not in self._known:
            raise Missing(lambda: self._learn(key, compute), not isinstance(key, Plan))
        return _told(self._known[key])

    def _compute(self, key: object, compute: Callable[[], float]) -> float:
        self._learn(key, compute)
        return _told(self._known[key])

    def _learn(self, key: object, compute: Callable[[], float]) -> None:
        """Remember the number, or the refusal: both are final."""
        if key in self._known:
            return
        while len(self._known) >= LARGEST:
            self._known.pop(next(iter(self._known)), None)
        try:
            self._known[key] = compute()
        except Refused as refusal:
            self._known[key] = refusal


def _told(known: float | Refused) -> float:
    if isinstance(known, Refused):
        raise known
    return known
