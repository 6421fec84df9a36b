"""Policies: which states must stay indistinguishable from which; graphs, and δ-location sets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, Self

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Bools, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.core.motion import Motion, motion_of
from shoal.core.numbers import Number, exact, positive, whole
from shoal.core.records import checked_states, label
from shoal.core.task import Model
from shoal.events.secrets import Events
from shoal.places.queries import EventWatch, Measurement

DISTANCES_AT_ONCE = 2**21  # distances held at once
NO_EDGES = as_read_only(np.empty((0, 2)), np.int64)


def canonical(edges: Ints, size: int) -> Ints:
    """Distinct pairs with i < j, sorted; refused when a state is joined to itself or unknown."""
    if not len(edges):
        return NO_EDGES
    if edges.min() < 0 or edges.max() >= size:
        raise InputError(f"an edge names state {edges.max()}; states are 0 to {size - 1}")
    low, high = edges.min(axis=1), edges.max(axis=1)
    if (low == high).any():
        place = int(low[low == high][0])
        raise InputError(f"an edge joins state {place} to itself; leave it out")
    keys = np.unique(low * size + high)
    return np.stack(np.divmod(keys, size), axis=1)


def clique_edges(groups: Ints) -> Ints:
    """All pairs inside each group of two or more; groups below 0 are none."""
    found = [NO_EDGES]
    for group in np.unique(groups[groups >= 0]):
        members = np.flatnonzero(groups == group)
        first, second = np.triu_indices(len(members), 1)
        found.append(np.stack([members[first], members[second]], axis=1))
    return np.concatenate(found)


def edges_within(points: Ints, squared: Fraction) -> Ints:
    """Pairs with |p - q|² ≤ squared, exactly, in lattice steps."""
    limit = squared.numerator // squared.denominator  # distances are integers
    found, all_states = [NO_EDGES], np.arange(len(points))
    for rows, distances in _distances(points, all_states, all_states):
        first, second = np.nonzero(distances <= limit)
        first = rows[first]
        found.append(np.stack([first, second], axis=1)[first < second])
    return np.concatenate(found)


def edges_nearest(points: Ints, k: int) -> Ints:
    """Each state and its k nearest others, ties by index."""
    size, found, all_states = len(points), [NO_EDGES], np.arange(len(points))
    count = min(k, size - 1)
    for rows, distances in _distances(points, all_states, all_states):
        distances[np.arange(len(rows)), rows] = np.iinfo(np.int64).max
        order = np.argsort(distances, axis=1, kind="stable")[:, :count]
        found.append(np.stack([np.repeat(rows, count), order.ravel()], axis=1))
    return canonical(np.concatenate(found), size)


def edges_of_moves(motion: Motion) -> Ints:
    """Pairs of states that can follow one and the same hidden state, in any step."""
    found = [NO_EDGES]
    last = motion.at(motion.memory)
    for matrix in motion.forward:
        moves = matrix.tocsc()  # its columns are the rows of the chain
        for origin in range(motion.hidden):
            targets = np.unique(
                last[moves.indices[moves.indptr[origin] : moves.indptr[origin + 1]]]
            )
            first, second = np.triu_indices(len(targets), 1)
            found.append(np.stack([targets[first], targets[second]], axis=1))
    return canonical(np.concatenate(found), motion.size)


def _distances(points: Ints, rows: Ints, columns: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Squared distances from blocks of the states `rows` to the states `columns`."""
    block = max(1, DISTANCES_AT_ONCE // max(len(columns), 1))
    for start in range(0, len(rows), block):
        some = rows[start : start + block]
        total = np.zeros((len(some), len(columns)), dtype=np.int64)
        for axis in range(points.shape[1]):
            total += (points[some, axis][:, None] - points[columns, axis][None, :]) ** 2
        yield some, total


# Policy graphs: which states of a stream must stay indistinguishable from which.


Repair = Literal["nearest", "least-area", "least-error"]
REPAIRS: tuple[Repair, ...] = ("nearest", "least-area", "least-error")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PolicyGraph(Value):
    """At every step each state still possible is indistinguishable from its neighbours.

    `edges` (m, 2) are pairs of state indices, i < j, sorted; states with the same number in
    `groups` are joined to each other as well (-1: to no state), so that cliques need no list of
    edges. A state that the constraint leaves alone, with no other state within the noise, is
    joined by `repair` to another one: to its partner in `partners` (-1: none) when that is still
    possible, else to the nearest, or to the one that adds the least area or the least error.
    `watch` names events that the whole stream keeps secret too (`watching`).
    Xiao & Xiong 2016, Definitions 4.2 to 4.4.
    """

    kind = "policy-graph"

    states: tuple[str, ...]
    edges: Ints
    groups: Ints
    title: str
    repair: Repair = "nearest"
    partners: Ints | None = None
    watch: EventWatch | None = field(default=None, metadata={"later": True})

    def __post_init__(self) -> None:
        """Refuse groups, edges, partners or a repair that do not fit the states.

        Edges inside a group are dropped, because members of a group are joined anyway.
        """
        states = checked_states(self.states)
        groups = np.asarray(self.groups, np.int64)
        if groups.shape != (len(states),):
            raise InputError(f"groups has shape {groups.shape}; give each state its group, or -1")
        edges = canonical(np.asarray(self.edges, np.int64).reshape(-1, 2), len(states))
        inside = (groups[edges[:, 0]] == groups[edges[:, 1]]) & (groups[edges[:, 0]] >= 0)
        if self.repair not in REPAIRS:
            raise InputError(f"repair is {self.repair!r}; it must be one of {list(REPAIRS)}")
        object.__setattr__(self, "states", states)
        object.__setattr__(self, "groups", as_read_only(groups, np.int64))
        object.__setattr__(self, "edges", as_read_only(edges[~inside], np.int64))
        if self.partners is not None:
            partners = _checked_partners(np.asarray(self.partners, np.int64), len(states))
            object.__setattr__(self, "partners", partners)

    @classmethod
    def complete(cls, states: Sequence[Any], *, repair: Repair = "nearest") -> Self:
        """Every state from every other: ordinary DP for the current state, and much noise."""
        names = _state_labels(states)
        groups = np.zeros(len(names), np.int64)
        return cls._of(names, NO_EDGES, "every state from every other", repair, groups)

    @classmethod
    def categories(
        cls,
        states: Sequence[Any],
        categories: Iterable[Iterable[Any]],
        *,
        repair: Repair = "nearest",
    ) -> Self:
        """Every state from the others of its category; states in none are joined to no state."""
        names = _state_labels(states)
        index = {name: place for place, name in enumerate(names)}
        groups = np.full(len(names), -1, dtype=np.int64)
        for number, members in enumerate(categories):
            for name in map(label, members):
                if name not in index:
                    raise InputError(f"categories names {name!r}, which is not one of the states")
                if groups[index[name]] >= 0:
                    raise InputError(f"categories names {name!r} twice; each state has one at most")
                groups[index[name]] = number
        title = f"every state from the others of its category, of {int(groups.max()) + 1}"
        return cls._of(names, NO_EDGES, title, repair, groups)

    @classmethod
    def within(cls, query: Measurement, radius: Number, *, repair: Repair = "nearest") -> Self:
        """States whose answers lie within `radius` of each other, in the query's unit.

        Decided on integers: |Δ|²·step² ≤ radius². The paper's G_util.
        """
        reach = positive(radius, "radius")
        edges = edges_within(query.points, (reach / query.step) ** 2)
        title = f"states within {float(reach):g} {query.unit} of each other"
        return cls._of(query.states, edges, title, repair)

    @classmethod
    def nearest(cls, query: Measurement, k: int, *, repair: Repair = "nearest") -> Self:
        """Each state from the `k` others nearest to it (either way), ties by index."""
        edges = edges_nearest(query.points, whole(k, "k"))
        return cls._of(query.states, edges, f"each state from its {k} nearest", repair)

    @classmethod
    def transitions(cls, model: Model, *, repair: Repair = "nearest") -> Self:
        """States that can follow the same state: even the last position known, the next is hidden.

        Edge jk when m_ij > 0 and m_ik > 0 for some i, in any step. The paper's G_trs.
        """
        if model.states is None:
            raise InputError("the model does not name its states; one-step moves need them")
        edges = edges_of_moves(motion_of(model))
        return cls._of(model.states, edges, "states that can follow the same state", repair)

    @classmethod
    def of(
        cls,
        states: Sequence[Any],
        pairs: Iterable[tuple[Any, Any]],
        *,
        repair: Repair = "nearest",
        partners: dict[Any, Any] | None = None,
        title: str = "the pairs of states that were named",
    ) -> Self:
        """From pairs of states; `partners` names, for states left alone, whom to join them to."""
        names = _state_labels(states)
        index = {name: place for place, name in enumerate(names)}

        def place(name: Any) -> int:
            if label(name) not in index:
                raise InputError(f"the graph names {label(name)!r}, which is not one of the states")
            return index[label(name)]

        edges = np.array([(place(a), place(b)) for a, b in pairs], dtype=np.int64).reshape(-1, 2)
        graph = cls._of(names, edges, title, repair)
        if not partners:
            return graph
        chosen = np.full(len(names), -1, dtype=np.int64)
        for name, other in partners.items():
            chosen[place(name)] = place(other)
        return replace(graph, partners=chosen)

    @classmethod
    def from_networkx(cls, graph: Any, *, states: Sequence[Any] | None = None, **rest: Any) -> Self:
        """From an undirected networkx graph, on its own nodes or on `states`."""
        if graph.is_directed():
            raise InputError("the graph is directed; indistinguishability has no direction")
        return cls.of(list(graph.nodes) if states is None else states, graph.edges, **rest)

    def __or__(self, other: PolicyGraph) -> PolicyGraph:
        """Both policies at once: the union of the edges, repaired as the left one says."""
        if other.states != self.states:
            raise InputError("the graphs have different states; a union needs the same, in order")
        same = np.array_equal(self.groups, other.groups) or not (other.groups >= 0).any()
        groups = self.groups if same or (self.groups >= 0).any() else other.groups
        extra = [] if same or groups is other.groups else [clique_edges(other.groups)]
        return replace(
            self,
            edges=np.concatenate([self.edges, other.edges, *extra]),
            groups=groups,
            title=f"{self.title}, and {other.title}",
        )

    def __and__(self, other: PolicyGraph) -> PolicyGraph:
        """Only what both policies join: the intersection of the edges, repaired as the left one."""
        if other.states != self.states:
            raise InputError(
                "the graphs have different states; an intersection needs the same, in order"
            )
        both = (self.groups >= 0) & (other.groups >= 0)
        groups = np.full(self.size, -1, dtype=np.int64)
        pairs = np.stack([self.groups[both], other.groups[both]], axis=1)
        groups[both] = np.unique(pairs, axis=0, return_inverse=True)[1].reshape(-1)
        kept = [self.edges[other._joins(self.edges)], other.edges[self._joins(other.edges)]]
        title = f"{self.title}, where also {other.title}"
        return replace(self, edges=np.concatenate(kept), groups=groups, title=title)

    def _joins(self, edges: Ints) -> Bools:
        """Return for each of these edges whether the policy has it, in a group or by itself."""
        first, second = edges[:, 0], edges[:, 1]
        grouped = (self.groups[first] == self.groups[second]) & (self.groups[first] >= 0)
        own = self.edges[:, 0] * self.size + self.edges[:, 1]
        return np.asarray(grouped | np.isin(first * self.size + second, own))

    def watching(
        self, events: Events, event_epsilon: Number | Sequence[Number], **watch: Any
    ) -> PolicyGraph:
        """The same policy on a stream that moves the log-odds of events by `event_epsilon` at most.

        Over all its outputs together; each step then takes the largest ε at which that holds, or
        is skipped. `watch` as for `EventWatch.of`. Proof: location_events.md.
        """
        return replace(self, watch=EventWatch.of(events, event_epsilon, **watch))

    def held_to(self, event_epsilon: Number | Sequence[Number]) -> PolicyGraph:
        """The same policy and events, held to another `event_epsilon`."""
        if self.watch is None:
            raise InputError("event_epsilon is given, but the policy watches no events; name some")
        return replace(self, watch=self.watch.held_to(event_epsilon))

    @property
    def size(self) -> int:
        return len(self.states)

    # what a location set says otherwise: its policy, how much it leaves out, and what it guards

    @property
    def policy(self) -> PolicyGraph:
        return self

    @property
    def delta(self) -> Fraction:
        return Fraction(0)

    @property
    def everywhere(self) -> bool:
        return False

    @property
    def is_complete(self) -> bool:
        """Whether every two states are joined as one group."""
        return bool((self.groups == 0).all())

    @property
    def notion(self) -> str:
        return "policy"

    @property
    def subject(self) -> str:
        return "which of two joined states one is in, at each step, given what was released before"

    def all_edges(self) -> Ints:
        """Every edge, those inside groups written out."""
        return canonical(np.concatenate([self.edges, clique_edges(self.groups)]), self.size)

    def edges_among(self, members: Bools) -> Ints:
        """The edges of G ∩ C, with C = members, those inside groups written out."""
        kept = self.edges[members[self.edges[:, 0]] & members[self.edges[:, 1]]]
        groups = np.where(members, self.groups, -1)
        return canonical(np.concatenate([kept, clique_edges(groups)]), self.size)

    def alone(self, members: Bools) -> Ints:
        """The members that no edge of G ∩ C joins to another member, in index order."""
        joined = np.zeros(self.size, dtype=np.bool_)
        kept = self.edges[members[self.edges[:, 0]] & members[self.edges[:, 1]]]
        joined[kept.ravel()] = True
        grouped = np.flatnonzero(members & (self.groups >= 0))
        counts = np.bincount(self.groups[grouped], minlength=1)
        joined[grouped[counts[self.groups[grouped]] > 1]] = True
        return np.flatnonzero(members & ~joined)

    def check(self, family: tuple[Model, ...]) -> None:
        """Policies need chains on the same states."""
        for model in family:
            if model.states != self.states:
                raise InputError(
                    f"secrets are a policy on {self.size} states, but the model is "
                    f"{model.describe()}; build the policy on the model's states, in order"
                )
            _refuse_unfollowed(model)
            if self.watch is not None:
                self.watch.check(model)

    def tied_under(self, model: Model) -> int | None:
        """Every entry the model ties to the one a pair is about."""
        return model.tied

    def describe(self) -> str:
        return (
            f"the current state: {self.title} (states left alone are joined to another, "
            f"{self.repair} first){_and_events(self)}"
        )

    @classmethod
    def _of(
        cls, states: Sequence[str], edges: Ints, title: str, repair: Repair, groups: Any = -1
    ) -> Self:
        numbers = np.broadcast_to(groups, len(states))
        return cls(states=tuple(states), edges=edges, groups=numbers, title=title, repair=repair)


def _and_events(policy: PolicyGraph) -> str:
    return "" if policy.watch is None else f"; and {policy.watch.describe()}"


@lru_cache(maxsize=32)
def _refuse_unfollowed(model: Model) -> None:
    """Refuses a model whose beliefs no stream follows; a ledger asks at every charge."""
    motion_of(model)


def _state_labels(states: Sequence[Any]) -> tuple[str, ...]:
    return tuple(label(state) for state in states)


def _checked_partners(partners: Ints, size: int) -> Ints:
    own = partners == np.arange(size) if partners.shape == (size,) else np.ones(1, np.bool_)
    if own.any() or partners.min() < -1 or partners.max() >= size:
        raise InputError("partners must give each state another state, or -1 for none")
    return as_read_only(partners, np.int64)


# δ-location sets: the few places where somebody most probably is, and stand-ins for the rest.


SLACK = 1e-12  # relative error of a running sum of floats that is decided exactly instead


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class LocationSet(Value):
    """A policy on the δ-location set of each step: the fewest states of total prior ≥ 1 - δ.

    A state outside the set answers as its surrogate, the nearest member. With the complete graph
    the promise then covers all states. With other policies it covers the members: an edge outside
    may lead to surrogates far apart. `everywhere=True` adds the images of the outside edges to
    the graph, so that every edge of the policy is covered, at the price of a larger hull.
    Xiao 2017, Definitions 3.4 and 3.5; ERRATA on Theorem 3.6.
    """

    kind = "location-set"

    policy: PolicyGraph
    delta: Fraction
    everywhere: bool = False

    def __post_init__(self) -> None:
        """Refuse a delta that is not between 0 and 1, both excluded."""
        delta = exact(self.delta, "delta")
        if not 0 < delta < 1:
            raise InputError(
                f"coverage_delta is {float(delta):g}; it must be between 0 and 1, both excluded "
                "(use the policy alone to cover every possible state)"
            )
        object.__setattr__(self, "delta", delta)

    @classmethod
    def complete(cls, states: Sequence[Any], delta: Number) -> Self:
        """Every member from every other: δ-location set based differential privacy."""
        return cls(policy=PolicyGraph.complete(states), delta=exact(delta, "delta"))

    @property
    def states(self) -> tuple[str, ...]:
        return self.policy.states

    @property
    def watch(self) -> EventWatch | None:
        return self.policy.watch

    @property
    def notion(self) -> str:
        return "location-set"

    @property
    def subject(self) -> str:
        covers = "of all states" if self.everywhere or self.policy.is_complete else "in the set"
        return (
            f"which of two joined states {covers} one is in, at each step, given what was "
            "released before"
        )

    def watching(
        self, events: Events, event_epsilon: Number | Sequence[Number], **watch: Any
    ) -> LocationSet:
        """The same location sets on a stream that keeps events secret, as of a policy."""
        return replace(self, policy=self.policy.watching(events, event_epsilon, **watch))

    def held_to(self, event_epsilon: Number | Sequence[Number]) -> LocationSet:
        """The same location sets and events, held to another `event_epsilon`."""
        return replace(self, policy=self.policy.held_to(event_epsilon))

    def check(self, family: tuple[Model, ...]) -> None:
        """The same chains as for the policy."""
        self.policy.check(family)

    def tied_under(self, model: Model) -> int | None:
        """Every entry the model ties to the one a pair is about."""
        return model.tied

    def describe(self) -> str:
        return (
            f"the current state within the fewest states that hold {float(1 - self.delta):.4g} of "
            f"the belief: {self.policy.title}{_and_events(self.policy)}"
        )


def location_set(prior: npt.ArrayLike, delta: Number) -> Bools:
    """The fewest states of total prior ≥ 1 - δ, most probable first, as booleans.

    States as probable as the last one taken are taken too: the set is larger, so more is
    protected, and does not depend on the numbering. Sums are compared exactly, as rationals:
    .4 + .3 + .2 is not below .9. Priors may be floats (their exact values count) or Fractions.
    Xiao 2017, Definition 3.4.
    """
    share = 1 - exact(delta, "delta")
    values = np.asarray(prior)
    floats = values.astype(np.float64)
    order = np.argsort(-floats, kind="stable")
    if values.dtype == object:
        order = np.array(sorted(range(len(values)), key=lambda s: -values[s]), dtype=np.int64)
    needed = _count_reaching(values[order], share)
    members = np.zeros(len(values), dtype=np.bool_)
    members[(values >= values[order[needed - 1]]) & (values > 0)] = True
    return members


def _count_reaching(descending: npt.NDArray[Any], share: Fraction) -> int:
    """How many of the largest probabilities reach `share`; all of positive mass when none do.

    The sum of floats decides where it is clear, and exact sums where it is close. The share is of
    the sum of all: the floats of a belief seldom add up to exactly 1.
    """
    positive = int(np.count_nonzero(descending > 0))
    if not positive:
        raise InputError("prior holds no positive probability; a location set needs some")
    sums = np.cumsum(descending[:positive].astype(np.float64))
    target = float(share) * sums[-1]
    count = int(np.searchsorted(sums, target * (1 - SLACK))) + 1
    if count > positive or sums[count - 1] > target * (1 + SLACK):
        return min(count, positive)
    exact_values = [Fraction(value) for value in descending[:positive].tolist()]
    total = sum(exact_values)
    running = sum(exact_values[: count - 1], Fraction(0))
    for place in range(count - 1, positive):
        running += exact_values[place]
        if running >= share * total:
            return place + 1
    return positive


def surrogates(points: Ints, members: Bools) -> Ints:
    """For each state the member that answers for it: itself, or the nearest, ties by index.

    Xiao 2017, Definition 3.5.
    """
    inside, chosen = np.flatnonzero(members), np.arange(len(points))
    if not len(inside):
        raise InputError("members is empty; a surrogate needs at least one member")
    for rows, distances in _distances(points, np.flatnonzero(~members), inside):
        chosen[rows] = inside[distances.argmin(axis=1)]
    return chosen
