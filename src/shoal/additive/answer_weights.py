"""The laws of one small number given each secret, in whole numbers: no probability is rounded.

    weights[a] / Σ weights = P(F = a | X_i = x)

A double is a whole number over a power of two, so products and sums of the numbers of a model are
whole numbers over one power of two, which cancels. Walks are followed entry by entry, tables
outcome by outcome.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from shoal.additive.queries import linear
from shoal.core.codec import Floats
from shoal.core.errors import InputError, Refused, ShoalError
from shoal.core.task import Model, Query, Task
from shoal.core.walk import Walk

MAX_ANSWERS = 33  # programs over more answers take more than a second or so
MAX_OUTCOMES = 2**14  # of a table that is gone through outcome by outcome
ROUNDED = 2.0**-44  # relative; a network written out rounds each outcome fewer than 256 times

Weights = dict[int, int]  # an answer in lattice steps to its weight; absent where it is 0


class ValueWeights(NamedTuple):
    """One entry of one model: a law of the answer for every value the entry can take.

    `rows[x][a]` is the weight of the answer `answers[a]`, `totals[x]` the sum of a row, and every
    weight may be off by `error`, relatively.
    """

    rows: tuple[tuple[int, ...], ...]
    totals: tuple[int, ...]
    error: float

    def as_floats(self) -> Floats:
        """P(answer | value), a row per value."""
        return np.array(
            [
                [weight / total for weight in row]
                for row, total in zip(self.rows, self.totals, strict=True)
            ]
        )


class AnswerWeights(NamedTuple):
    """All answers data of `entries` entries can have, possible or not, and the laws of them."""

    answers: tuple[int, ...]
    entries: int
    laws: tuple[ValueWeights, ...]

    def prior(self) -> Floats:
        """How likely each answer is, averaged over the models."""
        rows = []
        for law in self.laws:
            whole = [sum(column) for column in zip(*law.rows, strict=True)]
            rows.append([weight / sum(law.totals) for weight in whole])
        return np.asarray(np.mean(rows, axis=0))


def why_not(task: Task) -> str | None:
    """Why the laws of the answer are not written out, from the shape of the task alone."""
    if len(task.query.labels) > 1:
        return "a table of laws is made for one number, not for several at once"
    try:
        steps = [_steps(model, task.query) for model in task.family]
    except (Refused, InputError) as why:
        return str(why)
    if any(own != steps[0] for own in steps[1:]):
        return "the models are about data of different sizes, and a table is for one"
    found = _sums(steps[0])
    if found is None:
        return (
            f"the answer can take more than {MAX_ANSWERS} values over {len(steps[0])} entries; a "
            "table of laws is made for fewer"
        )
    return None


@lru_cache(maxsize=32)
def answer_weights(task: Task) -> AnswerWeights:
    """The laws of the answer given each value of each entry, under every model."""
    steps = _steps(task.family[0], task.query)
    answers = _sums(steps)
    if answers is None:
        raise Refused(f"the answer can take more than {MAX_ANSWERS} values")
    laws: list[ValueWeights] = []
    for model in task.family:
        walk = _walk_of(model)
        if walk is None:
            table, error = _written(model)
            found = _table_weights(table.probability, steps)
        else:
            found, error = _walk_weights(walk, steps), 0.0
        laws += [_laws(several, answers, error) for several in found]
    return AnswerWeights(answers, len(steps), tuple(laws))


def _laws(by_value: Iterable[Weights], answers: Sequence[int], error: float) -> ValueWeights:
    """Rows of the values that are possible."""
    rows = tuple(tuple(own.get(a, 0) for a in answers) for own in by_value if any(own.values()))
    return ValueWeights(rows, tuple(map(sum, rows)), error)


# What each value of each entry adds, and the sums there are.


Steps = tuple[tuple[int, ...], ...]  # for every entry, what each of its values adds


def _steps(model: Model, query: Query) -> Steps:
    """What every value of every entry adds to the answer, in lattice steps."""
    walk = _walk_of(model)
    if walk is None:
        return _named_steps(model, query)
    asked = linear(query)
    if asked is None:
        raise Refused("a table of laws is made for sums over entries only")
    nodes = walk.admitted(query).length
    if nodes is None:
        raise Refused("a table of laws needs series of one length, and the model covers any")
    own = tuple(row[0] for row in asked.multiples())
    entries = nodes + walk.order - 1
    if (max(own) - min(own)) and entries > MAX_ANSWERS:
        raise Refused(
            f"series of {entries} entries have more than {MAX_ANSWERS} answers; a table of laws is "
            "made for fewer"
        )
    return (own,) * entries


def _walk_of(model: Model) -> Walk | None:
    """The walk with one initial law that a model is; None where it does not move in time."""
    walk = model.walk()
    if isinstance(walk, str):
        return None
    if walk.initial is None:
        raise Refused("a table of laws needs one initial law, and the model has every one")
    return walk


def _named_steps(model: Any, query: Query) -> Steps:
    """The same for named variables, by changing one at a time."""
    domains = getattr(model, "domains", None)
    if domains is None:
        raise Refused(
            "a table of laws is made for series, tables, networks and contagion, not "
            f"{model.describe()}"
        )
    if len(domains) < 2 or math.prod(map(len, domains)) > MAX_OUTCOMES:
        raise Refused(
            f"a table of laws is made for 2 variables or more with at most {MAX_OUTCOMES} outcomes "
            "together"
        )
    first = [domain[0] for domain in domains]
    try:
        none = query.evaluate(query.read(first))[0]
        changed = [
            tuple(
                query.evaluate(query.read([*first[:v], value, *first[v + 1 :]]))[0] - none
                for value in domain
            )
            for v, domain in enumerate(domains)
        ]
    except ShoalError as why:
        raise Refused(f"the query is not about one value of each variable: {why}") from None
    return (tuple(none + step for step in changed[0]), *changed[1:])


def _sums(steps: Steps) -> tuple[int, ...] | None:
    """All sums of one step per entry, in increasing order; None where there are too many."""
    found = {0}
    for own in steps:
        found = {total + step for total in found for step in set(own)}
        if len(found) > MAX_ANSWERS:
            return None
    return tuple(sorted(found))


# Walks, entry by entry.


def _walk_weights(walk: Walk, steps: Steps) -> Iterator[list[Weights]]:
    """For every entry of a walk, the weights of the answers for each of its values."""
    nodes = len(steps) - walk.order + 1
    past, future = _pasts(walk, steps, nodes), _futures(walk, steps, nodes)
    for entry in range(len(steps)):
        node, values = walk.place(entry)
        found: list[Weights] = [{} for _ in walk.values]
        for state, value in enumerate(values.tolist()):
            _add(found[value], _joined(past[node][state], future[node][state]))
        yield found


def _pasts(walk: Walk, steps: Steps, nodes: int) -> list[list[Weights]]:
    """For every node and state, the weights of the sums up to it, its own entries included."""
    assert walk.initial is not None
    rows = [[{0: weight} for weight in _whole(walk.initial)]]
    rows[0] = _moved(rows[0], walk, steps, 0)
    for node in range(1, nodes):
        matrix = _whole(walk.matrix(node - 1))
        arrived: list[Weights] = [{} for _ in range(walk.size)]
        for before, onward in zip(rows[-1], matrix, strict=True):
            for state, weight in enumerate(onward):
                _add(arrived[state], before, weight)
        rows.append(_moved(arrived, walk, steps, node))
    return rows


def _futures(walk: Walk, steps: Steps, nodes: int) -> list[list[Weights]]:
    """For every node and state, the weights of the sums after it."""
    rows: list[list[Weights]] = [[{0: 1} for _ in range(walk.size)]]
    for node in range(nodes - 1, 0, -1):
        matrix = _whole(walk.matrix(node - 1))
        told = _moved(rows[0], walk, steps, node)
        before: list[Weights] = [{} for _ in range(walk.size)]
        for own, onward in zip(before, matrix, strict=True):
            for state, weight in enumerate(onward):
                _add(own, told[state], weight)
        rows.insert(0, before)
    return rows


def _moved(rows: list[Weights], walk: Walk, steps: Steps, node: int) -> list[Weights]:
    """The sums of each state moved on by what the node's own entries add in it."""
    moved = []
    for state, row in enumerate(rows):
        own = sum(steps[entry][int(values[state])] for entry, values in walk.brought(node))
        moved.append({total + own: weight for total, weight in row.items()})
    return moved


def _joined(one: Weights, two: Weights) -> Weights:
    found: Weights = {}
    for (a, left), (b, right) in product(one.items(), two.items()):
        found[a + b] = found.get(a + b, 0) + left * right
    return found


def _add(into: Weights, more: Weights, times: int = 1) -> None:
    if times:
        for total, weight in more.items():
            into[total] = into.get(total, 0) + weight * times


# Tables, outcome by outcome.


def _written(model: Model) -> tuple[Any, float]:
    """The joint law of a model as a table, and how far its numbers may be off, relatively."""
    table = model.written_out()
    if isinstance(table, str):
        raise Refused(f"a table of laws is not made: {table}")
    return table, 0.0 if table is model else ROUNDED


def _table_weights(probability: Floats, steps: Steps) -> Iterator[list[Weights]]:
    """For every variable of a table, the weights of the answers for each of its values."""
    answers = np.zeros(probability.shape, dtype=np.int64)
    for axis, own in enumerate(steps):
        answers += np.array(own).reshape([-1 if a == axis else 1 for a in range(len(steps))])
    outcomes = list(zip(_whole(probability.ravel()), answers.ravel().tolist(), strict=True))
    for axis, own in enumerate(steps):
        values = np.broadcast_to(
            np.arange(len(own)).reshape([-1 if a == axis else 1 for a in range(len(steps))]),
            probability.shape,
        )
        found: list[Weights] = [{} for _ in own]
        for (weight, answer), value in zip(outcomes, values.ravel().tolist(), strict=True):
            if weight:
                found[value][answer] = found[value].get(answer, 0) + weight
        yield found


def _whole(numbers: Floats) -> Any:
    """The doubles times the least power of two that makes them all whole, nested as they are."""
    flat = [float(number).as_integer_ratio() for number in numbers.ravel()]
    most = max(below for _, below in flat)
    whole = np.empty(len(flat), dtype=object)
    whole[:] = [above * (most // below) for above, below in flat]
    return whole.reshape(numbers.shape).tolist()
