"""One output of a whole day, and what it makes an adversary believe: by running the machine.

Nothing of what found the output is used. The machine is stepped through it with every context that
each slot may hold, its probabilities are found by asking, and beliefs come from forward and
backward masses of (machine state, context), in logarithms.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from shoal.contexts.audit.gap import (
    HALF_ULP,
    log_sum,
)
from shoal.contexts.audit.sweep import (
    COARSE,
    FINE,
    ConstantRng,
)
from shoal.contexts.day import DayChain
from shoal.core.codec import Floats, Ints
from shoal.core.plan import Machine

Output = tuple[str | None, ...]


class WitnessedDay(NamedTuple):
    """A whole output, P(X_t = j | output), and a bound on the relative error of that."""

    output: Output
    beliefs: Floats
    error: float


# log P(output | machine state, context) of one slot, and the machine's state after it as a number
# among those of the next slot, -1 where the output is impossible
OutputSlot = tuple[Floats, Ints]


def complete_witness(day: DayChain, machine: Machine, begun: Output) -> WitnessedDay | None:
    """Return the beliefs after an output that begins with `begun`; likely slots complete it.

    None when the machine cannot give such an output.

    Forward: a[t](m, j) = P(outputs before t, machine in m, X_t = j); backward b[t](m, j) =
    P(outputs from t on | m, X_t = j); the belief in j is Σ_m a·b over their sum.
    """
    with np.errstate(divide="ignore"):
        law, moves = np.log(day.initial)[None, :], np.log(day.transition)
    states: list[Any] = [machine.init()]
    forward, slots, output = [law], [], []
    for t in range(day.slots):
        pairs = [(m, j) for m, j in np.argwhere(np.isfinite(law)).tolist()]
        suppression = np.ones(law.shape)
        for m, j in pairs:
            suppression[m, j] = suppression_chance(machine, states[m], day.states[j])
        output_now = begun[t] if t < len(begun) else _likeliest(suppression, law, day.states)
        word = ConstantRng(0 if output_now is None else FINE - 1)
        chance, after = np.full(law.shape, -np.inf), np.full(law.shape, -1, dtype=np.int64)
        found: dict[Any, int] = {}
        for m, j in pairs:
            likely = suppression[m, j] if output_now is None else 1 - suppression[m, j]
            if likely > 0 and output_now in (None, day.states[j]):
                state = machine.step(states[m], day.states[j], word)[0]
                chance[m, j], after[m, j] = np.log(likely), found.setdefault(state, len(found))
        if not found:
            return None
        states = list(found)
        output.append(output_now)
        slots.append((chance, after))
        if t + 1 < day.slots:
            law = _advance_masses(law + chance, after, len(states), moves[t])
            forward.append(law)
    beliefs = _smooth_beliefs(forward, slots, moves)
    sizes = [np.abs(part[np.isfinite(part)]).max(initial=0.0) for part in (*forward, moves)]
    terms = day.size * max(len(law) for law in forward)
    error = 1.01 * day.slots * HALF_ULP * (4 * terms + 40 + 16 * max(sizes))
    return WitnessedDay(tuple(output), beliefs, float(error))


def _advance_masses(masses: Floats, after: Ints, count: int, moves: Floats) -> Floats:
    """Return log masses of the next slot by machine state, scaled so that the largest is 0."""
    law = np.full((count, len(moves)), -np.inf)
    for state in range(count):
        rows, contexts = np.nonzero(after == state)
        law[state] = log_sum(masses[rows, contexts][:, None] + moves[contexts])
    return np.asarray(law - law.max())


def _smooth_beliefs(forward: list[Floats], slots: list[OutputSlot], moves: Floats) -> Floats:
    """Return P(X_t = j | output), (slots, contexts), by a backward pass over `slots`."""
    beliefs = np.zeros((len(slots), forward[0].shape[1]))
    onward = slots[-1][0]
    for t in range(len(slots) - 1, -1, -1):
        if t + 1 < len(slots):
            chance, after = slots[t]
            later = log_sum((moves[t][None, :, :] + onward[:, None, :]).transpose(2, 0, 1))
            onward = chance + later[np.maximum(after, 0), np.arange(later.shape[1])[None, :]]
            onward = onward - onward.max()
        joint = forward[t] + onward
        parts = np.exp(joint - joint.max()).sum(axis=0)
        beliefs[t] = parts / parts.sum()
    return beliefs


def _likeliest(suppression: Floats, law: Floats, names: tuple[str, ...]) -> str | None:
    """Return the likeliest context of a slot, or None where suppression is likelier."""
    masses = np.exp(law - law.max())
    released = (masses * (1 - suppression)).sum(axis=0)
    best = int(np.argmax(released))
    return names[best] if released[best] > (masses * suppression).sum() else None


def suppression_chance(machine: Machine, state: Any, observed: str) -> float:
    """Return the probability that the machine suppresses `observed` in `state`.

    Machines suppress when the low bits of one random word are below a threshold; the threshold is
    found by asking, and whether it is one of 16 or of 32 bits by asking just above 16.
    """

    def suppresses(word: int) -> bool:
        return machine.step(state, observed, ConstantRng(word))[1] is None

    if not suppresses(0):
        return 0.0
    if suppresses(FINE - 1):
        return 1.0
    below = _threshold(suppresses, COARSE)
    if below < COARSE and suppresses(COARSE):
        return below / COARSE
    return _threshold(suppresses, FINE) / FINE


def _threshold(suppresses: Callable[[int], bool], words: int) -> int:
    """Return the least word that releases; `words` when all suppress."""
    return bisect_left(range(words), True, key=lambda word: not suppresses(word))
