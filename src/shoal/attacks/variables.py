"""Entries that are named variables, each with values of its own: one table of beliefs for all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from shoal.attacks.seen import EntriesSeen, Seen, SumSeen, VariablesSeen
from shoal.core.errors import InputError, Refused
from shoal.core.value import Floats, Ints
from shoal.models.bayesnet import BayesNet
from shoal.models.contagion import Contagion
from shoal.models.table import JointTable


class Columns(NamedTuple):
    """Every value any variable may take, and which of them are each variable's own.

    In order of first appearance, as `VariableSum.states`; `places[v]` are columns of a table of
    beliefs.
    """

    values: tuple[str, ...]
    places: tuple[Ints, ...]

    def spread(self, rows: Sequence[Floats], empty: float) -> Floats:
        """A row of numbers per variable as one table, `empty` where a value is not the variable's.

        Each row holds a number for each value of its variable.
        """
        found = np.full((len(rows), len(self.values)), empty)
        for v, row in enumerate(rows):
            found[v, self.places[v]] = row
        return found


def columns_of(model: BayesNet | JointTable | Contagion) -> Columns:
    """The columns of beliefs about the variables of a network, table or crowd."""
    values = tuple(dict.fromkeys(value for domain in model.domains for value in domain))
    index = {value: place for place, value in enumerate(values)}
    return Columns(
        values,
        tuple(np.array([index[value] for value in domain]) for domain in model.domains),
    )


def added_by(model: BayesNet | JointTable | Contagion, seen: Sequence[Seen]) -> list[Ints]:
    """What each value of each variable adds to all released numbers side by side.

    (values, numbers) for each variable; one number that is always 0 when no sum was seen.
    """
    tables: list[list[Ints]] = [[] for _ in model.variables]
    for one in seen:
        if isinstance(one, EntriesSeen):
            continue
        for v, rows in enumerate(_weights(model, one)):
            tables[v].append(rows)
    return [
        np.hstack(rows) if rows else np.zeros((len(model.domains[v]), 1), dtype=np.int64)
        for v, rows in enumerate(tables)
    ]


def log_likelihood(seen: Sequence[Seen], answers: Ints) -> Floats:
    """log P(released | true numbers), for rows of all numbers side by side as in `added_by`."""
    out = np.zeros(len(answers))
    place = 0
    for one in seen:
        if isinstance(one, EntriesSeen):
            continue
        weights = one.weights if isinstance(one, SumSeen) else one.weights[0]
        count = weights.shape[1]
        out += one.log_likelihood(answers[:, place : place + count])
        place += count
    return out


def entries_seen(seen: Sequence[Seen], columns: Columns) -> Floats | None:
    """The log-likelihood of all that was seen of single variables, by column; None if nothing."""
    logs = [one.log_likelihood for one in seen if isinstance(one, EntriesSeen)]
    shape = (len(columns.places), len(columns.values))
    for rows in logs:
        if not (rows < np.inf).all():
            raise InputError("what was seen of entries holds a likelihood that is no number")
        if len(rows) != shape[0]:
            raise InputError(f"something was seen of a number of entries other than {shape[0]}")
        if rows.shape != shape:
            raise InputError(
                f"what was seen of entries has {rows.shape[1]} columns; there is one for each of "
                f"{list(columns.values)}"
            )
    return np.asarray(np.sum(logs, axis=0)) if logs else None


def added_in_chain(states: tuple[str, ...], entries: int, seen: Sequence[Seen]) -> Ints:
    """What each value of each entry of a chain adds to all released numbers side by side.

    (entries, values, numbers). The variables of a sum with weights of their own are the entries in
    their order; each takes the states of the chain.
    """
    tables = []
    for one in seen:
        if isinstance(one, VariablesSeen):
            if len(one.variables) != entries or any(own != states for own in one.domains):
                raise InputError(
                    f"the release is about {len(one.variables)} variables of their own; the chain "
                    f"has {entries} entries with the values {list(states)}"
                )
            tables.append(np.stack(one.weights))
        elif isinstance(one, SumSeen):
            weights = one.weights_of(states)
            tables.append(np.broadcast_to(weights, (entries, *weights.shape)))
    if not tables:
        return np.zeros((entries, len(states), 1), dtype=np.int64)
    return np.concatenate(tables, axis=2)


def _weights(
    model: BayesNet | JointTable | Contagion, one: SumSeen | VariablesSeen
) -> Sequence[Ints]:
    if isinstance(one, VariablesSeen):
        if (one.variables, one.domains) != (model.variables, model.domains):
            raise InputError("the release is about other variables or values than the model")
        return one.weights
    if model.states is None or len(one.weights) != len(model.states):
        raise Refused(
            f"a sum with {len(one.weights)} weights for all entries alike needs variables that "
            "share as many values; release a variable_sum where they differ"
        )
    return [one.weights_of(model.states)] * len(model.variables)
