"""A pairwise field as a law that other mechanisms follow: a network, a table, or its factors."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.task import Model
from shoal.core.walk import LEAST_NORMAL, TooUnlikely, Wide, is_exact_in_doubles
from shoal.mechanisms.mixture import DEEPEST_LINEAR
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import Factor, greedy_summing_order
from shoal.networks.laws import GivenSum
from shoal.networks.network_sums import NetworkComponent
from shoal.records.field import NOTHING_POSSIBLE, PairwiseField, own_weights

# A pairwise field as a law that other mechanisms can follow: a network, or a table.


MAX_FOLLOWED_RECORDS = 200  # records; a larger forest is left as a field


def as_field(model: Model) -> PairwiseField | None:
    """Return `model` where it is a pairwise field; None for any other."""
    return model if isinstance(model, PairwiseField) else None


def as_network(model: Model) -> Model:
    """Return a field as a Bayesian network when it has no loops, as a table when small; else
    itself.

    Itself too when something possible is too unlikely for a double of the network or table: it
    must not become impossible. Other models are returned as they are, so that a mechanism can ask
    this of its whole family.
    """
    field = as_field(model)
    if field is None or field.states is None:
        return model
    try:
        if field.forest and field.records <= MAX_FOLLOWED_RECORDS:
            return network_of_field(field)
        return field.table() if field.small() else field
    except TooUnlikely:
        return model


@lru_cache(maxsize=16)
def network_of_field(model: PairwiseField) -> BayesNet:
    """Return the network with the same joint law: each record is drawn given the tied one before
    it.

    In every component the first record is the root; P(x_c | x_p) is proportional to
    own(x_c) ψ(x_p, x_c) Π of what the records beyond c weigh. Refused when ties form a loop, and
    when a double cannot hold something possible: a hub of many ties may take a value so rarely.
    """
    if not model.forest:
        raise InputError("the ties form a loop, so the field is no network; use table() if small")
    near = _potentials_by_neighbour(model)
    order, parent = _depth_first_order(model.records, near)
    weight = [Wide.of(row) for row in own_weights(model)]
    for record in reversed(order):  # leaves first: what lies beyond a record weighs its values
        above = parent[record]
        if above is not None:
            behind = near[above][record].times(weight[record]).total(-1)
            weight[above] = weight[above].times(behind)
    names = tuple(f"record {record}" for record in range(model.records))
    tables = []
    for record in range(model.records):
        above = parent[record]
        table = weight[record]
        if above is None and not table.possible.any():
            raise InputError(NOTHING_POSSIBLE)
        if above is not None:
            table = near[above][record].times(table)
        total = table.total(-1, keepdims=True)
        law = table.over(total)
        if not is_exact_in_doubles(law, table.possible):
            raise TooUnlikely(
                f"record {record} takes a value with a probability below "
                f"{LEAST_NORMAL:.2g}, which no "
                "table of a network holds; use dependent-field or group"
            )
        # a parent's value that never occurs may have any law
        tables.append(np.where(total.possible, law, 1.0 / law.shape[-1]))
    return BayesNet(
        variables=names,
        domains=(model.states or (),) * model.records,
        parents=tuple(() if above is None else (names[above],) for above in parent),
        tables=tuple(tables),
    )


def summable(model: Model) -> bool:
    """Return whether sums over the records of a field can be followed factor by factor
    (FieldFactors).
    """
    field = as_field(model)
    if field is None or field.states is None:
        return False
    return field.small() or (field.forest and field.records <= MAX_FOLLOWED_RECORDS)


class FieldFactors:
    """A field as its own weights and ties: what a law of its records is proportional to.

    For fields that no network or table holds: nothing has to be normalised before it is divided.
    """

    depth = math.inf  # products of weights may be of any size

    def __init__(self, model: PairwiseField) -> None:
        """Name the records of a field as variables, and find its components."""
        self.model = model
        self.variables = tuple(f"record {record}" for record in range(model.records))
        self.domains = (model.states or (),) * model.records
        self.sizes = (model.domain.size,) * model.records
        names = model.components()
        self.parts = tuple(
            tuple(np.flatnonzero(names == name).tolist()) for name in range(int(names.max()) + 1)
        )

    @cached_property
    def elimination_order(self) -> tuple[int, ...]:
        """A good order in which to sum the records out."""
        alone = tuple((record,) for record in range(self.model.records))
        return greedy_summing_order((*alone, *self.ties), self.sizes)

    @cached_property
    def ties(self) -> dict[tuple[int, ...], Floats]:
        """The potential of each pair of tied records."""
        pairs = map(tuple, self.model.ties.tolist())
        return dict(zip(pairs, self.model.potentials[self.model.potential_of], strict=True))

    @cached_property
    def alike(self) -> list[tuple[object, ...]]:
        """A key for every record; those with the same one can change places: leaves of a record."""
        near = [list[tuple[int, bool, int]]() for _ in range(self.model.records)]
        for (one, other), which in zip(
            self.model.ties.tolist(), self.model.potential_of.tolist(), strict=True
        ):
            near[one].append((other, True, which))
            near[other].append((one, False, which))
        return [
            (*near[v], self.own[v].tobytes()) if len(near[v]) == 1 else (v,)
            for v in range(self.model.records)
        ]

    @cached_property
    def own(self) -> Floats:
        """What the values of each record weigh by themselves."""
        return own_weights(self.model)

    def factors(self, among: Iterable[int]) -> list[Factor]:
        """Return the weights of some whole components, one factor for each record and then each
        tie.
        """
        chosen = sorted(among)
        inside = set(chosen)
        ties = [Factor(pair, table) for pair, table in self.ties.items() if inside.issuperset(pair)]
        return [*(Factor((v,), self.own[v]) for v in chosen), *ties]


class FieldComponent(NetworkComponent):
    """A component of a field that no network holds: sums over it in wide numbers throughout.

    Weights are not normalised, so that an event is as likely as its share of all of them.
    """

    def __init__(
        self, net: FieldFactors, nodes: Sequence[int], contributions: Sequence[Ints]
    ) -> None:
        super().__init__(net, nodes, contributions)
        self.asked = tuple({net.alike[v]: v for v in reversed(self.nodes)}.values())[::-1]

    def deepest(self, probability: float) -> float:
        return DEEPEST_LINEAR

    def _laws(self) -> tuple[Floats, Floats]:
        return self._wide_laws()

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        return self._given_wide(seen)


def _potentials_by_neighbour(model: PairwiseField) -> list[dict[int, Wide]]:
    """Return for each record the tied ones, with the potential as (own value, their value)."""
    near: list[dict[int, Wide]] = [{} for _ in range(model.records)]
    for (one, other), which in zip(model.ties.tolist(), model.potential_of, strict=True):
        potential = model.potentials[which]
        near[one][other], near[other][one] = Wide.of(potential), Wide.of(potential.T)
    return near


def _depth_first_order(
    records: int, near: list[dict[int, Wide]]
) -> tuple[list[int], list[int | None]]:
    """Return every record after the one it hangs on, and that one (None for roots)."""
    parent: list[int | None] = [None] * records
    order: list[int] = []
    seen = [False] * records
    for root in range(records):
        waiting = [] if seen[root] else [root]
        while waiting:
            record = waiting.pop()
            seen[record] = True
            order.append(record)
            for other in near[record]:
                if not seen[other]:
                    parent[other] = record
                    waiting.append(other)
    return order, parent
