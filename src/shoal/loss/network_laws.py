"""The law of a sum given each secret, part by part, for models made of independent parts.

The variables of a Bayesian network fall into connected components, the people of a contagion
model into groups: components are independent of each other, so a sum over all variables is a sum
of independent sums. A secret about one component is then compared on that component alone, and
the rest is convolved only where it can make the answer smaller (network_exact).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, cast

import numpy as np

from shoal.core.errors import InputError
from shoal.core.task import Model, Secrets
from shoal.core.value import Floats, Ints
from shoal.loss.contagion_laws import CrowdGroup, TableGroup
from shoal.loss.contagion_weights import WeightedGroup, refuse_long
from shoal.loss.frameworks import LOST, Given, SecretLaws, contributions, rarest
from shoal.loss.mixture import DEEPEST_LINEAR, TooLarge
from shoal.loss.network_sums import FieldComponent, NetworkComponent
from shoal.models.bayesnet import BayesNet
from shoal.models.contagion import Contagion
from shoal.models.dependence_field import PairwiseField
from shoal.models.dependence_network import FieldFactors
from shoal.queries.linear import LinearQuery
from shoal.queries.variables import VariableSum
from shoal.secrets.entries import EachEntry
from shoal.secrets.pairs import SecretPairs

Parted = BayesNet | Contagion | PairwiseField  # models made of independent parts
MAX_MERGED = 20_000_000  # pairs of values when the sums of several components are added


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

    def given(self, seen: Mapping[int, Floats]) -> Given:
        """The law of the sum given what is known of some variables (by their numbers)."""
        ...

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """For every value of every variable: law of the sum, probability, variable and name.

        Variables that are alike may be represented by one of them.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The secrets about some components: the law of their sum given each, and how likely each is.

    `spans` lists the components the sum runs over.
    """

    laws: SecretLaws
    prior: Floats
    spans: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Independent:
    """All secrets of a task, part by part, and the components with how often each occurs."""

    parts: tuple[Part, ...]
    components: tuple[Component, ...]
    copies: tuple[int, ...]


def independent(model: Parted, query: LinearQuery | VariableSum, secrets: Secrets) -> Independent:
    """Every conditional law of `query` that `secrets` compare, by elimination and convolution.

    Impossible secrets are left out. Kept for the next call.
    """
    return _independent(model, query, cast(Hashable, secrets))


@lru_cache(maxsize=16)
def _independent(model: Parted, query: LinearQuery | VariableSum, secrets: Any) -> Independent:
    components, copies, home = _components(model, query, alike=isinstance(secrets, EachEntry))
    if isinstance(secrets, EachEntry):
        found = tuple(_entries(component, c) for c, component in enumerate(components))
    elif isinstance(secrets, SecretPairs) and not isinstance(model, PairwiseField):
        found = tuple(
            part
            for a, b in secrets.pairs
            if (
                part := _pair(
                    [model.evidence(event.mapping()) for event in (a, b)],
                    (a.name, b.name),
                    components,
                    home,
                )
            )
        )
    else:
        raise InputError(f"a network has no secrets of the kind {type(secrets).__name__}")
    return Independent(tuple(part for part in found if part is not None), components, copies)


def _components(
    model: Model, query: LinearQuery | VariableSum, *, alike: bool
) -> tuple[tuple[Component, ...], tuple[int, ...], dict[int, int]]:
    """The components, how often each occurs, and which one every variable belongs to.

    With `alike`, groups of people that follow the same law are one component with copies.
    """
    if isinstance(model, BayesNet):
        added = contributions(query, model.variables, model.domains)
        nets = tuple(NetworkComponent(model, part, added) for part in model.parts)
        home = {v: c for c, part in enumerate(model.parts) for v in part}
        return nets, (1,) * len(nets), home
    if isinstance(model, PairwiseField):
        whole = FieldFactors(model)
        added = contributions(query, whole.variables, whole.domains)
        fields = tuple(FieldComponent(whole, part, added) for part in whole.parts)
        return fields, (1,) * len(fields), {v: c for c, p in enumerate(whole.parts) for v in p}
    assert isinstance(model, Contagion)
    if isinstance(query, VariableSum):
        return _weighted(model, query, alike=alike)
    added = contributions(query, model.variables[:1], model.domains[:1])
    kinds: dict[int, int] = {}
    groups: list[Component] = []
    copies: list[int] = []
    home = {}
    for g, group in enumerate(model.groups):
        law = model.which[g] if alike else g
        if law not in kinds:
            kinds[law] = len(groups)
            kind = CrowdGroup if model.exchangeable(g) else TableGroup
            groups.append(kind(model, g, added[0]))
            copies.append(0)
        copies[kinds[law]] += 1
        home.update((person, kinds[law]) for person in group)
    return tuple(groups), tuple(copies), home


def _weighted(
    model: Contagion, query: VariableSum, *, alike: bool
) -> tuple[tuple[Component, ...], tuple[int, ...], dict[int, int]]:
    """The same for a crowd whose people have weights of their own.

    Groups are alike when they follow one law and the same weights in the same order.
    """
    added = contributions(query, model.variables, model.domains)
    kinds: dict[tuple[int, ...], int] = {}
    groups: list[Component] = []
    copies: list[int] = []
    home: dict[int, int] = {}
    for g, people in enumerate(model.groups):
        own = [added[person] for person in people]
        weights = tuple(int(weight) for rows in own for weight in rows.ravel())
        key = (model.which[g], *weights) if alike else (g,)
        if key not in kinds:
            kinds[key] = len(groups)
            kind = WeightedGroup if model.exchangeable(g) else TableGroup
            groups.append(kind(model, g, own))
            copies.append(0)
        copies[kinds[key]] += 1
        home.update((person, kinds[key]) for person in people)
    refuse_long([group for group in groups if isinstance(group, WeightedGroup)])
    return tuple(groups), tuple(copies), home


def _entries(component: Component, number: int) -> Part | None:
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
    return Part(chosen, prior[possible], (number,))


def _pair(
    events: list[dict[int, Floats]],
    names: tuple[str, str],
    components: tuple[Component, ...],
    home: dict[int, int],
) -> Part | None:
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
    return Part(laws, np.array(prior), spans)


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
