"""Many tracks through one mechanism: what is released, how far off it is, how many are hidden."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from shoal.core.codec import Floats
from shoal.noise.primitives import SeededRng
from shoal.places.machine import LocationMachine
from shoal.places.policy import LocationSet, PolicyGraph
from shoal.places.step import Places
from shoal.places.walk import SparseChain
from studies.location_traces import Town, Track

COVERAGE = Fraction(1, 100)  # δ of the location sets unless said otherwise
EPSILON = Fraction(1)


@dataclass(frozen=True, slots=True)
class Run:
    """One way of releasing: a policy on the support or on a δ-location set, a noise, an ε."""

    title: str
    policy: PolicyGraph
    delta: Fraction | None = None
    noise: str = "k-norm"
    epsilon: Fraction = EPSILON

    def machine(self, town: Town, chain: SparseChain | None = None) -> LocationMachine:
        """The stream's machine, under the popular chain or another one."""
        places: Places = self.policy
        if self.delta is not None:
            places = LocationSet(policy=self.policy, delta=self.delta)
        return LocationMachine(
            chain=town.chain if chain is None else chain,
            query=town.query,
            places=places,
            epsilon=self.epsilon,
            noise=self.noise,
        )


@dataclass(frozen=True, slots=True)
class Trails:
    """Of every track and step (tracks, steps): distances in km, counts, and the points shown.

    `size` is |C|, `drift` whether the true state is outside C, `degree` the DoP of the state that
    answers, `repairs` the edges added, `seconds` of the process for the step alone.
    """

    truth: Floats
    shown: Floats
    guessed: Floats
    size: Floats
    drift: Floats
    degree: Floats
    repairs: Floats
    seconds: Floats

    @property
    def raw(self) -> Floats:
        """|z - f(s)| in km."""
        return np.asarray(np.linalg.norm(self.shown - self.truth, axis=2))

    @property
    def estimate(self) -> Floats:
        """|estimate - f(s)| in km."""
        return np.asarray(np.linalg.norm(self.guessed - self.truth, axis=2))

    def summary(self) -> tuple[float, ...]:
        """Means over all: size, drift in %, raw km, estimate km, DoP, repairs, ms a step."""
        return (
            float(self.size.mean()),
            100 * float(self.drift.mean()),
            float(self.raw.mean()),
            float(self.estimate.mean()),
            float(self.degree.mean()),
            float(self.repairs.mean()),
            1e3 * float(np.median(self.seconds)),
        )


SUMMARY = ("size of C", "drift %", "raw km", "estimate km", "DoP", "repairs a step", "ms a step")


def follow(town: Town, run: Run, tracks: Sequence[Track], *, own: bool = False) -> Trails:
    """Every track released once, from a first position that everybody knows. Seeded.

    With `own` each person's stream runs under the person's own chain.
    """
    machines: dict[str, LocationMachine] = {}
    rows: list[list[tuple[float, ...]]] = []
    for number, track in enumerate(tracks):
        whose = track.person if own else ""
        if whose not in machines:
            machines[whose] = run.machine(town, town.own_chain(track.person) if own else None)
        rows.append(_released(machines[whose], track, SeededRng(number)))
    table = np.array(rows)
    return Trails(
        truth=table[:, :, 0:2],
        shown=table[:, :, 2:4],
        guessed=table[:, :, 4:6],
        size=table[:, :, 6],
        drift=table[:, :, 7],
        degree=table[:, :, 8],
        repairs=table[:, :, 9],
        seconds=table[:, :, 10],
    )


def _released(machine: LocationMachine, track: Track, rng: SeededRng) -> list[tuple[float, ...]]:
    query, names = machine.query, machine.query.states
    values, step = query.values, float(query.step)
    state = machine.init(names[track.states[0]])
    rows = []
    for place in track.states[1:].tolist():
        stage = machine.prior(state).noise
        answering = int(stage.answering[place])
        degree = stage.degree(answering)
        begun = time.process_time()
        state, release = machine.step(state, names[place], rng)
        spent = time.process_time() - begun
        shown = values[place] if release.z is None else np.array(release.z) * step
        rows.append(
            (
                *values[place],
                *shown,
                *release.estimate,
                stage.count,
                not stage.members[place],
                degree,
                len(release.added),
                spent,
            )
        )
    return rows


def standard_runs(town: Town, *, epsilon: Fraction = EPSILON) -> list[Run]:
    """The papers' mechanisms on one map, and ours: nearest neighbours, other noises."""
    names, query = town.query.states, town.query
    complete = PolicyGraph.complete(names)
    near = PolicyGraph.within(query, town.radius_km)
    radius = f"G_util({float(town.radius_km):g} km)"
    moves = PolicyGraph.transitions(town.chain)
    few = PolicyGraph.nearest(query, 9)
    return [
        Run("PIM, complete, δ = .01", complete, COVERAGE, epsilon=epsilon),
        Run("Laplace, complete, δ = .01", complete, COVERAGE, "laplace", epsilon),
        Run(f"{radius}, δ = .01", near, COVERAGE, epsilon=epsilon),
        Run(f"{radius}, support", near, epsilon=epsilon),
        Run("9 nearest, δ = .01", few, COVERAGE, epsilon=epsilon),
        Run("9 nearest, support", few, epsilon=epsilon),
        Run("G_trs, δ = .01", moves, COVERAGE, epsilon=epsilon),
        Run("G_trs, support", moves, epsilon=epsilon),
    ]
