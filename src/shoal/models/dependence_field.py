"""Pairwise fields: a joint law of tied records, made of a potential per tie."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.core.value import Floats, Ints, Value, locked
from shoal.core.wide import TooUnlikely, Wide, held, product
from shoal.models.chain import numbers
from shoal.models.dependence import (
    Dependence,
    admit_records,
    checked_ties,
    component_names,
    places_of,
)
from shoal.models.dependence_domain import RecordDomain
from shoal.models.friends import FriendModel
from shoal.models.table import MAX_OUTCOMES, JointTable, table_of

NOTHING_POSSIBLE = "the potentials leave no outcome possible; some must be positive together"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairwiseField(Value):
    """P(x) ∝ Π_i own[i, x_i] · Π over ties t = (i, j) of potentials[potential_of[t], x_i, x_j].

    A joint law of all records, unlike `Dependence`, so that what it tells about a record can be
    bounded or computed. `own` has a row per record, or one row for all. Only ratios matter: a
    potential may be multiplied by any number.
    """

    domain: RecordDomain
    records: int
    ties: Ints
    potential_of: Ints
    potentials: Floats
    own: Floats

    def __post_init__(self) -> None:
        count, size = whole(self.records, "records"), self.domain.size
        ties = checked_ties(self.ties, count)
        tables, own = numbers(self.potentials, "potentials"), numbers(self.own, "own")
        if tables.ndim != 3 or tables.shape[1:] != (size, size):
            raise InputError(f"potentials has shape {tables.shape}; it must be (…, {size}, {size})")
        if own.shape not in ((1, size), (count, size)):
            raise InputError(
                f"own has shape {own.shape}; it must be (1, {size}) or ({count}, {size})"
            )
        for name, values in (("potentials", tables), ("own", own)):
            if not (np.isfinite(values).all() and (values >= 0).all()):
                raise InputError(f"{name} holds a number that is negative or not finite")
        which = np.asarray(self.potential_of)
        if which.shape != (len(ties),) or (
            len(ties) and (which.min() < 0 or which.max() >= len(tables))
        ):
            raise InputError("potential_of must name one of the potentials for each tie")
        object.__setattr__(self, "records", count)
        object.__setattr__(self, "ties", ties)
        object.__setattr__(self, "potential_of", locked(which, np.int32))
        object.__setattr__(self, "potentials", locked(tables + 0.0))
        object.__setattr__(self, "own", locked(own + 0.0))

    @classmethod
    def of(
        cls,
        domain: RecordDomain,
        records: int,
        ties: npt.ArrayLike,
        potentials: npt.ArrayLike,
        potential_of: npt.ArrayLike | None = None,
        own: npt.ArrayLike | None = None,
    ) -> Self:
        """From ties in any order and direction; one potential serves all by default."""
        tables = numbers(potentials, "potentials")
        tables = tables[None] if tables.ndim == 2 else tables
        pairs = np.asarray(ties, dtype=np.int64).reshape(-1, 2)
        which = np.zeros(len(pairs), np.int64) if potential_of is None else np.asarray(potential_of)
        turned = pairs[:, 0] > pairs[:, 1]
        if turned.any() and not np.array_equal(tables, tables.transpose(0, 2, 1)):
            which = which + turned * len(tables)
            tables = np.concatenate([tables, tables.transpose(0, 2, 1)])
        pairs = np.sort(pairs, axis=1)
        order = np.lexsort((pairs[:, 1], pairs[:, 0]))
        alone = np.ones((1, domain.size)) if own is None else np.atleast_2d(numbers(own, "own"))
        return cls(
            domain=domain,
            records=records,
            ties=pairs[order],
            potential_of=which[order],
            potentials=tables,
            own=alone,
        )

    @property
    def states(self) -> tuple[str, ...] | None:
        return self.domain.states

    @property
    def tied(self) -> int | None:
        """The size of the largest component."""
        return int(np.bincount(self.components()).max())

    def components(self) -> Ints:
        """The component of each record, numbered from 0; components are independent."""
        return _components(self)

    @property
    def forest(self) -> bool:
        """Whether no ties form a loop."""
        return len(self.ties) == self.records - (int(self.components().max()) + 1)

    def part(self, records: Sequence[int]) -> PairwiseField:
        """The field of some whole components, their records in the order given."""
        place = places_of(records, self.components())
        moved = place[self.ties].reshape(-1, 2)
        keep = (moved >= 0).all(axis=1)
        own = self.own if len(self.own) == 1 else self.own[list(records)]
        which = self.potential_of[keep].astype(np.int64)
        return PairwiseField.of(self.domain, len(records), moved[keep], self.potentials, which, own)

    def table(self) -> JointTable:
        """The joint law written out; refused when it has too many outcomes."""
        return _table(self)

    def small(self, most: int = 2**16) -> bool:
        """Whether the law can be written out with at most `most` outcomes."""
        return self.records * float(np.log2(self.domain.size)) <= float(np.log2(most))

    def admit(self, records: Any) -> None:
        """Refuse data that does not hold exactly one value per record."""
        admit_records(records, self.records)

    def describe(self) -> str:
        shape = "without loops" if self.forest else "with loops"
        return (
            f"a pairwise field of {self.records} records with {len(self.ties)} ties {shape}, at "
            f"most {self.tied} in one component, on {self.domain.describe()}"
        )


def friend_field(
    model: FriendModel, domain: RecordDomain, records: int, edges: npt.ArrayLike
) -> PairwiseField:
    """The joint law whose ties have the potentials of Eq. (26): Π (‖x_i - x_j‖₁ + b)^(-c).

    With several ties at a record the law of a pair is not Eq. (26) itself but what all ties
    together make of it; `field_of_pairs` keeps the pair laws, on graphs without loops.
    """
    return PairwiseField.of(domain, records, edges, model.potential(domain))


def field_of_pairs(model: Dependence) -> PairwiseField:
    """The one Markov law on a forest of ties that has exactly these pair laws.

    P(x) = Π over ties of P(x_i, x_j) · Π over records of P(x_i)^(1 - ties of i). Refused when the
    ties form a loop, for then pair laws do not decide a joint law, or when they do not agree on
    the law of a record.
    """
    blocks = int(model.components().max()) + 1
    if len(model.ties) != model.records - blocks:
        raise InputError(
            "the ties form a loop, so pairwise laws do not decide a joint law; give potentials "
            "with PairwiseField, or a table"
        )
    if not model.agrees():
        raise InputError("the ties of a record give it different laws; no joint law has them")
    near, size = model.neighbours(), model.domain.size
    margins = np.concatenate([model.laws.sum(axis=2), model.laws.sum(axis=1)])
    law = np.ones((model.records, size))
    law[near.record] = margins[near.law]
    power = np.where(model.degrees() > 0, 1.0 - model.degrees(), 0.0)[:, None]
    possible = law > 0
    least = np.where(possible, law, math.inf).min(axis=1, keepdims=True)
    own = np.where(possible, np.where(possible, law / least, 1.0) ** power, 0.0)  # at most 1
    if not held(own, possible):
        record = int(np.argmin(np.where(possible, own, 1.0).min(axis=1)))
        raise TooUnlikely(
            f"record {record} has {int(model.degrees()[record])} ties and values whose "
            "probabilities lie so far apart that no double holds their weights; use the pairwise "
            "laws themselves, or give potentials with PairwiseField"
        )
    return PairwiseField(
        domain=model.domain,
        records=model.records,
        ties=model.ties,
        potential_of=model.law_of,
        potentials=model.laws,
        own=own,
    )


@lru_cache(maxsize=16)
def _components(model: PairwiseField) -> Ints:
    return component_names(model.records, model.ties)


@lru_cache(maxsize=16)
def _table(model: PairwiseField) -> JointTable:
    count, size = model.records, model.domain.size
    if not model.small(MAX_OUTCOMES):
        raise InputError(
            f"{count} records of {size} values have more than {MAX_OUTCOMES} outcomes; "
            "write out fewer records, or bound the field with dependent-field"
        )
    rows = [model.own[record if len(model.own) > 1 else 0] for record in range(count)]
    factors = [_spread(row, (record,), count) for record, row in enumerate(rows)]
    for pair, which in zip(model.ties.tolist(), model.potential_of, strict=True):
        factors.append(_spread(model.potentials[which], tuple(pair), count))
    weight = product([Wide.of(factor) for factor in factors])
    if not weight.possible.any():
        raise InputError(NOTHING_POSSIBLE)
    states = model.states or tuple(str(cell) for cell in range(size))
    return table_of(weight, tuple(f"X{i + 1}" for i in range(count)), (states,) * count)


def _spread(values: Floats, axes: tuple[int, ...], count: int) -> Floats:
    """`values` shaped to multiply a table of `count` axes along `axes` (in increasing order)."""
    shape = [1] * count
    for axis, length in zip(axes, values.shape, strict=True):
        shape[axis] = length
    return np.asarray(values.reshape(shape))
