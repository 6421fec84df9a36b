"""The value a lift returns."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from shoal.loss.cone import Bools, Floats, Rule
from shoal.loss.lift_limit import Limit


@dataclass(frozen=True, slots=True, eq=False)
class LiftLoss:
    """The largest loss over nodes and pairs, where it occurs, and the numbers it rests on.

    value = at_node + min(future + past, others), rounded up, for the pair (x, x') at `node`
    (counted from 0; in a chain of any length the last node stands for all later ones); others is
    what all other entries can add by group privacy. node and pair are None when no node has two
    possible values. future_limit and past_limit bound the two sides for every number of entries:
    each lies above its own image under lift_step.image, or is such an image; inf where none is
    certified. certified is False exactly when value is inf.
    """

    value: float
    eta: float
    rule: Rule
    node: int | None
    pair: tuple[int, int] | None
    at_node: float
    future: float
    past: float
    others: float
    future_limit: Limit
    past_limit: Limit

    @property
    def certified(self) -> bool:
        return bool(np.isfinite(self.value))

    @classmethod
    def none(cls, rule: Rule, eta: float, others: float, future: Limit, past: Limit) -> LiftLoss:
        """Nothing leaked yet."""
        return cls(0.0, eta, rule, None, None, 0.0, 0.0, 0.0, others, future, past)

    def or_at(
        self, node: int, possible: Bools, at_node: Floats, future: Floats, past: Floats
    ) -> LiftLoss:
        """This loss, or the worst pair of possible values at `node` if that is larger."""
        total = (at_node + np.minimum(future + past, self.others)) * (1.0 + 2.0**-51)
        total = np.where(possible[:, None] & possible[None, :], total, 0.0)
        x, other = (int(i) for i in np.unravel_index(int(total.argmax()), total.shape))
        if not total[x, other] > self.value:
            return self
        return replace(
            self,
            value=float(total[x, other]),
            node=node,
            pair=(x, other),
            at_node=float(at_node[x, other]),
            future=float(future[x, other]),
            past=float(past[x, other]),
        )

    def or_told(self, node: int, at_node: Floats, told: Floats) -> LiftLoss:
        """This loss, or the worst pair of a bound that does not split into its sides."""
        everywhere = np.ones(len(told), np.bool_)
        return self.or_at(node, everywhere, at_node, told - at_node, np.zeros_like(told))

    def named(self, states: npt.NDArray[np.intp]) -> LiftLoss:
        """The same loss with the pair in the numbering of the whole chain."""
        if self.pair is None:
            return self
        return replace(self, pair=(int(states[self.pair[0]]), int(states[self.pair[1]])))

    def guesses(self, eta: float, rule: Rule) -> tuple[Limit, Limit]:
        """Where the limits of the two sides may lie at another eta; another rule needs own lags."""
        factor = eta / self.eta
        future, past = self.future_limit.scaled(factor), self.past_limit.scaled(factor)
        if rule != self.rule:
            return replace(future, lags=(1,)), replace(past, lags=(1,))
        return future, past
