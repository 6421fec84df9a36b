"""An adversary of a stream of places: beliefs from all outputs, guesses, how far off they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from shoal.attacks.beliefs import Beliefs, Privacy, entropy
from shoal.attacks.codes import follow, likeliest, on_states
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.motion import Motion, motion_of
from shoal.core.plan import Plan
from shoal.core.progress import in_time, report_progress
from shoal.core.task import Model
from shoal.places.events import replay
from shoal.places.machine import LocationMachine, machine_of
from shoal.places.queries import remap_answer
from shoal.places.step import Places, StepNoise

MASS_OUT_OF_MEDIAN = 1e-12  # of the likeliest state's mass: states below do not move a median


@dataclass(frozen=True, slots=True, eq=False)
class LocationErrors:
    """Step by step: the best guess, how far off it is believed to be, and how far it is.

    `guesses` (steps, numbers) are the points of least expected distance, `expected` that distance
    as the adversary believes, `distance` the one from the truth. `correctness` is the mean
    distance of the belief from the truth, `bits` its entropy, `right` 1 where the likeliest state
    is the true one and 0 where not, `belief` the mass of the true state. nan at steps whose truth
    is not known. Shokri et al. 2011, Section IV (correctness, certainty, accuracy).
    """

    guesses: Floats
    expected: Floats
    distance: Floats
    correctness: Floats
    bits: Floats
    right: Floats
    belief: Floats

    @property
    def mean(self) -> float:
        """The mean distance of the best guess from the truth."""
        return float(np.nanmean(self.distance))

    def privacy(self) -> Privacy:
        """Means over the steps: of certainty over all, of the others where the truth is known."""
        return Privacy(
            correctness=float(np.nanmean(self.correctness)),
            certainty=float(self.bits.mean()),
            accuracy=float(np.nanmean(self.right)),
        )


def errors_of(laws: Floats, values: Floats, truth: Sequence[int | None]) -> LocationErrors:
    """The errors of somebody who believes `laws` (steps, states) when `truth` is the case.

    `values` are the answers of the states; a step of `truth` is a state, or None for unknown.
    """
    if len(truth) != len(laws):
        raise InputError(f"truth has {len(truth)} steps; the beliefs have {len(laws)}")
    if all(place is None for place in truth):
        raise InputError("truth knows no step; give the true state of at least one")
    found = [best_guess(law, values) for law in laws]
    rows = np.full((4, len(laws)), np.nan)
    for t, place in enumerate(truth):
        if place is None:
            continue
        away = np.sqrt(((values - values[place]) ** 2).sum(axis=1))
        off = np.sqrt(((found[t][0] - values[place]) ** 2).sum())
        rows[:, t] = off, laws[t] @ away, laws[t].argmax() == place, laws[t, place]
    return LocationErrors(
        guesses=np.array([guess for guess, _ in found]),
        expected=np.array([expected for _, expected in found]),
        distance=rows[0],
        correctness=rows[1],
        bits=entropy(laws),
        right=rows[2],
        belief=rows[3],
    )


def best_guess(law: Floats, values: Floats) -> tuple[Floats, float]:
    """argmin over a of Σ p(s) |f(s) - a| with p = law and f = values, and that minimum.

    The geometric median. Iterations reach it slowly where it is the answer of a state, so the
    nearest state's answer is tried as well.
    """
    kept = law > MASS_OUT_OF_MEDIAN * law.max()
    points, weights = values[kept], law[kept]
    median = remap_answer(weights, points, "absolute")[0]
    nearest = points[int(((points - median) ** 2).sum(axis=1).argmin())]
    away = [np.sqrt(((points - guess) ** 2).sum(axis=1)) for guess in (median, nearest)]
    expected = [float(weights @ each) for each in away]
    return min(zip((median, nearest), expected, strict=True), key=lambda one: one[1])


def path_distance(path: Sequence[int], values: Floats, truth: Sequence[int | None]) -> Floats:
    """How far each state of a path is from the truth; nan where that is not known."""
    rows = [
        np.nan if there is None else np.sqrt(((values[here] - values[there]) ** 2).sum())
        for here, there in zip(path, truth, strict=True)
    ]
    return np.array(rows)


# The strongest adversary against a stream of places: beliefs, best guesses, likeliest path.


LARGEST_PASS = 20_000_000  # steps × hidden states: six tables of 160 MB

Outputs = Sequence[Sequence[int] | None]
By = Literal["own", "past", "all"]
Knowing = Literal["nothing", "past", "all"]


@dataclass(frozen=True, slots=True, eq=False)
class LocationBeliefs:
    """What somebody believes about the place at each step, as log-laws (steps, states).

    `log_before` knows the chain alone, `log_predicted` also the outputs before the step,
    `log_filtered` its own output too, `log_smoothed` the outputs after it as well. `path` is the
    likeliest whole path, by state; `values` the answers of the states, in `unit`.
    `joined` says whom each step's promise is about. `loss_here` and `loss_path` are the stream's
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
    loss_here: Floats
    loss_path: Floats

    @property
    def before(self) -> Floats:
        """P(state at each step), by the chain alone."""
        return _exponentials(self.log_before)

    @property
    def filtered(self) -> Beliefs:
        """Before and after the outputs up to each step: the belief as the stream goes on."""
        return Beliefs(
            self.states, self.before, _exponentials(self.log_filtered), self.log_evidence
        )

    @property
    def smoothed(self) -> Beliefs:
        """Before and after all outputs, also those that came later."""
        return Beliefs(
            self.states, self.before, _exponentials(self.log_smoothed), self.log_evidence
        )

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
        return errors_of(_exponentials(logs[by]), self.values, truth)

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
    nothing was released; `start` is a first place that is public. Exact, by Bayes: the stages
    (who is protected, how noise is shaped) are followed from the outputs as the stream does, then
    forward, backward and best-path passes run over the adversary's chain.
    `adversary` is that chain, by default the plan's; it may give states other laws, know fewer
    states, remember more steps, or (`dataclasses.replace(chain, initial=…)`) begin elsewhere.
    `others` are plans that answered at the same steps (`LocationStream.ask`) and their outputs.
    """
    machine = machine_of(plan)
    if not outputs:
        raise InputError("outputs is empty; give the outputs of at least one step")
    held = HeldChain.of(machine, adversary, start, len(outputs))
    seen, joined, bounds = _replay_outputs(machine, _columns(plan, outputs, others, start), start)
    motion, first, places = held.motion, held.first, held.places
    rows = np.stack([seen[t, places][motion.at(first + t)] for t in range(len(outputs))])
    found = follow(motion, held.begin, first, rows)
    best = likeliest(motion, held.begin, first, rows)
    shown = np.array([motion.at(first + t)[h] for t, h in enumerate(best)])
    before, predicted, filtered, smoothed = (
        _extend_to_states(on_states(motion, first, logs), places, len(machine.query.states))
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
        joined=joined,
        loss_here=bounds[0],
        loss_path=bounds[1],
    )


class HeldChain(NamedTuple):
    """The chain an adversary holds: its motion, and which states of the plan its states are.

    `begin` is the log-law of its hidden states at the start, `first` the time of the first step.
    """

    motion: Motion
    places: Ints
    begin: Floats
    first: int

    @classmethod
    def of(
        cls, machine: LocationMachine, adversary: Model | None, start: Any, steps: int
    ) -> HeldChain:
        """The adversary's chain, or the machine's own; refused when it cannot follow the stream."""
        chain = machine.chain if adversary is None else adversary
        motion = machine.runtime.motion if adversary is None else motion_of(chain)
        if steps * motion.hidden > LARGEST_PASS:
            raise Refused(
                f"{steps} steps over {motion.hidden} hidden states are too many to be attacked at "
                f"once (at most {LARGEST_PASS} of both); attack a shorter stretch"
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
            begin = _known_start(machine, motion, places, start)
        with np.errstate(divide="ignore"):
            return cls(motion, places, np.log(begin), 0 if start is None else 1)


Column = tuple[list[LocationMachine], Outputs]  # who drew each output, and the outputs


def _columns(
    plan: Plan, outputs: Outputs, others: Sequence[tuple[Plan, Outputs]], start: Any
) -> list[Column]:
    """The machines that answered, step by step, the plan's own first, each with its outputs."""
    machine, columns = machine_of(plan), list[Column]()
    for asked, answers in [(plan, outputs), *others]:
        other = machine_of(asked)
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
        used = [other] * len(answers)
        if other.watch is not None:  # each at the ε that the events allowed
            used = [step.used for step in replay(asked, answers, start)]
        columns.append((used, answers))
    return columns


def _replay_outputs(
    machine: LocationMachine, columns: list[Column], start: Any
) -> tuple[Floats, tuple[Joined, ...], Floats]:
    """Likelihoods, joined states and the stream's own bounds, as it went on after each output."""
    state, steps = machine.init(start), len(columns[0][1])
    rows = np.zeros((steps, len(machine.query.states)))
    bounds = np.zeros((2, steps))
    joined: list[Joined] = []
    for t in range(steps):
        in_time("the attack")
        report_progress(t, steps)
        stage = machine.prior(state).noise
        joined.append(joined_at(machine.places, stage, joined[-1] if joined else None))
        given = [(used[t], z) for used, answers in columns if (z := answers[t]) is not None]
        for other, z in given:
            own = stage if other is machine else other.runtime.noise(stage.members)
            rows[t] += own.law.log_likelihood(z)
        state, _ = machine.absorb(state, given)
        bounds[:, t] = state.loss_here, state.loss_path
    return rows, tuple(joined), bounds


def _known_start(machine: LocationMachine, motion: Motion, places: Ints, start: Any) -> Floats:
    """Certainty about the first place; `machine.init` refuses a memory it cannot fill."""
    if motion.memory > 1:
        raise InputError("start is given, but the adversary's chain has a longer memory; drop it")
    here = places == machine.runtime.locator.state_of(start)
    if not here.any():
        raise InputError(f"start is {start!r}, which is not a state of the adversary's chain")
    return np.asarray(here, dtype=np.float64)


def _extend_to_states(logs: Floats, places: Ints, size: int) -> Floats:
    """Log-laws over the plan's states, -inf for those the adversary does not know."""
    found = np.full((len(logs), size), -math.inf)
    found[:, places] = logs
    return found


def _exponentials(logs: Floats) -> Floats:
    with np.errstate(under="ignore"):
        return np.asarray(np.exp(logs))


# How far a stream of places changes the odds between two places, step by step.


class Joined(NamedTuple):
    """The pairs a step's promise is about: `edges`, and all pairs inside a group (-1: none)."""

    stage: StepNoise
    edges: Ints
    groups: Ints


class OddsOverTime(NamedTuple):
    """The largest change of log-odds at each step: between joined states, and between any two.

    `pairs` are the joined states whose odds changed most, first the one that gained; the same
    state twice where nothing changed. inf: one of two is ruled out.
    """

    joined: Floats
    any_two: Floats
    pairs: Ints


def joined_at(places: Places, stage: StepNoise, last: Joined | None) -> Joined:
    """Whom a stage joins: the policy among its members, and the edges its repair added.

    With a complete graph, or a location set that protects `everywhere`, states outside the set are
    covered as well, by those that answer for them. Steps of one stage share what was found.
    """
    if last is not None and last.stage is stage:
        return last
    policy = places.policy
    wide = places.delta > 0 and (places.everywhere or policy.is_complete)
    members = np.ones(policy.size, dtype=np.bool_) if wide else stage.members
    edges = policy.edges[members[policy.edges].all(axis=1)]
    added = np.asarray(stage.protected.added, dtype=np.int64).reshape(-1, 2)
    # in columns, which are what is read
    pairs = np.asfortranarray(np.concatenate([edges, added]))
    return Joined(stage, pairs, np.where(members, policy.groups, -1))


def odds_of(before: Floats, after: Floats, joined: Sequence[Joined]) -> OddsOverTime:
    """max of |log a(x)/a(y) - log b(x)/b(y)| at each step, b = before and a = after, log-laws.

    Over states that were possible before; what was impossible has no odds to change.
    """
    steps = len(before)
    near, far, pairs = np.zeros(steps), np.zeros(steps), np.zeros((steps, 2), dtype=np.int64)
    for t in range(steps):
        gain = _gain(before[t], after[t])
        near[t], pairs[t] = _widest_joined(gain, joined[t])
        far[t] = _gap(np.nanmax(gain), np.nanmin(gain))
    return OddsOverTime(near, far, pairs)


def odds_for(
    before: Floats, after: Floats, joined: Sequence[Joined], truth: Sequence[int | None]
) -> OddsOverTime:
    """The same for the pairs that hold the true state: how far it was separated from others.

    nan, and a pair of -1, at steps whose truth is not known or was impossible before.
    """
    steps = len(before)
    near, far = np.full(steps, np.nan), np.full(steps, np.nan)
    pairs = np.full((steps, 2), -1, dtype=np.int64)
    for t, place in enumerate(truth):
        if place is None or before[t, place] == -math.inf:
            continue
        gaps = _gaps(_gain(before[t], after[t]), np.int64(place), np.arange(before.shape[1]))
        far[t] = gaps.max()
        partners = _partners(joined[t], place)
        most = int(partners[gaps[partners].argmax()]) if len(partners) else place
        near[t], pairs[t] = gaps[most], (place, most)
    return OddsOverTime(near, far, pairs)


def _gain(before: Floats, after: Floats) -> Floats:
    """log a(x)/b(x) of every state; nan where b(x) = 0."""
    possible = before > -math.inf
    return np.where(possible, after - np.where(possible, before, 0.0), np.nan)


def _partners(joined: Joined, place: int) -> Ints:
    """The states joined to one."""
    first, second = joined.edges.T
    group = joined.groups[place]
    together = np.flatnonzero(joined.groups == group) if group >= 0 else np.zeros(0, np.int64)
    return np.concatenate([second[first == place], first[second == place], together])


def _widest_joined(gain: Floats, joined: Joined) -> tuple[float, Ints]:
    found, other = _over_edges(gain, joined.edges), _over_groups(gain, joined.groups)
    widest, pair = found if found[0] >= other[0] else other
    return widest, pair[::-1] if gain[pair[0]] < gain[pair[1]] else pair


def _over_edges(gain: Floats, edges: Ints) -> tuple[float, Ints]:
    """Return the widest gap of `gain` over the edges, in log-ratio, and its edge; 0 without
    edges.
    """
    if not len(edges):
        return 0.0, np.zeros(2, dtype=np.int64)
    gaps = _gaps(gain, edges[:, 0], edges[:, 1])
    place = int(gaps.argmax())
    return float(gaps[place]), edges[place]


def _gaps(gain: Floats, first: Ints | np.int64, second: Ints) -> Floats:
    """|gain(x) - gain(y)| pair by pair; 0 when one was impossible or both are ruled out."""
    with np.errstate(invalid="ignore"):
        gaps = np.abs(gain[first] - gain[second])
    gaps[np.isnan(gaps)] = 0.0
    return np.asarray(gaps)


def _over_groups(gain: Floats, groups: Ints) -> tuple[float, Ints]:
    """The widest gap inside a group, and its ends."""
    inside = np.flatnonzero((groups >= 0) & ~np.isnan(gain))
    if not len(inside):
        return 0.0, np.zeros(2, dtype=np.int64)
    order = inside[np.lexsort((gain[inside], groups[inside]))]  # by group, then by gain
    cuts = np.flatnonzero(np.diff(groups[order])) + 1
    low, high = order[np.r_[0, cuts]], order[np.r_[cuts, len(order)] - 1]
    gaps = [_gap(top, bottom) for top, bottom in zip(gain[high], gain[low], strict=True)]
    place = int(np.argmax(gaps))
    return gaps[place], np.array([high[place], low[place]])


def _gap(high: float, low: float) -> float:
    return 0.0 if high == low else float(high - low)
