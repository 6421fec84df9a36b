"""The public filter over (automaton, state), and the release probabilities that keep every bound.

Theorem 1 of mask_online.md: for every choice among what `Program.allowed` certifies, at every
slot and after every history of outputs, no output moves a belief beyond its bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats, Ints, Value, as_read_only
from shoal.core.errors import InputError
from shoal.events.automaton import Automaton, PathLaw, beliefs, compile_events, priors
from shoal.events.secrets import Events

KAPPA = 2.0**-12  # least chance of silence: no output of the machine then has probability 0
GRAIN = 2.0**-32  # probabilities of showing are multiples of it
RAREST_SHOWN = 1e-12  # contexts less likely than this, given the outputs, are not shown
TIGHT = 2e-7  # relative; the program keeps this distance from bounds: over silence of mass 2^-12 it
# is above the rounding of the solver, and what the solver finds is certified in any case
SMALLEST_PRODUCT = 1e-290  # below it products may underflow, and the mass lost is accounted for
LARGEST_PROGRAM = 4e7  # numbers a program may hold: 320 MB


@dataclass(frozen=True, slots=True)
class Bound:
    """P(over | outputs) ≤ factor · P(under | outputs), for two events of an automaton.

    None stands for certainty: (e, None, u) says that P(e) stays at most u, (None, e, 1/l) that it
    stays at least l. `factor` is rounded down.
    """

    over: int | None
    under: int | None
    factor: float


@dataclass(frozen=True, slots=True)
class LawTrack:
    """One law of the path, one automaton, and the bounds on its events."""

    law: PathLaw
    shows: Ints  # the context each state of the law stands for
    automaton: Automaton  # over states of the law
    over: tuple[Floats, ...]  # per slot (bounds, q, state): P(over | …)
    under: tuple[Floats, ...]  # per slot: factor · P(under | …)


@dataclass(frozen=True, slots=True, eq=False)
class Held(Value):
    """The belief of one track after a slot, given all outputs; public.

    `pairs[k]` = (automaton, memory), `mass[k, z]` their joint law with the state, `lost` a bound
    on what underflow took from it. A law that the outputs refute has no mass.
    """

    kind = "held"

    pairs: Ints
    mass: Floats
    support: Bools
    lost: float = 0.0
    rounds: int = 0  # roundings on the way, at most: each mass is right up to that many

    def __post_init__(self) -> None:
        object.__setattr__(self, "pairs", as_read_only(np.reshape(self.pairs, (-1, 2)), np.int64))
        object.__setattr__(self, "mass", as_read_only(self.mass))
        object.__setattr__(self, "support", as_read_only(self.support, np.bool_))

    @property
    def alive(self) -> bool:
        return bool(self.support.any())


def track_of(
    law: PathLaw, automaton: Automaton, bounds: Sequence[Bound], shows: Ints | None = None
) -> LawTrack:
    """The weights of every bound at every slot; `automaton` is over states of the law."""
    contexts = np.arange(len(law.states)) if shows is None else shows
    size = sum(automaton.sizes) * len(contexts) * 2 * len(bounds)
    if size > LARGEST_PROGRAM:
        raise InputError(
            f"the events and the model need {size:.1e} numbers together, more than "
            f"{LARGEST_PROGRAM:.0e}; "
            "use fewer slots or events, shorter windows, or memory='none'"
        )
    sides = np.array([(b.over, b.under) for b in bounds], dtype=np.float64).reshape(-1, 2)
    first, second = np.where(np.isnan(sides), -1, sides).astype(np.int64).T  # the last is certain
    factors = np.array([b.factor for b in bounds])[:, None, None]
    over, under = [], []
    for chance in beliefs(automaton, law):
        known = np.concatenate([chance, np.ones((1, *chance.shape[1:]))])
        over.append(known[first])
        under.append(factors * known[second])
    return LawTrack(law, contexts, automaton, tuple(over), tuple(under))


@dataclass(frozen=True, slots=True)
class Program:
    """Tracks, the automaton the memory follows, and what the future is worth (cuts).

    `future[t]` is (cuts, q, state) of the first track: upper bounds on what can still be shown
    after slot t from there, or None when only the slot itself counts.
    """

    size: int  # contexts
    tracks: tuple[LawTrack, ...]
    memory: Automaton
    future: tuple[Floats | None, ...] = ()

    @property
    def slots(self) -> int:
        return self.tracks[0].law.length

    def most_numbers(self) -> list[tuple[int, int]]:
        """Of each track the most pairs (automaton, memory) there are, and its states."""
        memories = max(self.memory.sizes)
        return [(max(track.automaton.sizes) * memories, len(track.shows)) for track in self.tracks]

    def room(self) -> int:
        """Bytes of JSON that the beliefs of any slot fit in."""
        return sum(256 + pairs * (24 + 13 * states) for pairs, states in self.most_numbers())

    def begin(self) -> tuple[Held, ...]:
        """The belief before slot 0."""
        return tuple(
            Held(
                np.zeros((1, 2), dtype=np.int64),
                track.law.initial[None, :],
                (track.law.initial > 0)[None, :],
            )
            for track in self.tracks
        )

    def arrive(self, held: Sequence[Held], slot: int, *, read: bool) -> tuple[Held, ...]:
        """The belief at `slot` before its output; a slot not read moves the memory by a guess."""
        guess = None if read else self.guess(held, slot)
        moved = []
        for track, one in zip(self.tracks, held, strict=True):
            memory = self.memory.steps[slot][:, track.shows]
            if guess is not None:
                memory = np.broadcast_to(memory[:, [guess]], memory.shape)
            moved.append(_arrived(track, one, slot, memory))
        return tuple(moved)

    def guess(self, held: Sequence[Held], slot: int) -> int:
        """The context the memory takes a slot that is not read for: the likeliest; public."""
        law = held[0].mass.sum(axis=0)
        if slot:
            law = law @ self.tracks[0].law.matrix(slot - 1)
        return int(np.bincount(self.tracks[0].shows, law, self.size).argmax())

    def allowed(self, held: Sequence[Held], slot: int) -> Ints:
        """codes[m, x]: x is shown with probability codes·2^-32 where the memory is m. Public.

        The program's answer, cut down to what its certificate holds for.
        """
        tables = [
            self.table(track, one, slot) for track, one in zip(self.tracks, held, strict=True)
        ]
        live = [table for table, one in zip(tables, held, strict=True) if one.alive]
        if not live:
            return np.zeros((self.memory.sizes[slot + 1], self.size), dtype=np.int64)
        future = self.future[slot] if self.future else None
        worth = None if future is None or not held[0].alive else self.worth(held[0], future, slot)
        shown = _best(live, worth, self.distance(slot))
        codes = np.floor(shown / GRAIN)
        return np.asarray(_certified(live, codes), dtype=np.int64)

    def distance(self, slot: int) -> float:
        """How far from its bounds, relatively, the program of a slot stays.

        Less from slot to slot: a belief left on one distance has room to move at the next.
        """
        return TIGHT * (1.0 + (self.slots - slot) * min(1.0, 100.0 / self.slots))

    def after(self, held: Sequence[Held], codes: Ints, shown: int | None) -> tuple[Held, ...]:
        """The belief after an output: the context `shown`, or None for silence."""
        chance = np.asarray(codes * GRAIN, dtype=np.float64)
        found = []
        for track, one in zip(self.tracks, held, strict=True):
            there = chance[one.pairs[:, 1]][:, track.shows]  # (k, z)
            here = np.where(track.shows == shown, there, 0.0)
            found.append(conditioned(one, 1.0 - there if shown is None else here))
        return tuple(found)

    def table(self, track: LawTrack, held: Held, slot: int) -> TrackSums:
        """What the belief of a track comes to at each (memory, context) of a slot."""
        q = held.pairs[:, 0]
        over, under = track.over[slot][:, q], track.under[slot][:, q]
        ahead = (self.slots - slot) * (len(track.shows) + 2)
        rounds = held.rounds + ahead + held.mass.size + 8
        support = held.support.astype(np.float64)
        return TrackSums(
            mass=self._gathered(track, held, slot, held.mass[None])[0],
            over=self._gathered(track, held, slot, over * held.mass),
            under=self._gathered(track, held, slot, under * held.mass),
            possible=self._gathered(track, held, slot, support[None])[0] > 0,
            slack=1.01 * rounds * 2.0**-53,
            lost=held.lost * max(1.0, float(over.max(initial=0)), float(under.max(initial=0))),
        )

    def worth(self, held: Held, future: Floats, slot: int) -> Floats:
        """(cuts, m, x): what can still be shown after the slot, weighted with the belief."""
        weights = future[:, held.pairs[:, 0]] * held.mass
        return self._gathered(self.tracks[0], held, slot, weights)

    def _gathered(self, track: LawTrack, held: Held, slot: int, weights: Floats) -> Floats:
        """Weights (…, k, state) added up by memory and context."""
        shape = (len(weights), self.memory.sizes[slot + 1], self.size)
        place = (held.pairs[:, [1]] * self.size + track.shows[None, :]).ravel()
        return np.array([_sums(place, one, shape[1] * shape[2]) for one in weights]).reshape(shape)


@dataclass(frozen=True, slots=True)
class TrackSums:
    """Sums over (memory, context) of one track: mass, and both sides of every bound."""

    mass: Floats
    over: Floats
    under: Floats
    possible: Bools
    slack: float  # relative error of any of these sums
    lost: float

    def keeps(self, over: Floats, under: Floats) -> Bools:
        """Whether over ≤ under for the true sums behind these, rounding included."""
        safe = over * (1 + self.slack) + self.lost <= under * (1 - self.slack) - self.lost
        return np.asarray(safe)


def _sums(place: Ints, weights: Floats | Bools, count: int) -> Floats:
    """The weights added up by place."""
    return np.asarray(np.bincount(place, weights.ravel(), count), dtype=np.float64)


def _arrived(track: LawTrack, held: Held, slot: int, memory: Ints) -> Held:
    """The law of (automaton, memory, state) at a slot from that after the one before."""
    mass, support = held.mass, held.support
    if slot:
        matrix = track.law.matrix(slot - 1)
        mass, support = mass @ matrix, (support.astype(np.float64) @ (matrix > 0)) > 0
    q = track.automaton.steps[slot][held.pairs[:, 0]]
    m = memory[held.pairs[:, 1]]
    width = int(m.max()) + 1
    codes, which = np.unique(q * width + m, return_inverse=True)
    size = mass.shape[1]
    place = (which.reshape(q.shape) * size + np.arange(size)).ravel()
    count = len(codes) * size
    return Held(
        np.stack(np.divmod(codes, width), axis=1),
        _sums(place, mass, count).reshape(-1, size),
        _sums(place, support, count).reshape(-1, size) > 0,
        held.lost,
        held.rounds + size + len(q) + 2,
    )


def conditioned(held: Held, likely: Floats) -> Held:
    """The belief after an output of these likelihoods; without mass where that is impossible."""
    mass, support = held.mass * likely, held.support & (likely > 0)
    if not support.any():
        return replace(held, mass=np.zeros_like(mass), support=support)
    total = float(mass.sum())
    if not total > 0:  # possible, but the mass underflows: no release is certified from here
        return Held(held.pairs, mass, support, np.inf, held.rounds)
    tiny = SMALLEST_PRODUCT if (mass[support] < SMALLEST_PRODUCT).any() else 0.0
    lost = (held.lost + tiny) / total
    return Held(held.pairs, mass / total, support, lost, held.rounds + 3)


class SlotProgram(NamedTuple):
    """max gain·v over rows·v ≤ limits, 0 ≤ v ≤ most; v is r over `columns`, then the future.

    Of each row `labels` says (table, bound, context), or (-1, cut, context); a context of -1 stands
    for silence. `scales` are what rows were divided by.
    """

    columns: Ints  # m·size + x of each probability
    gain: Floats
    rows: Floats
    limits: Floats
    most: Floats
    labels: Ints
    scales: Floats


def slot_program(
    tables: Sequence[TrackSums], worth: Floats | None, distance: float = TIGHT
) -> SlotProgram:
    """The slot's linear program: shows the most, on average over the laws that are left.

    Rows (a): what is shown of x keeps the bound; (b): so does silence. With `worth` one variable
    more per output, at most each cut of what the rest of the day is worth after it.
    """
    size = tables[0].mass.shape[1]
    likely = np.maximum.reduce([table.mass for table in tables]).ravel()
    columns = np.flatnonzero(likely >= RAREST_SHOWN)
    outputs = np.arange(-1, size)
    # (output, column): -1 where silence takes what is not shown, 1 where the column's own is shown
    part = np.where(outputs[:, None] < 0, -1.0, outputs[:, None] == columns % size)
    blocks, ends, names = [], [], []
    for i, table in enumerate(tables):
        gaps = (table.over - table.under * (1 - distance)).reshape(len(table.over), len(likely))
        blocks.append((gaps[:, None, columns] * part).reshape(-1, len(columns)))
        ends.append(np.where(outputs < 0, np.maximum(-gaps.sum(axis=1), 0.0)[:, None], 0.0).ravel())
        names.append(_names(i, len(gaps), outputs))
    gain = np.mean([table.mass.ravel()[columns] for table in tables], axis=0)
    most = np.full(len(columns), 1.0 - KAPPA)
    if worth is not None:
        flat = worth.reshape(len(worth), len(likely))
        blocks = [np.pad(block, ((0, 0), (0, size + 1))) for block in blocks]
        own = (-flat[:, None, columns] * part).reshape(-1, len(columns))
        blocks.append(np.hstack([own, np.tile(np.eye(size + 1), (len(flat), 1))]))
        ends.append(np.where(outputs < 0, flat.sum(axis=1)[:, None], 0.0).ravel())
        names.append(_names(-1, len(flat), outputs))
        gain = np.concatenate([gain, np.ones(size + 1)])
        most = np.concatenate([most, np.full(size + 1, flat.sum(axis=1).max() + 1.0)])
    rows, limits, labels = np.vstack(blocks), np.concatenate(ends), np.vstack(names)
    binding = (rows > 0).any(axis=1)
    rows, limits, labels = rows[binding], limits[binding], labels[binding]
    scales = np.abs(rows).max(axis=1, initial=0.0)
    return SlotProgram(columns, gain, rows / scales[:, None], limits / scales, most, labels, scales)


def _names(table: int, count: int, outputs: Ints) -> Ints:
    which, context = np.repeat(np.arange(count), len(outputs)), np.tile(outputs, count)
    return np.stack([np.full_like(which, table), which, context], axis=1)


def _best(tables: Sequence[TrackSums], worth: Floats | None, distance: float) -> Floats:
    """r[m, x] of the slot's linear program."""
    shown = np.zeros(tables[0].mass.size)
    program = slot_program(tables, worth, distance)
    if len(program.columns):
        found = maximise(program.gain, program.rows, program.limits, program.most)
        point = found.point[: len(program.columns)]
        shown[program.columns] = np.minimum(point, 1.0 - KAPPA)
    return shown.reshape(tables[0].mass.shape)


def _certified(tables: Sequence[TrackSums], codes: Floats) -> Floats:
    """The codes, those of a context at 0 where one of its rows fails, all scaled for silence."""
    for _ in range(60):
        codes = _rows_kept(tables, codes)
        if not codes.any() or all(_silence_kept(table, codes) for table in tables):
            return codes
        codes = np.floor(codes * 0.9)
    return np.zeros_like(codes)


def _rows_kept(tables: Sequence[TrackSums], codes: Floats) -> Floats:
    """The codes with those of every context at 0 that a law allows and a row does not."""
    kept = codes.copy()
    for table in tables:
        shown = codes * GRAIN
        over, under = (table.over * shown).sum(axis=1), (table.under * shown).sum(axis=1)
        shows = ((codes > 0) & table.possible).any(axis=0)
        kept[:, shows & ~table.keeps(over, under).all(axis=0)] = 0.0
    return kept


def _silence_kept(table: TrackSums, codes: Floats) -> bool:
    hidden = 1.0 - codes * GRAIN
    over = (table.over * hidden).sum(axis=(1, 2))
    under = (table.under * hidden).sum(axis=(1, 2))
    return bool(table.keeps(over, under).all())


def chances(program: Program, held: Sequence[Held], codes: Ints) -> Floats:
    """The chance of each context being shown at a slot and, last, of silence; first track."""
    one, track = held[0], program.tracks[0]
    shown = one.mass * (codes * GRAIN)[one.pairs[:, 1]][:, track.shows]
    each = np.bincount(track.shows, shown.sum(axis=0), program.size)
    return np.append(each, max(0.0, 1.0 - float(each.sum())))


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
            lifted = Automaton(tuple(step[:, shows] for step in joint.steps), joint.accept)
            likely = priors(lifted, law)
            bounds = [
                bound
                for i in range(len(group))
                for bound in _bounds(secrets.change, 2 * i, likely, float(amount), law)
            ]
            tracks.append(track_of(law, lifted, bounds, shows))
    blank = Automaton((np.zeros((1, size), np.int64),) * length, np.zeros((1, 0), np.bool_))
    seen = joint if memory == "events" and joint is not None else blank
    return Program(size, tuple(tracks), seen)


def _members(laws: Sequence[PathLaw], mixture: Sequence[float]) -> list[tuple[PathLaw, Ints]]:
    """Every law with what its states show; and the law that first draws which of them it is.

    Bounds under each member do not cover an adversary with a prior over the members (priors .1 and
    .5, an output that names the member: no rise under either, .3 to .5 under the mixture).
    """
    size = len(laws[0].states)
    own: Ints = np.arange(size)
    found = [(law, own) for law in laws]
    if not len(mixture):
        return found

    def matrix(slot: int) -> Floats:
        blocks = np.zeros((len(laws) * size,) * 2)
        for i, law in enumerate(laws):
            place = slice(i * size, (i + 1) * size)
            blocks[place, place] = law.matrix(slot)
        return blocks

    share = np.asarray(mixture, dtype=np.float64) / np.sum(mixture)
    initial = np.concatenate([w * law.initial for w, law in zip(share, laws, strict=True)])
    names = tuple(f"{i}: {name}" for i, law in enumerate(laws) for name in law.states)
    mixed = PathLaw(names, initial, matrix, laws[0].length, laws[0].clock)
    return [*found, (mixed, np.tile(own, len(laws)))]


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


PIVOTS = 20  # times the number of rows and columns: what random programs need is about one


class Solved(NamedTuple):
    """A feasible point, its value, and a multiplier for each row."""

    point: Floats
    value: float
    multipliers: Floats
    optimal: bool


def maximise(gain: Floats, rows: Floats, limits: Floats, most: Floats) -> Solved:
    """max gain·x over rows·x ≤ limits, 0 ≤ x ≤ most, for limits ≥ 0, so that x = 0 is feasible.

    A tableau with bounds on the variables (`kernels`); the column of largest gain enters, and after
    a run of pivots without gain the first one does (Bland), so that it ends. Stopped early it
    returns its current feasible point. Rows hold up to rounding: a caller that relies on one checks
    it. Rows are to be scaled to about 1.
    """
    from shoal.events.kernels import pivoted

    count, size = rows.shape
    point, multipliers = np.zeros(size), np.zeros(count)
    table = np.array(rows, dtype=np.float64, order="C")
    values, reduced = np.maximum(limits, 0.0), np.array(gain, dtype=np.float64)
    bounds = np.concatenate([most, np.full(count, np.inf)])
    optimal = pivoted(
        table, values, reduced, bounds, point, multipliers, PIVOTS * (count + size + 1)
    )
    return Solved(point, float(gain @ point), multipliers, bool(optimal))
