"""Where pairwise laws come from: a joint table, a network, or counts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
import numpy.typing as npt

from shoal.chains.model import numbers
from shoal.core.codec import Floats, Ints, Value
from shoal.core.errors import InputError
from shoal.core.registry import load
from shoal.networks.table import JointTable
from shoal.records.domain import RecordDomain
from shoal.records.pairwise import Dependence, component_names

INDEPENDENCE_TOLERANCE = (
    1e-12  # how far P(A, B) may be from P(A) P(B), relatively: rare values count
)
MAX_SPLIT_VARIABLES = 12  # variables; a larger table is one component


@lru_cache(maxsize=64)
def pairs_of_table(table: JointTable, domain: RecordDomain | None = None) -> Dependence:
    """Return the pairwise laws of a joint law; what three records do together is forgotten.

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
    return _dependence_of_pairs(values, table.variables, ties, table.marginal)


def independent_blocks(table: JointTable) -> tuple[tuple[int, ...], ...]:
    """Return the finest split of the variables into blocks that are independent of each other.

    Every way to cut a block in two is tried; more than 12 variables are taken as one block.
    """
    whole = tuple(range(len(table.variables)))
    return (
        (whole,)
        if len(whole) > MAX_SPLIT_VARIABLES
        else tuple(_split_independent(table.probability, whole))
    )


def pairs_of_network(network: Any, domain: RecordDomain | None = None) -> Dependence:
    """Return the pairwise laws of a Bayesian network: all pairs within each of its components.

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
    return _dependence_of_pairs(values, names, ties, pair)


def _dependence_of_pairs(
    domain: RecordDomain,
    names: Sequence[Any],
    ties: list[tuple[int, int]],
    pair: Callable[[Any, Any], npt.ArrayLike],
) -> Dependence:
    """Return records with a law of its own, asked for by name, for each tie."""
    laws = np.array([pair(names[i], names[j]) for i, j in ties], dtype=np.float64)
    tables = laws.reshape(len(ties), domain.size, domain.size)
    return Dependence.of(domain, len(names), ties, tables, np.arange(len(ties)))


def pairs_of_counts(
    domain: RecordDomain,
    values: Any,
    edges: Any,
    *,
    smoothing: float,
    kinds: npt.ArrayLike | None = None,
    series: str | None = None,
    state: str | Sequence[str] | None = None,
) -> Dependence:
    """Return one law per kind of tie, from how often tied records had each pair of values.

    (count + smoothing) / total over unordered pairs, so that ties have no direction and all ties
    of a kind give a record the same law. `values` holds a row of the values of all records per
    observation, or a single one; `kinds` numbers the kind of each edge. Tables as in `fit_friends`.
    The data decides the model: fit on public data, or on data whose owner accepts that the model
    becomes public.
    """
    if not smoothing > 0:
        raise InputError(f"smoothing is {smoothing}; it must be greater than 0, as counts are few")
    values, edges = _values_and_edges(values, edges, series, state)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    which = np.zeros(len(pairs), np.int64) if kinds is None else np.asarray(kinds, np.int64)
    if not len(pairs) or which.shape != (len(pairs),) or which.min() < 0:
        raise InputError("edges is empty, or kinds does not number the kind of each edge from 0")
    rows = _cells_of_observations(values, domain)
    counts = np.zeros((int(which.max()) + 1, domain.size, domain.size))
    for cells in rows:
        np.add.at(counts, (which, cells[pairs[:, 0]], cells[pairs[:, 1]]), 1.0)
    both = counts + counts.transpose(0, 2, 1) + smoothing
    laws = both / both.sum(axis=(1, 2), keepdims=True)
    return Dependence.of(domain, rows.shape[1], pairs, laws, which)


def _cells_of_observations(values: npt.ArrayLike, domain: RecordDomain) -> npt.NDArray[np.int64]:
    """Return cells, (observations, records)."""
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


def _split_independent(law: Floats, names: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Return `names` split as finely as independence allows; `law` is over all variables."""
    others = tuple(axis for axis in range(law.ndim) if axis not in names)
    joint = law.sum(axis=others) if others else law
    for size in range(1, len(names) // 2 + 1):
        for part in combinations(range(len(names)), size):
            if _are_independent(joint, part):
                inside = tuple(names[i] for i in part)
                outside = tuple(name for name in names if name not in inside)
                return sorted(_split_independent(law, inside) + _split_independent(law, outside))
    return [names]


def _are_independent(joint: Floats, part: tuple[int, ...]) -> bool:
    """Return whether the axes `part` are independent of the rest."""
    rest = tuple(axis for axis in range(joint.ndim) if axis not in part)
    product = joint.sum(axis=rest, keepdims=True) * joint.sum(axis=part, keepdims=True)
    return bool((np.abs(joint - product) <= INDEPENDENCE_TOLERANCE * product).all())


# The friend model: friends' values are the likelier the closer they are.


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class FriendModel(Value):
    """P(D_j = y | D_i = x) ∝ (‖x - y‖₁ + b)^(-c), b > 0, c ≥ 0: Eq. (26), normalised.

    As printed, with a constant a in front, it is no law; over a given set of values the sum over y
    decides a, so a is not a parameter here (`front` gives it). c = 0 is independence.
    Liu, Chakraborty & Mittal 2016, Eq. (26), after Backstrom, Sun & Marlow 2010, whose constants
    for miles are b = .196 and c = 1.05.
    """

    kind = "friend-model"

    b: float = 0.196
    c: float = 1.05

    def __post_init__(self) -> None:
        if not (math.isfinite(self.b) and self.b > 0):
            raise InputError(f"b is {self.b}; it must be greater than 0")
        if not (math.isfinite(self.c) and self.c >= 0):
            raise InputError(f"c is {self.c}; it must be 0 or greater")

    def potential(self, domain: RecordDomain) -> Floats:
        """Return (‖x - y‖₁ + b)^(-c) between the centres of all cells, scaled to at most 1.

        On cells this is a law of cells, not Eq. (26) on the continuum between them.
        """
        centres = domain.centres
        apart = np.abs(centres[:, None, :] - centres[None, :, :]).sum(axis=2)
        return np.asarray((apart / self.b + 1.0) ** -self.c)

    def pair_law(self, domain: RecordDomain) -> Floats:
        """Return the joint law of two friends, proportional to the potential.

        Its two conditionals are Eq. (26), normalised, in both directions, and every tie gives a
        record the same law, so that ties agree with each other.
        """
        potential = self.potential(domain)
        return np.asarray(potential / potential.sum())

    def front(self, domain: RecordDomain) -> Floats:
        """Return a for each value x of the friend: 1 / Σ_y (‖x - y‖₁ + b)^(-c)."""
        return np.asarray(self.b**self.c / self.potential(domain).sum(axis=1))

    def ties(self, domain: RecordDomain, records: int, edges: npt.ArrayLike) -> Dependence:
        """Return the pairwise model in which every edge of a graph of friends follows this law."""
        return Dependence.of(domain, records, edges, self.pair_law(domain))


def _values_and_edges(
    values: Any, edges: Any, series: str | None, state: str | Sequence[str] | None
) -> tuple[Any, Any]:
    """Return values and pairs of places as arrays, from tables, files or arrays."""
    found: tuple[Any, Any] = load("shoal.data.entries:values_and_ties")(
        values, edges, series, state
    )
    return found


def fit_friends(
    domain: RecordDomain,
    values: Any,
    edges: Any,
    *,
    least: float = 1e-4,
    series: str | None = None,
    state: str | Sequence[str] | None = None,
) -> FriendModel:
    """Return the b and c under which the friends of `edges` are likeliest, given each other's
    values.

    `values` may be a table or a file: `state` names its columns of numbers, `series` that of names;
    the first two columns of a table of `edges` are then names (else places, counted from 0).

    Maximises Σ over edges of log P(D_j = y | D_i = x) + log P(D_i = x | D_j = y) with the cells of
    `values`; b is kept at `least` or above. The data decides the model here: fit on public data,
    or on data whose owner accepts that the model becomes public.
    """
    from scipy.optimize import minimize

    values, edges = _values_and_edges(values, edges, series, state)
    pairs = np.asarray(edges, dtype=np.int64).reshape(-1, 2)
    if not len(pairs):
        raise InputError("edges is empty; a friend model needs at least one pair of friends")
    cells = domain.cell_of(values)
    seen = np.zeros((domain.size, domain.size))
    np.add.at(seen, (cells[pairs[:, 0]], cells[pairs[:, 1]]), 1.0)
    seen = seen + seen.T

    def badness(parameters: Floats) -> float:
        b, c = math.exp(parameters[0]), math.exp(parameters[1])
        potential = np.log(FriendModel(b=b, c=c).potential(domain))
        normal = np.log(np.exp(potential).sum(axis=1))
        return -float((seen * potential).sum() - seen.sum(axis=1) @ normal)

    spread = domain.diameter or 1.0
    bounds = [(math.log(least), math.log(100 * spread)), (math.log(1e-3), math.log(50.0))]
    starts = [(math.log(share * spread), 0.0) for share in (0.02, 0.2)]
    found = [minimize(badness, start, bounds=bounds, method="L-BFGS-B") for start in starts]
    best = min(found, key=lambda result: float(result.fun))
    return FriendModel(b=math.exp(best.x[0]), c=math.exp(best.x[1]))


def affinity_ties(profiles: npt.ArrayLike, *, least: float = 0.8, most: int = 5_000_000) -> Ints:
    """Return pairs of records whose profiles have a cosine similarity above `least`, (count, 2).

    The paper prints |p_i·p_j| / (‖p_i‖₁ ‖p_j‖₁), which is at most 1 only for profiles with a
    single entry: two equal profiles of m ones score 1/m. The cosine is what it means. Liu et al.
    2016, Section VII-B. Refuses more than `most` pairs.
    """
    rows = numbers(profiles, "profiles")
    if rows.ndim != 2:
        raise InputError(f"profiles has shape {rows.shape}; it must have a row per record")
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    found, total = [], 0
    for start in range(0, len(unit), 1024):
        close = unit[start : start + 1024] @ unit[start:].T > least
        one, two = np.nonzero(close)
        keep = two > one
        total += int(keep.sum())
        if total > most:
            raise InputError(
                f"more than {most} pairs of profiles are that similar; raise least, now {least}"
            )
        found.append(np.stack([one[keep] + start, two[keep] + start], axis=1))
    return np.concatenate(found) if found else np.zeros((0, 2), np.int64)
