"""A weak adversary who learns a chain from what is released of it, day after day.

The paper's second learning challenge (LC2): somebody who begins with frequencies and has only the
outputs to learn from. Götz, Nath & Gehrke 2012, Section 6.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from shoal.attacks.bayes import attack
from shoal.attacks.contexts import Output, run, suppression_after
from shoal.attacks.seen import suppressed
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.value import Floats
from shoal.mechanisms.mask_machine_history import HistoryMask
from shoal.mechanisms.mask_members import in_order, members_in
from shoal.mechanisms.mask_task import days_of, machine_states, rise_of
from shoal.models.chain import MarkovChain
from shoal.models.day import DayChain
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
    paths = np.array([chain.sample(DAY, rng) for _ in range(max(days, default=0))], np.int64)
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


def rises_while_learning(
    plan: Plan, days: Sequence[int], seed: int, *, truth: int = 0
) -> list[tuple[float, float]]:
    """The highest rise of a belief after so many days of watching, as believed and in truth.

    The adversary begins with the frequencies of the chain `truth` of the family, slots taken for
    independent, watches days of the plan's outputs and fits a chain to them. The first number of
    each pair is LC2's: belief after an output less belief before it, both by the chain fitted so
    far. It is not bounded by the promise until the fitted chain is the true one; the second
    number, that of the true chain, is. Publishing the chain makes the two the same at once.
    """
    names = plan.task.query.states
    day = members_in(plan.task, names)[truth]
    rng = SeededRng(seed)
    outputs = [
        run(plan, [names[i] for i in day.sample(rng)], rng) for _ in range(max(days, default=0))
    ]
    known = rise_of(replace(plan.task, family=(day,)), plan.guarantee.amount, plan.body)
    found = []
    for count in days:
        held = learned_day(plan, outputs[:count], day.without_memory())
        task = replace(plan.task, family=(held,))
        found.append((rise_of(task, plan.guarantee.amount, plan.body), known))
    return found


def learned_day(plan: Plan, outputs: Sequence[Output], start: DayChain) -> DayChain:
    """The day chain that fits outputs of a plan, by expectation and maximisation from `start`.

    One day of `start` is counted in, so that nothing is ruled out for want of data; the first slot
    keeps its law. Plans whose suppression depends on hidden visits are refused: an observer
    cannot tell their probabilities.
    """
    if isinstance(plan.body, HistoryMask):
        raise Refused(f"nobody can follow {plan.mechanism} from outside; learn from another check")
    order = machine_states(plan.body)
    held = in_order(start, order)
    laws = held.marginals()
    prior = laws[:-1, :, None] * held.transition
    likelihood = np.array([_likelihood(plan, output) for output in outputs])
    matrices = held.transition
    for _ in range(ROUNDS if len(likelihood) else 0):
        counts = prior + expected_steps(likelihood, held.initial, matrices)
        total = counts.sum(axis=2, keepdims=True)
        matrices = np.where(total > 0, counts / np.where(total > 0, total, 1.0), matrices)
    return in_order(replace(held, transition=matrices), start.states)


def expected_steps(likelihood: Floats, initial: Floats, matrices: Floats) -> Floats:
    """Σ over days of P(X_t = x, X_{t+1} = y | shown), (slots - 1, states, states).

    `likelihood` (days, slots, states) is that of what was shown in each slot given its state.
    """
    forward = [_scaled(initial * likelihood[:, 0])]
    for t in range(1, likelihood.shape[1]):
        forward.append(_scaled((forward[-1] @ matrices[t - 1]) * likelihood[:, t]))
    backward = np.ones_like(forward[0])
    total = np.zeros_like(matrices)
    for t in range(likelihood.shape[1] - 2, -1, -1):
        ahead = likelihood[:, t + 1] * backward
        moves = forward[t][:, :, None] * matrices[t] * ahead[:, None, :]
        total[t] = (moves / moves.sum(axis=(1, 2), keepdims=True)).sum(axis=0)
        backward = _scaled(ahead @ matrices[t].T)
    return total


def _likelihood(plan: Plan, output: Output) -> Floats:
    """P(what a slot shows | its state), given what was shown before it, (slots, states)."""
    order = machine_states(plan.body)
    day = days_of(plan.task, plan.guarantee.amount, states=order)[0]
    rows = np.zeros((day.slots, day.size))
    origin, hidden = -1, suppression_after(plan.body, (-1, 0))
    for slot, shown in enumerate(output):
        chance = hidden[slot - origin - 1][0]
        if shown is None:
            rows[slot] = chance
        else:
            place = order.index(shown)
            rows[slot, place] = 1.0 - chance[place]
            origin, hidden = slot, suppression_after(plan.body, (slot, place))
    return rows


def _scaled(rows: Floats) -> Floats:
    total = rows.sum(axis=1, keepdims=True)
    if not (total > 0).all():
        raise InputError("a day that was shown is impossible under the chain to begin with")
    return np.asarray(rows / total)


def _belief(transition: Floats, law: Floats) -> float:
    held = MarkovChain.of(transition, states=STATES, initial=law)
    found = attack(held, [suppressed(MOMENT, STATES, HIDDEN)], len(MOMENT))
    return float(found.after[1, STATES.index("clinic")])
