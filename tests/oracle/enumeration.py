"""The slow truth: whole joint laws written out, and the exact loss of additive lattice noise.

Nothing here is shared with the package beyond its inert values (models and queries): laws are
dictionaries from outcomes to probabilities, built by multiplying the model's own numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import permutations, product

import numpy as np
import numpy.typing as npt

from shoal.chains.families import AnyInitialLaw, IntervalChains, OrderChain
from shoal.chains.model import MarkovChain
from shoal.mechanisms.queries import LinearQuery
from shoal.networks.table import JointTable
from shoal.noise.laplace import LatticeLaplace, ZeroSumLaplace

Path = tuple[int, ...]  # state indices, one per entry
Law = dict[Path, float]  # only outcomes of positive probability
Point = tuple[int, ...]  # a value of the query, in multiples of its lattice
Answers = dict[Point, float]
Noise = LatticeLaplace | ZeroSumLaplace


def chain_law(chain: MarkovChain, length: int) -> Law:
    """P(X_1 … X_length) = initial(x_1) · Π transition_t(x_t, x_{t+1})."""
    law = {}
    for path in product(range(len(chain.states)), repeat=length):
        chance = float(chain.initial[path[0]])
        for t in range(length - 1):
            matrix = chain.transition if chain.transition.ndim == 2 else chain.transition[t]
            chance *= float(matrix[path[t], path[t + 1]])
        if chance > 0:
            law[path] = chance
    return law


def order_law(chain: OrderChain, length: int) -> Law:
    """The law of the first `length` entries of an order-m chain."""
    size, order = len(chain.states), chain.order
    law: Law = {}
    for path in product(range(size), repeat=max(length, order)):
        chance = float(chain.initial[_number(path[:order], size)])
        for t in range(order, length):
            chance *= float(chain.conditional[_number(path[t - order : t], size), path[t]])
        if chance > 0:
            law[path[:length]] = law.get(path[:length], 0.0) + chance
    return law


def table_law(table: JointTable) -> Law:
    """The table itself, as a dictionary."""
    places = product(*(range(n) for n in table.probability.shape))
    return {p: float(table.probability[p]) for p in places if table.probability[p] > 0}


def laws(model: object, longest: int) -> Iterator[Law]:
    """Every law the model stands for that can be written out, up to `longest` entries.

    A model of length n also covers shorter data, so every length from 1 on is given (one matrix
    per step fixes the length). Of all initial laws: each pure one and mixtures of two, among
    which the worst one is found.
    """
    match model:
        case MarkovChain() if model.transition.ndim == 3:
            yield chain_law(model, len(model.transition) + 1)
        case MarkovChain():
            for length in range(1, min(longest, model.length or longest) + 1):
                yield chain_law(model, length)
        case IntervalChains():
            middle = tuple((a + b) / 2 for a, b in zip(model.low, model.high, strict=True))
            corners = product(*zip(model.low, model.high, strict=True))
            for stay in (middle, *corners):
                rows = [[stay[0], 1 - stay[0]], [1 - stay[1], stay[1]]]
                yield from laws(
                    AnyInitialLaw.of(rows, states=model.states, length=model.length), longest
                )
        case AnyInitialLaw():
            for initial in _initial_laws(len(model.states)):
                chain = MarkovChain.of(model.transition, states=model.states, initial=initial)
                for length in range(1, min(longest, model.length or longest) + 1):
                    yield chain_law(chain, length)
        case OrderChain():
            for length in range(1, min(longest, model.length or longest) + 1):
                yield order_law(model, length)
        case JointTable():
            yield table_law(model)
        case _:
            raise TypeError(f"no joint law can be written out for a {type(model).__name__}")


def entry_secrets(law: Law) -> list[tuple[Law, Law]]:
    """The laws given X_i = x and given X_i = x', for all i and ordered pairs of possible values."""
    pairs = []
    for i in range(len(next(iter(law)))):
        values = sorted({path[i] for path in law})
        given = {x: conditional(law, _entry_is(i, x)) for x in values}
        pairs += [(given[x], given[y]) for x, y in permutations(values, 2)]
    return pairs


def conditional(law: Law, event: Callable[[Path], bool]) -> Law:
    """The law given an event of positive probability."""
    kept = {path: chance for path, chance in law.items() if event(path)}
    total = math.fsum(kept.values())
    return {path: chance / total for path, chance in kept.items()}


def pushed(law: Law, query: LinearQuery) -> Answers:
    """The law of the query's answer, in multiples of its lattice."""
    answers: dict[Point, list[float]] = {}
    for path, chance in law.items():
        total = [Fraction(0)] * len(query.labels)
        for state in path:
            total = [a + w for a, w in zip(total, query.weights[state], strict=True)]
        point = tuple(int(value / query.lattice) for value in total)
        answers.setdefault(point, []).append(chance)
    return {point: math.fsum(chances) for point, chances in answers.items()}


def noisy_loss(
    top: Mapping[Point, float], bottom: Mapping[Point, float], lattice: Fraction, noise: Noise
) -> float:
    """sup over outputs z of log [Σ_c top(c) K(z - c)] / [Σ_c bottom(c) K(z - c)].

    K(u) = exp(-lattice |u|_1 / scale); the normaliser cancels. Between two neighbouring support
    coordinates both sums are a·e^w + b·e^{-w} in that coordinate, so their ratio is monotone
    there: the supremum is on the grid of support coordinates, whose outermost points stand for
    ±∞. Noise that keeps the total reaches only part of that: see `_kept_total`.
    """
    rate = float(lattice / noise.scale)
    if isinstance(noise, ZeroSumLaplace):
        grid = _kept_total([*top, *bottom])
    else:
        grid = np.array(list(product(*_support([*top, *bottom]))))
    return float((_log_density(top, grid, rate) - _log_density(bottom, grid, rate)).max())


def answer_pairs(law: Law, query: LinearQuery) -> list[tuple[Answers, Answers]]:
    """The laws of the answer given each ordered pair of values of an entry, none twice."""
    pairs = [(pushed(top, query), pushed(bottom, query)) for top, bottom in entry_secrets(law)]
    return [pair for i, pair in enumerate(pairs) if pair not in pairs[:i]]


def entry_loss(law: Law, query: LinearQuery, noise: Noise) -> float:
    """The true Pufferfish loss for single entries when the answer gets lattice Laplace noise."""
    return max(
        (noisy_loss(a, b, query.lattice, noise) for a, b in answer_pairs(law, query)), default=0.0
    )


def event_loss(
    table: JointTable,
    pairs: Sequence[tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]],
    query: LinearQuery,
    noise: Noise,
) -> float:
    """The true loss for named pairs of events; impossible events are no secrets."""
    law = table_law(table)
    worst = 0.0
    for one, other in pairs:
        sides = [conditional(law, _holds(table, where)) for where in (one, other)]
        if all(sides):
            a, b = (pushed(side, query) for side in sides)
            worst = max(
                worst,
                noisy_loss(a, b, query.lattice, noise),
                noisy_loss(b, a, query.lattice, noise),
            )
    return worst


def _entry_is(i: int, value: int) -> Callable[[Path], bool]:
    return lambda path: path[i] == value


def _holds(table: JointTable, where: Mapping[str, Sequence[str]]) -> Callable[[Path], bool]:
    def agrees(outcome: Path) -> bool:
        named = {
            variable: domain[i]
            for variable, domain, i in zip(table.variables, table.domains, outcome, strict=True)
        }
        return all(named[variable] in values for variable, values in where.items())

    return agrees


def _log_density(
    law: Mapping[Point, float], grid: npt.NDArray[np.int64], rate: float
) -> npt.NDArray[np.float64]:
    """log Σ_c law(c) exp(-rate |z - c|_1) for each row z of the grid, nothing underflowing."""
    terms = np.stack(
        [
            math.log(chance) - rate * np.abs(grid - point).sum(axis=1)
            for point, chance in law.items()
        ]
    )
    top = terms.max(axis=0)
    return np.asarray(top + np.log(np.exp(terms - top).sum(axis=0)))


def _support(points: Sequence[Point]) -> list[list[int]]:
    return [sorted({point[axis] for point in points}) for axis in range(len(points[0]))]


def _kept_total(points: Sequence[Point]) -> npt.NDArray[np.int64]:
    """The outputs of noise that keeps the total, each coordinate cut to the range of the answers.

    Beyond that range the ratio no longer changes, so an outermost coordinate stands for all values
    beyond it, and with it the total can be made up: a point below the total needs a coordinate at
    its upper end, a point above it one at its lower end.
    """
    (total,) = {sum(point) for point in points}
    ends = [(axis[0], axis[-1]) for axis in _support(points)]
    kept = []
    for z in product(*(range(low, high + 1) for low, high in ends)):
        raised = any(c == high for c, (_, high) in zip(z, ends, strict=True))
        lowered = any(c == low for c, (low, _) in zip(z, ends, strict=True))
        if sum(z) == total or (raised if sum(z) < total else lowered):
            kept.append(z)
    return np.array(kept)


def _initial_laws(size: int) -> Iterator[list[float]]:
    for first in range(size):
        yield [float(state == first) for state in range(size)]
    for first, second in permutations(range(size), 2):
        for weight in (0.5, 1e-3):
            law = [0.0] * size
            law[first], law[second] = 1 - weight, weight
            yield law


def _number(path: Path, size: int) -> int:
    """The tuple read as digits in base `size`, the oldest entry first."""
    number = 0
    for state in path:
        number = number * size + state
    return number
