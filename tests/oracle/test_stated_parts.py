"""Parts that are said wrongly: what a ledger takes is never less than what the releases tell.

Somebody releases counts of slices of one series, and says of each which part it is about: with a
span of entries of another length, by the calendar, or not at all. The joint law is enumerated
sequence by sequence. A slice longer than its part must be refused before anything is charged.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.core.errors import InputError
from shoal.core.plan import Plan
from shoal.ledger import Part, SqlLedger, open_ledger
from shoal.ledger.budget import running_eta
from tests.oracle.test_ledger_parts import chain_of, eta_of, joint, likelihood, plan_of, worst

ETAS = ("1/20", "1/4", "1/2")
ENTRIES = 5
Read = tuple[Plan, tuple[int, int]]  # a release, and the entries it truly read
SEEDS = [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 400))]


def truth(law: dict[tuple[int, ...], float], read: list[Read]) -> float:
    """The most that any joint output of counts of these entries tells about an entry."""
    ends = [(-1, after - first + 1) for _, (first, after) in read]
    most = 0.0
    for shown in itertools.product(*ends):  # beyond the counts: nothing tells more
        h = {
            x: math.prod(
                likelihood(one, x, span, eta_of(plan))
                for one, (plan, span) in zip(shown, read, strict=True)
            )
            for x in law
        }
        most = max(most, worst(law, h))
    return most


def spent(ledger: SqlLedger, subject: str = "ann") -> float:
    total = ledger.spent(subject)
    return 0.0 if total is None else float(total.amount)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_release_longer_than_its_part_is_refused_and_the_others_add(
    seed: int, tmp_path: Any
) -> None:
    draw = np.random.default_rng([seed, 29])
    chain = chain_of(draw, ENTRIES)
    law = joint(chain, ENTRIES)
    series = [chain.states[int(x)] for x in draw.integers(0, 2, ENTRIES)]
    read: list[Read] = []
    with open_ledger(tmp_path / "l.db") as ledger:
        for _ in range(4):
            first = int(draw.integers(0, ENTRIES - 1))
            after = int(draw.integers(first + 2, ENTRIES + 1))
            most = int(draw.integers(after - first, ENTRIES + 1))  # a plan of at most so many
            plan = plan_of(replace(chain, length=most), str(draw.choice(ETAS)))
            said = first, first + int(draw.integers(1, ENTRIES - first + 1))
            before = len(ledger.charges())
            if most == ENTRIES and draw.random() < 0.3:
                plan.release(series[first:after], ledger=ledger, subject="ann")  # says: of all
            elif said[1] < after:
                with pytest.raises(InputError, match=r"part is .* a span of"):
                    plan.release(series[first:after], ledger=ledger, subject="ann", part=said)
                assert len(ledger.charges()) == before
                continue
            else:
                plan.release(series[first:after], ledger=ledger, subject="ann", part=said)
            read.append((plan, (first, after)))
        if read:
            assert truth(law, read) <= spent(ledger) * (1 + 1e-9), read


def test_six_entries_are_not_taken_for_one(tmp_path: Any) -> None:
    """Four releases of all six entries, each said to be about one: 1.000 was charged, not 3.9."""
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], length=6)
    plan = plan_of(chain, "1/4")
    series = [chain.states[0], chain.states[1]] * 3
    with open_ledger(tmp_path / "l.db") as ledger:
        for place in range(4):
            with pytest.raises(InputError, match="a span of 1, and the data holds 6 entries"):
                plan.release(series, ledger=ledger, subject="ann", part=(place, place + 1))
        assert not ledger.charges()


def test_a_span_of_entries_is_of_a_series_of_them(tmp_path: Any) -> None:
    domain = shoal.records.RecordDomain.interval(0, 1, cells=2)
    model = shoal.Dependence.of(domain, 2, [(0, 1)], np.full((2, 2), 0.25))
    query = shoal.records.number_mean(low=0, high=1, records=2)
    plan = shoal.calibrate(query, shoal.EachEntry(), model, epsilon=1)
    with open_ledger(tmp_path / "l.db") as ledger:
        with pytest.raises(InputError, match="no series of them"):
            plan.release([0.1, 0.2], ledger=ledger, subject="ann", part=(0, 2))
        assert not ledger.charges()


def test_an_aggregate_is_as_long_as_its_longest_series(tmp_path: Any) -> None:
    chain = shoal.MarkovChain.of([[0.9, 0.1], [0.4, 0.6]], states=["a", "b"], length=6)
    plan = plan_of(chain, "1/4")
    frame = pl.DataFrame({"who": ["x"] * 3 + ["y"] * 4, "s": [*"aba", *"abba"]})
    wish: dict[str, Any] = {"state": "s", "series": "who", "together": True, "subject": "all"}
    with open_ledger(tmp_path / "l.db") as ledger:
        plan.release(frame, ledger=ledger, part=(0, 4), **wish)
        with pytest.raises(InputError, match="a span of 3, and the data holds 4 entries"):
            plan.release(frame, ledger=ledger, part=(0, 3), **wish)


@pytest.mark.parametrize("seed", SEEDS)
def test_entries_and_seconds_of_one_series_add(seed: int, tmp_path: Any) -> None:
    """Half of the releases count entries, the others are days of the calendar."""
    draw = np.random.default_rng([seed, 31])
    chain = chain_of(draw, 4)
    law = joint(chain, 4)
    start = datetime(2024, 3, 4)
    if draw.random() < 0.5:  # two readings a day, or two within one second of a day
        times = [start + timedelta(hours=12 * n) for n in range(4)]
    else:
        times = [start + timedelta(days=n // 2, milliseconds=300 * (n % 2)) for n in range(4)]
    series = [chain.states[int(x)] for x in draw.integers(0, 2, 4)]
    frame = pl.DataFrame({"t": times, "s": series})
    read: list[Read] = []
    with open_ledger(tmp_path / "l.db") as ledger:
        for days in draw.permutation([True, False]):
            plan = plan_of(chain, str(draw.choice(ETAS)))
            if days:
                plan.release_each(
                    frame,
                    state="s",
                    time="t",
                    every="day",
                    ledger=ledger,
                    subject="ann",
                    epsilon=99,
                )
                read += [(plan, (0, 2)), (plan, (2, 4))]
            else:
                first = int(draw.integers(0, 3))
                plan.release(
                    series[first : first + 2], ledger=ledger, subject="ann", part=(first, first + 2)
                )
                read.append((plan, (first, first + 2)))
        assert truth(law, read) <= spent(ledger) * (1 + 1e-9)


def test_parts_said_in_different_ways_may_meet() -> None:
    class Row:
        def __init__(self, part: Part, eta: str) -> None:
            self.part, self.eta = part.text, eta

    parts = [
        (Part(span=(0, 10)), "1"),
        (Part(span=(100, 110), seconds=True), "2"),
        (Part(name="w"), "4"),
        (Part(span=(10, 20)), "1/2"),
        (Part(span=(105, 200), seconds=True), "8"),
        (Part(), "16"),
    ]
    assert running_eta(Row(part, eta) for part, eta in parts) == [1, 3, 7, 7, 15, 31]
    for part, _ in parts:
        assert Part.stored(part.text) == part
    assert Fraction(1) == running_eta([Row(parts[0][0], "1")])[0]
    with pytest.raises(InputError, match="seconds is said of a part without a span"):
        Part(seconds=True)
