"""What a suppression machine does after each release, read from what is stored of it.

Every machine decides by the slot, the context of that slot and the last release; one of them for
some slots also by a number that the contexts since spell. Here their tables are read in the
auditor's own words, and the machine itself is asked whether it does what they say.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.contexts.audit.gap import HALF_ULP, log_sum
from shoal.contexts.day import DayChain
from shoal.contexts.machine import HistoryMask, MaskState, SegmentMask, SimulatableMask, VectorMask
from shoal.core.codec import Floats, Ints
from shoal.core.plan import Machine

COARSE, FINE = 2**16, 2**32  # words a machine tells apart: it looks at 16 or at 32 bits
MOST_ASKED = 6_000  # decisions asked of the machine itself


class Window(NamedTuple):
    """The first slots after a release, where histories count: `hidden[k][h, j]`, and the digits.

    A visit to context j turns history h into h · base + digits[j].
    """

    hidden: tuple[Floats, ...]
    digits: Ints
    base: int


class Tables:
    """Suppression after a release: all of it, unless a kind of machine says otherwise below.

    Releases are arrays of slots (-1 is "start") and contexts, in the order of `states`.
    """

    def __init__(self, body: Any, states: tuple[str, ...], slots: int) -> None:
        self.body, self.states, self.slots, self.size = body, states, slots, len(states)
        self.digits: Ints = np.zeros(self.size, dtype=np.int64)  # of a visit in a history

    def hidden(self, slot: int, origins: Ints, contexts: Ints) -> Floats:
        """P(nothing is shown | last release, context) at `slot`, (contexts, releases)."""
        raise NotImplementedError

    def last(self, origins: Ints, contexts: Ints) -> Ints:
        """A slot after which nothing can be shown any more, for each release."""
        raise NotImplementedError

    def window(self, origin: int, context: int) -> Window | None:
        """The slots in which histories count; None when there are none."""
        return None

    def histories(self) -> int:
        """How many decisions depend on a history."""
        return 0

    def after(self, origin: int, context: int) -> list[Floats]:
        """P(nothing is shown) at each slot after one release, (histories, contexts)."""
        window = self.window(origin, context)
        found = [] if window is None else list(window.hidden)
        release = np.array([origin]), np.array([context])
        later = range(origin + 1 + len(found), self.slots)
        return found + [self.hidden(slot, *release).T for slot in later]


class VectorTables(Tables):
    """The same probabilities whatever was released."""

    def __init__(self, body: VectorMask) -> None:
        super().__init__(body, body.states, len(body.codes))
        self.chances = np.ascontiguousarray(coarse(body.codes).T)
        shown = np.flatnonzero((self.chances < 1).any(axis=0))
        self.end = int(shown[-1]) if len(shown) else -1

    def hidden(self, slot: int, origins: Ints, contexts: Ints) -> Floats:
        return np.broadcast_to(self.chances[:, slot, None], (self.size, len(origins)))

    def last(self, origins: Ints, contexts: Ints) -> Ints:
        return np.full(len(origins), self.end)


class SimulatableTables(Tables):
    """Everything is suppressed until the one slot that is due, where what may be shown is."""

    def __init__(self, body: SimulatableMask) -> None:
        super().__init__(body, body.states, len(body.table) - 1)
        self.due = body.table.astype(np.int64)

    def hidden(self, slot: int, origins: Ints, contexts: Ints) -> Floats:
        due = self.due[origins + 1, contexts] == slot
        shown = due[None, :] & (self.due[slot + 1] >= 0)[:, None]
        return np.where(shown, 0.0, 1.0)

    def last(self, origins: Ints, contexts: Ints) -> Ints:
        due = self.due[origins + 1, contexts]
        return np.asarray(np.where(due < self.slots, due, -1))


class SegmentTables(Tables):
    """A table of its own after each release that is listed; all is suppressed after others."""

    def __init__(self, body: SegmentMask) -> None:
        super().__init__(body, body.states, body.slots)
        shape = (self.slots + 1, self.size)
        self.codes = body.codes if body.codes.size else np.zeros(1, dtype=np.uint16)
        self.first, self.end = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
        origins = body.origins.astype(np.int64)
        self.first[origins[:, 0] + 1, origins[:, 1]] = body.starts[:-1]
        self.end[origins[:, 0] + 1, origins[:, 1]] = body.starts[1:]
        self.chances = coarse(np.arange(COARSE))

    def hidden(self, slot: int, origins: Ints, contexts: Ints) -> Floats:
        row = self.first[origins + 1, contexts] + (slot - origins - 1) * self.size
        place = row[None, :] + np.arange(self.size)[:, None]
        inside = place < self.end[origins + 1, contexts][None, :]
        chances = self.chances[self.codes[np.where(inside, place, 0)]]
        return np.asarray(np.where(inside, chances, 1.0))

    def last(self, origins: Ints, contexts: Ints) -> Ints:
        begin, end = self.first[origins + 1, contexts], self.end[origins + 1, contexts]
        return origins + -(-(end - begin) // self.size)


class HistoryTables(SegmentTables):
    """As `SegmentTables`, with a window after some releases in which histories count."""

    def __init__(self, body: HistoryMask) -> None:
        super().__init__(body.tail)
        self.body = body
        self.digits, self.base = body.digits, int(body.digits.max()) + 1
        places = zip(body.starts.tolist(), body.windows.tolist(), strict=False)
        self.windows = dict(zip(map(tuple, body.origins.tolist()), places, strict=True))

    def window(self, origin: int, context: int) -> Window | None:
        begin, length = self.windows.get((origin, context), (0, 0))
        if not length:
            return None
        tables = []
        for visits in range(length):
            rows = self.base**visits
            codes = self.body.codes[begin : begin + rows * self.size]
            tables.append(fine(codes).reshape(rows, self.size))
            begin += rows * self.size
        return Window(tuple(tables), self.digits, self.base)

    def histories(self) -> int:
        return int(self.body.codes.size)


READERS: dict[type, Any] = {
    VectorMask: VectorTables,
    SimulatableMask: SimulatableTables,
    SegmentMask: SegmentTables,
    HistoryMask: HistoryTables,
}


def tables_of(body: Any) -> Tables | None:
    """The tables of a machine; None for a kind that may decide by more than these can say."""
    reader = READERS.get(type(body))
    return None if reader is None else reader(body)


def coarse(codes: npt.NDArray[Any]) -> Floats:
    """k/65536 for a code k; the last code stands for certainty."""
    return np.where(codes == COARSE - 1, 1.0, codes / COARSE)


def fine(codes: npt.NDArray[Any]) -> Floats:
    """k/2^32 for a code k; the last code stands for certainty."""
    return np.where(codes == FINE - 1, 1.0, codes / FINE)


def disagreement(tables: Tables, releases: Ints) -> tuple[str, int, int]:
    """Where the machine does not do what its tables say, or "" ; how often it was asked, of what.

    `releases` are the (slot, context) pairs that can come up. At every decision after them, or at
    MOST_ASKED drawn from all, the machine is stepped just below and just above the word at which it
    should begin to show.
    """
    after = (tables.slots - 1 - releases[:, 0]) * tables.size
    ends, total = np.cumsum(after), int(after.sum())
    rng = np.random.default_rng(0)
    chosen = np.arange(total) if total <= MOST_ASKED else rng.integers(total, size=MOST_ASKED)
    for number in chosen.tolist():
        place = int(np.searchsorted(ends, number, side="right"))
        origin, context = (int(value) for value in releases[place])
        past, now = divmod(number - int(ends[place] - after[place]), tables.size)
        slot = origin + 1 + past
        chance, words, note = _decision(tables, origin, context, slot, now, rng)
        state = MaskState(slot, origin, context, note)
        if not _does(tables, state, tables.states[now], round(chance * words), words):
            words_of = f"{tables.states[now]!r} at slot {slot + 1} with probability {chance:g}"
            return f"the machine does not suppress {words_of}, as its table says", 0, 0
    return "", len(chosen), total + tables.histories()


def _decision(
    tables: Tables, origin: int, context: int, slot: int, now: int, rng: Any
) -> tuple[float, int, int]:
    """The probability of one decision, of how many words it is a part, and the history before."""
    window, past = tables.window(origin, context), slot - origin - 1
    if window is not None and past < len(window.hidden):
        note = int(rng.integers(len(window.hidden[past])))
        return float(window.hidden[past][note, now]), FINE, note
    chance = tables.hidden(slot, np.array([origin]), np.array([context]))[now, 0]
    return float(chance), COARSE, 0


def _does(tables: Tables, state: MaskState, observed: str, level: int, words: int) -> bool:
    """Whether words below `level` hide and others show."""

    def hides(word: int) -> bool:
        return tables.body.step(state, observed, OneWord(word))[1] is None

    below = level == 0 or hides(level - 1)
    return below and (hides(words - 1) if level == words else not hides(level))


class OneWord:
    """Randomness that is always the same word: what a machine does with it can be asked."""

    def __init__(self, word: int) -> None:
        self._word = word

    @property
    def secure(self) -> bool:
        """False: this is for asking, never for releasing."""
        return False

    def words(self, count: int) -> npt.NDArray[np.uint64]:
        """The word, as often as wanted."""
        return np.full(count, self._word, dtype=np.uint64)


# One output of a whole day, and what it makes an adversary believe: by running the machine.
#
# Nothing of what found the output is used: the machine is stepped through it with every context
# that each slot may hold, its probabilities are found by asking, and beliefs come from forward and
# backward masses of (state of the machine, context), in logarithms.


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
