"""The choice of what to test: rounds of releases with ever fewer pairs of facts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.audit.black_box import BlackBox, FunctionBox, Runner
from shoal.audit.fact_pairs import (
    FEWEST,
    Chain,
    DrawBudget,
    FactLaws,
    FactPair,
    Pool,
    default_budget,
    fact_pairs,
    ladder,
    longest_by_default,
    named_places,
    places,
)
from shoal.audit.telling_events import TellingEvent, best_event
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.numbers import whole

# share of the draws, and how many pairs of facts go on to it; what is left over tests
PILOT = 0.2
NARROWINGS = ((0.15, 6), (0.15, 2))
TEST = 0.5
LEAST_TESTS = 1000  # releases given each fact, however long the data


class Rival(NamedTuple):
    """Two facts to tell apart, and what was released so far when either held."""

    contrast: FactPair
    pools: tuple[Pool, Pool]
    outputs: tuple[Floats, Floats]


def chosen(
    run: Runner,
    found: list[FactPair],
    budget: DrawBudget,
    spread: float,
    seeds: np.random.SeedSequence,
) -> tuple[Rival, TellingEvent]:
    """The pair of facts and the event that promise most, from rounds with ever fewer rivals.

    Each rival is judged by the tests it could have: long data may be too dear for all of them.
    """
    pilot, *others = seeds.spawn(1 + len(NARROWINGS))
    ranked = _ranked(_pilot(run, found, budget, pilot), budget, spread)
    done = PILOT
    for (share, kept), own in zip(NARROWINGS, others, strict=True):
        done += share
        rivals = [rival for rival, _ in ranked[:kept]]
        more = _more(run, rivals, budget.part(share), round(done * budget.draws), own)
        ranked = _ranked(more, budget, spread)
    return ranked[0]


def trials(budget: DrawBudget, entries: int) -> int:
    """How many releases given each fact are kept for the test of data of so many entries."""
    part = budget.part(TEST)
    most, dear = part.draws // 2, part.entries / 2 / entries
    return most if dear >= most else min(most, max(int(dear), LEAST_TESTS))


def _ranked(
    rivals: list[Rival], budget: DrawBudget, spread: float
) -> list[tuple[Rival, TellingEvent]]:
    """Every rival with its best event, the one that promises most first."""
    learned = [
        best_event(*rival.outputs, trials(budget, rival.pools[0].entries), spread=spread)
        for rival in rivals
    ]
    order = sorted(range(len(rivals)), key=lambda i: -learned[i].expected)
    return [(rivals[i], learned[i].event) for i in order]


def _pilot(
    run: Runner, found: list[FactPair], budget: DrawBudget, seeds: np.random.SeedSequence
) -> list[Rival]:
    """Every pair of facts, each fact with an equal share of the draws as far as they go."""
    part = budget.part(PILOT)
    pools = [pool for contrast in found for pool in contrast.pools]
    if part.draws // len(pools) < FEWEST:
        raise InputError(
            f"draws leaves {part.draws // len(pools)} for each of {len(pools)} facts in the first "
            f"round; give at least {math.ceil(FEWEST * len(pools) / PILOT):,} draws, or fewer "
            "lengths"
        )
    outputs = iter(_outputs(run, pools, part, part.draws, seeds))
    rivals = []
    for contrast in found:
        own = [next(outputs) for _ in contrast.pools]
        rivals += [
            Rival(contrast, (contrast.pools[one], contrast.pools[two]), (own[one], own[two]))
            for one, two in contrast.pairs
        ]
    return rivals


def _more(
    run: Runner, rivals: list[Rival], part: DrawBudget, until: int, seeds: np.random.SeedSequence
) -> list[Rival]:
    """The same rivals with more outputs."""
    pools = [pool for rival in rivals for pool in rival.pools]
    fresh = iter(_outputs(run, pools, part, until, seeds))
    grown = []
    for rival in rivals:
        both = [np.vstack([known, next(fresh)]) for known in rival.outputs]
        grown.append(rival._replace(outputs=(both[0], both[1])))
    return grown


def _outputs(
    run: Runner, pools: Sequence[Pool], part: DrawBudget, until: int, seeds: np.random.SeedSequence
) -> list[Floats]:
    """What is released given each of some facts, within a part of the budget."""
    counts = part.each([pool.entries for pool in pools])
    sizes = zip(counts, (pool.entries for pool in pools), strict=True)
    run.stage(until, sizes)
    own = seeds.spawn(len(pools))
    return [run.draw(*one) for one in zip(pools, counts, own, strict=True)]


# What a black-box audit looks at: the lengths somebody named, or those the box takes.


PROBES = 4  # data sets by which a function shows whether it takes a length


class Looked(NamedTuple):
    """The lengths of data looked at, those the box does not take, and what was left out.

    `beyond` is the model's own length where longer data was not looked at, 0 for any length.
    """

    lengths: tuple[int, ...] = ()
    refused: tuple[int, ...] = ()
    beyond: int | None = None

    def describe(self) -> str:
        """The same in words; none where no lengths were chosen."""
        if not self.lengths:
            return ""
        words = f"data of {_listed(self.lengths)} entries"
        if self.refused:
            words += f"; the black box takes no data of {_listed(self.refused)}"
        if self.beyond is not None:
            upper = f"up to {self.beyond:,} entries" if self.beyond else "of any length"
            words += f"; longer data ({upper}) only when its lengths are named"
        return f"{words}."


class Scope(NamedTuple):
    """What to compare, how much may be drawn for it, and what that leaves out."""

    fact_pairs: list[FactPair]
    budget: DrawBudget
    looked: Looked


def named_scope(laws: FactLaws, lengths: Sequence[int], draws: int) -> Scope:
    """The lengths somebody named, with as many draws whatever their length."""
    wanted = [whole(n, "a length") for n in lengths]
    for chain in laws.chains:
        if all(n < chain.walk.order for n in wanted):
            raise InputError(
                f"lengths is {list(wanted)}; {chain.model.describe()} needs data of "
                f"{chain.walk.order} entries or more"
            )
    found = named_places([chain.walk for chain in laws.chains], wanted)
    return Scope(
        fact_pairs(laws, found),
        DrawBudget(draws),
        Looked(lengths=tuple(sorted({place.entries for place in found}))),
    )


def default_scope(box: BlackBox, laws: FactLaws, draws: int, seed: int) -> Scope:
    """Short lengths and a ladder up to the model's own, as far as the draws and the box go."""
    budget = default_budget(draws)
    longest = longest_by_default(budget)
    refused = _refused(box, laws.chains, longest, seed)
    others = [pool.entries for contrast in laws.tables for pool in contrast.pools]
    walks = [chain.walk for chain in laws.chains]
    found = places(walks, others, budget.part(PILOT), longest, lambda n: n not in refused)
    lengths = tuple(sorted({place.entries for place in found}))
    looked = Looked(lengths, refused, _beyond(laws.chains, (*lengths, *refused)))
    return Scope(fact_pairs(laws, found), budget, looked)


def _refused(box: BlackBox, chains: Sequence[Chain], longest: int, seed: int) -> tuple[int, ...]:
    """The lengths of the ladder a function does not take, though it takes others.

    It fails for every probe of such a length. One that fails for all lengths, or for some data of
    a length only, is told in the words of its first failure.
    """
    if not isinstance(box, FunctionBox):
        return ()
    by_length = {n: chain for chain in chains for n in ladder(chain.walk, longest)}
    failures = {n: _failure(box, by_length[n], n, seed) for n in sorted(by_length)}
    refused = tuple(n for n, failure in failures.items() if failure is not None)
    if refused and len(refused) == len(failures):
        first = failures[refused[0]]
        raise InputError(
            f"{first} (data of {_listed(refused)} entries was tried; if it takes other lengths, "
            "name them)"
        ) from first
    return refused


def _failure(box: FunctionBox, chain: Chain, entries: int, seed: int) -> InputError | None:
    """What a box says to every probe of a length, or None when it answers."""
    numbers = np.random.SeedSequence([seed, 0, entries])
    rng = np.random.default_rng(numbers)
    paths = chain.route(entries, entries // 2).draw(None, PROBES, rng)
    failures = []
    for path, own in zip(paths, numbers.generate_state(PROBES).tolist(), strict=True):
        try:
            box.draw(path[None], own)
        except InputError as failure:
            failures.append(failure)
    if failures and len(failures) < PROBES:
        raise failures[0]
    return failures[0] if failures else None


def _beyond(chains: Sequence[Chain], lengths: Sequence[int]) -> int | None:
    """The longest data of the chains, 0 for any length, when it is longer than all lengths seen."""
    if any(chain.walk.length is None for chain in chains):
        return 0
    own = max(((c.walk.length or 0) + c.walk.order - 1 for c in chains), default=0)
    return own if own > max(lengths, default=0) else None


def _listed(lengths: Sequence[int]) -> str:
    words = [f"{n:,}" for n in lengths]
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
