"""Random small tasks of every kind, for audits that are held against the joint law written out."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from shoal.chains.families import AnyInitialLaw, IntervalChains, MixingSummary, OrderChain
from shoal.chains.model import MarkovChain
from shoal.core.codec import Floats
from shoal.core.task import EachEntry, Model, Task
from shoal.events.pairs import Event, SecretPairs
from shoal.mechanisms.queries import LinearQuery, count, histogram, weighted_sum
from shoal.networks.table import JointTable

LONGEST = 5


def tasks(seed: int) -> Iterator[tuple[Task, Fraction]]:
    """Endless random tasks with a budget each."""
    rng = np.random.default_rng(seed)
    while True:
        family = tuple(_model(rng) for _ in range(1 + int(rng.random() < 0.2)))
        states = next((m.states for m in family if m.states is not None), ("0", "1"))
        if any(m.states not in (None, states) for m in family):
            continue
        if len({isinstance(m, JointTable) for m in family}) > 1:
            continue
        secrets: EachEntry | SecretPairs = EachEntry()
        if isinstance(family[0], JointTable) and rng.random() < 0.4:
            secrets = _pairs(family[0])
        amount = Fraction(int(rng.integers(4, 60)), 20)
        yield Task(query=_query(rng, states), secrets=secrets, family=family), amount


def report(row: str, wanted: int, figures: dict[str, float]) -> None:
    """Prints how many of a row's audits were exact, and how much of its promise was lost."""
    print(
        f"{row:26} {wanted:4} audits, {figures['exact']:5.1%} exact, true loss / promise: "
        f"mean {figures['mean']:.4f}, largest {figures['max']:.9f}"
    )


def _model(rng: np.random.Generator) -> Model:
    kind = rng.choice(
        ["chain", "chain", "dense", "weak", "start", "steps", "any", "order", "table", "mix", "box"]
    )
    size, length = int(rng.integers(2, 4)), int(rng.integers(2, LONGEST + 1))
    match kind:
        case "chain" | "dense" | "weak":
            zeros = 0.0 if kind != "chain" else 0.25
            matrix = _rows(rng, (size, size), zeros, 30.0 if kind == "weak" else 1.0)
            initial = _rows(rng, (size,), 0.2 if kind == "chain" else 0.0, 1.0)
            if kind != "chain":
                return MarkovChain.of(matrix, length=length)
            return MarkovChain.of(matrix, initial=initial, length=length)
        case "start":
            return MarkovChain.of(
                _rows(rng, (size, size), 0.0, 1.0), initial=np.eye(size)[0], length=length
            )
        case "steps":
            matrices = _rows(rng, (length - 1, size, size), 0.1, 1.0)
            return MarkovChain.of(matrices, initial=_rows(rng, (size,), 0, 1.0), length=length)
        case "any":
            return AnyInitialLaw.of(_rows(rng, (2, 2), 0.15, 1.0), length=min(length, 4))
        case "order":
            return OrderChain(
                states=("0", "1"),
                order=2,
                conditional=_rows(rng, (4, 2), 0.1, 1.0),
                initial=_rows(rng, (4,), 0.1, 1.0),
                length=length,
            )
        case "table":
            shape = (2,) * int(rng.integers(2, 5))
            return JointTable.of(_rows(rng, (2 ** len(shape),), 0.2, 0.7).reshape(shape))
        case "mix":
            return MixingSummary(pi_min=0.25, gap=float(rng.uniform(0.5, 1.5)), length=length)
        case _:
            return IntervalChains.around(float(rng.uniform(0.2, 0.5)), length=min(length, 4))


def _rows(
    rng: np.random.Generator, shape: tuple[int, ...], zeros: float, concentration: float
) -> Floats:
    """Random laws along the last axis, some probabilities 0."""
    rows = rng.dirichlet(np.full(shape[-1], concentration), shape[:-1])
    dropped = np.where(rng.random(shape) < zeros, 0.0, rows)
    lost = dropped.sum(axis=-1, keepdims=True) == 0
    kept = np.where(lost, rows, dropped)
    return np.asarray(kept / kept.sum(axis=-1, keepdims=True))


def _query(rng: np.random.Generator, states: tuple[str, ...]) -> LinearQuery:
    match int(rng.integers(4)):
        case 0:
            return histogram(states)
        case 1:
            weights = ("0", "3/2", "2")
            return weighted_sum(states, dict(zip(states, weights, strict=False)))
        case _:
            return count(states, states[-1])


def _pairs(table: JointTable) -> SecretPairs:
    """Facts about one variable, and one about two of them."""
    first, second = table.variables[:2]
    one = Event.of("first is 1", {first: "1"})
    none = Event.of("first is 0", {first: "0"})
    both = Event.of("both are 1", {first: "1", second: "1"})
    neither = Event.of("neither is 1", {first: "0", second: "0"})
    return SecretPairs.of([(one, none), (both, neither)])
