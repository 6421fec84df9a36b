"""A pairwise field as a law that other mechanisms can follow: a network, or a table."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from shoal.core.errors import InputError
from shoal.core.task import Model
from shoal.core.value import Floats
from shoal.models.bayesnet import BayesNet
from shoal.models.dependence_field import PairwiseField

MOST_FOLLOWED = 200  # records; a larger forest is left as a field


def followed(model: Model) -> Model:
    """A field as a Bayesian network when it has no loops, as a table when it is small; else itself.

    Other models are returned as they are, so that a mechanism can ask this of its whole family.
    """
    if not isinstance(model, PairwiseField) or model.states is None:
        return model
    if model.forest and model.records <= MOST_FOLLOWED:
        return network_of_field(model)
    return model.table() if model.small() else model


@lru_cache(maxsize=16)
def network_of_field(model: PairwiseField) -> BayesNet:
    """The network with the same joint law: each record is drawn given the tied one before it.

    In every component the first record is the root; P(x_c | x_p) is proportional to
    own(x_c) ψ(x_p, x_c) Π of what the records beyond c weigh. Refused when ties form a loop.
    """
    if not model.forest:
        raise InputError("the ties form a loop, so the field is no network; use table() if small")
    near = _neighbours(model)
    order, parent = _walk(model.records, near)
    weight = _own(model)
    for record in reversed(order):  # leaves first: what lies beyond a record weighs its values
        above = parent[record]
        if above is not None:
            weight[above] = _scaled(weight[above] * (near[above][record] @ weight[record]))
    names = tuple(f"record {record}" for record in range(model.records))
    tables = []
    for record in range(model.records):
        above = parent[record]
        table = weight[record] if above is None else near[above][record] * weight[record]
        total = table.sum(axis=-1, keepdims=True)
        flat = np.full_like(table, 1.0 / table.shape[-1])  # a parent's value that never occurs
        tables.append(np.divide(table, total, out=flat, where=total > 0))
    return BayesNet(
        variables=names,
        domains=(model.states or (),) * model.records,
        parents=tuple(() if above is None else (names[above],) for above in parent),
        tables=tuple(tables),
    )


def _neighbours(model: PairwiseField) -> list[dict[int, Floats]]:
    """For each record the tied ones, with the potential as (own value, their value)."""
    near: list[dict[int, Floats]] = [{} for _ in range(model.records)]
    for (one, other), which in zip(model.ties.tolist(), model.potential_of, strict=True):
        potential = model.potentials[which] / model.potentials[which].max()
        near[one][other], near[other][one] = potential, potential.T
    return near


def _walk(records: int, near: list[dict[int, Floats]]) -> tuple[list[int], list[int | None]]:
    """Every record after the one it hangs on, and that one (None for roots)."""
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


def _own(model: PairwiseField) -> list[Floats]:
    rows = model.own if len(model.own) > 1 else np.repeat(model.own, model.records, axis=0)
    return [_scaled(row) for row in rows]


def _scaled(row: Floats) -> Floats:
    top = float(row.max())
    if top <= 0:
        raise InputError("the potentials leave no outcome possible; some must be positive together")
    return np.asarray(row / top)
