"""A random attacker of the ledger: what all charged releases really tell, against what it says.

Random plans about one subject (chains, tables, networks, tied records, groups, degrees; other
budgets, secrets, families, lengths; keys used again; plans whose noise or words were changed) are
charged through public names, singly and in batches. The joint law of all outputs is then written
out from the data up: no total may be below the largest log-ratio between two secrets of any charge
under a model of any charge. Nothing here is computed by the library but plans and totals.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.core.charge import AsEntryDP, AsGroupDP, Charge
from shoal.core.codec import Bools, Floats
from shoal.core.errors import ShoalError
from shoal.ledger import compose
from tests.attacker import REFUSED, attack_for_long

Pair = tuple[Bools, Bools]

OUTPUTS = 3000  # combinations of outputs that are looked at; beyond it a random part of them
ALMOST = 1e-9
TINY = (0.0, 1e-300, 1e-12, 1e-3)
EPSILONS = (0.05, 1 / 3, 0.7, 1, 3, 10)


@dataclass(frozen=True)
class Held:
    """A model as the library takes it, and the logarithms of the laws it may stand for."""

    model: Any
    laws: tuple[Floats, ...]


@dataclass(frozen=True)
class World:
    """All data sets there are, and what can be asked about them.

    `answers(query, model)` has one row of numbers per data set; `pairs(secrets)` are events.
    """

    data: list[Any]
    held: list[Held]
    queries: list[Any]
    secrets: list[Any]
    rows: tuple[str, ...]
    answers: Callable[[Any, Any], Floats]
    pairs: Callable[[Any], list[Pair]]
    differ: Callable[[Any, Any, Any], int]  # in how many of a query's entries two data sets differ


def law_of_rows(rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    """Random laws along the last axis: even, lopsided, or with extreme or no probability."""
    law = rng.dirichlet(np.full(shape[-1], rng.choice([0.2, 1.0, 5.0])), size=shape[:-1])
    if rng.random() < 0.4:
        small = rng.random(shape) < 0.3
        small[..., 0] &= ~small.all(axis=-1)
        law = np.where(small, rng.choice(TINY, size=shape), law)
        law[law.sum(axis=-1) < 1e-6] = 1.0
    return np.asarray(law / law.sum(axis=-1, keepdims=True))


def logs(values: Any) -> Floats:
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(np.asarray(values, float)))


def entry_pairs(data: Sequence[Any]) -> list[Pair]:
    """Each two values of one entry."""
    pairs = []
    for place in range(len(data[0])):
        column = np.array([one[place] for one in data])
        for a, b in itertools.combinations(sorted(set(column.tolist())), 2):
            pairs.append((column == a, column == b))
    return pairs


def hamming(one: Any, other: Any, query: Any) -> int:
    return sum(a != b for a, b in zip(one, other, strict=True))


def linear_queries(states: str, rng: np.random.Generator) -> list[Any]:
    weights = {
        state: int(w) for state, w in zip(states, rng.integers(-2, 4, len(states)), strict=True)
    }
    weights[states[-1]] = weights[states[0]] + 1
    return [
        shoal.count(states, states[-1]),
        shoal.count(states, states[0]),
        shoal.weighted_sum(states, weights),
        shoal.histogram(states),
    ]


def weighed(query: Any, data: Sequence[Any]) -> Floats:
    """Σ of the rows of weights of a linear query, or of a weight per variable."""
    if hasattr(query, "variables"):
        rows = [[sum(query.weights[v][x] for v, x in enumerate(one))] for one in data]
    else:
        rows = [
            [sum(query.weights[x][axis] for x in one) for axis in range(len(query.labels))]
            for one in data
        ]
    return np.array([[float(number) for number in row] for row in rows])


def chains(rng: np.random.Generator) -> World:
    """Series of two or three states, under laws stated for different lengths."""
    size = int(rng.integers(2, 4))
    states = "012"[:size]
    lengths = rng.integers(2, 6 if size == 2 else 5, size=int(rng.integers(1, 4)))
    fixed = rng.random() < 0.4  # one matrix per step: data of exactly one length
    lengths = np.full(2, lengths.max()) if fixed else lengths
    entries = int(lengths.max() if fixed else rng.integers(1, lengths.max() + 1))
    data = list(itertools.product(range(size), repeat=entries))
    held = []
    for length in lengths.tolist():
        matrix, start = law_of_rows(rng, (size, size)), law_of_rows(rng, (size,))
        if rng.random() < 0.5:  # one that alternates, or stays
            matrix = np.full((size, size), 0.02) + np.roll(np.eye(size), rng.integers(2), axis=1)
            matrix /= matrix.sum(axis=1, keepdims=True)
        law = logs(start)[[one[0] for one in data]]
        for step in range(1, len(data[0])):
            law = law + logs(matrix)[[one[step - 1] for one in data], [one[step] for one in data]]
        steps = [matrix] * (length - 1) if fixed else matrix
        model = shoal.MarkovChain.of(steps, states=list(states), initial=start, length=length)
        held.append(Held(model, (law,)))

    def answers(query: Any, model: Any) -> Floats:
        return weighed(query, [one[: model.length] for one in data])

    return World(
        data,
        held,
        linear_queries(states, rng),
        [shoal.EachEntry()],
        ("exact", "lift", "group", "markov-quilt", "wasserstein", "laplace", "knorm"),
        answers,
        lambda secrets: entry_pairs(data),
        hamming,
    )


def random_network(rng: np.random.Generator, names: Sequence[str]) -> tuple[Any, Floats]:
    """A network of bits and its joint law."""
    tables, parents, law = {}, {}, np.zeros((2,) * len(names))
    for place, name in enumerate(names):
        above = [names[i] for i in range(place) if rng.random() < 0.4][: int(rng.integers(1, 3))]
        table = law_of_rows(rng, (2,) * (len(above) + 1))
        if rng.random() < 0.5:  # a fair coin, or a copy of its last parent
            table = np.broadcast_to(np.eye(2) if above else np.full(2, 0.5), table.shape)
        tables[name], parents[name] = table, above
    for one in itertools.product((0, 1), repeat=len(names)):
        value = dict(zip(names, one, strict=True))
        law[one] = sum(
            float(logs(tables[name][(*(value[a] for a in parents[name]), value[name])]))
            for name in names
        )
    return shoal.BayesNet.of(tables, parents=parents), law


def random_events(rng: np.random.Generator, names: Sequence[str]) -> Any:
    pairs = []
    for _ in range(int(rng.integers(1, 3))):
        chosen = rng.choice(len(names), size=int(rng.integers(1, 3)), replace=False)
        one = {names[i]: str(rng.integers(2)) for i in chosen}
        other = {name: str(1 - int(value)) for name, value in one.items()}
        pairs.append((shoal.Event.of("one", one), shoal.Event.of("other", other)))
    return shoal.SecretPairs.of(pairs)


def named(rng: np.random.Generator) -> World:
    """Bits with names: joint tables, networks, and nothing known but the size of groups."""
    names = [f"X{i + 1}" for i in range(int(rng.integers(2, 5)))]
    data = list(itertools.product((0, 1), repeat=len(names)))
    held = []
    for _ in range(int(rng.integers(1, 4))):
        if rng.random() < 0.4:
            table = law_of_rows(rng, (2 ** len(names),)).reshape((2,) * len(names))
            held.append(Held(shoal.JointTable.of(table), (logs(table).ravel(),)))
        else:
            model, law = random_network(rng, names)
            held.append(Held(model, (law.ravel(),)))
    weights = {name: {"1": int(rng.integers(-1, 3))} for name in names[1:]}
    queries = [
        *linear_queries("01", rng),
        shoal.variable_sum(held[0].model, {names[0]: {"1": 1}, **weights}),
    ]

    def pairs(secrets: Any) -> list[Pair]:
        if not hasattr(secrets, "pairs"):
            return entry_pairs(data)

        def holds(event: Any) -> Bools:
            where = [(names.index(name), {int(v) for v in values}) for name, values in event.where]
            return np.array([all(one[i] in values for i, values in where) for one in data])

        return [(holds(a), holds(b)) for a, b in secrets.pairs]

    return World(
        data,
        held,
        queries,
        [shoal.EachEntry(), random_events(rng, names)],
        ("exact", "lift", "group", "markov-quilt", "wasserstein", "laplace", "dependent-published"),
        lambda query, model: weighed(query, data),
        pairs,
        hamming,
    )


def ties(rng: np.random.Generator) -> World:
    """Bits of which only pairs are known, and fields; the truth is one law with these pairs."""
    count = int(rng.integers(2, 5))
    data = list(itertools.product((0, 1), repeat=count))
    domain, held = shoal.records.RecordDomain.named("01"), []
    places = list(itertools.combinations(range(count), 2))
    for _ in range(int(rng.integers(1, 3))):
        law = law_of_rows(rng, (2**count,)).reshape((2,) * count)
        laws = [law.sum(axis=tuple(a for a in range(count) if a not in tie)) for tie in places]
        model = shoal.Dependence.of(domain, count, places, np.stack(laws), list(range(len(places))))
        held.append(Held(model, (logs(law).ravel(),)))
    tied = [tie for tie in places if rng.random() < 0.7] or places[:1]
    potential, own = (
        rng.choice([0.01, 0.3, 1, 4], size=(2, 2)),
        rng.choice([1e-3, 1, 2], (count, 2)),
    )
    field = shoal.records.PairwiseField.of(domain, count, tied, potential + potential.T, own=own)
    law = np.array(
        [
            sum(math.log(own[i, x]) for i, x in enumerate(one))
            + sum(math.log((potential + potential.T)[one[a], one[b]]) for a, b in tied)
            for one in data
        ]
    )
    held.append(Held(field, (law,)))
    return World(
        data,
        held,
        linear_queries("01", rng)[:3],
        [shoal.EachEntry()],
        (
            "group",
            "dependent-means",
            "dependent-field",
            "dependent-baseline",
            "dependent-published",
            "lift",
            "correlated-sensitivity",
        ),
        lambda query, model: weighed(query, data),
        lambda secrets: entry_pairs(data),
        hamming,
    )


def graphs(rng: np.random.Generator) -> World:
    """Graphs of three or four nodes; pairs or whole nodes change, alone or in groups."""
    nodes, level = int(rng.integers(3, 5)), ("edge", "node")[rng.integers(2)]
    ends = list(itertools.combinations(range(nodes), 2))
    data = [
        tuple(e for e, kept in zip(ends, bits, strict=True) if kept)
        for bits in itertools.product((0, 1), repeat=len(ends))
    ]
    caps = [int(cap) for cap in rng.integers(1, nodes, size=3)]
    queries = [
        shoal.records.degree_distribution(
            nodes,
            cap=cap,
            level=level if rng.random() < 0.6 else "edge",
            cumulative=bool(rng.integers(2)),
        )
        for cap in caps
    ]

    def answers(query: Any, model: Any) -> Floats:
        rows = []
        for edges in data:
            degrees = [0] * nodes
            for a, b in edges:
                if query.level == "edge" or max(degrees[a], degrees[b]) < query.cap:
                    degrees[a] += 1
                    degrees[b] += 1
            degrees = [min(d, query.cap) for d in degrees]
            if query.cumulative:
                rows.append([float(sum(d > k for d in degrees)) for k in range(query.cap)])
            else:
                rows.append([float(sum(d == k for d in degrees)) for k in range(query.cap + 1)])
        return np.array(rows)

    def differ(one: Any, other: Any, query: Any) -> int:
        changed = set(one) ^ set(other)
        if query.level == "edge":
            return len(changed)
        return min(
            (
                len(some)
                for r in range(nodes)
                for some in itertools.combinations(range(nodes), r)
                if all(set(edge) & set(some) for edge in changed)
            ),
            default=nodes,
        )

    held = [Held(shoal.records.RecordGroups(int(size)), ()) for size in rng.integers(1, 3, size=2)]
    return World(
        data,
        held,
        queries,
        [shoal.EachEntry()],
        ("group", "laplace"),
        answers,
        lambda secrets: [],
        differ,
    )


def groups(rng: np.random.Generator) -> World:
    """Bits in groups of unknown law, besides laws that are known."""
    base = named(rng)
    held = [
        *base.held[:1],
        *(Held(shoal.records.RecordGroups(int(n)), ()) for n in rng.integers(1, 3, size=2)),
    ]
    return replace(
        base, held=held, secrets=base.secrets[:1], rows=("group", "laplace", "exact", "lift")
    )


WORLDS = (chains, named, ties, graphs, groups)


@dataclass(frozen=True)
class Told:
    """A charge that was made: the plan, and what it adds its noise to in every data set."""

    plan: Any
    answers: Floats
    rate: float


def random_plan(world: World, rng: np.random.Generator) -> tuple[Any, Held] | None:
    held = world.held[rng.integers(len(world.held))]
    query = world.queries[rng.integers(len(world.queries))]
    secrets = world.secrets[rng.integers(len(world.secrets))]
    epsilon, row = rng.choice(EPSILONS), str(rng.choice(world.rows))
    try:
        plan = shoal.calibrate(query, secrets, held.model, epsilon=float(epsilon), mechanism=row)
    except ShoalError:
        return None
    if plan.additive is None:  # tables, noise in steps: two are held against enumeration elsewhere
        return None
    return plan, held


def forged(plan: Any, rng: np.random.Generator) -> Any:
    """The plan with other noise, or with other words about itself."""
    noise = plan.body.noise
    match int(rng.integers(4)):
        case 0:
            scale = noise.scale * Fraction(int(rng.integers(1, 4)), 4)
            return replace(plan, body=replace(plan.body, noise=replace(noise, scale=scale)))
        case 1:
            little = Fraction(1, 1000)
            return replace(plan, composition=(AsGroupDP(little), AsEntryDP(little)))
        case 2:
            return replace(
                plan, guarantee=replace(plan.guarantee, amount=plan.guarantee.amount / 3)
            )
    words = {"proved": True, "caveat": "", "notion": str(rng.choice(["pufferfish", "group"]))}
    return replace(plan, guarantee=replace(plan.guarantee, **words))


def truth(world: World, told: Sequence[Told], rng: np.random.Generator) -> tuple[float, float]:
    """The loss about every secret under every model of the charges, and about one entry."""
    answers = np.hstack([one.answers for one in told])
    rates = np.concatenate([np.full(one.answers.shape[1], one.rate) for one in told])
    gaps = (np.abs(answers[:, None] - answers[None]) * rates).sum(axis=2)
    aparts = [
        np.array([[world.differ(a, b, query) for b in world.data] for a in world.data])
        for query in {
            getattr(q, "level", ""): q for q in (t.plan.task.query for t in told)
        }.values()
    ]
    worst = 0.0
    known = {one.plan.task.family[0] for one in told}
    outputs = grid(answers, rng)
    density = -(np.abs(outputs[:, None, :] - answers[None]) * rates).sum(axis=2)
    pairs = [
        pair
        for secrets in {
            one.plan.task.secrets.fingerprint: one.plan.task.secrets for one in told
        }.values()
        for pair in world.pairs(secrets)
    ]
    for held in world.held:
        if held.model not in known:
            continue
        if not held.laws:
            worst = max([worst, *(float(gaps[a <= held.model.largest].max()) for a in aparts)])
        for law in held.laws:
            worst = max([worst, *(contrast(density, law, a, b) for a, b in pairs)])
    return worst, max(float(gaps[apart == 1].max(initial=0.0)) for apart in aparts)


def contrast(density: Floats, law: Floats, one: Bools, other: Bools) -> float:
    """The largest log-ratio over the outputs, either way; 0 when one of the two never happens."""
    seen = []
    for event in (one, other):
        if not (law[event] > -math.inf).any():
            return 0.0
        seen.append(log_sum(density[:, event] + law[event]) - log_sum(law[event][None]))
    return float(np.abs(seen[0] - seen[1]).max())


def log_sum(values: Floats) -> Floats:
    top = values.max(axis=1, keepdims=True)
    return np.asarray(top[:, 0] + np.log(np.exp(values - top).sum(axis=1)))


def grid(answers: Floats, rng: np.random.Generator) -> Floats:
    """Outputs that may be worst: every coordinate one of its answers; some of them if too many."""
    axes = [np.unique(column) for column in answers.T]
    if math.prod(map(len, axes)) <= OUTPUTS:
        return np.array(list(itertools.product(*axes)))
    some = np.stack([rng.choice(axis, OUTPUTS) for axis in axes], axis=1)
    ends = np.stack([np.where(rng.random(99) < 0.5, axis[0], axis[-1]) for axis in axes], axis=1)
    return np.vstack([some, answers, ends])


def batch(plans: Sequence[Any], data: Any, names: dict[str, Any], ledger: Any) -> list[Any]:
    charges = [Charge(plan=plan, key=f"b{i}", **names) for i, plan in enumerate(plans)]
    drawn = [plan._draw(plan.task.read(data(plan)), shoal.SystemRng()) for plan in plans]
    outcomes: list[Any] = ledger.settle_all(
        charges, lambda places: [drawn[place] for place in places]
    )
    return outcomes


def attack(seed: int, seen: Counter[str], folder: Path) -> None:
    """One random account; fails with what is wrong with it."""
    wrong = list(found_wrong(seed, seen, folder))
    assert not wrong, wrong
    (folder / f"{seed}.db").unlink()


def found_wrong(seed: int, seen: Counter[str], folder: Path) -> Iterator[str]:
    rng = np.random.default_rng(seed)
    world = WORLDS[seed % len(WORLDS)](rng)
    told: list[Told] = []

    def values(plan: Any) -> Any:
        one = world.data[rng.integers(len(world.data))]
        if hasattr(plan.task.query, "level"):
            return one
        return [str(x) for x in one[: getattr(plan.task.family[0], "length", None)]]

    wanted = int(rng.choice([1, 1, 2, 2, 3, 4, 5]))
    made = [found for _ in range(wanted) if (found := random_plan(world, rng))]
    plans = [forged(plan, rng) if rng.random() < 0.3 else plan for plan, _ in made]
    plans += plans[: int(rng.integers(2))]
    names: dict[str, Any] = {"subject": "s", "period": "p", "requester": "r"}
    with shoal.open_ledger(folder / f"{seed}.db") as ledger:
        if rng.random() < 0.3:
            ledger.limit(Fraction(int(rng.integers(1, 60)), 10), unit="epsilon", subject="s")
        if rng.random() < 0.3:
            kept = [
                not isinstance(one, Exception) for one in outcomes(plans, values, names, ledger)
            ]
        else:
            kept = [
                single(plan, values(plan), names, ledger, f"k{i}") for i, plan in enumerate(plans)
            ]
        for plan, charged in zip(plans, kept, strict=True):
            if charged:
                told.append(
                    Told(
                        plan,
                        world.answers(plan.task.query, plan.task.family[0]),
                        float(1 / plan.body.noise.scale),
                    )
                )
        seen["releases"] += len(told)
        seen[REFUSED] += len(plans) - len(told)
        if not told:
            return
        total = ledger.spent("s", "p")
        assert total is not None
        if total.charges != len(told):
            yield f"{total.charges} charges for {len(told)} releases"
        again = compose([one.plan for one in told])
        if (again.amount, again.rule) != (total.amount, total.rule):
            yield f"compose says {again.explanation}; the ledger {total.explanation}"
        loss, entry = truth(world, told, rng)
        if total.eta is not None and entry > float(total.eta) * (1 + ALMOST):
            yield f"eta {float(total.eta)} for {entry}"
        promised = entry if total.notion == "entry-dp" else loss
        if promised > float(total.amount) * (1 + ALMOST) + ALMOST:
            yield f"{total.rule} says {float(total.amount)} ({total.notion}) for {promised}"
        limit = next((float(one.amount) for one in ledger.limits()), math.inf)
        if loss > limit * (1 + ALMOST) + ALMOST:
            yield f"the limit {limit} was passed: {loss}"


def single(plan: Any, data: Any, names: dict[str, Any], ledger: Any, key: str) -> bool:
    """Whether the plan was charged; asked twice with one key, it tells and costs the same."""
    try:
        first = plan.release(data, ledger=ledger, key=key, **names)
    except ShoalError:
        return False
    assert plan.release(data, ledger=ledger, key=key, **names) == first
    return True


def outcomes(plans: Sequence[Any], data: Any, names: dict[str, Any], ledger: Any) -> list[Any]:
    try:
        return batch(plans, data, names, ledger)
    except ShoalError as error:
        return [error] * len(plans)


@pytest.mark.parametrize("seed", [*range(15), 1895])
def test_no_total_is_below_the_truth(seed: int, tmp_path: Path) -> None:
    attack(seed, Counter(), tmp_path)


@pytest.mark.slow
def test_the_attacker_finds_nothing_for_long(tmp_path: Path, record_property: Any) -> None:
    attack_for_long(partial(attack, folder=tmp_path), record_property, 1000)
