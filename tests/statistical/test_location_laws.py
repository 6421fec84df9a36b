"""What streams release has the law that beliefs are updated with; a control law fails.

Fixed seeds. Each chi-square test is at level 1e-6, so a correct law fails once in a million seeds.
"""

from __future__ import annotations

import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chi2

from shoal.core.codec import Floats
from shoal.noise.primitives import SeededRng
from shoal.places.machine import LocationMachine
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.step import NOISES
from tests.locations import running_policy, running_query, walk

LEVEL, DRAWS, LEAST = 1e-6, 3000, 8.0
REACH = 40  # lattice steps around the answers: what lies beyond is no output of 3,000 in practice


def machine(noise: str, places: PolicyGraph | LocationSet) -> LocationMachine:
    chain = walk(initial=[0.3, 0.3, 0.2, 0.1, 0.06, 0.04])
    return LocationMachine(
        chain=chain, query=running_query(), places=places, epsilon=Fraction(3, 2), noise=noise
    )


def law_of(runner: LocationMachine, state: int) -> dict[tuple[int, ...], float]:
    """P(z | state) of the first step, from the weights that update beliefs, summed over a box."""
    law = runner.prior(runner.init()).noise.law
    outputs = list(itertools.product(range(-REACH, REACH + 4), range(-REACH, REACH + 2)))
    logs: Floats = np.array([law.log_likelihood(z)[state] for z in outputs])
    weights = np.exp(logs - logs.max())
    shares = weights / weights.sum()
    return {z: float(p) for z, p in zip(outputs, shares, strict=True) if p > 0}


def misfit(seen: Counter[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    """The p-value of the counts: outputs expected LEAST times alone, the others together."""
    common = [z for z, p in law.items() if p * DRAWS >= LEAST]
    expected = np.array([law[z] * DRAWS for z in common])
    counts = np.array([seen[z] for z in common], dtype=np.float64)
    rest = DRAWS - expected.sum()
    statistic = ((counts - expected) ** 2 / expected).sum()
    statistic += (DRAWS - counts.sum() - rest) ** 2 / max(rest, LEAST)
    return float(chi2.sf(statistic, len(common)))


@pytest.mark.parametrize("noise", list(NOISES))
@pytest.mark.parametrize("delta", [None, Fraction(1, 10)])
def test_outputs_follow_the_law_that_beliefs_are_updated_with(
    noise: str, delta: Fraction | None
) -> None:
    policy = running_policy()
    places = policy if delta is None else LocationSet(policy=policy, delta=delta)
    runner, rng = machine(noise, places), SeededRng(11)
    start = runner.init()
    name, other = "s6", 0  # with a location set s6 is outside and answers as its surrogate
    drawn = (runner.answer(start, name, rng) for _ in range(DRAWS))
    seen = Counter(z for z in drawn if z is not None)
    assert seen.total() == DRAWS
    assert misfit(seen, law_of(runner, 5)) > LEVEL
    control = law_of(runner, other)  # the law of another place
    assert misfit(seen, control) < LEVEL
