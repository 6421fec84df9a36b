"""Pairs of facts to test: the lengths looked at, and data drawn from a model given one fact."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations
from typing import NamedTuple

import numpy as np

from shoal.audit.case import Fact, table_facts
from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError, Refused
from shoal.core.task import FiniteLaw, Model, Query, Secrets, as_events, each_entry
from shoal.core.walk import Walk, time_reversal
from shoal.events.automaton import Automaton, PathLaw, compile_events, law_of, priors

SHORT_LENGTHS = (
    1,
    2,
    3,
    5,
    8,
    12,
)  # short series isolate one entry; long series add correlation
FEWEST = 50  # fewest draws per fact for a pilot
ENTRIES = 400  # entries in a draw, on average, that an audit may ask for
ENTRIES_ALWAYS_ALLOWED = 20_000_000  # entries that are always allowed: a matter of seconds
NEAR_TOP_RUNG = 0.75  # the ladder stops at this part of the top length
# the longest data is this part of the entries, so that it is drawn often enough
LONGEST_DATA = 3900


class DrawBudget(NamedTuple):
    """How many releases, and how many entries of drawn data in all of them together."""

    draws: int
    entries: float = math.inf

    def part(self, share: float) -> DrawBudget:
        """A share of it."""
        return DrawBudget(round(share * self.draws), share * self.entries)

    def each(self, lengths: Sequence[int]) -> list[int]:
        """How many releases each of several data laws gets, `lengths` being their entries.

        As many for each, but no law takes more than c entries, with the largest c that keeps
        within the budget: Σ min(releases · length, c) ≤ entries. FEWEST at least, as far as there
        are draws.
        """
        few = self.draws // len(lengths)
        most, rest = math.inf, self.entries
        wanted = sorted(few * length for length in lengths)
        for place, cost in enumerate(wanted):
            if cost * (len(wanted) - place) > rest:
                most = rest / (len(wanted) - place)
                break
            rest -= cost
        return [few if few * n <= most else max(int(most // n), min(few, FEWEST)) for n in lengths]

    def affords(self, lengths: Sequence[int]) -> bool:
        """Whether FEWEST releases of each of several data laws are well within it."""
        enough = self.draws // len(lengths) >= FEWEST
        return enough and 2 * FEWEST * sum(lengths) <= self.entries


def default_budget(draws: int) -> DrawBudget:
    """Return the default budget: ENTRIES a release, at least ENTRIES_ALWAYS_ALLOWED in all."""
    return DrawBudget(draws, float(max(ENTRIES * draws, ENTRIES_ALWAYS_ALLOWED)))


def longest_by_default(budget: DrawBudget) -> int:
    """The longest data worth looking at within a budget."""
    return int(budget.entries // LONGEST_DATA)


class Grade(NamedTuple):
    """How closely lengths are looked at: short ones, the ladder's steps, first and last entries."""

    short: tuple[int, ...]
    step: int
    ends: bool


GRADES = (
    Grade(SHORT_LENGTHS, 2, True),
    Grade(SHORT_LENGTHS, 2, False),
    Grade((1, 3, 12), 4, False),
)


class Place(NamedTuple):
    """An entry of data of some length under one of several chains."""

    chain: int
    entries: int
    entry: int


def named_places(walks: Sequence[Walk], lengths: Sequence[int]) -> list[Place]:
    """The first, middle and last entry of data of the given lengths, as far as chains have them."""
    return [
        Place(number, entries, entry)
        for number, walk in enumerate(walks)
        for entries in sorted(_fitting(walk, lengths))
        for entry in entries_looked_at(entries)
    ]


def places(
    walks: Sequence[Walk],
    others: Sequence[int],
    budget: DrawBudget,
    longest: int,
    takes: Callable[[int], bool],
) -> list[Place]:
    """Where to look by default, as closely as the budget of a pilot allows.

    `others` are the lengths of laws that are no chains, `takes` says whether the box takes data of
    so many entries. When the coarsest grade costs too much, shorter data has to do.
    """
    found: list[Place] = []
    while True:
        for grade in GRADES:
            found = list(_places_of_grade(walks, grade, longest, takes)) or found
            laws = [p.entries for p in found for _ in walks[p.chain].values]
            if laws and budget.affords([*laws, *others]):
                return found
        if longest <= max(SHORT_LENGTHS):
            return found
        longest //= 2


def ladder(walk: Walk, longest: int, grade: Grade = GRADES[0]) -> list[int]:
    """Short lengths, then steps by a factor up to the chain's own length, or to the longest."""
    top = max(_fitting(walk, [longest]), default=walk.order)
    rungs, rung = list(grade.short), grade.step * max(grade.short)
    while rung < NEAR_TOP_RUNG * top:
        rungs.append(rung)
        rung *= grade.step
    return sorted(_fitting(walk, [*rungs, top]))


def entries_looked_at(entries: int) -> list[int]:
    """The first, the middle and the last."""
    return sorted({0, entries // 2, entries - 1})


def _places_of_grade(
    walks: Sequence[Walk], grade: Grade, longest: int, takes: Callable[[int], bool]
) -> Iterator[Place]:
    """The places of one grade: first and last entries of the shortest and the longest data only."""
    for number, walk in enumerate(walks):
        lengths = [entries for entries in ladder(walk, longest, grade) if takes(entries)]
        for entries in lengths:
            ends = grade.ends and (entries <= max(SHORT_LENGTHS) or entries == lengths[-1])
            for entry in entries_looked_at(entries) if ends else [entries // 2]:
                yield Place(number, entries, entry)


def _fitting(walk: Walk, lengths: Sequence[int]) -> set[int]:
    """The lengths, cut to what the chain covers."""
    more = walk.order - 1
    return {walk.at_most(n - more) + more for n in lengths if n > more}


SAME = 1e-13  # relative: probabilities no further apart than this differ by rounding
RARELY = 0.1  # share of moves that change the state below which jumps are drawn, not moves
FEW_MOVES = 16  # moves too few for that to pay
RAREST = 1000  # paths drawn for one that holds an event, at most

Draw = Callable[[int, np.random.Generator], Ints]  # how many, randomness -> rows of state indices


class Pool(NamedTuple):
    """Data given one fact, and how many entries it has."""

    fact: str
    draw: Draw
    entries: int


class Leg(NamedTuple):
    """So many moves by one matrix, of which a share of about `changes` leads to another state."""

    matrix: Floats
    moves: int
    changes: float


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """How data is drawn given one entry: first the node that brings it, then onward and back.

    `law` is that node's, `values` what the entry is in each of its states; onward the chain is
    followed, backward its time reversal.
    """

    walk: Walk
    law: Floats
    values: Ints
    onward: tuple[Leg, ...]
    back: tuple[Leg, ...]

    def draw(self, value: int | None, count: int, rng: np.random.Generator) -> Ints:
        """`count` sequences of value indices, (count, entries), given the entry's value if any."""
        law = self.law if value is None else np.where(self.values == value, self.law, 0.0)
        node = sum(leg.moves for leg in self.back)
        states = np.empty((count, node + 1 + sum(leg.moves for leg in self.onward)), dtype=np.int64)
        states[:, node] = _sample_indices(law, count, rng)
        _travel(self.onward, states[:, node:], rng)
        _travel(self.back, states[:, node::-1], rng)
        walk = self.walk
        if walk.order == 1 and np.array_equal(walk.shown, np.arange(walk.size)):
            return states
        first = np.stack([values[states[:, 0]] for values in walk.first], axis=1)
        return np.hstack([first, walk.shown[states[:, 1:]]])


def route(walk: Walk, nodes: int, entry: int) -> Route:
    """The way to draw data of `nodes` nodes given one entry."""
    node, values = walk.place(entry)
    laws = walk.laws(nodes)
    law = laws[node]
    if walk.homogeneous:
        onward = [Leg(walk.matrix(0), nodes - 1 - node, _changes(walk.matrix(0), law))]
    else:
        onward = [Leg(walk.matrix(t), 1, 1.0) for t in range(node, nodes - 1)]
    back = []
    while node > 0:
        matrix = time_reversal(walk.matrix(node - 1), laws[node - 1])
        moves = _steady(laws[:node]) if walk.homogeneous else 1
        back.append(Leg(matrix, moves, _changes(matrix, laws[node])))
        node -= moves
    return Route(walk, law, values, tuple(leg for leg in onward if leg.moves), tuple(back))


def paths_with_event(
    law: PathLaw,
    automaton: Automaton,
    event: int,
    share: float,
    count: int,
    rng: np.random.Generator,
) -> Ints:
    """Paths on which one event of an automaton happens, a `share` of all: those kept on which."""
    kept: list[Ints] = []
    while (lacking := count - sum(map(len, kept))) > 0:
        paths = _sample_paths(law, int(1.2 * lacking / share) + 16, rng)
        state = np.zeros(len(paths), dtype=np.int64)
        for step, here in zip(automaton.steps, paths.T, strict=True):
            state = step[state, here]
        kept.append(paths[automaton.accept[state, event]])
    return np.concatenate(kept)[:count]


def _sample_paths(law: PathLaw, count: int, rng: np.random.Generator) -> Ints:
    paths = np.empty((count, law.length), dtype=np.int64)
    paths[:, 0] = _sample_indices(law.initial, count, rng)
    for t in range(law.length - 1):
        paths[:, t + 1] = _move_paths(_edges(law.matrix(t)), paths[:, t], rng)
    return paths


def stated_outcomes(
    table: FiniteLaw,
    where: dict[str, tuple[str, ...]],
    places: tuple[Ints, ...],
    count: int,
    rng: np.random.Generator,
) -> Ints:
    """`outcomes_given` as states: `places` says which one each value of each variable is."""
    columns = outcomes_given(table, where, count, rng).T
    return np.stack([own[column] for own, column in zip(places, columns, strict=True)], axis=1)


def outcomes_given(
    table: FiniteLaw,
    where: dict[str, tuple[str, ...]],
    count: int,
    rng: np.random.Generator,
) -> Ints:
    """`count` outcomes of a joint law given an event, (count, variables), as value indices."""
    law = np.where(table.event(where), table.probability, 0.0).ravel()
    flat = _sample_indices(law, count, rng)
    return np.stack(np.unravel_index(flat, table.probability.shape), axis=1).astype(np.int64)


def _steady(laws: Floats) -> int:
    """Return how many of the last laws are equal up to rounding (at least 1)."""
    last = laws[-1]
    if len(laws) == 1 or (np.abs(laws[-2] - last) > SAME * last).any():
        return 1
    other = (np.abs(laws - last) > SAME * last).any(axis=1)
    return len(laws) - (int(np.flatnonzero(other)[-1]) + 1 if other.any() else 0)


def _changes(matrix: Floats, law: Floats) -> float:
    return float(law @ (1 - np.diag(matrix)))


def _travel(legs: tuple[Leg, ...], states: Ints, rng: np.random.Generator) -> None:
    """Fill in the states after every move of some legs; column 0 is where they start."""
    done = 0
    for leg in legs:
        rarely = leg.changes < RARELY and leg.moves >= FEW_MOVES
        reached = (_by_jumps if rarely else _by_moves)(leg, states[:, done].copy(), rng)
        states[:, done + 1 : done + 1 + leg.moves] = reached
        done += leg.moves


def _by_moves(leg: Leg, states: Ints, rng: np.random.Generator) -> Ints:
    """The states after each move, one move of all sequences after the other."""
    edges = _edges(leg.matrix)
    rows = np.empty((leg.moves, len(states)), dtype=np.int64)  # a move is one stretch of memory
    for row in rows:
        row[:] = states = _move_paths(edges, states, rng)
    return rows.T


def _by_jumps(leg: Leg, states: Ints, rng: np.random.Generator) -> Ints:
    """The states after each move, one change of state of all sequences after the other.

    A state that is left with probability q is held for 1 + ⌊E / -log(1-q)⌋ entries, E a standard
    exponential: more than m with probability P(E ≥ -m log(1-q)) = (1-q)^m. Then another state.
    """
    away = leg.matrix * (1 - np.eye(len(leg.matrix)))
    with np.errstate(divide="ignore"):
        rate = -np.log1p(-np.minimum(away.sum(axis=1), 1.0))
    edges = _edges(away)
    left = np.full(len(states), leg.moves + 1)  # entries still to fill, the present one too
    held, shown = [], []
    while left.any():
        with np.errstate(divide="ignore", invalid="ignore"):
            more = np.floor(rng.standard_exponential(len(states)) / rate.take(states))
        stay = np.fmin(more, left - 1).astype(np.int64) + 1  # 0 where all is filled
        held.append(stay)
        shown.append(states)
        left = left - stay
        states = _move_paths(edges, states, rng)
    runs = np.repeat(np.stack(shown, axis=1).ravel(), np.stack(held, axis=1).ravel())
    return runs.reshape(-1, leg.moves + 1)[:, 1:]


def _sample_indices(law: Floats, count: int, rng: np.random.Generator) -> Ints:
    """`count` indices with probabilities proportional to `law`, never one of probability 0."""
    edges = np.cumsum(law)
    found = np.searchsorted(edges, rng.random(count) * edges[-1], side="right")
    last = int(np.flatnonzero(law)[-1])
    return np.asarray(np.minimum(found, last), np.int64)


def _edges(matrix: Floats) -> Floats:
    """Where each column ends when a row is laid out on [0, 1]; (columns, rows).

    1 exactly from the last positive column on, so that none of probability 0 is ever drawn.
    """
    ends = np.cumsum(matrix, axis=1)
    total = ends[:, -1:]
    return np.ascontiguousarray(np.divide(ends, total, out=np.ones_like(ends), where=total > 0).T)


def _move_paths(edges: Floats, states: Ints, rng: np.random.Generator) -> Ints:
    """One move from each of `states`."""
    uniform = rng.random(len(states))
    found = np.zeros(len(states), dtype=np.int64)
    for column in edges[:-1]:
        found += uniform >= column.take(states)
    return found


# Two facts, and data drawn from the model given each: what a black-box audit sets side by side.


class FactPair(NamedTuple):
    """Facts to tell apart, any two of `pools` unless `pairs` names them."""

    model: int
    law: str
    subject: str
    pools: tuple[Pool, ...]
    pairs: tuple[tuple[int, int], ...]


class Chain(NamedTuple):
    """A chain of the family, by its place there, and as the auditor walks it from one start."""

    number: int
    model: Model
    walk: Walk

    def route(self, entries: int, entry: int) -> Route:
        """How data of so many entries is drawn given one of them."""
        return route(self.walk, entries - self.walk.order + 1, entry)


class FactLaws(NamedTuple):
    """What data is drawn from: chains, and what there is to tell apart in tables."""

    chains: list[Chain]
    tables: list[FactPair]


def laws(
    family: Sequence[Model],
    secrets: Secrets,
    states: tuple[str, ...],
    query: Query | None = None,
) -> FactLaws:
    """The laws of a family, where need be some of its members.

    Chains are never longer than a `query` with a public length takes.
    """
    found = FactLaws([], [])
    for index, model in enumerate(family):
        for member in model.members(states):
            path = member.walk()
            if not isinstance(path, str):
                if not each_entry(secrets):
                    found.tables.extend(_of_events(member, secrets, index))
                    continue
                found.chains.append(_chain(member, path, index, query))
                continue
            table = member.written_out()
            if isinstance(table, str):
                raise InputError(
                    f"data cannot be drawn from {member.describe()}; choose two data sets "
                    "yourself and use audit_neighbours"
                )
            found.tables.extend(_of_table(table, secrets, index, states))
    return found


def fact_pairs(found: FactLaws, places: Sequence[Place]) -> list[FactPair]:
    """What to compare: the values of some entries of chains, and the facts of tables."""
    entries = [_of_entry(found.chains[place.chain], place) for place in places]
    compared = [*found.tables, *(one for one in entries if one is not None)]
    if not compared:
        raise InputError("no entry can take two values, so there is nothing to tell apart")
    return compared


def _chain(model: Model, path: Walk, index: int, query: Query | None) -> Chain:
    path = path if query is None else path.cut_to_length(query)
    if path.initial is None:
        path = path.starting(np.full(path.size, 1 / path.size))
    return Chain(index, model, path)


def _of_entry(chain: Chain, place: Place) -> FactPair | None:
    """Return all pairs of possible values of one entry as facts; None below two values."""
    way = chain.route(place.entries, place.entry)
    pools = tuple(
        Pool(repr(chain.walk.values[value]), partial(way.draw, value), place.entries)
        for value in np.unique(way.values[way.law > 0]).tolist()
    )
    if len(pools) < 2:
        return None
    law = f"{chain.model.describe()}, with data of {place.entries} entries"
    pairs = tuple(combinations(range(len(pools)), 2))
    return FactPair(chain.number, law, f"entry {place.entry + 1}", pools, pairs)


def _of_table(
    table: FiniteLaw, secrets: Secrets, index: int, states: tuple[str, ...]
) -> list[FactPair]:
    """One contrast per pair of facts."""
    places = _places(table, states)
    return [
        FactPair(
            index,
            table.describe(),
            "the data",
            tuple(
                Pool(
                    f"'{fact.name}'",
                    partial(stated_outcomes, table, _values_of_fact(fact), places),
                    len(places),
                )
                for fact in pair
            ),
            ((0, 1),),
        )
        for pair in table_facts(table, secrets)
    ]


def _of_events(model: Model, secrets: Secrets, index: int) -> list[FactPair]:
    """One contrast per pair of events of a chain's path; refused where one is too rare to draw."""
    events = as_events(secrets)
    if events is None:
        raise Refused(
            f"a black box is tried on series drawn from a chain, which says nothing about "
            f"{secrets.subject}; audit the plan itself: shoal.audit(plan)"
        )
    law, found = law_of(model), list[FactPair]()
    for pair in zip((event for event, _ in events.pairs), events.against(), strict=True):
        automaton = compile_events(pair, law)
        shares = priors(automaton, law).tolist()
        for event, share in zip(pair, shares, strict=True):
            if share * RAREST < 1:
                raise Refused(
                    f"'{event.describe()}' has probability {share:.2g}: sampled data would hardly "
                    "ever hold it; audit the plan itself: shoal.audit(plan)"
                )
        pools = tuple(
            Pool(
                f"'{event.describe()}'",
                partial(paths_with_event, law, automaton, i, share),
                law.length,
            )
            for i, (event, share) in enumerate(zip(pair, shares, strict=True))
        )
        found.append(FactPair(index, model.describe(), "the path", pools, ((0, 1),)))
    return found


def _values_of_fact(fact: Fact) -> dict[str, tuple[str, ...]]:
    """The values a fact names; refused for one fact or another, which is not drawn from here."""
    if fact.where is None:
        raise Refused(f"data given '{fact.name}' is not drawn; audit without a black box")
    return fact.where


def _places(table: FiniteLaw, states: tuple[str, ...]) -> tuple[Ints, ...]:
    """Which of `states` each value of each variable is: by place where all share them."""
    if table.states is not None and len(table.states) == len(states):
        return (np.arange(len(states)),) * len(table.variables)
    for variable, domain in zip(table.variables, table.domains, strict=True):
        lacking = [value for value in domain if value not in states]
        if lacking:
            raise InputError(
                f"states is {list(states)}; variable {variable!r} also takes {lacking[0]!r}"
            )
    return tuple(np.array([states.index(value) for value in domain]) for domain in table.domains)
