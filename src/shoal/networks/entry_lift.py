"""The lift on networks, contagion and tables, for the rows that need it. Proof: lift.md."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.progress import OutOfTime, cut_short, in_time, unless_refused
from shoal.core.task import CUT, EntryLift, LiftedModel, Query
from shoal.core.walk import UNIT
from shoal.mechanisms.cone import UP, PairLaws, bearable, prepare, round_up_eta, steady_leak
from shoal.mechanisms.lift import climb
from shoal.mechanisms.queries import linear
from shoal.mechanisms.variables import per_variable
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.influence import reaches
from shoal.networks.lift import MAX_BLOCK_STATES, BagLift, NetworkLift, larger_loss
from shoal.networks.quilts import NodeQuilt, network_quilts, quilt_loss, quilt_sigma, strategy_for
from shoal.networks.table import JointTable

MAX_QUICK_BLOCK_VALUES = 256  # values of a block whose messages take seconds
MAX_QUICK_QUILT_VARIABLES = 64  # variables whose quilts are all looked at in seconds
WALKS = "walks"
BUDGET_UNUSED = 1e-7  # of the budget, left unused so that a second evaluation fits too
TOO_LARGE = (
    f"the lift needs blocks or bags with at most {MAX_BLOCK_STATES} values together, quilts, or "
    "influences that fade along walks, and this network has none of them; use exact, wasserstein "
    "or group"
)


class NetworkEntryLift:
    """The lift of a network: the least of the quilts, the block lift and the walks of influence.

    Where blocks are too large, the lift along the bags of a tree decomposition takes their place.
    """

    def __init__(self, net: BayesNet, query: Query | None) -> None:
        self._net, self._metrics = net, entry_metrics(net, query)

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        """Return the most that any release which is eta-DP for one entry tells about an entry.
        Rounds up. Rounds up.
        """
        least = _walks_loss(self._reach, eta)
        if least > enough and self._lift_or_none is not None:
            least = min(least, self._lift_or_none.loss(eta).loss)
        if least > enough and self._quilts is not None:
            least = min(least, quilt_loss(self._quilts, eta))
        if least == math.inf:
            raise Refused(TOO_LARGE)
        return least

    def largest(self, epsilon: float) -> LiftedModel:
        """Return the largest eta whose loss is at most epsilon, or the best found in time."""
        epsilon *= 1 - BUDGET_UNUSED
        answers: list[LiftedModel | None] = []
        for search in (
            self._search_blocks_and_walks,
            self._search_quilts,
        ):  # the second may take long
            with suppress(OutOfTime):
                answers.insert(0, search(epsilon))
        found = [answer for answer in answers if answer is not None]
        best = max(found, key=lambda answer: answer.eta, default=None)  # the quilts' when equal
        if best is None or best.eta <= 0:
            in_time("the lift")
            raise Refused(TOO_LARGE)
        return mark_if_cut_short(best)

    @cached_property
    def _lift_or_none(self) -> NetworkLift | None:
        """The lift by blocks, or by bags where blocks are too large; None when both are.

        Large blocks take minutes, and are looked at only where walks of influence never fade.
        """
        blocks = unless_refused(lambda: NetworkLift(self._net, self._metrics), None)
        if blocks is not None and blocks.largest > MAX_QUICK_BLOCK_VALUES and self._walks_fade:
            return None
        return blocks or unless_refused(lambda: BagLift(self._net, self._metrics), None)

    @property
    def _walks_fade(self) -> bool:
        """Whether walks of influence have a finite sum from every variable."""
        return bool(np.isfinite(self._reach).all())

    @cached_property
    def _reach(self) -> Floats:
        """How far each variable reaches; inf where a variable is tied to too many others."""
        moves = np.array([float(metric.max()) for metric in self._metrics])
        return unless_refused(lambda: reaches(self._net, moves), np.full(len(moves), math.inf))

    @cached_property
    def _quilts(self) -> tuple[tuple[NodeQuilt, ...], ...] | None:
        """The quilts; None when the network is too large to search.

        All quilts of many variables take minutes: they are searched where blocks serve too, or
        where walks of influence never fade.
        """
        many = len(self._net.variables) > MAX_QUICK_QUILT_VARIABLES
        if many and self._lift_or_none is None and self._walks_fade:
            return None
        return unless_refused(lambda: network_quilts(self._net, strategy_for(self._net)), None)

    def _search_quilts(self, epsilon: float) -> LiftedModel | None:
        """Return the answer of the worst variable's cheapest quilt, |N|·eta + e, or None."""
        if self._quilts is None:
            return None
        sigma, costs = quilt_sigma(self._quilts, epsilon)
        worst, eta = max(costs), math.nextafter(1 / sigma, 0.0)
        near = worst.quilt.nearby * eta
        return LiftedModel.at(eta, near + worst.quilt.influence, worst.node, near, "quilt")

    def _search_blocks_and_walks(self, epsilon: float) -> LiftedModel | None:
        """Return the answer of blocks or bags, or of the variable that reaches farthest.

        Its eta is 0 when influences never fade.
        """
        found = None if self._lift_or_none is None else self._lift_or_none.largest_eta(epsilon)
        node = int(self._reach.argmax())
        eta = epsilon / float(self._reach[node]) * (1.0 - 8.0 * UNIT)
        walks = LiftedModel.at(eta, _walks_loss(self._reach, eta), node, eta, WALKS)
        return walks if found is None or walks.eta > found.eta else found


def _walks_loss(reach: Floats, eta: float) -> float:
    return math.inf if eta <= 0 else float(reach.max()) * eta * (1.0 + 2.0 * UNIT)


def mark_if_cut_short(found: LiftedModel) -> LiftedModel:
    """Return `found`, marked where a time limit ended the search for it."""
    cut = cut_short() and not found.rule.endswith(CUT)
    return replace(found, rule=f"{found.rule}{CUT}") if cut else found


class WholeEntryLift:
    """The lift of a contagion model or a table, over all entries at once."""

    def __init__(self, lift: ContagionLift | TableLift) -> None:
        self._lift = lift

    def loss(self, eta: float, enough: float = -math.inf) -> float:
        return self._lift.loss(eta).loss

    def largest(self, epsilon: float) -> LiftedModel:
        return mark_if_cut_short(self._lift.largest_eta(epsilon * (1 - BUDGET_UNUSED)))


@lru_cache(maxsize=32)
def network_lift(net: BayesNet, query: Query | None) -> NetworkEntryLift:
    """Return the lift of a network with the metric of `query`."""
    return NetworkEntryLift(net, query)


def entry_metrics(model: BayesNet | JointTable, query: Query | None) -> tuple[Floats, ...]:
    """Return how far apart two values of each variable move the answer, divided by the Lipschitz
    constant.

    1 off the diagonal for anything that is not a sum. Divisions round up, 1 stays 1.
    """
    shared, own_weights = linear(query), per_variable(query)
    if shared is not None and model.states == shared.states:
        rows = [shared.multiples()] * len(model.variables)
    elif own_weights is not None and own_weights.variables == model.variables:
        rows = [tuple((weight,) for weight in own) for own in own_weights.multiples()]
    else:
        return tuple(1.0 - np.eye(len(domain)) for domain in model.domains)
    gaps = [_weight_distances(own) for own in rows]
    widest = max(float(gap.max()) for gap in gaps)
    return tuple(np.minimum(gap / widest * (1 + 2.0**-52), 1.0) for gap in gaps)


def _weight_distances(rows: tuple[tuple[int, ...], ...]) -> Floats:
    weights = np.array(rows, dtype=np.float64)
    return np.asarray(np.abs(weights[:, None, :] - weights[None, :, :]).sum(axis=2))


@lru_cache(maxsize=32)
def contagion_lift(model: Contagion, query: Query | None) -> WholeEntryLift:
    """Return the lift of a contagion model: any change of a person counts the same."""
    return WholeEntryLift(ContagionLift(model))


@lru_cache(maxsize=32)
def table_lift(model: JointTable, query: Query | None) -> EntryLift | str:
    """Return the lift of a table with the metric of `query`; a sentence where it is too large."""
    try:
        return WholeEntryLift(TableLift(model, entry_metrics(model, query)))
    except Refused as why:
        return str(why)


# The lift on a joint law that is written out: all variables are one block.


@dataclass(eq=False)
class TableLift:
    """loss(i; x, x') = Λ( P(X | X_i = x), P(X | X_i = x'); Σ_v E_v ), over all outcomes X.

    `metrics` as in NetworkLift. Every eta-DP mechanism is a function of the outcome that changes
    by at most e^{E_v} with variable v, so this is its definition, and Λ by the cone rule is the
    worst of all mechanisms. Refused beyond 1024 possible outcomes.
    """

    table: JointTable
    metrics: Sequence[Floats]

    def __post_init__(self) -> None:
        """Refuse a table with more possible outcomes than are compared."""
        count = int(np.count_nonzero(self.table.probability))
        if count > MAX_BLOCK_STATES:
            raise Refused(
                f"the table has {count} possible outcomes; the lift compares at most "
                f"{MAX_BLOCK_STATES}: use exact, wasserstein or group"
            )

    @cached_property
    def outcomes(self) -> Floats:
        """The possible outcomes, (variables, outcomes), as numbers of values."""
        places = np.indices(self.table.probability.shape)
        flat = places.reshape(self.table.probability.ndim, -1)
        return np.asarray(flat[:, self.table.probability.ravel() > 0])

    @cached_property
    def apart(self) -> Floats:
        """Σ_v E_v between any two possible outcomes, per unit of eta."""
        return np.asarray(
            sum(
                metric[np.ix_(row, row)]
                for metric, row in zip(self.metrics, self.outcomes, strict=True)
            )
        )

    @cached_property
    def own(self) -> tuple[PairLaws, ...]:
        """For every variable: the rows P(X | X_i = x) over the possible outcomes."""
        flat = self.table.probability.ravel()
        weight = flat[flat > 0]
        return tuple(
            _normalised_rows(np.where(np.arange(len(domain))[:, None] == shown, weight, 0.0))
            for domain, shown in zip(self.table.domains, self.outcomes, strict=True)
        )

    def loss(self, eta: float) -> LiftedModel:
        """Return the most that any release which is eta-DP for one variable tells about one. Rounds
        up. Rounds up.

        The same for the same eta, independent of earlier calls, and never more for any that is a
        little smaller (`steady_leak`).
        """
        worst = LiftedModel.at(eta, 0.0, None, 0.0, bearable(self.own[0]))
        together, above = eta * len(self.own) * UP, round_up_eta(eta)
        for i, laws in enumerate(self.own):
            losses = np.minimum(steady_leak(laws, above * self.apart * UP), together) * UP
            worst = larger_loss(worst, i, losses, laws.present, self.metrics[i])
        return worst

    def largest_eta(self, epsilon: float) -> LiftedModel:
        """Return the loss at the largest eta found with loss ≤ epsilon; group privacy is the
        start.
        """
        low = epsilon / len(self.own) * (1 - 2.0**-40)
        return climb(lambda eta, _: self.loss(eta), self.loss(low), epsilon, 64 * epsilon)


# The lift on contagion: what an entry-level DP release tells about one person of a group.
#
# In a group where only the number of people ill matters, let O be how many of the others are ill.
# Given O the others are a uniformly random set of that size, independent of the person's state. So
# with a_x(o) = E[density | person in state x, O = o]: changing x costs eta, and a set of o + 1 is
# a set of o with one more, so a_x(o) and a_x(o') differ by at most e^{eta·|o - o'|}. Hence
#
#     loss ≤ eta + Λ( P(O | ill), P(O | well); eta·|o - o'| ),  and the same the other way round,
#
# and never more than eta for each person of the group. Proof: mechanisms/lift.md.


MAX_LISTED_PEOPLE = 10  # people of a group whose joint law is compared outcome by outcome


class _GroupView(NamedTuple):
    """One person's view of a group: the laws of the rest, how far apart they are, the sizes."""

    laws: PairLaws
    apart: Floats
    size: int
    person: int
    itself: float  # what changing the person adds, per unit of eta; 0 where `apart` covers it
    certain: bool = False  # the person is in one state for sure, so there is no secret


@dataclass(eq=False)
class ContagionLift:
    """A contagion model, ready to be evaluated at any eta."""

    model: Contagion

    @cached_property
    def groups(self) -> tuple[_GroupView, ...]:
        """The view of each group law, and of each person where the law is a table, largest first.

        The largest first: what they tell often settles that smaller ones tell less.
        """
        found: list[_GroupView] = []
        done: set[int] = set()
        for g, group in enumerate(self.model.groups):
            if self.model.which[g] in done:
                continue
            done.add(self.model.which[g])
            law = self.model.law_of(g)
            if self.model.exchangeable(g):
                found.append(_exchangeable_view(law, group[0]))
            elif len(group) <= MAX_LISTED_PEOPLE:
                found += [_listed_view(law, place, person) for place, person in enumerate(group)]
            else:
                found.append(_unlisted_view(len(group), group[0]))
        return tuple(sorted(found, key=lambda group: -group.size))

    def loss(self, eta: float) -> LiftedModel:
        """Return the most that any release which is eta-DP for one person tells about one. Rounds
        up. Rounds up.

        The same for the same eta, independent of earlier calls, and never more for any that is a
        little smaller (`steady_leak`).
        """
        worst = _person_loss(eta, 0.0, 0)
        above = round_up_eta(eta)
        for group in self.groups:
            if group.certain or eta * group.size * UP <= worst.loss:
                continue
            rest_loss = float(steady_leak(group.laws, above * group.apart * UP).max())
            value = min(rest_loss + above * group.itself, eta * group.size) * UP
            if value > worst.loss:
                worst = _person_loss(eta, value, group.person)
        return worst

    def largest_eta(self, epsilon: float) -> LiftedModel:
        """Return the loss at the largest eta with loss ≤ epsilon; group privacy is where it
        starts.
        """
        low = epsilon / (self.model.tied or 1) * (1 - 2.0**-40)
        return climb(lambda eta, _: self.loss(eta), self.loss(low), epsilon, epsilon)


def _person_loss(eta: float, loss: float, person: int) -> LiftedModel:
    return LiftedModel.at(eta, loss, person, eta, "cone", (0, 1))


def _exchangeable_view(law: Floats, person: int) -> _GroupView:
    """Return the view of a group in which only the number of people ill matters.

    P(O = o, well) = law(o) (m - o)/m; without the m, a double too small to be divided keeps all
    of its digits.
    """
    size = len(law) - 1
    others = np.arange(size)
    weight = np.stack([law[:-1] * (size - others), law[1:] * (others + 1)])
    apart = np.abs(others[:, None] - others[None, :]).astype(np.float64)
    return _GroupView(_normalised_rows(weight), apart, size, person, 1.0, _is_certain(weight))


def _listed_view(law: Floats, place: int, person: int) -> _GroupView:
    """Return the view of one person of a group whose outcomes are listed."""
    outcomes = np.indices(law.shape).reshape(law.ndim, -1)
    weight = np.stack([np.where(outcomes[place] == state, law.ravel(), 0.0) for state in (0, 1)])
    possible = weight.any(axis=0)
    kept = outcomes[:, possible]
    apart = (kept[:, :, None] != kept[:, None, :]).sum(axis=0).astype(np.float64)
    rows = weight[:, possible]
    return _GroupView(_normalised_rows(rows), apart, law.ndim, person, 0.0, _is_certain(rows))


def _unlisted_view(size: int, person: int) -> _GroupView:
    """Return the view of a group too large to compare: all of its people may change."""
    apart = np.full((2, 2), float(size))
    return _GroupView(_normalised_rows(np.eye(2)), apart, size, person, 0.0)


def _normalised_rows(weight: Floats) -> PairLaws:
    """Return the rows divided by their sums: what is possible is never 0, for sums lose nothing."""
    totals = weight.sum(axis=1, keepdims=True)
    law = weight / np.where(totals > 0, totals, 1.0)
    return prepare(law, possible=weight > 0, error=4.0 * (weight.shape[1] + 4) * UNIT)


def _is_certain(weight: Floats) -> bool:
    return not weight.any(axis=1).all()
