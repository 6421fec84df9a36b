"""What the rest of a day can be worth: cuts, found by sampling, and the bound they prove.

V_t(f), the most releases from slot t on when f is the law of (automaton, state) there, is concave
and homogeneous (Theorem 2 of mask_online.md). A cut is c with V_t(f) ≤ ⟨c, f⟩ for every f; any
multipliers ≥ 0 of the stage's rows give one, so that no solver has to be believed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.progress import time_over
from shoal.events.automaton import began, moved
from shoal.events.filter import Held, Program, chances, maximise, slot_program

# of the unconditional law in sampled ones, in turn: much for cuts that are tight off the path,
# little for cuts that are tight on it, where values have kinks
MIXED = (0.02, 1e-3, 1e-5)
EXPLORED = 0.4  # of the outputs of every second history are taken at random
MOST_CUTS = 24  # cuts of one slot


def future_of(program: Program, cuts: Sequence[Floats]) -> Program:
    """The program with what the future is worth by these cuts, (cuts, q, x) for each slot."""
    if not cuts:
        return program
    track = program.tracks[0]
    for slot, cut in enumerate(cuts):
        shape = (track.automaton.sizes[slot + 1], len(track.shows))
        if cut.ndim != 3 or cut.shape[1:] != shape or not np.isfinite(cut).all():
            raise InputError(f"cuts of slot {slot} have shape {cut.shape}; each must be {shape}")
    return replace(program, future=_futures(program, [list(cut) for cut in cuts]))


def improved(program: Program, rounds: int, seed: int = 1) -> tuple[tuple[Floats, ...], float]:
    """Cuts for every slot, and the most any causal mechanism can show.

    Each round follows one random history of outputs and adds a cut at every slot of it, from the
    last. The bound is for the first law alone, which bounds what a family can show under it.
    """
    alone = replace(program, tracks=program.tracks[:1], future=())
    rng = np.random.default_rng(seed)
    cuts: list[list[Floats]] = [[_trivial(alone, slot)] for slot in range(alone.slots)]
    laws = _unconditional(alone)
    found = replace(alone, future=_futures(alone, cuts))
    for turn in range(rounds):
        if time_over():  # what is found by then holds, and is less tight than it might be
            break
        path = [held for held, *_ in histories(found, rng, EXPLORED * (turn % 2))]
        for slot in range(alone.slots - 1, -1, -1):
            seen = _mixed(path[slot], laws[slot], MIXED[turn % len(MIXED)])
            cuts[slot] = [*cuts[slot][-MOST_CUTS + 1 :], _cut(found, seen, slot)]
            if slot:
                future = _future(alone, cuts[slot], slot - 1)
                every = (*found.future[: slot - 1], future, *found.future[slot:])
                found = replace(found, future=every)
    most = min(float((cut * laws[0]).sum()) for cut in cuts[0])
    kept = tuple(np.array(several) for several in cuts)
    return kept, min(most * (1 + 1e-9), float(alone.slots))


def _trivial(program: Program, slot: int) -> Floats:
    """Every slot that is left is shown."""
    track = program.tracks[0]
    shape = (track.automaton.sizes[slot + 1], len(track.shows))
    return np.full(shape, float(program.slots - slot))


def _unconditional(program: Program) -> list[Floats]:
    """Return the law of (automaton, state) at each slot if every slot is suppressed."""
    track = program.tracks[0]
    laws = [began(track.law.initial, track.automaton)]
    for slot in range(1, program.slots):
        laws.append(moved(laws[-1], track.law.matrix(slot - 1), track.automaton, slot))
    return laws


def _future(program: Program, cuts: list[Floats], slot: int) -> Floats:
    """(cuts, q, x): the mean of each cut of the next slot, seen from this one."""
    track = program.tracks[0]
    step, columns = track.automaton.steps[slot + 1], np.arange(len(track.shows))
    matrix = track.law.matrix(slot)
    return np.array([cut[step, columns] @ matrix.T for cut in cuts])


def _futures(program: Program, cuts: list[list[Floats]]) -> tuple[Floats | None, ...]:
    inner = [_future(program, cuts[slot + 1], slot) for slot in range(program.slots - 1)]
    return (*inner, None)


def histories(
    program: Program, rng: np.random.Generator, explored: float = 0.0
) -> Iterator[tuple[Held, Floats, int]]:
    """The belief before each output, the chances of each and what came, drawn as the machine draws.

    The last output is silence. With chance `explored` one that is possible is taken at random.
    """
    held = program.begin()
    for slot in range(program.slots):
        held = program.arrive(held, slot, read=True)
        codes = program.allowed(held, slot)
        chance = chances(program, held, codes)
        law = (1 - explored) * chance / chance.sum() + explored * (chance > 0) / (chance > 0).sum()
        output = int(rng.choice(len(chance), p=law / law.sum()))
        yield held[0], chance, output
        held = program.after(held, codes, None if output == program.size else output)


def _mixed(held: Held, law: Floats, share: float) -> Held:
    """The belief with a little of the unconditional law in it; memory and automaton are equal."""
    mass = np.zeros_like(law)
    mass[held.pairs[:, 0]] = held.mass
    size = len(law)
    return Held(
        np.stack([np.arange(size), np.arange(size)], axis=1),
        (1 - share) * mass + share * law,
        law > 0,
    )


def _cut(program: Program, held: Held, slot: int) -> Floats:
    """c[q, x] = max(shown, hidden): the value of each (q, x) under the multipliers at `held`.

    With multipliers l ≥ 0 of the bounds and m ≥ 0, adding up to 1 over the cuts of each output,
    the value of the stage at any f is at most the sum over (q, x) of f·max(g_show, g_hide), where
    g = [shown] + sum of m·future - sum of l·(over - under): see mask_online.md.
    """
    track, future = program.tracks[0], program.future[slot]
    table = program.table(track, held, slot)
    worth = None if future is None else program.worth(held, future, slot)
    stage = slot_program([table], worth)
    solved = maximise(stage.gain, stage.rows, stage.limits, stage.most)
    prices = solved.multipliers / stage.scales
    gaps = track.over[slot] - track.under[slot]
    size = program.size
    shares = np.zeros((size + 1, 0 if future is None else len(future)))
    values = np.zeros((size + 1, *gaps.shape[1:]))  # of each output, at each (q, x); last: silence
    values[:size] = 1.0
    for (table_of, which, x), price in zip(stage.labels.tolist(), prices, strict=True):
        if table_of >= 0:
            values[x] -= price * gaps[which]
        else:
            shares[x, which] += price
    if future is not None:
        for x in range(size + 1):
            values[x] += np.tensordot(_weights(shares[x], future), future, axes=1)
    shown = np.take_along_axis(values[:size], track.shows[None, None, :], axis=0)[0]
    return np.asarray(np.maximum(shown, values[size]))


def _weights(prices: Floats, future: Floats) -> Floats:
    """Prices that add up to 1; all on the least cut where the output does not come up."""
    total = prices.sum()
    if total > 0:
        return np.asarray(prices / total)
    return np.asarray(np.arange(len(future)) == future.sum(axis=(1, 2)).argmin(), dtype=np.float64)
