"""Sums of products of tables over some variables, in a good order: variable elimination.

A factor is a table with one axis per variable of its scope. With weights a factor has one more
axis, last: entry [.., c] is the part of it whose weights add up to c, and factors are multiplied
by convolution along it. Everything adds and multiplies non-negative numbers, so every entry of a
result has a small relative error in any order, except products too small for a double:
`wide_joint` and `wide_weighted_joint` keep those too, at the price of more work.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from shoal.core.codec import Floats
from shoal.core.errors import Refused
from shoal.core.progress import in_time
from shoal.core.walk import LOST, Wide

Scope = tuple[int, ...]
FactorNumbers = tuple[int, ...]
LARGEST_ELIMINATION = 2**25  # numbers the largest table of an elimination may hold
_einsum: Callable[..., npt.NDArray[Any]] = np.einsum
Table = TypeVar("Table")
Entry = TypeVar("Entry", bound=np.generic)
MAX_SAFE_DEPTH = 600.0  # products of entries above e^-600 and sums of them stay far from underflow
SUM_OVER_VARIABLES = "the sum over a network's variables"
TERMS_WITHOUT_BLAS = 2**15  # products up to this many terms are summed without calling BLAS


class Factor(NamedTuple):
    """A table over the variables of `scope`, in that order of axes."""

    scope: Scope
    table: Floats


class Step(NamedTuple):
    """Join one or two factors, by their numbers; the result gets the next number.

    The scopes are written with small numbers, as np.einsum takes them.
    """

    inputs: FactorNumbers
    labels: tuple[list[int], list[int]]
    kept: list[int]
    out: Scope
    summed: Scope
    terms: int


class Elimination(NamedTuple):
    """The steps, the axes of the last result in the order wanted, the cells of the largest table,
    and how often a cell of the result was rounded."""

    steps: tuple[Step, ...]
    axes: list[int]
    largest: int
    roundings: int


def sum_product(
    factors: Sequence[Factor], sizes: Sequence[int], keep: Scope, order: Scope = ()
) -> Floats:
    """Return Σ over all variables but `keep` of the product of the factors; axes as in `keep`.

    sizes[v] is the number of values of variable v; `order` is a good order for the whole network,
    when known. Refused beyond 2^25 numbers in one table.
    """
    chosen = plan_elimination(tuple(f.scope for f in factors), tuple(sizes), keep, order)
    _refuse_large_tables(chosen.largest, len(keep))
    found = _run_steps(chosen, [factor.table for factor in factors], multiply_factors)
    return np.transpose(found, chosen.axes)


def wide_sum_product(
    factors: Sequence[Factor], sizes: Sequence[int], keep: Scope, order: Scope = ()
) -> Wide:
    """Return `sum_product` in numbers that never underflow: 0 exactly where nothing is possible."""
    chosen = plan_elimination(tuple(f.scope for f in factors), tuple(sizes), keep, order)
    _refuse_large_tables(max((step.terms for step in chosen.steps), default=1), len(keep))
    found = _run_steps(chosen, [Wide.of(factor.table) for factor in factors], _multiply_wide)
    return found.map_layout(lambda table: np.transpose(table, chosen.axes))


def safe_sum_product(
    factors: Sequence[Factor], sizes: Sequence[int], keep: Scope, order: Scope = ()
) -> Wide:
    """Return `sum_product` of conditional laws and likelihoods, in numbers that never underflow.

    Doubles serve where nothing is lost: where no product can be small, or everything that is
    possible came out above LOST. Every table on the way is a probability or less, so an underflow
    takes at most 2^-1074 from an entry, and all of them together nothing of one above LOST.
    """
    found = sum_product(factors, sizes, keep, order)
    if depth(factors) <= MAX_SAFE_DEPTH:
        return Wide.of(found)
    possible = support_of_product(factors, sizes, keep, order)
    if (found[possible] >= LOST).all():
        return Wide.of(np.where(possible, found, 0.0))
    return wide_sum_product(factors, sizes, keep, order)


def depth(factors: Sequence[Factor]) -> float:
    """Return -log of the least product of entries that is not 0."""
    return -sum(math.log(float(f.table[f.table > 0].min(initial=1.0))) for f in factors)


def support_of_product(
    factors: Sequence[Factor], sizes: Sequence[int], keep: Scope, order: Scope = ()
) -> npt.NDArray[np.bool_]:
    """Return where `sum_product` is truly positive, whether or not the numbers underflow."""
    chosen = plan_elimination(tuple(f.scope for f in factors), tuple(sizes), keep, order)
    _refuse_large_tables(chosen.largest, len(keep))
    marks = [(factor.table > 0).astype(np.float64) for factor in factors]
    return np.asarray(np.transpose(_run_steps(chosen, marks, _multiply_marks), chosen.axes) > 0)


def weighted_sum_product(
    factors: Sequence[Factor], sizes: Sequence[int], keep: Scope, width: int, order: Scope = ()
) -> Floats:
    """Return the same for factors with weights: entry [keep.., c] for totals c = 0 … width - 1."""
    chosen = plan_elimination(tuple(f.scope for f in factors), tuple(sizes), keep, order)
    _refuse_large_tables(chosen.largest * width, len(keep))
    found = _run_steps(chosen, [factor.table for factor in factors], _convolve)
    return np.transpose(found, [*chosen.axes, len(keep)])


def wide_weighted_sum_product(
    factors: Sequence[Factor], sizes: Sequence[int], keep: Scope, width: int, order: Scope = ()
) -> Wide:
    """Return `weighted_sum_product` in numbers that never underflow, for every total."""
    chosen = plan_elimination(tuple(f.scope for f in factors), tuple(sizes), keep, order)
    terms = max((step.terms for step in chosen.steps), default=1)
    _refuse_large_tables(terms * width, len(keep))
    found = _run_steps(chosen, [Wide.of(factor.table) for factor in factors], _convolve_wide)
    turned = found.map_layout(lambda table: np.transpose(table, [*chosen.axes, len(keep)]))
    return _pad_weights(turned, 0, width)


def _refuse_large_tables(cells: int, kept: int) -> None:
    """Refuse an elimination whose largest table has more than 2^25 numbers."""
    if cells > LARGEST_ELIMINATION:
        raise Refused(
            f"the joint law of {kept} variable(s) needs a table of {cells:.2g} numbers on the way; "
            f"at most {LARGEST_ELIMINATION} are handled: ask about fewer variables, or "
            "use a network with "
            "fewer parents per variable"
        )


@lru_cache(maxsize=8192)
def plan_elimination(
    scopes: tuple[Scope, ...], sizes: tuple[int, ...], keep: Scope, order: Scope = ()
) -> Elimination:
    """Return the steps of an elimination with small tables; nothing is computed yet.

    Variable by variable in the given order; greedily (opt_einsum) when there is none or it leads
    to large tables.
    """
    given = _plan_path(scopes, sizes, keep, _bucket_path(scopes, keep, order)) if order else None
    if given is not None and given.largest <= TERMS_WITHOUT_BLAS:
        return given
    greedily = _plan_path(scopes, sizes, keep, _greedy_path(scopes, sizes, keep))
    return greedily if given is None or greedily.largest < given.largest else given


def greedy_summing_order(scopes: tuple[Scope, ...], sizes: tuple[int, ...]) -> Scope:
    """Return the order in which a greedy elimination of everything sums the variables out."""
    left = {v for scope in scopes for v in scope}
    order: list[int] = []
    for step in _plan_path(scopes, sizes, (), _greedy_path(scopes, sizes, ())).steps:
        gone = sorted(left.intersection(step.summed))
        order += gone
        left.difference_update(gone)
    return tuple(order)


def _greedy_path(
    scopes: Sequence[Scope], sizes: Sequence[int], keep: Scope
) -> Iterator[FactorNumbers]:
    """Yield which factors are joined next by opt_einsum's greedy path; results are numbered on."""
    from opt_einsum.paths import greedy

    named = [frozenset(map(str, scope)) for scope in scopes]
    extent = {str(v): sizes[v] for scope in scopes for v in scope}
    path = greedy(named, frozenset(map(str, keep)), extent) if len(scopes) > 1 else [(0,)]
    left = list(range(len(scopes)))
    following = len(scopes)
    for places in path:
        first, *rest = (left.pop(place) for place in sorted(places, reverse=True))
        yield (first, *rest[:1])
        for number, other in enumerate(rest[1:]):  # several at once: with the last result
            yield following + number, other
        following += max(len(rest), 1)
        left.append(following - 1)


def _bucket_path(scopes: Sequence[Scope], keep: Scope, order: Scope) -> Iterator[FactorNumbers]:
    """Yield which factors are joined next by bucket elimination, smallest scopes first."""
    pool = _FactorPool(scopes)
    kept = frozenset(keep)
    for variable in order:
        while variable not in kept and pool.holders.get(variable):
            near = sorted(pool.holders[variable], key=lambda n: (len(pool.scopes[n]), n))
            joined = frozenset[int]().union(*(pool.scopes[number] for number in near[:2]))
            yield pool.join(near[:2], joined - {variable} if len(near) <= 2 else joined)
    while len(pool.scopes) > 1:
        last, second = sorted(pool.scopes, reverse=True)[:2]
        yield pool.join([last, second], pool.scopes[last] | pool.scopes[second])


class _FactorPool:
    """The factors that are left, by number, and which of them hold each variable."""

    def __init__(self, scopes: Sequence[Scope]) -> None:
        """Note which factors hold each variable."""
        self.scopes = {number: frozenset(scope) for number, scope in enumerate(scopes)}
        self.holders: dict[int, set[int]] = {}
        for number, scope in self.scopes.items():
            for variable in scope:
                self.holders.setdefault(variable, set()).add(number)
        self._next_number = len(scopes)

    def join(self, places: list[int], joined: frozenset[int]) -> FactorNumbers:
        """Replace some factors by their product, and return their numbers; the product gets the
        next one.
        """
        for place in places:
            for variable in self.scopes.pop(place):
                self.holders[variable].discard(place)
        self.scopes[self._next_number] = joined
        for variable in joined:
            self.holders[variable].add(self._next_number)
        self._next_number += 1
        return tuple(places)


def _plan_path(
    scopes: Sequence[Scope], sizes: Sequence[int], keep: Scope, path: Iterator[FactorNumbers]
) -> Elimination:
    """Return the steps of a path, what each sums out, and how often a result is rounded."""
    pool = list(scopes)
    uses = Counter(v for scope in (*scopes, keep) for v in scope)
    steps: list[Step] = []
    largest, roundings = 1, 0
    for places in path:
        taken = [pool[place] for place in places]
        uses.subtract(v for scope in taken for v in scope)
        step = _plan_step(places, taken, sizes, uses)
        pool.append(step.out)
        uses.update(step.out)
        steps.append(step)
        cells = math.prod(sizes[v] for v in step.out)
        largest = max(largest, cells)
        roundings += step.terms // max(cells, 1) + 2
    axes = [pool[-1].index(v) for v in keep]
    return Elimination(tuple(steps), axes, largest, roundings)


def _plan_step(
    places: FactorNumbers, taken: list[Scope], sizes: Sequence[int], uses: Counter[int]
) -> Step:
    """Return the step that joins some factors and sums out what nothing else uses."""
    used = list(dict.fromkeys(v for scope in taken for v in scope))
    kept = tuple(v for v in used if uses[v] > 0)
    code = {v: i for i, v in enumerate(used)}
    labels = [[code[v] for v in scope] for scope in taken]
    return Step(
        inputs=places,
        labels=(labels[0], labels[1] if len(labels) > 1 else []),
        kept=[code[v] for v in kept],
        out=kept,
        summed=tuple(v for v in used if uses[v] <= 0),
        terms=math.prod(sizes[v] for v in used),
    )


def _run_steps(
    chosen: Elimination,
    tables: list[Table],
    product: Callable[[Table, Table | None, Step], Table],
) -> Table:
    """Return the last factor, its axes in the order of the last step."""
    pool: list[Table | None] = list(tables)
    for step in chosen.steps:
        in_time(SUM_OVER_VARIABLES)
        one, *other = (pool[place] for place in step.inputs)
        assert one is not None  # every factor is used once
        pool.append(product(one, other[0] if other else None, step))
        for place in step.inputs:
            pool[place] = None
    last = pool[-1]
    assert last is not None
    return last


def multiply_factors(one: Floats, two: Floats | None, step: Step) -> Floats:
    """Return the product of one or two factors, summed onto the variables that a step keeps."""
    if two is None:
        return _einsum(one, step.labels[0], step.kept)
    return _einsum(
        one,
        step.labels[0],
        two,
        step.labels[1],
        step.kept,
        optimize=step.terms > TERMS_WITHOUT_BLAS,
    )


def _multiply_marks(one: Floats, two: Floats | None, step: Step) -> Floats:
    """Return products of 0s and 1s, kept at 0 or 1 so that nothing overflows."""
    return np.minimum(multiply_factors(one, two, step), 1.0)


def _multiply_wide(one: Wide, two: Wide | None, step: Step) -> Wide:
    """Return `multiply_factors` of wide numbers."""
    count = max([*step.labels[0], *step.labels[1]], default=-1) + 1
    joined = one.map_layout(lambda table: align_axes(table, step.labels[0], count))
    if two is not None:
        joined = joined.times(
            two.map_layout(lambda table: align_axes(table, step.labels[1], count))
        )
    gone = tuple(label for label in range(count) if label not in step.kept)
    reduced = joined.total(gone) if gone else joined
    left = [label for label in range(count) if label in step.kept]
    order = [left.index(label) for label in step.kept]
    return reduced.map_layout(lambda table: np.transpose(table, order))


def _convolve_wide(one: Wide, two: Wide | None, step: Step) -> Wide:
    """Return `_convolve` of wide numbers: the weights are one more axis that is kept."""
    code = max([*step.labels[0], *step.labels[1]], default=-1) + 1
    kept = step._replace(kept=[*step.kept, code], labels=([*step.labels[0], code], step.labels[1]))
    if two is None:
        return _multiply_wide(one, None, kept)
    if one.shape[-1] < two.shape[-1]:
        return _convolve_wide(two, one, step._replace(labels=step.labels[::-1]))
    wide, more = one.shape[-1], two.shape[-1] - 1
    found: Wide | None = None
    for weight in range(more + 1):
        in_time(SUM_OVER_VARIABLES)
        part = Wide(two.part[..., weight], two.power[..., weight])
        moved = _pad_weights(_multiply_wide(one, part, kept), weight, wide + more)
        found = moved if found is None else found.plus(moved)
    assert found is not None  # there is at least one weight
    return found


def _pad_weights(table: Wide, first: int, width: int) -> Wide:
    """Return the weights moved up to start at `first`, with nothing before and after."""
    out = Wide.of(np.zeros((*table.shape[:-1], width)))
    out.part[..., first : first + table.shape[-1]] = table.part
    out.power[..., first : first + table.shape[-1]] = table.power
    return out


def align_axes(table: npt.NDArray[Entry], labels: list[int], count: int) -> npt.NDArray[Entry]:
    """Return the table with axes in the order of the labels, of length 1 where it has none."""
    order = sorted(range(len(labels)), key=lambda axis: labels[axis])
    shape = [1] * count
    for axis in order:
        shape[labels[axis]] = table.shape[axis]
    return np.transpose(table, order).reshape(shape)


def _convolve(one: Floats, two: Floats | None, step: Step) -> Floats:
    """Return the product of two weighted factors: one contraction per weight of the shorter one."""
    if two is None:
        return _einsum(one, [*step.labels[0], 51], [*step.kept, 51])
    if one.shape[-1] < two.shape[-1]:
        one, two = two, one
        step = step._replace(labels=(step.labels[1], step.labels[0]))
    wide = one.shape[-1]
    out = np.zeros(0)
    for weight in range(two.shape[-1]):
        part = two[..., weight]
        if weight and not part.any():
            continue
        in_time(SUM_OVER_VARIABLES)
        found = _einsum(one, [*step.labels[0], 51], part, step.labels[1], [*step.kept, 51])
        if weight == 0:  # of zeros too: it has the shape
            out = np.zeros((*found.shape[:-1], wide + two.shape[-1] - 1))
        out[..., weight : weight + wide] += found
    return out
