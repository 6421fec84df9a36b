"""Pairwise fields: a joint law of tied records, made of a potential per tie."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import numbers
from shoal.core.codec import Floats, Ints, as_read_only
from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.core.task import AnswerLaws, EntryLift, Influences, Law, Query, Secrets
from shoal.core.walk import TooUnlikely, Wide, is_exact_in_doubles, product
from shoal.mechanisms.variables import per_variable
from shoal.networks.elimination import align_axes
from shoal.networks.laws import NamedSum, contribution_steps
from shoal.networks.network_sums import single_parts
from shoal.networks.parts import SumParts
from shoal.networks.table import MAX_OUTCOMES, JointTable, normalised_table
from shoal.records.coefficients import contributions
from shoal.records.domain import RecordDomain
from shoal.records.pairwise import Dependence, TiedRecords, sort_ties, validated_ties
from shoal.records.sources import FriendModel


@dataclass(frozen=True)
class SamplingSettings:
    """Gibbs sampling of a field's outcomes."""

    burn_in_sweeps: int = 50  # sweeps before the first outcome
    outcomes: int = 200  # outcomes drawn
    sweeps_per_outcome: int = 2  # sweeps between two outcomes
    max_ties: int = 10_000  # ties of a field that outcomes are drawn from: about a second


SAMPLING = SamplingSettings()


NOTHING_POSSIBLE = "the potentials leave no outcome possible; some must be positive together"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PairwiseField(TiedRecords):
    """P(x) ∝ Π_i own[i, x_i] · Π over ties t = (i, j) of potentials[potential_of[t], x_i, x_j].

    A joint law of all records, unlike `Dependence`, so that what it tells about a record can be
    bounded or computed. `own` has a row per record, or one row for all. Only ratios matter: a
    potential may be multiplied by any number.
    """

    kind = "pairwise-field"

    domain: RecordDomain
    records: int
    ties: Ints
    potential_of: Ints
    potentials: Floats
    own: Floats

    def __post_init__(self) -> None:
        """Check shapes and signs, and store the arrays locked."""
        count, size = whole(self.records, "records"), self.domain.size
        ties = validated_ties(self.ties, count)
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
        object.__setattr__(self, "potential_of", as_read_only(which, np.int32))
        object.__setattr__(self, "potentials", as_read_only(tables + 0.0))
        object.__setattr__(self, "own", as_read_only(own + 0.0))

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
        """Return the field of ties in any order and direction; one potential serves all by
        default.
        """
        found = sort_ties(ties, numbers(potentials, "potentials"), potential_of)
        return cls(
            domain=domain,
            records=records,
            ties=found[0],
            potential_of=found[2],
            potentials=found[1],
            own=np.ones((1, domain.size)) if own is None else np.atleast_2d(numbers(own, "own")),
        )

    @property
    def law_of(self) -> Ints:
        """Which potential each tie has, by the name that pairwise laws have for it."""
        return self.potential_of

    @property
    def forest(self) -> bool:
        """Whether no ties form a loop."""
        return len(self.ties) == self.records - (int(self.components().max()) + 1)

    def part(self, records: Sequence[int]) -> PairwiseField:
        """Return the field of some whole components, their records in the order given."""
        ties, keep = self._kept(records)
        own = self.own if len(self.own) == 1 else self.own[list(records)]
        which = self.potential_of[keep].astype(np.int64)
        return PairwiseField.of(self.domain, len(records), ties, self.potentials, which, own)

    def table(self) -> JointTable:
        """Return the joint law written out; refused when it has too many outcomes."""
        return _joint_table(self)

    def small(self, most: int = 2**16) -> bool:
        """Return whether the law can be written out with at most `most` outcomes."""
        return self.records * float(np.log2(self.domain.size)) <= float(np.log2(most))

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        """Return the laws of the same law as a network or table, or factor by factor."""
        from shoal.networks.exact import LARGEST_REACH, PartedLaws, named_sum
        from shoal.records.field_laws import as_network, summable

        law = as_network(self)
        if law is not self:
            return law.answer_laws(query, secrets)
        asked = named_sum(query, LARGEST_REACH)
        if isinstance(asked, str):
            return asked
        if not summable(self):
            return Law.answer_laws(self, query, secrets)
        if per_variable(query) is not None:
            return f"weights per variable need named variables, not {self.describe()}"
        if len(query.labels) > 1:
            return (
                f"the exact loss of {len(query.labels)} values at once is computed for one "
                f"Markov chain or table, not for {self.describe()}; use lift"
            )
        return PartedLaws(self, asked, secrets)

    def sum_parts(self, query: NamedSum, *, alike: bool) -> SumParts:
        """Return the components, in wide numbers."""
        from shoal.records.field_laws import FieldComponent, FieldFactors

        whole = FieldFactors(self)
        added = contribution_steps(query, whole.variables, whole.domains)
        return single_parts([FieldComponent(whole, part, added) for part in whole.parts])

    def lift(self, query: Query | None) -> EntryLift:
        from shoal.records.field_mechanism import FieldLift

        return FieldLift(self, query)

    def answer_variance(self, query: Query) -> Floats | None:
        """Return variances of a sum over the records, of outcomes drawn; None for other queries.

        A guide: Gibbs sampling with a fixed seed, which strong ties slow down.
        """
        adds = contributions(query, self)
        if adds is None or len(self.ties) > SAMPLING.max_ties:
            return None
        value = (adds.low + adds.high) / 2
        return np.asarray(np.var([value[x].sum(axis=0) for x in _sample_outcomes(self)], axis=0))

    def influences(self) -> Influences | str:
        from shoal.records.field_laws import as_network

        law = as_network(self)
        return Law.influences(self) if law is self else law.influences()

    def describe(self) -> str:
        shape = "without loops" if self.forest else "with loops"
        return (
            f"a pairwise field of {self.records} records with {len(self.ties)} ties {shape}, at "
            f"most {self.tied} in one component, on {self.domain.describe()}"
        )


def _sample_outcomes(field: PairwiseField) -> Iterator[Ints]:
    """Yield outcomes by Gibbs sampling: records of one colour are drawn at once, given all
    others.
    """
    draw, count = np.random.default_rng(1), field.records
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log([*field.potentials, *field.potentials.transpose(0, 2, 1)]), -1e6)
        alone = np.maximum(np.log(np.broadcast_to(field.own, (count, field.domain.size))), -1e6)
    record, other = np.concatenate([field.ties, field.ties[:, ::-1]]).T
    which = np.concatenate([field.potential_of, field.potential_of + len(field.potentials)])
    colour = _colour_records(field)
    classes = [np.flatnonzero(colour[record] == one) for one in range(int(colour.max()) + 1)]
    x = np.zeros(count, dtype=np.int64)
    for sweep in range(SAMPLING.burn_in_sweeps + SAMPLING.outcomes * SAMPLING.sweeps_per_outcome):
        for number, rows in enumerate(classes):
            scores = alone + draw.gumbel(size=alone.shape)
            np.add.at(scores, record[rows], logs[which[rows], :, x[other[rows]]])
            x = np.where(colour == number, scores.argmax(axis=1), x)
        if sweep >= SAMPLING.burn_in_sweeps and sweep % SAMPLING.sweeps_per_outcome == 0:
            yield x


def _colour_records(field: PairwiseField) -> Ints:
    """Return a colour for each record, none the same as that of a record it is tied to."""
    near: list[list[int]] = [[] for _ in range(field.records)]
    for a, b in field.ties.tolist():
        near[a].append(b)
        near[b].append(a)
    colour = [-1] * field.records
    for record in range(field.records):
        taken = {colour[other] for other in near[record]}
        colour[record] = next(c for c in range(len(taken) + 1) if c not in taken)
    return np.array(colour)


def friend_field(
    model: FriendModel, domain: RecordDomain, records: int, edges: npt.ArrayLike
) -> PairwiseField:
    """Return the joint law whose ties have the potentials of Eq. (26): Π (‖x_i - x_j‖₁ + b)^(-c).

    With several ties at a record the law of a pair is not Eq. (26) itself but what all ties
    together make of it; `field_of_pairs` keeps the pair laws, on graphs without loops.
    """
    return PairwiseField.of(domain, records, edges, model.potential(domain))


def field_of_pairs(model: Dependence) -> PairwiseField:
    """Return the one Markov law on a forest of ties that has exactly these pair laws.

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
    if not is_exact_in_doubles(own, possible):
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
def _joint_table(model: PairwiseField) -> JointTable:
    """Return the joint law written out; refused beyond 2^24 outcomes."""
    count, size = model.records, model.domain.size
    if not model.small(MAX_OUTCOMES):
        raise InputError(
            f"{count} records of {size} values have more than {MAX_OUTCOMES} outcomes; "
            "write out fewer records, or bound the field with dependent-field"
        )
    factors = [align_axes(row, [record], count) for record, row in enumerate(own_weights(model))]
    for pair, which in zip(model.ties.tolist(), model.potential_of, strict=True):
        factors.append(align_axes(model.potentials[which], pair, count))
    weight = product([Wide.of(factor) for factor in factors])
    if not weight.possible.any():
        raise InputError(NOTHING_POSSIBLE)
    states = model.states or tuple(str(cell) for cell in range(size))
    return normalised_table(weight, tuple(f"X{i + 1}" for i in range(count)), (states,) * count)


def own_weights(model: PairwiseField) -> Floats:
    """Return what the values of each record weigh by themselves, (records, values)."""
    return np.broadcast_to(model.own, (model.records, model.domain.size))
