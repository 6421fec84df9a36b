"""What a machine of places keeps between steps: states, noise by constraint, what outputs say."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from shoal.core.charge import Guarantee
from shoal.core.codec import Bools, Floats, Ints, as_read_only
from shoal.core.errors import InputError
from shoal.core.motion import FarLaw, Motion, motion_of, posterior
from shoal.core.records import label
from shoal.core.task import Model
from shoal.geometry.span import POINT_LIMIT, VECTOR_LIMIT
from shoal.places.map import Grid
from shoal.places.policy import location_set
from shoal.places.queries import Measurement, remap_answer
from shoal.places.step import PolicyIndex, Question, StepNoise, noises_of, planar_noises
from shoal.places.walk import grid_of

if TYPE_CHECKING:
    from shoal.places.machine import LocationMachine

# From what was observed to a state of the model: names, or coordinates on the map.


COMPARED = 2**18  # points times states compared at once

Reading = Any  # a state's name, (latitude, longitude), a mapping of either, or None


class StateLocator:
    """The states of a model, found by name or, on a map, by coordinates."""

    def __init__(self, chain: Model) -> None:
        self._chain: Any = chain
        self._index = {name: place for place, name in enumerate(chain.states or ())}

    def state_of(self, observed: Reading) -> int:
        """The index of a state: by name, or by latitude and longitude.

        A mapping holds "state", or "lat" and "lon". Coordinates need a model with a grid; where
        no state covers them, the nearest state counts (in the map's plane, ties by index).
        """
        if isinstance(observed, str):
            place = self._index.get(observed)
            if place is not None:
                return place
        else:
            if isinstance(observed, Mapping):
                observed = _in_mapping(observed)
            if isinstance(observed, Sequence | np.ndarray) and not isinstance(observed, str):
                return self._on_map(observed)
        place = self._index.get(label(observed))
        if place is None:
            raise InputError(
                "the reading names a state that is not one of the model's; give one of its names"
            )
        return place

    def states_of(self, latitudes: Floats, longitudes: Floats) -> tuple[Ints, Bools]:
        """The state of each point as `state_of` finds it, and which points no state covers.

        All coordinates must be finite, and the model must have a grid.
        """
        states = self._of_cell[self._grid.cell_of(latitudes, longitudes)]
        off = states < 0
        if off.any():
            states[off] = self._nearest(self._grid.lattice_near(latitudes[off], longitudes[off]))
        return states, off

    def _on_map(self, observed: Any) -> int:
        """Return the index of the state whose cell covers (latitude, longitude) in degrees, else
        the nearest.

        The work is the same on and off the map. Refuses what is not two finite numbers.
        """
        grid = self._grid
        try:
            latitude, longitude = (float(value) for value in observed)
        except (TypeError, ValueError):
            raise InputError("the reading must hold two numbers: latitude and longitude") from None
        if not (math.isfinite(latitude) and math.isfinite(longitude)):
            raise InputError("the reading holds a coordinate that is not finite; skip the step")
        # equal work on and off the map: how long a step takes must not tell which it was
        covering = int(self._of_cell[int(grid.cell_of(latitude, longitude))])
        offsets = self._points - grid.lattice_near(latitude, longitude)
        nearest = int((offsets * offsets).sum(axis=1).argmin())
        return (nearest, covering)[covering >= 0]

    @cached_property
    def _grid(self) -> Grid:
        """The grid of the model; refused when the model has none."""
        grid = grid_of(self._chain)
        if grid is None:
            raise InputError(
                "the reading holds coordinates, but the model has no grid; name a state"
            )
        return grid

    @cached_property
    def _of_cell(self) -> Ints:
        """The state of each cell of the grid, -1 where none covers it, and last outside the map."""
        table = np.full(self._grid.size + 1, -1, dtype=np.int64)
        table[self._chain.cells] = np.arange(len(self._chain.cells))
        return table

    @cached_property
    def _points(self) -> Ints:
        """Where the states lie on the lattice."""
        return self._grid.lattice_of(self._chain.cells)

    def _nearest(self, points: Ints) -> Ints:
        """The state nearest to each point of the lattice; equal points are looked up once."""
        own = self._points
        # both coordinates in one number, which sorts faster than pairs do: each is below 2^31
        keys = points[:, 0] * 2**32 + points[:, 1]
        _, first, which = np.unique(keys, return_index=True, return_inverse=True)
        distinct = points[first]
        found = np.empty(len(distinct), dtype=np.int64)
        together = max(1, COMPARED // len(own))
        for begin in range(0, len(distinct), together):
            some = slice(begin, begin + together)
            offsets = distinct[some, None, :] - own[None, :, :]
            found[some] = (offsets**2).sum(axis=2).argmin(axis=1)
        return np.asarray(found[which])


def _in_mapping(observed: Mapping[str, Any]) -> Any:
    """The reading in a mapping."""
    if "lat" in observed and "lon" in observed:
        return (observed["lat"], observed["lon"])
    if "state" in observed:
        return observed["state"]
    raise InputError("the reading has neither state nor lat and lon; give one of them")


# What all outputs of a stream tell about one position: scalar bounds that a live step can keep.


MOST_STATES_FOLLOWED = 64  # beyond, a position is taken to give its predecessor away entirely
NORM_MARGIN = 1 + 1e-9


class Forgetting:
    """How much of what was known about the last position carries over to the current one.

    factor(t) = max over x, x' of the total variation distance between P(X_{t-1} | X_t = x) and
    P(X_{t-1} | X_t = x'), over the x, x' possible under the chain and its first law, rounded up; 1
    when chains are large (sparse maps always have two positions with no common predecessor).
    Computed once per step and kept: it does not depend on outputs.
    """

    def __init__(self, motion: Motion) -> None:
        self._motion = motion
        self._marginal = FarLaw.of(motion.begin())
        self._settled: float | None = None  # the distance, from when on the law stays as it is
        self._factors: list[float] = [0.0]
        self._followed = motion.hidden <= MOST_STATES_FOLLOWED and motion.memory == 1

    def factor(self, step: int) -> float:
        """The factor into `step` (from 0); nothing comes before the first."""
        if not self._followed:
            return 1.0
        while step >= len(self._factors):
            self._advance(len(self._factors))
        return self._factors[step]

    def _advance(self, step: int) -> None:
        """Append the factor of one more step: the largest distance between two backward laws.
        Rounds up.
        """
        distance = self._settled
        if distance is None:
            before, rows = self._marginal, self._motion.rows(step)
            self._marginal, logs = before.step_back_from(rows)
            with np.errstate(under="ignore"):
                backward = np.exp(logs[:, self._marginal.possible])
            rows_back = backward.T  # the largest ½ Σ |p - p'| over pairs of rows
            gaps = [float(np.abs(rows_back - row).sum(axis=1).max()) / 2 for row in rows_back]
            distance = max(gaps, default=0.0)
            if self._motion.homogeneous and before.same(self._marginal):
                self._settled = distance
        # distances of rows whose entries are known up to this share, and sums of n terms
        error = (step + 2) * (self._motion.hidden + 4) * 2.0**-51
        self._factors.append(min(1.0, distance + error))


def propagate_loss(before: float, factor: float) -> float:
    """Λ ≤ log(1 + τ (e^g - 1)), and ≤ g: what a bound g about X_{t-1} says about X_t.

    g = before, τ = factor. For weights v in [1, e^g] and laws p, p' at distance τ the ratio
    Σ p v / Σ p' v is largest when p' puts no mass where v is e^g. MATHS, section 3. Rounds up.
    """
    if before <= 0 or factor <= 0:
        return 0.0
    if factor >= 1 or math.isinf(before):
        return before
    if before < 700:
        grown = math.log1p(factor * math.expm1(before))
    else:
        grown = float(np.logaddexp(0.0, before + math.log(factor)))
    return min(before, grown * NORM_MARGIN)


# What a location machine works out once and keeps: not stored, the same after every restart.


NOISES_KEPT = 64  # noises and supports kept, the ones used last

Bytes = npt.NDArray[np.uint8]
Belief = npt.NDArray[np.float32]


class StepPrior(NamedTuple):
    """A step before its output: belief and support of the hidden states, and the noise.

    `packed` is the support eight states to a byte.
    """

    belief: Floats
    support: Bools
    packed: Bytes
    noise: StepNoise


class Reached(NamedTuple):
    """A support that a step leads to, and its noise when that follows from the support alone."""

    support: Bools
    packed: Bytes
    noise: StepNoise | None


class Runtime:
    """The moving parts of a machine: beliefs, noise by constraint, supports by support."""

    def __init__(self, machine: LocationMachine) -> None:
        """Prepare what all streams of a machine share: motion, policy, noise caches and
        forgetting.
        """
        self._machine = machine
        self.motion = motion_of(machine.chain)
        self._memory = self.motion.memory
        self.locator = StateLocator(machine.chain)
        self.forgetting = Forgetting(self.motion)
        self.values = machine.query.values
        self.rate = float(machine.epsilon)
        self.index = PolicyIndex(machine.places.policy, machine.query.points)
        self.question = Question(self.index, machine.epsilon, machine.noise)
        self._planar = planar_noises(machine.places, self.index, machine.epsilon, machine.noise)
        self.graph = None if self._planar is None else self._planar.graph
        self.share = float(1 - machine.places.delta)
        self.promise = machine.promise(machine.epsilon)
        self._latest: tuple[int, Belief, Bytes, StepPrior] | None = None
        self._last_reached: tuple[int, Bytes | None, Reached | None] = (-1, None, None)
        self._noises = lru_cache(NOISES_KEPT)(self._step_noises)
        self._reached = lru_cache(NOISES_KEPT)(self._support_at)
        self._packed = lru_cache(NOISES_KEPT)(
            lambda bits: as_read_only(np.frombuffer(bits, np.uint8), np.uint8)
        )

    def prior(self, time: int, belief: Belief, packed: Bytes) -> StepPrior:
        """Belief, support and noise of step `time`, from the belief and support before it.

        A step asks for them more than once, so the ones made last are kept.
        """
        if self._latest is not None:
            last, before, held, latest = self._latest
            if last == time and before is belief and held is packed:  # locked, so still the same
                return latest
        moved = self._predict_belief(time, belief)
        reached = self.reach(time, packed)
        noise = reached.noise
        if noise is None:
            noise = self.noise(self._possible_members(time, moved, reached.support))
        found = StepPrior(moved, reached.support, reached.packed, noise)
        if not belief.flags.writeable and not packed.flags.writeable:
            self._latest = time, belief, packed, found
        return found

    def _predict_belief(self, time: int, belief: Belief) -> Floats:
        """Return the belief one step on, before its output; compiled where the chain is sparse."""
        moves = self.motion.matrix(time)
        if moves is None or self.index.edges is None:
            return self.motion.predict(time, belief.astype(np.float64))
        from shoal.places.kernels import predict

        return np.asarray(predict(moves.indptr, moves.indices, moves.data, belief))

    def _possible_members(self, time: int, prior: Floats, support: Bools) -> Bools:
        """C: the states possible, of a location set those likely enough.

        By a partition where the sums are clear, exactly where they are not.
        """
        from shoal.places.kernels import likely

        possible = self.motion.states_possible(time, support)
        places = self._machine.places
        if not places.delta:
            return possible
        states = self.motion.on_states(time, prior)
        clear, members = likely(states, possible, self.share)
        return members if clear else possible & location_set(states, places.delta)

    def noise(self, members: Bools) -> StepNoise:
        """The noise of a constraint; made once for those used last."""
        return self.noises(members, [self.question])[0]

    def noises(self, members: Bools, questions: Sequence[Question]) -> list[StepNoise]:
        """The noise of each question of one step, repaired together; this machine's one first."""
        return self._noises(np.packbits(members).tobytes(), *questions)

    def _step_noises(self, packed: bytes, *questions: Question) -> list[StepNoise]:
        members = _unpack_support(packed, self.motion.size)
        found = None
        if self._planar is not None and questions == (self.question,):
            found = self._planar.noise(members)
        return noises_of(self._machine.places, members, questions) if found is None else [found]

    def pack_support(self, support: Bools) -> Bytes:
        """A support eight states to a byte; equal ones are one array, shared by all streams."""
        return self._packed(np.packbits(support).tobytes())

    def guarantee(self, epsilons: tuple[Fraction, ...]) -> Guarantee | None:
        """The promise of a step at which these budgets are spent; None when nothing is."""
        if not epsilons:
            return None
        own = epsilons == (self._machine.epsilon,)
        return self.promise if own else self._machine.promise(sum(epsilons, Fraction(0)))

    def reach(self, time: int, packed: Bytes) -> Reached:
        """The support at step `time`; steps that move alike share what was found."""
        motion = self.motion
        if motion.length is not None:
            motion.matrix(time)  # refuses a step beyond it, for any support
        moves = time if time < self._memory or not motion.homogeneous else self._memory
        before, last, found = self._last_reached
        if found is not None and last is packed and before == moves and not packed.flags.writeable:
            return found
        found = self._reached(moves, packed.tobytes())
        self._last_reached = moves, packed, found
        return found

    def _support_at(self, time: int, packed: bytes) -> Reached:
        """Return the support at step `time`, from the packed support of the step before.

        Its noise comes with it where the policy covers every possible state (delta = 0); with
        location sets the noise depends on a belief, and is None.
        """
        motion, support = self.motion, _unpack_support(packed, self.motion.hidden)
        support = motion.reach(time, support) if time else support
        every = not self._machine.places.delta
        noise = self.noise(motion.states_possible(time, support)) if every else None
        return Reached(support, self.pack_support(support), noise)


def _unpack_support(packed: bytes, count: int) -> Bools:
    return np.unpackbits(np.frombuffer(packed, np.uint8), count=count).astype(np.bool_)


# What the outputs of a step say about the state: beliefs, support, the best answer to show.


SHOWN = 3  # most probable states that a release names
REACH = VECTOR_LIMIT - POINT_LIMIT  # outputs within it differ from any answer by what int64 decides


class Posterior(NamedTuple):
    """A step after its outputs; `top` are the most probable states with their probabilities.

    `degree` is the degree of protection of the first of them, 0 when it is no member; `best` the
    log-likelihood of the member that explains the outputs best, 0 at most.
    """

    belief: npt.NDArray[np.float32]
    support: Bools
    estimate: tuple[float, ...]
    spread: float
    top: tuple[tuple[int, float], ...]
    degree: int
    best: float


def posterior_after(
    runtime: Runtime,
    query: Measurement,
    time: int,
    prior: StepPrior,
    given: Sequence[tuple[StepNoise, Sequence[int]]],
) -> Posterior:
    """What outputs, each with the noise it was drawn with, say at step `time` (from 0).

    One output of planar K-norm noise goes through compiled code, which agrees with the plain way
    up to the last bits of floats; supports are exact in both.
    """
    if len(given) == 1 and runtime.motion.memory == 1:
        noise, z = given[0]
        polygon = noise.polygon if noise is prior.noise else None
        if polygon is not None and min(z) > -REACH and max(z) < REACH:
            found = _posterior_compiled(runtime, query, prior, polygon, z)
            if found is not None:
                return found
    return _posterior_in_logs(runtime, query, time, prior, given)


def _posterior_compiled(
    runtime: Runtime, query: Measurement, prior: StepPrior, polygon: Ints, z: Sequence[int]
) -> Posterior | None:
    """None when products underflow: the plain way forms them in logarithms."""
    from shoal.places.kernels import LOSES_NOTHING, absorb_output

    noise = prior.noise
    belief, single = np.empty(len(prior.belief)), np.empty(len(prior.belief), dtype=np.float32)
    total, best, east, north, spread, degree, shown = absorb_output(
        prior.belief,
        runtime.values,
        noise.members,
        noise.law.points,
        polygon,
        runtime.rate,
        int(z[0]),
        int(z[1]),
        belief,
        single,
    )
    if total < LOSES_NOTHING:
        return None
    estimate = (east, north)
    if query.estimate != "squared":
        answer, spread = remap_answer(belief, runtime.values, query.estimate)
        estimate = (float(answer[0]), float(answer[1]))
    single.setflags(write=False)
    top = shown_states(shown, len(belief))
    return Posterior(single, prior.support, estimate, spread, top, degree, best)


def shown_states(shown: Any, states: int) -> Any:
    """What compiled code names as most probable; a model may have fewer states than that."""
    return shown if states >= SHOWN else shown[:states]


def _posterior_in_logs(
    runtime: Runtime,
    query: Measurement,
    time: int,
    prior: StepPrior,
    given: Sequence[tuple[StepNoise, Sequence[int]]],
) -> Posterior:
    """Any number of outputs, any law, any chain."""
    motion, noise = runtime.motion, prior.noise
    shown = motion.at(time)
    weights = np.zeros(motion.size)
    for other, z in given:
        weights = weights + other.law.log_likelihood(z)
    support = prior.support & (weights[shown] > -np.inf)
    if not support.any():
        raise InputError(
            "the outputs cannot come from this step: no possible state gives them; a key that was "
            "used at another step brings its output back, so give each step its own"
        )
    if not any(other.tells for other, _ in given):
        support = prior.support
    belief = prior.belief
    if given:
        belief = posterior(prior.belief, weights[shown])
        if not belief.any():  # the floats lost every state that is left: all count alike
            belief = support / support.sum()
    states = motion.on_states(time, belief)
    estimate, spread = remap_answer(states, runtime.values, query.estimate)
    top = _indices_of_largest(states, SHOWN)
    most = int(top[0])
    near = noise.members.copy()  # those who protect the most probable state in every answer
    for other in [other for other, _ in given] or [noise]:
        near &= other.near(most) if noise.members[most] else False
    return Posterior(
        belief=single_precision(belief),
        support=support,
        estimate=tuple(float(value) for value in estimate),
        spread=spread,
        top=tuple((int(place), float(states[place])) for place in top),
        degree=int(near.sum()),
        best=float(weights[noise.members].max()),
    )


def single_precision(belief: Floats) -> npt.NDArray[np.float32]:
    """Beliefs in single precision, locked."""
    with np.errstate(under="ignore"):
        short = belief.astype(np.float32)
    short.setflags(write=False)
    return short


def _indices_of_largest(values: Floats, count: int) -> npt.NDArray[np.int64]:
    """The places of the largest values, the largest first, ties by index."""
    if len(values) <= count:
        return np.argsort(-values, kind="stable")
    least = np.partition(values, -count)[-count]
    top = np.flatnonzero(values >= least)  # in index order, so that ties at the end go by index
    return top[np.argsort(-values[top], kind="stable")][:count]
