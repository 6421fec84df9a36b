"""A random attacker of histories: streams of places begun twice, skipped, stored, copied, rerun.

Small maps with random laws, events and bounds. Streams of one person and period are begun as often
as one likes, alternate, leave readings out, go on from older copies, draw with and without the
ledger, come by jobs of late rows, and under other plans. Outputs are what would tell the most, or
random. What the ledger drew is then held against the bound, by all paths; what it counts against
what was drawn.
"""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import shoal
from shoal.core.errors import BudgetError, InputError
from shoal.places.stream import LocationStream
from tests.attacker import REFUSED, attack_for_long
from tests.event_oracle import random_event
from tests.histories import Draw, Scripted, Town, log_odds_moved

NEAR = 1 + 1e-9


def random_law(dice: random.Random, size: int) -> Any:
    """A random law, some values nearly 0: where all are possible the law of outputs is known."""
    weights = np.array([dice.random() ** dice.choice([1, 4, 30]) + 1e-6 for _ in range(size)])
    return weights / weights.sum()


def random_town(dice: random.Random) -> Town | None:
    """A map of 2 to 4 cells; None when its event is certain, or nearly so."""
    cells, steps = dice.randint(2, 4), dice.randint(2, 5)
    event = random_event(np.random.default_rng(dice.randrange(10**9)), cells, steps)
    matrix = np.array([random_law(dice, cells) for _ in range(cells)])
    found = Town(random_law(dice, cells), matrix, steps, event, dice.choice([0.1, 0.5, 1.0, 2.0]))
    names = [str(cell) for cell in range(cells)]
    chain = shoal.MarkovChain.of(matrix, initial=found.initial, states=names, length=steps)
    try:
        return found if 1e-4 < event.prior(chain) < 1 - 1e-4 else None
    except InputError:
        return None


def drawn_cell(
    dice: random.Random, where: Town, greed: float, draws: list[Draw], draw: Draw
) -> int:
    """Which cell an output shows: the one that moves the odds the farthest, or any possible."""
    moved = [log_odds_moved(where, [*draws, draw._replace(cell=c)]) for c in range(where.cells)]
    if dice.random() < greed:
        return moved.index(max(moved))
    return dice.randrange(where.cells)


class Attack:
    """One person, one ledger, and all the streams that were ever begun about their period."""

    def __init__(self, dice: random.Random, where: Town, ledger: Any) -> None:
        self.dice, self.where, self.ledger = dice, where, ledger
        self.plan = where.plan(dice.choice(["1/2", "1", "2", "4"]))
        greed = dice.choice([0.0, 0.7, 1.0])
        self.scripted = Scripted(ledger, choose=partial(drawn_cell, dice, where, greed))
        self.streams: list[LocationStream] = []
        self.start: int | None = None  # the first place of the stream that drew first, if known
        self.refused = 0

    def begin(self) -> None:
        """One more stream; now and then it claims that everybody knows its first place."""
        known = self.dice.random() < 0.1 and self.dice.choice(range(self.where.cells))
        start = None if known is False else str(known)
        try:
            self.streams.append(LocationStream.begin(self.plan, start))
        except InputError:
            self.refused += 1  # a start the event is decided by

    def move(self) -> None:
        """A step of some stream: read, skipped, read past the ledger, or from an older copy."""
        if not self.streams:
            return
        at = self.dice.randrange(len(self.streams))
        stream, kind = self.streams[at], self.dice.random()
        if stream.state.time >= self.where.steps:
            return
        if kind < 0.25:
            after, _ = stream.skip()
        elif kind < 0.3:
            after, _ = stream.read("0")
        else:
            self.scripted.time = stream.state.time
            first = not self.scripted.draws
            try:
                after, _ = stream.read("0", ledger=self.scripted, subject="ann")
            except BudgetError:
                self.refused += 1
                return
            if first and self.scripted.draws and stream.watched is not None:
                self.start = stream.watched.watch.start
        if self.dice.random() < 0.3:
            after = LocationStream.from_bytes(self.plan, after.to_bytes())
        if self.dice.random() < 0.2:
            self.streams.append(after)  # the older one is still there
        else:
            self.streams[at] = after

    def other_plan(self) -> None:
        """A step under another plan about the same path: at another ε, or one without events."""
        plan = self.where.plan("3", watched=self.dice.random() < 0.5)
        try:
            _, shown = LocationStream.begin(plan).read("0", ledger=self.ledger, subject="ann")
        except BudgetError:
            self.refused += 1
            return
        if shown.z is not None:
            assert not self.scripted.draws  # the first to come is taken
            raise Taken

    def judge(self) -> float:
        """What all outputs tell, against the bound and the ledger's count; the share of it used."""
        draws, total = self.scripted.draws, self.ledger.spent("ann")
        assert (0 if total is None else total.charges) == len(draws)
        assert [draw.time for draw in draws] == sorted({draw.time for draw in draws})
        where = self.where
        if self.start is not None:
            where = where._replace(initial=np.eye(where.cells)[self.start])
        moved = log_odds_moved(where, draws)
        assert moved <= self.where.amount * NEAR, (moved, self.where.amount, draws)
        if total is not None:
            assert float(total.amount) * NEAR >= sum(draw.epsilon for draw in draws)
        return moved / self.where.amount


class Taken(Exception):
    """Another plan was the first about this person: the attack is over."""


def attack_streams(dice: random.Random, where: Town, folder: Path, seen: Counter[str]) -> None:
    """Streams, copies and plans in any order."""
    with shoal.open_ledger(folder / "streams.db") as ledger:
        attack = Attack(dice, where, ledger)
        acts = [attack.begin] * 2 + [attack.move] * 8 + [attack.other_plan]
        attack.begin()
        for _ in range(dice.randint(4, 25)):
            try:
                dice.choice(acts)()
            except Taken:
                return
        used = attack.judge()
        seen["histories"] += 1
        seen["histories with outputs"] += bool(attack.scripted.draws)
        seen["histories above half of the bound"] += used > 0.5
        seen["steps refused"] += attack.refused
        assert ledger.verify().intact


def attack_jobs(dice: random.Random, where: Town, folder: Path, seen: Counter[str]) -> None:
    """Jobs over the same person's rows: late, left out, without a state, with other times."""
    plan, path = where.plan("2"), [str(dice.randrange(where.cells)) for _ in range(where.steps)]
    names: Any = {"by": "user", "state": "place", "time": "at", "ledger": str(folder / "jobs.db")}
    for number in range(dice.randint(2, 3)):
        there = [t for t in range(where.steps) if dice.random() < 0.8]
        rows = [("ann", 10 * t, path[t] if dice.random() < 0.7 else None) for t in there]
        if not any(cell for *_, cell in rows):
            continue
        data = folder / f"{number}.parquet"
        frame = {"user": pl.String, "at": pl.Int64, "place": pl.String}
        pl.DataFrame(rows, schema=frame, orient="row").write_parquet(data)
        shoal.release_files(plan, data, out=folder / f"out{number}", **names)
    if not (folder / "jobs.db").exists():
        return
    with shoal.open_ledger(folder / "jobs.db") as ledger:
        told = [(json.loads(each.value or ""), each.eta) for each in ledger.charges()]
        draws = [
            Draw(one["history"][2], float(Fraction(eta or 0)), one["multiples"][0])
            for one, eta in told
        ]
        times = [one["history"][4] for one, _ in told]
    assert log_odds_moved(where, draws) <= where.amount * NEAR
    assert len(set(times)) == len(times)  # no reading was drawn twice
    seen["job histories"] += 1


def attack(seed: int, seen: Counter[str], where: Path) -> None:
    dice = random.Random(seed)
    found = random_town(dice)
    if found is None:
        seen[REFUSED] += 1
        return
    folder = where / str(seed)
    folder.mkdir()
    attack_streams(dice, found, folder, seen)
    if dice.random() < 0.2:
        attack_jobs(dice, found, folder, seen)


@pytest.mark.parametrize("seed", range(24))
def test_random_histories_keep_the_promise_about_events(seed: int, tmp_path: Path) -> None:
    attack(seed, Counter(), tmp_path)


@pytest.mark.slow
def test_random_histories_keep_the_promise_for_long(tmp_path: Path, record_property: Any) -> None:
    first = time.time_ns() % 10**9  # other maps in every run
    attack_for_long(partial(attack, where=tmp_path), record_property, first)
