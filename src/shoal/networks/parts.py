"""A model made of independent parts: the law of a sum over it, part by part, given each secret."""

from __future__ import annotations

import math
import sys
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, Protocol, cast

import numpy as np

from shoal.core.codec import Floats, Ints
from shoal.core.errors import InputError
from shoal.core.task import Secrets, each_entry
from shoal.core.walk import LOST
from shoal.events.pairs import named_pairs
from shoal.mechanisms.mixture import DEEPEST_LINEAR, TooLarge
from shoal.networks.laws import GivenSum, NamedSum, SecretLaws, SecretsPart, least_positive

MAX_PAIRS_OF_VALUES = 20_000_000  # pairs of values when the sums of several components are added


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
        """Return how many scales apart answers may lie before masses that were lost can decide.

        Given an event of this probability. It matters only where something was lost.
        """
        ...

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        """Return the law of the sum given what is known of some variables (by their numbers)."""
        ...

    def each_entry(self) -> tuple[Floats, Floats, Ints, tuple[str, ...]]:
        """Return, for every value of every variable, the law of the sum, its probability, variable
        and name.

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
        """Return the components of a sum; with `alike`, equal components are one, with copies.

        Variables of parts that are alike are then known by one of them.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Independent:
    """All secrets of a task, part by part, and the components with how often each occurs."""

    parts: tuple[SecretsPart, ...]
    components: tuple[Component, ...]
    copies: tuple[int, ...]


def independent_parts(model: Parted, query: NamedSum, secrets: Secrets) -> Independent:
    """Return every conditional law of `query` that `secrets` compare, by elimination and
    convolution.

    Impossible secrets are left out. Kept for the next call.
    """
    return _independent_parts(model, query, cast(Hashable, secrets))


@lru_cache(maxsize=16)
def _independent_parts(model: Any, query: NamedSum, secrets: Any) -> Independent:
    """Return what `independent_parts` does, kept for the next call."""
    named = named_pairs(secrets)
    if named is None and not each_entry(secrets):
        raise InputError(f"a network has no secrets of the kind {type(secrets).__name__}")
    components, copies, home = model.sum_parts(query, alike=named is None)
    found: list[SecretsPart | None]
    if named is None:
        found = [_entry_secrets(component, c) for c, component in enumerate(components)]
    else:
        found = [
            _event_secrets(
                [model.evidence(event.mapping()) for event in pair],
                (pair[0].name, pair[1].name),
                components,
                home,
            )
            for pair in named.pairs
        ]
    return Independent(tuple(part for part in found if part is not None), components, copies)


def _entry_secrets(component: Component, number: int) -> SecretsPart:
    """Return the laws of one component given each value of each of its variables."""
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
        component.deepest(least_positive(prior)),
    )
    return SecretsPart(chosen, prior[possible], (number,))


def _event_secrets(
    events: list[dict[int, Floats]],
    names: tuple[str, str],
    components: tuple[Component, ...],
    home: dict[int, int],
) -> SecretsPart | None:
    """Return two events, compared on all components that either is about; None when one is
    impossible.
    """
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
        values, law = _convolve_all(
            [components[c].values for c in spans], [one.law for one in found]
        )
        rows.append(law)
        # a product that underflows is still a possible event
        prior.append(max(math.prod(one.probability for one in found), sys.float_info.min))
        each = zip(spans, found, strict=True)
        deepest = min(deepest, *(components[c].deepest(one.probability) for c, one in each))
        lossy |= any(one.lossy for one in found)
        lossy |= math.prod(least_positive(one.law) for one in found) < LOST
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


def _convolve_all(values: list[Ints], laws: list[Floats]) -> tuple[Ints, Floats]:
    """Return the law of the sum of independent vectors."""
    support, law = values[0], laws[0]
    for others, other in zip(values[1:], laws[1:], strict=True):
        support, law = convolve_sums(support, law, others, other)
    return support, law


def convolve_sums(values: Ints, law: Floats, others: Ints, other: Floats) -> tuple[Ints, Floats]:
    """Return the law of the sum of two independent vectors."""
    if len(values) * len(others) > MAX_PAIRS_OF_VALUES:
        raise TooLarge(
            f"sums with {len(values)} and {len(others)} values are too many to be added; "
            "name events about fewer variables"
        )
    sums = (values[:, None, :] + others[None]).reshape(-1, values.shape[1])
    support, place = np.unique(sums, axis=0, return_inverse=True)
    mass = np.bincount(place.ravel(), np.outer(law, other).ravel(), minlength=len(support))
    return support, mass.astype(np.float64)
