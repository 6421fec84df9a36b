"""From events and an amount to the program that keeps every belief within bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.events.automaton import Automaton, compile_events
from shoal.events.filter import Bound, Program, track_of
from shoal.events.law import PathLaw, priors
from shoal.events.secrets import Events


def program_of(
    laws: Sequence[PathLaw],
    secrets: Events,
    amount: Fraction,
    *,
    memory: str = "events",
    mixture: Sequence[float] = (),
) -> Program:
    """The program of `secrets` at `amount` under every law, and under their mixture if weighted.

    With memory "events" the machine sees where the joint automaton of all events stands; with
    "none" only the context, and there is one filter per event, so that their sizes add.
    """
    pairs = list(zip((event for event, _ in secrets.pairs), secrets.against(), strict=True))
    groups = [pairs] if memory == "events" else [[pair] for pair in pairs]
    size, length = len(laws[0].states), laws[0].length
    tracks, joint = [], None
    for group in groups:
        joint = compile_events([event for pair in group for event in pair], laws[0])
        for law, shows in _members(laws, mixture):
            chances = priors(_lifted(joint, shows), law)
            bounds = [
                bound
                for i in range(len(group))
                for bound in _bounds(secrets.change, 2 * i, chances, float(amount), law)
            ]
            tracks.append(track_of(law, joint, bounds, shows))
    blank = Automaton((np.zeros((1, size), np.int64),) * length, np.zeros((1, 0), np.bool_))
    seen = joint if memory == "events" and joint is not None else blank
    return Program(size, tuple(tracks), seen)


def _members(
    laws: Sequence[PathLaw], mixture: Sequence[float]
) -> list[tuple[PathLaw, np.ndarray[tuple[int], np.dtype[np.int64]]]]:
    """Every law with what its states show; and the law that first draws which of them it is.

    Bounds under each member do not cover an adversary who is unsure which holds (priors .1 and .5,
    an output that names the member: no rise under either, .3 to .5 under the mixture).
    """
    own = np.arange(len(laws[0].states))
    found = [(law, own) for law in laws]
    if len(mixture):
        found.append((_mixed(laws, mixture), np.tile(own, len(laws))))
    return found


def _mixed(laws: Sequence[PathLaw], mixture: Sequence[float]) -> PathLaw:
    weights = np.asarray(mixture, dtype=np.float64)
    size = len(laws[0].states)
    share = weights / weights.sum()

    def matrix(slot: int) -> Floats:
        blocks = np.zeros((len(laws) * size,) * 2)
        for i, law in enumerate(laws):
            place = slice(i * size, (i + 1) * size)
            blocks[place, place] = law.matrix(slot)
        return blocks

    initial = np.concatenate([w * law.initial for w, law in zip(share, laws, strict=True)])
    names = tuple(f"{i}: {name}" for i, law in enumerate(laws) for name in law.states)
    return PathLaw(names, initial, matrix, laws[0].length, laws[0].clock)


def _lifted(automaton: Automaton, shows: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Automaton:
    return Automaton(tuple(step[:, shows] for step in automaton.steps), automaton.accept)


def _bounds(change: str, place: int, chances: Floats, amount: float, law: PathLaw) -> list[Bound]:
    """The bounds on the events `place` (E) and `place + 1` (E'), rounded against the promise."""
    error = 2.0**-52 * (law.length * (len(law.states) + 2) + 8)
    event, other = float(chances[place]), float(chances[place + 1])
    if change == "odds":
        if event <= 0 or other <= 0:
            raise InputError(
                "an event, or what it is hidden against, is too unlikely for a double under the "
                "model; leave it out"
            )
        factor = math.exp(amount) * (1 - 2 * error)
        return [
            Bound(place, place + 1, factor * event / other),
            Bound(place + 1, place, factor * other / event),
        ]
    most = event * (1 - error) + amount * (1 - error)
    least = event * (1 + error) - amount * (1 - error)
    found = [Bound(place, None, most)] if most < 1 else []
    if change == "rise-and-fall" and least > 0:
        found.append(Bound(None, place, (1 - error) / least))
    return found
