"""Where pairwise laws come from: a joint table, a network, or counts."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.value import Floats
from shoal.models.dependence import Dependence, component_names
from shoal.models.dependence_domain import RecordDomain
from shoal.models.table import JointTable

INDEPENDENT = 1e-12  # how far P(A, B) may be from P(A) P(B), relatively: rare values count
MOST_SPLIT = 12  # variables; a larger table is one component


@lru_cache(maxsize=64)
def pairs_of_table(table: JointTable, domain: RecordDomain | None = None) -> Dependence:
    """The pairwise laws of a joint law; what three records do together is forgotten.

    Records are tied when they are jointly dependent, even if the pair itself is independent: two
    fair bits and their exclusive or are three ties whose laws show nothing. The domain is that of
    the labels unless given.
    """
    states = table.states
    if states is None:
        raise InputError("the variables of the table take different values; records share theirs")
    values = RecordDomain.named(states) if domain is None else domain
    if values.size != len(states):
        raise InputError(f"the domain has {values.size} values and the table {len(states)}")
    blocks = independent_blocks(table)
    ties = [pair for block in blocks for pair in combinations(block, 2)]
    names = table.variables
    laws = [table.marginal(names[i], names[j]) for i, j in ties]
    return Dependence.of(
        values,
        len(names),
        np.array(ties, dtype=np.int64).reshape(-1, 2),
        np.stack(laws) if laws else np.zeros((0, values.size, values.size)),
        np.arange(len(ties)),
    )


def independent_blocks(table: JointTable) -> tuple[tuple[int, ...], ...]:
    """The finest split of the variables into blocks that are independent of each other.

    Every way to cut a block in two is tried; more than 12 variables are taken as one block.
    """
    whole = tuple(range(len(table.variables)))
    return (whole,) if len(whole) > MOST_SPLIT else tuple(_split(table.probability, whole))


def pairs_of_network(network: Any, domain: RecordDomain | None = None) -> Dependence:
    """The pairwise laws of a Bayesian network: all pairs within each of its components.

    Anything serves that has `variables`, `parents` (a tuple of parents per variable, names or
    places), `states`, and `law(one, other)` or `marginal(one, other)`, the joint law of two
    variables. Variables without a path between them are independent; all others count as jointly
    dependent.
    """
    pair = network.law if hasattr(network, "law") else network.marginal
    names = tuple(network.variables)
    place = {name: i for i, name in enumerate(names)}
    edges = [
        (place.get(parent, parent), child)
        for child, parents in enumerate(network.parents)
        for parent in parents
    ]
    linked = np.array(edges, dtype=np.int64).reshape(-1, 2)
    block = component_names(len(names), linked)
    ties = [(i, j) for i, j in combinations(range(len(names)), 2) if block[i] == block[j]]
    values = RecordDomain.named(network.states) if domain is None else domain
    laws = [np.asarray(pair(names[i], names[j])) for i, j in ties]
    return Dependence.of(
        values,
        len(names),
        np.array(ties, dtype=np.int64).reshape(-1, 2),
        np.stack(laws) if laws else np.zeros((0, values.size, values.size)),
        np.arange(len(ties)),
    )


def pairs_of_counts(
    domain: RecordDomain,
    values: npt.ArrayLike,
    edges: npt.ArrayLike,
    *,
    smoothing: float,
    kinds: npt.ArrayLike | None = None,
) -> Dependence:
    """One law per kind of tie, from how often tied records had each pair of values.

    (count + smoothing) / total over unordered pairs, so that ties have no direction and all ties
    of a kind give a record the same law. `values` holds a row of the values of all records per
    observation, or a single one; `kinds` numbers the kind of each edge. The data decides the
    model: fit on public data, or on data whose owner accepts that the model becomes public.
    """
    if not smoothing > 0:
        raise InputError(f"smoothing is {smoothing}; it must be greater than 0, as counts are few")
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    which = np.zeros(len(pairs), np.int64) if kinds is None else np.asarray(kinds, np.int64)
    if not len(pairs) or which.shape != (len(pairs),) or which.min() < 0:
        raise InputError("edges is empty, or kinds does not number the kind of each edge from 0")
    rows = _observations(values, domain)
    counts = np.zeros((int(which.max()) + 1, domain.size, domain.size))
    for cells in rows:
        np.add.at(counts, (which, cells[pairs[:, 0]], cells[pairs[:, 1]]), 1.0)
    both = counts + counts.transpose(0, 2, 1) + smoothing
    laws = both / both.sum(axis=(1, 2), keepdims=True)
    return Dependence.of(domain, rows.shape[1], pairs, laws, which)


def _observations(values: npt.ArrayLike, domain: RecordDomain) -> npt.NDArray[np.int64]:
    """Cells, (observations, records)."""
    array = np.asarray(values, dtype=np.float64)
    axes = domain.low.shape[1]
    if axes == 1 and array.ndim <= 2:
        rows = array.reshape(-1, array.shape[-1])
        return domain.cell_of(rows.ravel()).reshape(rows.shape)
    if array.ndim in (2, 3) and array.shape[-1] == axes:
        return domain.cell_of(array.reshape(-1, axes)).reshape(-1, array.shape[-2])
    raise InputError(
        f"values has shape {array.shape}; it must hold one value of {axes} coordinate(s) per record"
    )


def _split(law: Floats, names: tuple[int, ...]) -> list[tuple[int, ...]]:
    """`names` split as finely as independence allows; `law` is over all variables."""
    others = tuple(axis for axis in range(law.ndim) if axis not in names)
    joint = law.sum(axis=others) if others else law
    for size in range(1, len(names) // 2 + 1):
        for part in combinations(range(len(names)), size):
            if _independent(joint, part):
                inside = tuple(names[i] for i in part)
                outside = tuple(name for name in names if name not in inside)
                return sorted(_split(law, inside) + _split(law, outside))
    return [names]


def _independent(joint: Floats, part: tuple[int, ...]) -> bool:
    """Whether the axes `part` are independent of the rest."""
    rest = tuple(axis for axis in range(joint.ndim) if axis not in part)
    product = joint.sum(axis=rest, keepdims=True) * joint.sum(axis=part, keepdims=True)
    return bool((np.abs(joint - product) <= INDEPENDENT * product).all())
