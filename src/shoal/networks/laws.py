"""The law of a sum given each secret: of a law that is written out, or part by part.

The variables of a Bayesian network fall into connected components, the people of a contagion
model into groups: components are independent of each other, so a sum over all variables is a sum
of independent sums. A secret about one component is then compared on that component alone, and
the rest is convolved only where it can make the answer smaller (`exact`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from shoal.core.codec import Bools, Floats, Ints
from shoal.core.errors import InputError
from shoal.core.task import Secrets, each_entry
from shoal.core.walk import LOST
from shoal.events.pairs import named_pairs
from shoal.mechanisms.mixture import DEEPEST_LINEAR
from shoal.mechanisms.queries import LinearQuery
from shoal.mechanisms.variables import VariableSum, per_variable
from shoal.networks.table import JointTable

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
        """Return laws[s, j1, j2, …] over the box of all answers, one axis per coordinate."""
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


def contribution_steps(
    query: NamedSum, variables: tuple[str, ...], domains: tuple[tuple[str, ...], ...]
) -> list[Ints]:
    """Return what each value of each variable adds to the answer, (values, labels), in lattice
    steps.
    """
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


def laws_of_table(table: JointTable, query: NamedSum, secrets: Secrets) -> SecretLaws:
    """Return every conditional law of `query` that `secrets` compare, by summing over all
    outcomes.
    """
    return secrets_part_of_table(table, query, secrets).laws


def secrets_part_of_table(table: JointTable, query: NamedSum, secrets: Secrets) -> SecretsPart:
    """Return `laws_of_table` with how likely each secret is."""
    values, place = distinct_answers(table, query)
    masks, groups, names = _masks_of_secrets(table, secrets)
    weight = np.where(masks, table.probability.ravel(), 0.0)
    totals = weight.sum(axis=1)
    possible = np.flatnonzero(totals > 0)
    laws = np.zeros((len(possible), len(values)))
    lossy = False
    for row, s in enumerate(possible):
        mass = np.bincount(place, weight[s], minlength=len(values))
        laws[row] = mass / totals[s]
        lossy |= bool(((mass > 0) & (laws[row] < LOST)).any())
    pairs, possible_names = groups[np.ix_(possible, possible)], tuple(names[s] for s in possible)
    return SecretsPart(
        SecretLaws(values, laws, pairs, possible_names, lossy=lossy), totals[possible], ()
    )


def least_positive(masses: Floats) -> float:
    """Return the least of some probabilities that is not 0; 1 when all are."""
    return float(masses[masses > 0].min(initial=1.0))


def distinct_answers(table: JointTable, query: NamedSum) -> tuple[Ints, Ints]:
    """Return the distinct answers, and which of them each outcome gives."""
    added = contribution_steps(query, table.variables, table.domains)
    labels = added[0].shape[1]
    count = len(table.variables)
    total = np.zeros((*table.probability.shape, labels), dtype=np.int64)
    for axis, weights in enumerate(added):
        shape = [1] * (count + 1)
        shape[axis], shape[-1] = weights.shape
        total += weights.reshape(shape)
    values, place = np.unique(total.reshape(-1, labels), axis=0, return_inverse=True)
    return values, place.ravel()


def _masks_of_secrets(table: JointTable, secrets: Secrets) -> tuple[Bools, Bools, list[str]]:
    """Return each secret as a mask over outcomes, which of them are compared, and their names."""
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
