"""Silence that is hidden: beliefs and odds of somebody who does not know which slots were read.

Contexts: every day, every pattern of missed slots and every coin is written out, and the belief
after what is shown held against the plan's bound. Places: two steps, the first one perhaps missed.
Proof: src/shoal/gateway/silence.md.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shoal
from shoal.chains.model import MarkovChain
from shoal.contexts.stream import advance
from shoal.core.plan import Plan
from shoal.gateway.machines import PLACES
from shoal.places.packed import Kept, to_bytes
from shoal.places.policy import PolicyGraph
from shoal.places.queries import measurement
from tests.gateway.gateway_house import plan
from tests.gateway.test_gateway_law import Coin, hidden

Seen = tuple[str | None, ...]
Missing = Callable[[int, Seen], float]  # the chance that a slot is missed, after what was shown

RATES: dict[str, Missing] = {
    "seldom": lambda t, seen: 0.1,
    "mostly": lambda t, seen: 0.9,
    "after silence": lambda t, seen: 0.8 if seen and seen[-1] is None else 0.1,
    "in the evening": lambda t, seen: 0.99 if t >= 2 else 0.01,
}


@pytest.mark.parametrize("name", RATES)
def test_hidden_silence_raises_no_belief_beyond_the_bound(name: str) -> None:
    kept = plan("day")
    day: Any = kept.task.family[0]
    after: dict[Seen, Any] = defaultdict(lambda: np.zeros((day.slots, day.size)))
    for path in itertools.product(range(day.size), repeat=day.slots):
        chance = float(day.initial[path[0]])
        for t, (a, b) in enumerate(itertools.pairwise(path)):
            chance *= float(day.transition[t, a, b])
        if chance > 0:
            _shown(kept, RATES[name], after, path, kept.body.init(), (), chance)  # type: ignore[union-attr]
    total = sum(each for each in after.values())
    assert np.allclose(total.sum(axis=1), 1, rtol=0, atol=1e-9)
    clinic = day.states.index("clinic")
    rises = [
        (each[t, clinic] / each[t].sum()) - total[t, clinic]
        for each in after.values()
        for t in range(day.slots)
    ]
    assert 0.01 < max(rises) <= float(kept.guarantee.amount) + 1e-9


def _shown(
    kept: Plan,
    missing: Missing,
    after: dict[Seen, Any],
    path: tuple[int, ...],
    state: Any,
    seen: Seen,
    chance: float,
) -> None:
    """Add to P(seen, X_t = x) for all t what this path does, slot by slot, missed or read."""
    day: Any = kept.task.family[0]
    if len(seen) == len(path):
        for t, place in enumerate(path):
            after[seen][t, place] += chance
        return
    t, context = len(seen), day.states[path[len(seen)]]
    missed, hides = missing(t, seen), hidden(kept, state, context)
    ways = (
        (missed, advance(kept, state, None, Coin(0))[0], None),
        ((1 - missed) * hides, advance(kept, state, context, Coin(0))[0], None),
        ((1 - missed) * (1 - hides), advance(kept, state, context, Coin(65535))[0], context),
    )
    for weight, following, told in ways:
        if weight > 0:
            _shown(kept, missing, after, path, following, (*seen, told), chance * weight)


NAMES = ("p0", "p1", "p2", "p3", "p4", "q0", "q1")
POINTS = ((0, 0), (1, 0), (2, 0), (3, 0), (4, 0), (0, 1), (4, 1))
APART = np.array([(0, 1), (1, 2), (2, 3), (3, 4), (5, 6)])
JOINED = np.array([*APART.tolist(), (0, 5)])


def place_plan(mechanism: str, edges: Any) -> Plan:
    """A path, and a pair of neighbours beside its two ends; nobody moves between the two."""
    moves = np.zeros((7, 7))
    moves[:5, :5], moves[5:, 5:] = 1 / 5, 1 / 2
    chain = MarkovChain.of(moves, states=NAMES, initial=np.full(7, 1 / 7))
    policy = PolicyGraph(states=NAMES, edges=edges, groups=np.full(7, -1), title="two parts")
    return shoal.calibrate(
        measurement(NAMES, POINTS, unit="steps"), policy, chain, epsilon=1, mechanism=mechanism
    )


def second_step(kept: Plan, edges: Any, first: tuple[int, ...]) -> float:
    """The largest log-ratio between neighbours at step 2, after `first` was shown at step 1.

    Each step may have been missed, so everybody the chain can have is possible: with chance m what
    is shown came from a place made up evenly among those the step protects.
    """
    machine: Any = kept.body
    state, _ = machine.absorb(machine.init(), ((machine, first),))
    noise = machine.prior(state).noise
    box = itertools.product(range(-8, 14), range(-8, 10))
    laws = np.array([np.exp(noise.law.log_likelihood(z)) for z in box])  # by output and state
    laws = laws[laws[:, noise.members].any(axis=1)]
    made_up = laws[:, noise.members].mean(axis=1, keepdims=True)
    worst = 0.0
    for missed in (0.01, 0.5):
        told = (1 - missed) * laws + missed * made_up
        for x, y in edges:
            worst = max(worst, float(np.abs(np.log(told[:, x] / told[:, y])).max()))
    return worst


def hides(kept: Plan) -> bool:
    machine: Any = kept.body
    return PLACES.hides(kept, to_bytes(Kept(machine.init(), None)))


def test_outputs_that_rule_places_out_are_not_hidden() -> None:
    """The counterexample: neighbours outside of what an output left are far more than ε apart."""
    kept = place_plan("location-graph-exponential", APART)
    assert second_step(kept, APART, POINTS[2]) == pytest.approx(4, rel=0.05)
    assert not hides(kept)
    assert not hides(place_plan("location-knorm", APART)), "its body is flat: no step leaves a row"


@pytest.mark.parametrize(
    ("mechanism", "edges"),
    [
        ("location-laplace", APART),
        ("location-knorm", JOINED),
        ("location-graph-exponential", JOINED),
    ],
)
def test_hidden_steps_of_places_keep_their_promise(mechanism: str, edges: Any) -> None:
    kept = place_plan(mechanism, edges)
    assert hides(kept)
    for first in ((0, 0), (3, 0), (4, 1)):
        assert 0 < second_step(kept, edges, first) <= 1 + 1e-9
