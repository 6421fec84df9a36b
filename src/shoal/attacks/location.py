"""The strongest adversary against a stream of places: beliefs, best guesses, likeliest path."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from shoal.attacks.beliefs import Beliefs
from shoal.attacks.hidden_walk import follow, likeliest, on_states
from shoal.attacks.location_errors import LocationErrors, errors_of
from shoal.attacks.location_odds import Joined, OddsOverTime, joined_at, odds_for, odds_of
from shoal.core.errors import InputError, Refused
from shoal.core.plan import Plan
from shoal.core.task import Model
from shoal.core.value import Floats, Ints
from shoal.mechanisms.location_machine import LocationMachine
from shoal.mechanisms.location_task import machine_of
from shoal.models.filter import Motion, motion_of

MOST_CELLS = 20_000_000  # steps × hidden states: six tables of 160 MB

Outputs = Sequence[Sequence[int] | None]
By = Literal["own", "past", "all"]
Knowing = Literal["nothing", "past", "all"]


@dataclass(frozen=True, slots=True, eq=False)
class LocationBeliefs:
    """What somebody believes about the place at each step, as log-laws (steps, states).

    `log_before` knows the chain alone, `log_predicted` also the outputs before the step,
    `log_filtered` its own output too, `log_smoothed` the outputs after it as well. `path` is the
    likeliest whole path, by state; `values` the answers of the states, in `unit`.
    `joined` says whom each step's promise is about. `about_now` and `about_all` are the stream's
    own bounds, under the plan's chain, on what the outputs up to a step tell between any two
    states, and any two whole paths.
    """

    states: tuple[str, ...]
    values: Floats
    unit: str
    log_before: Floats
    log_predicted: Floats
    log_filtered: Floats
    log_smoothed: Floats
    log_evidence: float
    path: Ints
    joined: tuple[Joined, ...]
    about_now: Floats
    about_all: Floats

    @property
    def before(self) -> Floats:
        """P(state at each step), by the chain alone."""
        return _plain(self.log_before)

    @property
    def filtered(self) -> Beliefs:
        """Before and after the outputs up to each step: the belief as the stream goes on."""
        return Beliefs(self.states, self.before, _plain(self.log_filtered), self.log_evidence)

    @property
    def smoothed(self) -> Beliefs:
        """Before and after all outputs, also those that came later."""
        return Beliefs(self.states, self.before, _plain(self.log_smoothed), self.log_evidence)

    @property
    def trajectory(self) -> tuple[str, ...]:
        """The names of the likeliest whole path."""
        return tuple(self.states[place] for place in self.path)

    def errors(self, truth: Sequence[int | None], by: Knowing = "all") -> LocationErrors:
        """How far the best guesses of somebody are from `truth`, and other measures of privacy.

        `truth` holds the true state of each step, None where it is not known; `by` says what the
        guesses are made from: the chain alone ("nothing"), the outputs up to a step ("past"), all.
        """
        logs = {
            "nothing": self.log_before,
            "past": self.log_filtered,
            "all": self.log_smoothed,
        }
        return errors_of(_plain(logs[by]), self.values, truth)

    def odds(self, by: By = "all", *, truth: Sequence[int | None] | None = None) -> OddsOverTime:
        """How far odds changed at each step: by its own output, by all up to it, or by all.

        The plan promises something about the step's own output and joined states. With `truth`,
        the true state of each step (None: unknown), only odds against it are looked at.
        """
        before = self.log_predicted if by == "own" else self.log_before
        after = self.log_smoothed if by == "all" else self.log_filtered
        if truth is None:
            return odds_of(before, after, self.joined)
        return odds_for(before, after, self.joined, truth)


def attack_locations(
    plan: Plan,
    outputs: Outputs,
    *,
    start: Any = None,
    adversary: Model | None = None,
    others: Sequence[tuple[Plan, Outputs]] = (),
) -> LocationBeliefs:
    """What somebody who holds a chain believes after seeing a location plan's `outputs`.

    `outputs` are the whole lattice steps z of each release, None where a step was skipped or
    nothing was released; `start` is a first place that everybody knew. Exact, by Bayes: the stages
    (who is protected, how noise is shaped) are followed from the outputs as the stream does, then
    forward, backward and best-path passes run over the adversary's chain.
    `adversary` is that chain, by default the plan's; it may give states other laws, know fewer
    states, remember more steps, or (`dataclasses.replace(chain, initial=…)`) begin elsewhere.
    `others` are plans that answered at the same steps (`LocationStream.ask`) and their outputs.
    """
    machine = machine_of(plan)
    if not outputs:
        raise InputError("outputs is empty; give the outputs of at least one step")
    held = Held.of(machine, adversary, start, len(outputs))
    seen = _replayed(machine, _columns(machine, outputs, others), start)
    motion, first, places = held.motion, held.first, held.places
    rows = np.stack([seen.rows[t, places][motion.at(first + t)] for t in range(len(outputs))])
    found = follow(motion, held.begin, first, rows)
    best = likeliest(motion, held.begin, first, rows)
    shown = np.array([motion.at(first + t)[h] for t, h in enumerate(best)])
    before, predicted, filtered, smoothed = (
        _spread(on_states(motion, first, logs), places, len(machine.query.states))
        for logs in (found.before, found.predicted, found.filtered, found.smoothed)
    )
    return LocationBeliefs(
        states=machine.query.states,
        values=machine.query.values,
        unit=machine.query.unit,
        log_before=before,
        log_predicted=predicted,
        log_filtered=filtered,
        log_smoothed=smoothed,
        log_evidence=found.evidence,
        path=places[shown],
        joined=seen.joined,
        about_now=seen.about_now,
        about_all=seen.about_all,
    )


class Held(NamedTuple):
    """The chain an adversary holds: its motion, and which states of the plan its states are.

    `begin` is the log-law of its hidden states at the start, `first` the time of the first step.
    """

    motion: Motion
    places: Ints
    begin: Floats
    first: int

    @classmethod
    def of(cls, machine: LocationMachine, adversary: Model | None, start: Any, steps: int) -> Held:
        """The adversary's chain, or the machine's own; refused when it cannot follow the stream."""
        chain = machine.chain if adversary is None else adversary
        motion = machine.runtime.motion if adversary is None else motion_of(chain)
        if steps * motion.hidden > MOST_CELLS:
            raise Refused(
                f"{steps} steps over {motion.hidden} hidden states are too many to be attacked at "
                f"once (at most {MOST_CELLS} of both); attack a shorter stretch"
            )
        index = {name: place for place, name in enumerate(machine.query.states)}
        unknown = [name for name in chain.states or () if name not in index]
        if unknown:
            raise InputError(
                f"adversary knows a state {unknown[0]!r} that the plan does not; give a chain on "
                "the plan's states, or on some of them"
            )
        places = np.array([index[name] for name in chain.states or ()], dtype=np.int64)
        begin = motion.begin()
        if start is not None:
            begin = _known(machine, motion, places, start)
        with np.errstate(divide="ignore"):
            return cls(motion, places, np.log(begin), 0 if start is None else 1)


class Replayed(NamedTuple):
    """A stream followed again from its outputs: likelihoods, joined states, its own bounds."""

    rows: Floats
    joined: tuple[Joined, ...]
    about_now: Floats
    about_all: Floats


Column = tuple[LocationMachine, Outputs]


def _columns(
    machine: LocationMachine, outputs: Outputs, others: Sequence[tuple[Plan, Outputs]]
) -> list[Column]:
    """The machines that answered, this one first, each with its outputs."""
    columns: list[Column] = [(machine, outputs)]
    columns += [(machine_of(plan), answers) for plan, answers in others]
    for other, answers in columns:
        if (other.chain, other.places) != (machine.chain, machine.places):
            raise InputError("the plans have different models or policies; one step needs one")
        if len(answers) != len(outputs):
            raise InputError(f"others has {len(answers)} outputs; there are {len(outputs)} steps")
        for step, z in enumerate(answers):
            if z is not None and len(z) != other.query.dimension:
                raise InputError(
                    f"outputs has {len(z)} numbers at step {step + 1}; the query has "
                    f"{other.query.dimension}"
                )
    return columns


def _replayed(machine: LocationMachine, columns: list[Column], start: Any) -> Replayed:
    """The stream step by step, as it went on after each output."""
    state, steps = machine.init(start), len(columns[0][1])
    rows = np.zeros((steps, len(machine.query.states)))
    bounds = np.zeros((2, steps))
    joined: list[Joined] = []
    for t in range(steps):
        stage = machine.scene(state).stage
        joined.append(joined_at(machine.places, stage, joined[-1] if joined else None))
        given = [(other, z) for other, answers in columns if (z := answers[t]) is not None]
        for other, z in given:
            own = stage if other is machine else other.runtime.stage(stage.members)
            rows[t] += own.law.log_likelihood(z)
        state, _ = machine.absorb(state, given)
        bounds[:, t] = state.about_now, state.about_all
    return Replayed(rows, tuple(joined), bounds[0], bounds[1])


def _known(machine: LocationMachine, motion: Motion, places: Ints, start: Any) -> Floats:
    """Certainty about the first place; `machine.init` refuses a memory it cannot fill."""
    if motion.memory > 1:
        raise InputError("start is given, but the adversary's chain has a longer memory; drop it")
    here = places == machine.runtime.atlas.state_of(start)
    if not here.any():
        raise InputError(f"start is {start!r}, which is not a state of the adversary's chain")
    return np.asarray(here, dtype=np.float64)


def _spread(logs: Floats, places: Ints, size: int) -> Floats:
    """Log-laws over the plan's states, -inf for those the adversary does not know."""
    found = np.full((len(logs), size), -math.inf)
    found[:, places] = logs
    return found


def _plain(logs: Floats) -> Floats:
    with np.errstate(under="ignore"):
        return np.asarray(np.exp(logs))
