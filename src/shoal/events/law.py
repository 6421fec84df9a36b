"""What a chain says of events: the law of (state, automaton), beliefs in each event, priors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from shoal.core.codec import Bools, Floats
from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.events.automaton import Automaton
from shoal.events.window import SlotClock


@dataclass(frozen=True, slots=True)
class PathLaw:
    """X_0 … X_{length-1}: a first law, and the matrix from slot t to slot t + 1."""

    states: tuple[str, ...]
    initial: Floats
    matrix: Callable[[int], Any]  # (n, n), dense or sparse
    length: int
    clock: SlotClock | None = None


def law_of(model: Any, *, length: int | None = None) -> PathLaw:
    """The law of a model's path: of a chain, a day, or a sparse chain of places.

    `length` shortens a chain of one matrix, and is needed where the model leaves it open.
    """
    initial = getattr(model, "initial", None)
    if initial is None or not (hasattr(model, "transition") or hasattr(model, "matrix")):
        words = model.describe() if hasattr(model, "describe") else repr(model)
        raise InputError(f"events need a chain with a law of its first slot, not {words}")
    transition = getattr(model, "transition", None)
    slots = _slots(model, length)
    if transition is None:
        rows = model.matrix()
        return PathLaw(model.states, initial, lambda _: rows, slots)
    if transition.ndim == 2:
        return PathLaw(model.states, initial, lambda _: transition, slots)
    minutes = getattr(model, "slot_minutes", 0)
    clock = SlotClock(minutes, model.start_minute) if minutes else None
    return PathLaw(model.states, initial, lambda t: transition[t], slots, clock)


def _slots(model: Any, length: int | None) -> int:
    own: int | None = getattr(model, "slots", None) or getattr(model, "length", None)
    asked = own if length is None else whole(length, "length")
    if asked is None:
        raise InputError(
            f"the model is {model.describe()}; an event needs a length (give the chain one)"
        )
    if own is not None and asked > own:
        raise InputError(f"length is {asked}; the model covers at most {own} slots")
    return asked


def beliefs(automaton: Automaton, law: PathLaw) -> list[Floats]:
    """beta[t][e, q, x] = P(event e | X_t = x, automaton at q after slot t), for every slot t.

    beta_T = accept, beta_t(q, x) = sum over y of P_t(x, y) beta_{t+1}(step_{t+1}(q, y), y).
    """
    columns = np.arange(len(law.states))
    accept = automaton.accept.T.astype(np.float64)
    found = [np.repeat(accept[:, :, None], len(columns), axis=2)]
    for t in range(law.length - 2, -1, -1):
        after = found[-1][:, automaton.steps[t + 1], columns]  # (events, q, y)
        matrix = law.matrix(t)
        found.append(np.stack([np.asarray((matrix @ rows.T).T) for rows in after]))
    return found[::-1]


def priors(automaton: Automaton, law: PathLaw) -> Floats:
    """P(event e) for each event."""
    columns = np.arange(len(law.states))
    first = beliefs(automaton, law)[0][:, automaton.steps[0][0], columns]
    return np.asarray(first @ law.initial)


def began(initial: Any, automaton: Automaton) -> Floats:
    """law[q, x] = P(X_0 = x, automaton at q after slot 0)."""
    return _entered(np.asarray(initial, np.float64)[None, :], automaton, 0)


def moved(law: Floats, matrix: Any, automaton: Automaton, slot: int) -> Floats:
    """The law of (q, x) after slot `slot`, from that after the slot before; `law` is (…, q, x)."""
    if law.ndim == 2:
        return _entered(np.asarray(law @ matrix), automaton, slot)
    return np.stack([moved(one, matrix, automaton, slot) for one in law])


def _entered(arriving: Floats, automaton: Automaton, slot: int) -> Floats:
    """Mass at (q before the slot, x) brought to (q after it, x)."""
    step = automaton.steps[slot]
    law = np.zeros((automaton.sizes[slot + 1], arriving.shape[1]))
    np.add.at(law, (step, np.broadcast_to(np.arange(arriving.shape[1]), step.shape)), arriving)
    return law


def reached(automaton: Automaton, law: PathLaw) -> list[Bools]:
    """Which (q, x) can be met after each slot; followed as booleans, so underflow hides nothing."""
    found = [began(law.initial > 0, automaton) > 0]
    for t in range(1, law.length):
        support = law.matrix(t - 1) > 0
        found.append(moved(found[-1].astype(np.float64), support, automaton, t) > 0)
    return found


def possible(automaton: Automaton, law: PathLaw) -> tuple[Bools, Bools]:
    """For each event whether it can happen, and whether it can fail to; by supports."""
    ends = reached(automaton, law)[-1].any(axis=1)
    held = automaton.accept[ends]
    return np.asarray(held.any(axis=0)), np.asarray((~held).any(axis=0))
