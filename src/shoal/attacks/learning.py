"""A weak adversary who learns a chain from what is released of it, day after day."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from shoal.attacks.bayes import attack
from shoal.attacks.seen import suppressed
from shoal.core.value import Floats
from shoal.models.chain import MarkovChain
from shoal.noise.bits import SeededRng

STATES = ("home", "bus", "clinic", "work")
TRANSITION = np.array(
    [
        [0.55, 0.40, 0.00, 0.05],
        [0.30, 0.30, 0.20, 0.20],
        [0.00, 0.90, 0.10, 0.00],
        [0.1, 0.3, 0, 0.6],
    ]
)
HIDDEN = {"clinic": 1.0, "home": 0.25, "bus": 0.25, "work": 0.25}
MOMENT = ("bus", None, "bus")  # what the adversary looks at, somewhere in a day
DAY = 48
ROUNDS = 60  # of fitting


def learning_curve(days: Sequence[int], seed: int) -> tuple[list[float], float, float]:
    """Belief that the hidden moment was the clinic after each number of days, and when knowing.

    The adversary starts from the frequencies alone (entries independent) and fits a chain to the
    days watched so far; the third number is the belief before anything is seen.
    """
    chain = MarkovChain.of(TRANSITION, states=STATES)
    law = chain.stationary_law()
    rng, chance = SeededRng(seed), np.random.default_rng(seed)
    hidden = np.array([HIDDEN[state] for state in STATES])
    paths = np.array([chain.sample(DAY, rng) for _ in range(max(days))], dtype=np.int64)
    shown = chance.random(paths.shape) >= hidden[paths]
    likelihood = np.where(shown[..., None], paths[..., None] == np.arange(len(STATES)), hidden)
    curve = [_belief(_fitted(likelihood[:count], law), law) for count in days]
    return curve, _belief(chain.transition, law), float(law[STATES.index("clinic")])


def _fitted(likelihood: Floats, law: Floats) -> Floats:
    """The transitions that fit the days watched, by expectation and maximisation.

    `likelihood` (days, entries, states) is that of what was shown. One day of independent entries
    is counted in, so that no transition is ruled out for want of data.
    """
    independent = np.tile(law, (len(law), 1))
    matrix = independent
    prior = DAY * law[:, None] * independent
    for _ in range(ROUNDS if len(likelihood) else 0):
        counts = prior + _expected_moves(likelihood, law, matrix)
        matrix = counts / counts.sum(axis=1, keepdims=True)
    return matrix


def _expected_moves(likelihood: Floats, law: Floats, matrix: Floats) -> Floats:
    """Σ over days and entries of P(X_t = x, X_{t+1} = y | shown): forward and backward, scaled."""
    entries = likelihood.shape[1]
    forward = [_scaled(law * likelihood[:, 0])]
    for t in range(1, entries):
        forward.append(_scaled((forward[-1] @ matrix) * likelihood[:, t]))
    backward = np.ones_like(forward[0])
    total = np.zeros_like(matrix)
    for t in range(entries - 2, -1, -1):
        ahead = likelihood[:, t + 1] * backward
        moves = forward[t][:, :, None] * matrix * ahead[:, None, :]
        total += (moves / moves.sum(axis=(1, 2), keepdims=True)).sum(axis=0)
        backward = _scaled(ahead @ matrix.T)
    return total


def _scaled(rows: Floats) -> Floats:
    return np.asarray(rows / rows.sum(axis=1, keepdims=True))


def _belief(transition: Floats, law: Floats) -> float:
    held = MarkovChain.of(transition, states=STATES, initial=law)
    found = attack(held, [suppressed(MOMENT, STATES, HIDDEN)], len(MOMENT))
    return float(found.after[1, STATES.index("clinic")])
