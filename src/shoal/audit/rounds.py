"""The choice of what to test: rounds of releases with ever fewer pairs of facts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.audit.boxes import Runner
from shoal.audit.contrasts import Contrast
from shoal.audit.events import Event, best_event
from shoal.audit.lengths import FEWEST, Budget
from shoal.audit.sampling import Pool
from shoal.core.errors import InputError
from shoal.core.value import Floats

# share of the draws, and how many pairs of facts go on to it; what is left over tests
PILOT = 0.2
ROUNDS = ((0.15, 6), (0.15, 2))
TEST = 0.5
LEAST_TESTS = 1000  # releases given each fact, however long the data


class Rival(NamedTuple):
    """Two facts to tell apart, and what was released so far when either held."""

    contrast: Contrast
    pools: tuple[Pool, Pool]
    outputs: tuple[Floats, Floats]


def chosen(
    run: Runner,
    found: list[Contrast],
    budget: Budget,
    spread: float,
    seeds: np.random.SeedSequence,
) -> tuple[Rival, Event]:
    """The pair of facts and the event that promise most, from rounds with ever fewer rivals.

    Each rival is judged by the tests it could have: long data may be too dear for all of them.
    """
    pilot, *others = seeds.spawn(1 + len(ROUNDS))
    ranked = _ranked(_pilot(run, found, budget, pilot), budget, spread)
    done = PILOT
    for (share, kept), own in zip(ROUNDS, others, strict=True):
        done += share
        rivals = [rival for rival, _ in ranked[:kept]]
        more = _more(run, rivals, budget.part(share), round(done * budget.draws), own)
        ranked = _ranked(more, budget, spread)
    return ranked[0]


def trials(budget: Budget, entries: int) -> int:
    """How many releases given each fact are kept for the test of data of so many entries."""
    part = budget.part(TEST)
    most, dear = part.draws // 2, part.entries / 2 / entries
    return most if dear >= most else min(most, max(int(dear), LEAST_TESTS))


def _ranked(rivals: list[Rival], budget: Budget, spread: float) -> list[tuple[Rival, Event]]:
    """Every rival with its best event, the one that promises most first."""
    learned = [
        best_event(*rival.outputs, trials(budget, rival.pools[0].entries), spread=spread)
        for rival in rivals
    ]
    order = sorted(range(len(rivals)), key=lambda i: -learned[i].expected)
    return [(rivals[i], learned[i].event) for i in order]


def _pilot(
    run: Runner, found: list[Contrast], budget: Budget, seeds: np.random.SeedSequence
) -> list[Rival]:
    """Every pair of facts, each fact with an equal share of the draws as far as they go."""
    part = budget.part(PILOT)
    pools = [pool for contrast in found for pool in contrast.pools]
    if part.draws // len(pools) < FEWEST:
        raise InputError(
            f"draws leaves {part.draws // len(pools)} for each of {len(pools)} facts in the first "
            f"round; give at least {math.ceil(FEWEST * len(pools) / PILOT):,} draws, or fewer "
            "lengths"
        )
    outputs = iter(_outputs(run, pools, part, part.draws, seeds))
    rivals = []
    for contrast in found:
        own = [next(outputs) for _ in contrast.pools]
        rivals += [
            Rival(contrast, (contrast.pools[one], contrast.pools[two]), (own[one], own[two]))
            for one, two in contrast.pairs
        ]
    return rivals


def _more(
    run: Runner, rivals: list[Rival], part: Budget, until: int, seeds: np.random.SeedSequence
) -> list[Rival]:
    """The same rivals with more outputs."""
    pools = [pool for rival in rivals for pool in rival.pools]
    fresh = iter(_outputs(run, pools, part, until, seeds))
    grown = []
    for rival in rivals:
        both = [np.vstack([known, next(fresh)]) for known in rival.outputs]
        grown.append(rival._replace(outputs=(both[0], both[1])))
    return grown


def _outputs(
    run: Runner, pools: Sequence[Pool], part: Budget, until: int, seeds: np.random.SeedSequence
) -> list[Floats]:
    """What is released given each of some facts, within a part of the budget."""
    counts = part.each([pool.entries for pool in pools])
    sizes = zip(counts, (pool.entries for pool in pools), strict=True)
    run.stage(until, sizes)
    own = seeds.spawn(len(pools))
    return [run.draw(*one) for one in zip(pools, counts, own, strict=True)]
