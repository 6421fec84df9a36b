"""The law of a sum given each secret: of a law that is written out, or part by part.

The variables of a Bayesian network fall into connected components, the people of a contagion
model into groups: components are independent of each other, so a sum over all variables is a sum
of independent sums. A secret about one component is then compared on that component alone, and
the rest is convolved only where it can make the answer smaller (`exact`).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.progress import doing
from shoal.core.task import Secrets, each_entry
from shoal.core.walk import LEAST_NORMAL, LOST, Wide
from shoal.events.pairs import named_pairs
from shoal.mechanisms.mixture import DEEPEST_LINEAR, TooLarge
from shoal.mechanisms.queries import LinearQuery
from shoal.mechanisms.variables import VariableSum, per_variable
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import (
    Factor,
    elimination,
    possible_joint,
    weighted_joint,
    wide_weighted_joint,
)
from shoal.networks.table import JointTable

MAX_MERGED = 20_000_000  # pairs of values when the sums of several components are added
NamedSum = LinearQuery | VariableSum  # sums over variables, with weights for all alike or for each


@dataclass(frozen=True, slots=True)
class SecretLaws:
    """laws[s, j] = P(F = values[j] | secret s), and the secrets to keep indistinguishable.

    `values` are the distinct answers as rows of integer multiples of the query's lattice, in
    increasing order; `pairs` is a symmetric boolean table over the secrets; `names` says what each
    secret is. Secrets of probability 0 are left out: nothing can be learned about them.
    `roundings` bounds the relative error of each law in units of 2^-53, and `lossy` says that
    masses may have been lost to underflow: so small ones that they decide nothing while all
    answers lie at most `deepest` scales apart.
    """

    values: Ints
    laws: Floats
    pairs: Bools
    names: tuple[str, ...]
    roundings: float = 0.0
    lossy: bool = False
    deepest: float = DEEPEST_LINEAR

    def on_grid(self) -> Floats:
        """laws[s, j1, j2, …] over the box of all answers, one axis per coordinate."""
        shape = tuple(int(extent) + 1 for extent in np.ptp(self.values, axis=0))
        grid = np.zeros((len(self.laws), *shape))
        places = tuple((self.values - self.values.min(axis=0)).T)
        grid[(slice(None), *places)] = self.laws
        return grid


@dataclass(frozen=True, slots=True, eq=False)
class SecretsPart:
    """Some secrets: the law of a sum given each, and how likely each is.

    `spans` lists the components the sum runs over, where there are several.
    """

    laws: SecretLaws
    prior: Floats
    spans: tuple[int, ...]


class GivenSum(NamedTuple):
    """The law of a sum on values known from elsewhere, and the probability of what was given.

    `lossy` says that masses below 1e-290 may have been lost to underflow.
    """

    law: Floats
    probability: float
    lossy: bool = False


def contributions(
    query: NamedSum, variables: tuple[str, ...], domains: tuple[tuple[str, ...], ...]
) -> list[Ints]:
    """What each value of each variable adds to the answer, (values, labels), in lattice steps."""
    rows = query.multiples()
    named = per_variable(query)
    if named is not None:
        if (named.variables, named.domains) != (variables, domains):
            raise InputError("the query is about other variables or values than the model")
        return [np.array(row, dtype=np.int64)[:, None] for row in rows]
    if any(domain != query.states for domain in domains):
        raise InputError(
            "a linear query needs every variable to have the query's states "
            f"{list(query.states)}; use variable_sum for variables that differ"
        )
    shared = np.array(rows, dtype=np.int64)
    return [shared] * len(variables)


def table_laws(table: JointTable, query: NamedSum, secrets: Secrets) -> SecretLaws:
    """Every conditional law of `query` that `secrets` compare, by summing over all outcomes."""
    return table_part(table, query, secrets).laws


def table_part(table: JointTable, query: NamedSum, secrets: Secrets) -> SecretsPart:
    """The same with how likely each secret is."""
    values, place = answers_of(table, query)
    masks, groups, names = _secrets(table, secrets)
    weight = np.where(masks, table.probability.ravel(), 0.0)
    totals = weight.sum(axis=1)
    possible = np.flatnonzero(totals > 0)
    laws = np.zeros((len(possible), len(values)))
    lossy = False
    for row, s in enumerate(possible):
        mass = np.bincount(place, weight[s], minlength=len(values))
        laws[row] = mass / totals[s]
        lossy |= bool(((mass > 0) & (laws[row] < LOST)).any())
    pairs, told = groups[np.ix_(possible, possible)], tuple(names[s] for s in possible)
    return SecretsPart(SecretLaws(values, laws, pairs, told, lossy=lossy), totals[possible], ())


def rarest(masses: Floats) -> float:
    """The least of some probabilities that is not 0; 1 when all are."""
    return float(masses[masses > 0].min(initial=1.0))


def answers_of(table: JointTable, query: NamedSum) -> tuple[Ints, Ints]:
    """The distinct answers, and which of them each outcome gives."""
    added = contributions(query, table.variables, table.domains)
    labels = added[0].shape[1]
    count = len(table.variables)
    total = np.zeros((*table.probability.shape, labels), dtype=np.int64)
    for axis, weights in enumerate(added):
        shape = [1] * (count + 1)
        shape[axis], shape[-1] = weights.shape
        total += weights.reshape(shape)
    values, place = np.unique(total.reshape(-1, labels), axis=0, return_inverse=True)
    return values, place.ravel()


def _secrets(table: JointTable, secrets: Secrets) -> tuple[Bools, Bools, list[str]]:
    """Each secret as a mask over outcomes, which of them are compared, and their names."""
    if each_entry(secrets):
        facts = [
            (axis, f"{name} = {value}", {name: value})
            for axis, name in enumerate(table.variables)
            for value in table.domains[axis]
        ]
        owner = np.array([axis for axis, _, _ in facts])
        groups = (owner[:, None] == owner[None, :]) & ~np.eye(len(facts), dtype=bool)
        masks = np.stack([table.event(where).ravel() for _, _, where in facts])
        return masks, groups, [name for _, name, _ in facts]
    named = named_pairs(secrets)
    if named is not None:
        events = list(dict.fromkeys(event for pair in named.pairs for event in pair))
        groups = np.zeros((len(events), len(events)), dtype=bool)
        for a, b in named.pairs:
            i, j = events.index(a), events.index(b)
            groups[i, j] = groups[j, i] = True
        masks = np.stack([event.holds(table).ravel() for event in events])
        return masks, groups, [event.name for event in events]
    raise InputError(f"a table has no secrets of the kind {type(secrets).__name__}")


# The same for models made of independent parts.


class Component(Protocol):
    """A set of variables independent of all others."""

    @property
    def values(self) -> Ints:
        """The sums it can have, (m, labels), in lattice steps, increasing."""
        ...

    @property
    def roundings(self) -> float: ...
    @property
    def lossy(self) -> bool: ...
    def deepest(self, probability: float) -> float:
        """How many scales apart answers may lie before masses that were lost can decide.

        Given an event of this probability. It matters only where something was lost.
        """
        ...

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """The law of the sum given what is known of some variables (by their numbers)."""
        ...

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """For every value of every variable: law of the sum, probability, variable and name.

        Variables that are alike may be represented by one of them.
        """
        ...


class SumParts(NamedTuple):
    """The components a sum runs over, how often each occurs, and which one a variable is in."""

    components: tuple[Component, ...]
    copies: tuple[int, ...]
    home: dict[int, int]


class Parted(Protocol):
    """A model made of independent parts."""

    def __hash__(self) -> int: ...
    def sum_parts(self, query: NamedSum, *, alike: bool) -> SumParts:
        """The components of a sum; with `alike`, those that follow one law may be one, with copies.

        Variables of parts that are alike are then known by one of them.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Independent:
    """All secrets of a task, part by part, and the components with how often each occurs."""

    parts: tuple[SecretsPart, ...]
    components: tuple[Component, ...]
    copies: tuple[int, ...]


def independent(model: Parted, query: NamedSum, secrets: Secrets) -> Independent:
    """Every conditional law of `query` that `secrets` compare, by elimination and convolution.

    Impossible secrets are left out. Kept for the next call.
    """
    return _independent(model, query, cast(Hashable, secrets))


@lru_cache(maxsize=16)
def _independent(model: Any, query: NamedSum, secrets: Any) -> Independent:
    named = named_pairs(secrets)
    if named is None and not each_entry(secrets):
        raise InputError(f"a network has no secrets of the kind {type(secrets).__name__}")
    components, copies, home = model.sum_parts(query, alike=named is None)
    found: list[SecretsPart | None]
    if named is None:
        found = [_entries(component, c) for c, component in enumerate(components)]
    else:
        found = [
            _pair(
                [model.evidence(event.mapping()) for event in pair],
                (pair[0].name, pair[1].name),
                components,
                home,
            )
            for pair in named.pairs
        ]
    return Independent(tuple(part for part in found if part is not None), components, copies)


def _entries(component: Component, number: int) -> SecretsPart:
    laws, prior, owner, names = component.each_entry()
    possible = np.flatnonzero(prior > 0)
    pairs = (owner[:, None] == owner[None, :]) & ~np.eye(len(owner), dtype=bool)
    chosen = SecretLaws(
        component.values,
        laws[possible],
        pairs[np.ix_(possible, possible)],
        tuple(names[s] for s in possible),
        component.roundings,
        component.lossy,
        component.deepest(rarest(prior)),
    )
    return SecretsPart(chosen, prior[possible], (number,))


def _pair(
    events: list[dict[int, Floats]],
    names: tuple[str, str],
    components: tuple[Component, ...],
    home: dict[int, int],
) -> SecretsPart | None:
    """Two events, compared on all components that either is about; None when one is impossible."""
    spans = tuple(sorted({home[v] for seen in events for v in seen}))
    if not spans:
        return None
    values = components[spans[0]].values
    rows: list[Floats] = []
    prior: list[float] = []
    lossy = any(components[c].lossy for c in spans)
    deepest = DEEPEST_LINEAR
    for seen in events:
        found = [
            components[c].given({v: row for v, row in seen.items() if home[v] == c}) for c in spans
        ]
        if not all(one.probability > 0 for one in found):
            return None
        values, law = _merged([components[c].values for c in spans], [one.law for one in found])
        rows.append(law)
        # a product that underflows is still a possible event
        prior.append(max(math.prod(one.probability for one in found), sys.float_info.min))
        each = zip(spans, found, strict=True)
        deepest = min(deepest, *(components[c].deepest(one.probability) for c, one in each))
        lossy |= any(one.lossy for one in found)
        lossy |= math.prod(rarest(one.law) for one in found) < LOST
    chosen = [components[c] for c in spans]
    laws = SecretLaws(
        values,
        np.array(rows),
        ~np.eye(2, dtype=bool),
        names,
        sum(c.roundings + 2 * len(c.values) for c in chosen),
        lossy,
        deepest,
    )
    return SecretsPart(laws, np.array(prior), spans)


def _merged(values: list[Ints], laws: list[Floats]) -> tuple[Ints, Floats]:
    """The law of the sum of independent vectors."""
    support, law = values[0], laws[0]
    for others, other in zip(values[1:], laws[1:], strict=True):
        support, law = added(support, law, others, other)
    return support, law


def added(values: Ints, law: Floats, others: Ints, other: Floats) -> tuple[Ints, Floats]:
    """The law of the sum of two independent vectors."""
    if len(values) * len(others) > MAX_MERGED:
        raise TooLarge(
            f"sums with {len(values)} and {len(others)} values are too many to be added; "
            "name events about fewer variables"
        )
    sums = (values[:, None, :] + others[None]).reshape(-1, values.shape[1])
    support, place = np.unique(sums, axis=0, return_inverse=True)
    mass = np.bincount(place.ravel(), np.outer(law, other).ravel(), minlength=len(support))
    return support, mass.astype(np.float64)


# The law of a sum over variables whose joint law is a product of tables, by elimination with
# weights.


MAX_WIDTH = 2**20  # values a coded sum may have
MOST_LAW_WORK = 2e9  # multiplications, about half a minute
OVERHEAD = 3000  # multiplications that take as long as one step takes anyway
RAREST_SECRET = 1e-250  # a less likely secret has lost digits to underflow, and is followed anew
WIDER = 6  # how much longer numbers that never underflow take, measured


class Factored(Protocol):
    """Variables whose joint law is proportional to a product of factors."""

    @property
    def variables(self) -> tuple[str, ...]: ...
    @property
    def domains(self) -> tuple[tuple[str, ...], ...]: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def elimination_order(self) -> tuple[int, ...]: ...
    @property
    def depth(self) -> float: ...
    def factors(self, among: Iterable[int]) -> list[Factor]:
        """One for each of the variables, in their order, and then any others."""
        ...


class NetworkComponent:
    """The variables of one connected component and what each value of theirs adds to a sum.

    `contributions[v]` is (values, labels) in lattice steps, for every variable of the network. A
    vector is coded as one number, digit by digit in bases no digit reaches, so that its law comes
    out of one elimination in which factors are multiplied by convolution along the code.
    """

    def __init__(self, net: Factored, nodes: Sequence[int], contributions: Sequence[Ints]) -> None:
        self.net = net
        self.nodes = tuple(nodes)
        self.asked = self.nodes  # the variables that are secrets; of several alike one is enough
        self._low = sum(contributions[v].min(axis=0) for v in self.nodes)
        digits = {v: contributions[v] - contributions[v].min(axis=0) for v in self.nodes}
        self._unit = math.gcd(*(int(n) for rows in digits.values() for n in rows.ravel())) or 1
        extent = sum(rows.max(axis=0) for rows in digits.values()) // self._unit
        self._shape = tuple(int(top) + 1 for top in extent)
        self.width = math.prod(self._shape)
        if self.width > MAX_WIDTH:
            raise TooLarge(
                f"the sum over {len(self.nodes)} tied variables has {self.width} values; at most "
                f"{MAX_WIDTH} are handled: ask for fewer numbers at once, or for coarser weights"
            )
        base = [math.prod(self._shape[axis + 1 :]) for axis in range(len(self._shape))]
        self._codes = {v: (rows // self._unit) @ np.array(base) for v, rows in digits.items()}

    @cached_property
    def values(self) -> Ints:
        """Every value of the code as a vector, in lattice steps."""
        grid = np.stack(np.unravel_index(np.arange(self.width), self._shape), axis=1)
        return np.asarray(grid * self._unit + self._low, dtype=np.int64)

    @property
    def lossy(self) -> bool:
        """Whether products of table entries may underflow."""
        return self.net.depth > DEEPEST_LINEAR

    def deepest(self, probability: float) -> float:
        """How many scales apart answers may lie given an event before what was lost decides.

        Joint masses below e^-708 may be lost, of as many outcomes as there are. Given an event of
        this probability they are that much larger, and the density is at least e^-span. Below
        SMALLEST they are followed in numbers that never underflow, and lost only by division.
        """
        if probability < RAREST_SECRET:
            return DEEPEST_LINEAR
        outcomes = sum(math.log(self.net.sizes[v]) for v in self.nodes)
        return min(DEEPEST_LINEAR, 660.0 - outcomes + math.log(probability))

    @cached_property
    def roundings(self) -> float:
        scopes = tuple(factor.scope for factor in self._factors)
        order = elimination(scopes, self.net.sizes, (), self.net.elimination_order)
        once = float(2 * order.roundings + (len(scopes) + 2) * self.width)
        return 2.0 * once if self.lossy else once  # wide numbers are added with two

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """For every value of every variable: law of the sum, probability, variable and name."""
        self._affordable()
        laws, prior = self._laws()
        owner = np.repeat(self.asked, [self.net.sizes[v] for v in self.asked])
        names = tuple(
            f"{self.net.variables[v]} = {value}"
            for v in self.asked
            for value in self.net.domains[v]
        )
        return laws, prior, owner, names

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """The law of the sum given the values that `seen` allows some variables."""
        weight = self._weight((), seen)
        total = float(weight.sum())
        if self.lossy and total < RAREST_SECRET:
            return self._followed_given(seen)
        return GivenSum(weight / total if total > 0 else weight, total)

    def _laws(self) -> tuple[Floats, Floats]:
        """The laws given each value of each variable, and how likely it is."""
        rows, what = [], f"the search for laws of a sum over {len(self.nodes)} variables"
        for number, v in enumerate(self.asked):
            doing(what, number, len(self.asked))
            rows.append(self.with_variable(v))
        weight = np.concatenate(rows)
        prior = weight.sum(axis=1)
        if self.lossy:
            factors, order = self.net.factors(self.nodes), self.net.elimination_order
            known = [possible_joint(factors, self.net.sizes, (v,), order) for v in self.asked]
            if (np.concatenate(known) & (prior < RAREST_SECRET)).any():
                return self._followed()
        return weight / np.where(prior > 0, prior, 1.0)[:, None], prior

    def _followed(self) -> tuple[Floats, Floats]:
        """`_laws` without underflow."""
        self._affordable(WIDER)
        found = [self._wide_weight((v,), {}) for v in self.asked]
        everything = found[0].total()
        totals = [table.total(-1, keepdims=True) for table in found]
        laws = [table.over(total) for table, total in zip(found, totals, strict=True)]
        prior = [
            np.where(total.possible, np.maximum(total.over(everything), LEAST_NORMAL), 0.0)[:, 0]
            for total in totals
        ]
        return np.concatenate(laws), np.concatenate(prior)

    def _followed_given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """`given` without underflow."""
        table, everything = self._wide_weight((), seen), self._wide_weight((), {}).total()
        total = table.total()
        chance = max(float(total.over(everything)), LEAST_NORMAL) if total.possible else 0.0
        return GivenSum(table.over(total), chance)

    def with_variable(self, v: int, seen: Mapping[int, Floats] | None = None) -> Floats:
        """P(X_v = x, sum = code) times the likelihoods in `seen`, (values of v, codes)."""
        return self._weight((v,), seen or {})

    @cached_property
    def work(self) -> int:
        """The multiplications of one elimination for every variable, about."""
        scopes = tuple(factor.scope for factor in self._factors)
        chosen = elimination(scopes, self.net.sizes, (), self.net.elimination_order)
        terms = sum(step.terms * self.width + OVERHEAD for step in chosen.steps)
        return terms * len(self.asked)

    def _affordable(self, times: int = 1) -> None:
        """Refuse what would take minutes."""
        work = self.work * times
        if work > MOST_LAW_WORK:
            raise TooLarge(
                f"the laws of a sum over {len(self.nodes)} tied variables take about {work:.1g} "
                f"multiplications; at most {MOST_LAW_WORK:.0e} are tried: use group, or a "
                "coarser model"
            )

    @cached_property
    def _factors(self) -> list[Factor]:
        """The factor of each variable, spread along the code by what its values add."""
        factors = self.net.factors(self.nodes)
        spread = [
            Factor(factor.scope, _spread(factor.table, self._codes[v]))
            for v, factor in zip(self.nodes, factors, strict=False)
        ]
        return spread + [Factor(f.scope, f.table[..., None]) for f in factors[len(spread) :]]

    def _weight(self, keep: tuple[int, ...], seen: Mapping[int, Floats]) -> Floats:
        factors = [*self._factors, *(Factor((v,), row[:, None]) for v, row in seen.items())]
        found = weighted_joint(
            factors, self.net.sizes, keep, self.width, self.net.elimination_order
        )
        padded = np.zeros((*found.shape[:-1], self.width))
        padded[..., : found.shape[-1]] = found
        return padded

    def _wide_weight(self, keep: tuple[int, ...], seen: Mapping[int, Floats]) -> Wide:
        """`_weight` in numbers that never underflow."""
        factors = [*self._factors, *(Factor((v,), row[:, None]) for v, row in seen.items())]
        return wide_weighted_joint(
            factors, self.net.sizes, keep, self.width, self.net.elimination_order
        )


def network_parts(net: BayesNet, query: NamedSum) -> SumParts:
    """The connected components of a network."""
    added = contributions(query, net.variables, net.domains)
    return parts_of([NetworkComponent(net, part, added) for part in net.parts])


def parts_of(components: Sequence[NetworkComponent]) -> SumParts:
    """Components that occur once each."""
    home = {v: c for c, component in enumerate(components) for v in component.nodes}
    return SumParts(tuple(components), (1,) * len(components), home)


def convolves(net: BayesNet, query: NamedSum) -> bool:
    """Whether the laws of a sum given every value of every variable are found by convolution."""
    added = contributions(query, net.variables, net.domains)
    try:
        return all(NetworkComponent(net, part, added).work <= MOST_LAW_WORK for part in net.parts)
    except TooLarge:
        return False


def _spread(table: Floats, codes: Ints) -> Floats:
    out = np.zeros((*table.shape, int(codes.max()) + 1))
    for value, code in enumerate(codes.tolist()):
        out[..., value, code] = table[..., value]
    return out
