"""A release under what a stream has shown: laws and odds by listing all paths and outputs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.core.errors import CannotCompose, InputError
from shoal.core.plan import Plan
from shoal.core.registry import dumps, loads
from shoal.ledger import open_ledger
from tests.event_oracle import happens, random_event

SHOW, HIDE = (1 << 32) - 1, 0
Weighed = list[tuple[tuple[int, ...], float, Any]]  # path so far, its weight, the machine's state


class Coin:
    """A coin that falls as it is told."""

    secure = False

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count: int) -> Any:
        return np.full(count, self.word, dtype=np.uint64)


def histories(
    plan: Plan, first: Any, rows: Any, names: tuple[str, ...], unread: frozenset[int]
) -> Iterator[tuple[list[str | None], list[tuple[tuple[int, ...], float]]]]:
    """Every history of outputs of a day, with P(path, outputs) of every path."""
    body: Any = plan.body

    def rest(slot: int, outputs: list[str | None], ways: Weighed) -> Iterator[Any]:
        if slot == body.slots:
            yield outputs, [(path, weight) for path, weight, _ in ways]
            return
        moved: Weighed = []
        for path, weight, state in ways:
            law = first if slot == 0 else rows[slot - 1][path[-1]]
            moved += [((*path, x), weight * p, state) for x, p in enumerate(law) if p > 0]
        if slot in unread:
            after = [(p, w, body.step(s, None, Coin(HIDE))[0]) for p, w, s in moved]
            yield from rest(slot + 1, [*outputs, None], after)
            return
        for output in (*range(len(names)), None):
            after = []
            for path, weight, state in moved:
                name = names[path[-1]]
                shown = body.shown_chance(state, name)
                if output is None and shown < 1:
                    after.append(
                        (path, weight * (1 - shown), body.step(state, name, Coin(HIDE))[0])
                    )
                elif output == path[-1] and shown > 0:
                    after.append((path, weight * shown, body.step(state, name, Coin(SHOW))[0]))
            if after:
                named = None if output is None else names[output]
                yield from rest(slot + 1, [*outputs, named], after)

    yield from rest(0, [], [((), 1.0, body.init())])


def case_of(seed: int) -> tuple[Any, ...]:
    """A random day, an event of it, a stream of it, and slots that are not read."""
    rng = np.random.default_rng([seed, 12])
    size, slots = int(rng.integers(2, 4)), int(rng.integers(2, 4))
    rows = rng.dirichlet(np.full(size, rng.choice([0.4, 1.0])), size=(slots - 1, size))
    first = rng.dirichlet(np.ones(size))
    names = ("1", "0", "2")[:size]  # not in the order of a mask
    day = shoal.DayChain.of(rows, initial=first, states=names)
    event = random_event(rng, size, slots)
    while not 0.01 < event.prior(day) < 0.99:
        event = random_event(rng, size, slots)
    memory = "events" if seed % 2 else "none"
    epsilon = float(rng.choice([0.5, 1.0]))
    plan = shoal.mask(day, shoal.Events.of(event), epsilon=epsilon, memory=memory, ahead=False)
    unread = frozenset([int(rng.integers(slots))] if rng.random() < 0.3 else [])
    return day, first, rows, names, event, plan, epsilon, unread


def check(seed: int) -> int:
    """The laws of a count after every history, and the odds after every noisy count."""
    day, first, rows, names, event, plan, epsilon, unread = case_of(seed)
    events, query = shoal.Events.of(event), shoal.count(day.states, names[0])
    prior = event.prior(day)
    listed = 0
    for outputs, ways in histories(plan, first, rows, names, unread):
        if sum(weight for _, weight in ways) < 1e-9:
            continue
        held = np.array([happens(event, [names[x] for x in path]) for path, _ in ways])
        weights = np.array([weight for _, weight in ways])
        counts = np.array([path.count(0) for path, _ in ways])
        given = shoal.contexts.DayGiven.of(plan, outputs, unread=sorted(unread))
        laws: Any = given.answer_laws(query, events)
        (pair,) = laws.sums
        for side, chosen in ((pair.above[0], held), (pair.below[0], ~held)):
            told = np.array([weights[chosen & (counts == k)].sum() for k in pair.values[:, 0]])
            assert np.abs(side - told / weights[chosen].sum()).max() < 1e-11
        second = shoal.calibrate(query, events, given, epsilon=0.4, mechanism="exact")
        for z in range(-6, day.slots + 7):
            after = weights * np.exp(-np.abs(z - counts) / second.scale)
            odds = math.log(after[held].sum() / after[~held].sum())
            moved = abs(odds - math.log(prior / (1 - prior)))
            assert moved <= (epsilon + 0.4) * (1 + 1e-9), (seed, outputs, z)
        listed += 1
    return listed


def test_laws_and_odds_after_every_output_of_a_stream() -> None:
    assert sum(check(seed) for seed in range(4)) > 12


@pytest.mark.slow
def test_laws_and_odds_after_every_output_of_many_streams() -> None:
    for seed in range(8, 250):
        check(seed)


@pytest.fixture(scope="module")
def told() -> tuple[Any, ...]:
    """A stream of a day about a clinic, its readings and what it showed."""
    rows = [[0.8, 0.15, 0.05], [0.3, 0.6, 0.1], [0.5, 0.3, 0.2]]
    names = ["home", "work", "clinic"]
    day = shoal.DayChain.of(rows, initial=[0.7, 0.2, 0.1], states=names, slots=6)
    events = shoal.Events.of(shoal.visit("clinic", between=(1, 4)))
    return day, events, shoal.mask(day, events, epsilon=1)


def test_the_ledger_adds_one_release_under_what_the_stream_showed(
    told: tuple[Any, ...], tmp_path: Path
) -> None:
    day, events, plan = told
    readings = ["home", "work", "clinic", "home", "home", "work"]
    count = shoal.count(day.states, "work")
    with open_ledger(tmp_path / "ledger") as ledger:
        account: dict[str, Any] = {"ledger": ledger, "subject": "ann"}
        stream, outputs = shoal.ContextStream.begin(plan, "d1"), []
        for reading in readings:
            stream, shown = stream.read(reading, **account)
            outputs.append(shown)
        given = shoal.contexts.DayGiven.of(plan, outputs)
        second = shoal.calibrate(count, events, given, epsilon=0.5)
        assert loads(dumps(second)) == second
        second.release([readings], period="d1", **account)
        total = ledger.spent("ann", "d1")
        assert total is not None
        assert (total.rule, float(total.amount)) == ("one after the other", 1.5)
        with pytest.raises(CannotCompose, match="one release, made under what one stream"):
            second.release([readings], period="d1", **account)
        with pytest.raises(CannotCompose, match="one release, made under what one stream"):
            second.release([readings], period="d2", **account)
        other = shoal.mask(day, events, epsilon=1, memory="none")
        shoal.ContextStream.begin(other, "d3").read("home", **account)
        with pytest.raises(CannotCompose, match="outputs of another stream"):
            second.release([readings], period="d3", **account)


def test_a_law_given_outputs_needs_a_day_that_is_over(told: tuple[Any, ...]) -> None:
    day, _, plan = told
    with pytest.raises(InputError, match="the day must be over"):
        shoal.contexts.DayGiven.of(plan, ["home"])
    with pytest.raises(InputError, match="no context of the model"):
        shoal.contexts.DayGiven.of(plan, ["nowhere", *[None] * 5])
    with pytest.raises(InputError, match="none that showed nothing"):
        shoal.contexts.DayGiven.of(plan, ["home", *[None] * 5], unread=[0])
    slots = shoal.mask(day, shoal.SensitiveContexts.of("clinic"), delta=0.1, seconds=1)
    with pytest.raises(InputError, match="follows no events"):
        shoal.contexts.DayGiven.of(slots, [None] * 6)
