"""The joint law of outputs over HTTP is the plan's, with slots not read and readings repeated."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import chisquare

from shoal.contexts.stream import advance
from shoal.core.charge import SystemRng
from shoal.core.plan import Plan
from tests.gateway.gateway_house import House, plan, running

EVERY = 1000.0
MISSED = 1  # the slot that no device reads
LEVELS = 1 << 16

Day = tuple[str | None, ...]


class Coin:
    """Falls as it is told."""

    secure = True

    def __init__(self, word: int) -> None:
        self.word = word

    def words(self, count: int) -> Any:
        return np.full(count, self.word, np.uint64)


def hidden(plan: Plan, state: Any, context: str) -> float:
    """How likely a context is hidden: the share of coins with which the machine hides it."""
    if advance(plan, state, context, Coin(LEVELS - 1))[1] is None:
        return 1.0
    words = range(LEVELS)
    low, high = 0, LEVELS - 1
    while low < high:
        middle = words[(low + high) // 2]
        shows = advance(plan, state, context, Coin(middle))[1] is not None
        low, high = (low, middle) if shows else (middle + 1, high)
    return low / LEVELS


def expected(plan: Plan) -> dict[Day, float]:
    """P(outputs of a day), by listing every day of contexts and every fall of the coins."""
    day: Any = plan.task.family[0]
    law: dict[Day, float] = defaultdict(float)
    machine: Any = plan.body
    for path in itertools.product(range(day.size), repeat=day.slots):
        chance = float(day.initial[path[0]])
        for t, (a, b) in enumerate(itertools.pairwise(path)):
            chance *= float(day.transition[t, a, b])
        if chance > 0:
            _spread(plan, law, [day.states[x] for x in path], 0, machine.init(), (), chance)
    return dict(law)


def _spread(
    plan: Plan,
    law: dict[Day, float],
    path: list[str],
    slot: int,
    state: Any,
    seen: Day,
    chance: float,
) -> None:
    if slot == len(path):
        law[seen] += chance
        return
    if slot == MISSED:
        after, _ = advance(plan, state, None, Coin(0))
        _spread(plan, law, path, slot + 1, after, (*seen, None), chance)
        return
    hide = hidden(plan, state, path[slot])
    for word, share in ((0, hide), (LEVELS - 1, 1.0 - hide)):
        if share > 0:
            after, shown = advance(plan, state, path[slot], Coin(word))
            _spread(plan, law, path, slot + 1, after, (*seen, shown), chance * share)


def observed(house: House, streams: int, days: int) -> Counter[Day]:
    """Days of many people as an application sees them; each reading is followed by a false one."""
    house.ask("PUT", "/v1/people/ada", "one/operator").raise_for_status()
    paths = [f"/v1/people/ada/streams/s{n}" for n in range(streams)]
    for path in paths:
        body = {"plan": "day", "clock": {"every": EVERY}, "independent": True}
        house.ask("PUT", path, "one/ada", body).raise_for_status()
    house.pass_time(EVERY)
    day: Any = plan("day").task.family[0]
    rng = SystemRng()
    for _ in range(days):
        walks = [day.sample(rng) for _ in paths]
        for slot in range(day.slots):
            for path, walk in zip(paths, walks, strict=True):
                if slot != MISSED:
                    true, false = (day.states[(int(walk[slot]) + n) % day.size] for n in (0, 1))
                    readings = [{"context": true}, {"context": false}]
                    answer = house.ask("POST", f"{path}/readings", "one/ada-phone", readings)
                    assert answer.json()["taken"] == 2
            house.pass_time(EVERY)
    found: Counter[Day] = Counter()
    for path in paths:
        contexts = [each["context"] for each in house.outputs(path, "one/ada")]
        for first in range(0, len(contexts), day.slots):
            found[tuple(contexts[first : first + day.slots])] += 1
    return found


def p_value(found: Counter[Day], law: dict[Day, float]) -> float:
    """Chi-square of what was seen against the law, days expected fewer than 5 times together."""
    count = sum(found.values())
    assert set(found) <= set(law), "a day was seen that cannot be"
    often = [day for day, chance in law.items() if chance * count >= 5]
    shares, seen = [law[day] * count for day in often], [found[day] for day in often]
    if count - sum(shares) > 1e-9:
        shares, seen = [*shares, count - sum(shares)], [*seen, count - sum(seen)]
    return float(chisquare(seen, shares).pvalue)


def check(folder: Path, streams: int, days: int) -> None:
    with running(folder, streams=streams + 1) as house:
        found = observed(house, streams, days)
    law = expected(plan("day"))
    assert sum(law.values()) == pytest.approx(1, abs=1e-9)
    assert p_value(found, law) > 1e-6
    # a control that must fail: four fifths of the days drawn evenly
    wrong = {day: 0.2 * chance + 0.8 / len(law) for day, chance in law.items()}
    assert p_value(found, wrong) < 1e-6


def test_outputs_over_http_follow_the_plan(tmp_path: Path) -> None:
    check(tmp_path, streams=20, days=8)


@pytest.mark.slow
def test_outputs_over_http_follow_the_plan_for_long(tmp_path: Path) -> None:
    check(tmp_path, streams=100, days=60)
