"""One output of a whole day, and what it makes an adversary believe: by running the machine.

Nothing of what found the output is used: the machine is stepped through it with every context
that each slot may hold, its probabilities are found by asking, and beliefs come from forward and
backward masses of (state of the machine, context), in logarithms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from shoal.contexts.audit.facts import HALF_ULP
from shoal.contexts.audit.gap import log_sum
from shoal.contexts.audit.tables import COARSE, FINE, OneWord
from shoal.contexts.day import DayChain
from shoal.core.codec import Floats, Ints
from shoal.core.plan import Machine

Output = tuple[str | None, ...]


class OutputSlot(NamedTuple):
    """One slot of an output: log P(output | machine state, context), and the state after it.

    Rows are the states the machine may be in; `after` counts those of the next slot, -1 where the
    output is impossible.
    """

    chance: Floats
    after: Ints


class WitnessedDay(NamedTuple):
    """A whole output, P(X_t = j | output), and a bound on the relative error of that."""

    output: Output
    beliefs: Floats
    error: float


def told(day: DayChain, machine: Machine, begun: Output) -> WitnessedDay | None:
    """The beliefs after the output that begins with `begun`; its end is filled with likely ones.

    None when the machine cannot give such an output.

    Forward: a[t](m, j) = P(outputs before t, machine in m, X_t = j); backward b[t](m, j) =
    P(outputs from t on | m, X_t = j); the belief in j is Σ_m a·b over their sum.
    """
    with np.errstate(divide="ignore"):
        law, moves = np.log(day.initial)[None, :], np.log(day.transition)
    states: list[Any] = [machine.init()]
    forward, slots, output = [law], [], []
    for t in range(day.slots):
        asked = _Asked(machine, states, day.states, np.isfinite(law))
        shown = begun[t] if t < len(begun) else _likeliest(asked, law, day.states)
        slot, states = asked.slot(shown, day.states)
        if not states:
            return None
        output.append(shown)
        slots.append(slot)
        if t + 1 < day.slots:
            law = _onward(law + slot.chance, slot.after, len(states), moves[t])
            forward.append(law)
    beliefs = _backward(forward, slots, moves)
    sizes = [np.abs(part[np.isfinite(part)]).max(initial=0.0) for part in (*forward, moves)]
    terms = day.size * max(len(law) for law in forward)
    error = 1.01 * day.slots * HALF_ULP * (4 * terms + 40 + 16 * max(sizes))
    return WitnessedDay(tuple(output), beliefs, float(error))


def _onward(masses: Floats, after: Ints, count: int, moves: Floats) -> Floats:
    """Masses of the next slot, their largest 0: log Σ over what leads to each machine state."""
    law = np.full((count, len(moves)), -np.inf)
    for state in range(count):
        rows, contexts = np.nonzero(after == state)
        law[state] = log_sum(masses[rows, contexts][:, None] + moves[contexts])
    return np.asarray(law - law.max())


def _backward(forward: list[Floats], slots: list[OutputSlot], moves: Floats) -> Floats:
    beliefs = np.zeros((len(slots), forward[0].shape[1]))
    onward = slots[-1].chance
    for t in range(len(slots) - 1, -1, -1):
        if t + 1 < len(slots):
            later = log_sum((moves[t][None, :, :] + onward[:, None, :]).transpose(2, 0, 1))
            place = np.maximum(slots[t].after, 0)
            onward = slots[t].chance + later[place, np.arange(later.shape[1])[None, :]]
            onward = onward - onward.max()
        joint = forward[t] + onward
        parts = np.exp(joint - joint.max()).sum(axis=0)
        beliefs[t] = parts / parts.sum()
    return beliefs


class _Asked:
    """What the machine does at one slot, in each of its states, with each possible context."""

    def __init__(
        self, machine: Machine, states: list[Any], names: tuple[str, ...], possible: Any
    ) -> None:
        self.machine, self.states = machine, states
        self.pairs = [(int(m), int(j)) for m, j in np.argwhere(possible)]
        self.hidden = np.full(possible.shape, np.nan)
        for m, j in self.pairs:
            self.hidden[m, j] = hide_chance(machine, states[m], names[j])

    def slot(self, shown: str | None, names: tuple[str, ...]) -> tuple[OutputSlot, list[Any]]:
        """The slot for one output, and the states the machine may be in afterwards."""
        chance = np.full(self.hidden.shape, -np.inf)
        after = np.full(self.hidden.shape, -1, dtype=np.int64)
        found: dict[Any, int] = {}
        for m, j in self.pairs:
            likely = self.hidden[m, j] if shown is None else 1 - self.hidden[m, j]
            if likely > 0 and shown in (None, names[j]):
                word = 0 if shown is None else FINE - 1
                state = self.machine.step(self.states[m], names[j], OneWord(word))[0]
                chance[m, j] = np.log(likely)
                after[m, j] = found.setdefault(state, len(found))
        return OutputSlot(chance, after), list(found)


def _likeliest(asked: _Asked, law: Floats, names: tuple[str, ...]) -> str | None:
    """Nothing, or the context that is likelier than that."""
    masses = np.exp(law - law.max())
    hidden = np.nan_to_num(asked.hidden, nan=1.0)
    shown = (masses * (1 - hidden)).sum(axis=0)
    best = int(np.argmax(shown))
    return names[best] if shown[best] > (masses * hidden).sum() else None


def hide_chance(machine: Machine, state: Any, observed: str) -> float:
    """The probability that the machine shows nothing for `observed` in `state`.

    Machines suppress when the low bits of one random word are below a threshold; the threshold is
    found by asking, and whether it is one of 16 or of 32 bits by asking just above 16.
    """

    def hidden(word: int) -> bool:
        return machine.step(state, observed, OneWord(word))[1] is None

    if not hidden(0):
        return 0.0
    if hidden(FINE - 1):
        return 1.0
    below = _threshold(hidden, COARSE)
    if below < COARSE and hidden(COARSE):
        return below / COARSE
    return _threshold(hidden, FINE) / FINE


def _threshold(hidden: Any, words: int) -> int:
    """The least word that is not hidden; `words` when all are."""
    low, high = 0, words
    while low < high:
        middle = (low + high) // 2
        if hidden(middle):
            low = middle + 1
        else:
            high = middle
    return low
