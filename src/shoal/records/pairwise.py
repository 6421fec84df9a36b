"""Records tied in pairs: their values, how likely two are together, nothing about three at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import checked_rows, numbers
from shoal.core.codec import Bools, Floats, Ints, as_read_only
from shoal.core.errors import DataError, InputError
from shoal.core.numbers import whole
from shoal.core.records import Sequences
from shoal.core.task import Law, Query
from shoal.records.domain import RecordDomain

# Records in independent groups, of which only the size of the largest is known.


@dataclass(frozen=True, slots=True, eq=False)
class RecordGroups(Law):
    """All laws under which every record depends on at most `largest` - 1 others.

    Groups (households, circles of friends) are independent of each other; inside a group anything
    is possible. `largest` = 1 is the assumption of ordinary differential privacy: independent
    records. It takes records of every kind, numbers and graphs too.
    """

    kind = "record-groups"

    largest: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "largest", whole(self.largest, "largest"))

    states: ClassVar[None] = None

    @property
    def tied(self) -> int | None:
        return self.largest

    def admit(self, records: Any) -> None:
        """Take any records: which of them form a group need not be known."""

    def describe(self) -> str:
        if self.largest == 1:
            return "independent records, of any law"
        return f"records in independent groups of at most {self.largest}, of any law"


AGREE = 1e-6  # how far two ties may differ about the law of one record


class Neighbours(NamedTuple):
    """Every tie from both of its ends: `record` learns about `other` by `law`.

    Laws 0 … m-1 are those of the ties as stored, m … 2m-1 the same seen from the other end.
    """

    record: Ints
    other: Ints
    law: Ints


class TiedRecords(Law):
    """What pairwise laws and fields share: n records on a domain, and ties between some."""

    __slots__ = ()

    domain: RecordDomain
    records: int
    ties: Ints

    @property
    def states(self) -> tuple[str, ...] | None:
        return self.domain.states

    @property
    def tied(self) -> int | None:
        """The size of the largest component: what may depend on each other jointly."""
        return int(self.component_sizes().max())

    def components(self) -> Ints:
        """Return the component of each record, numbered from 0; components are independent."""
        return _components(self)

    def component_sizes(self) -> Ints:
        """Return the size of each record's component."""
        names = self.components()
        return np.asarray(np.bincount(names)[names])

    def admit(self, records: Any) -> None:
        """Refuse data that does not hold exactly one value for each record."""
        if isinstance(records, Sequences):
            fits = len(records.chains) == 1 and records.total == self.records
        else:
            fits = not hasattr(records, "__len__") or len(records) == self.records
        if not fits:
            raise DataError(
                f"the model ties {self.records} records; the data must hold exactly one value for "
                "each, in order"
            )

    def _kept(self, records: Sequence[int]) -> tuple[Ints, Bools]:
        """Return the ties between some whole components, by the places of their records, and which
        ties.

        Refused when a component would be cut: what is left of it may still be dependent, through
        records that are gone.
        """
        moved = positions_of(records, self.components())[self.ties].reshape(-1, 2)
        keep = np.asarray((moved >= 0).all(axis=1))
        return moved[keep], keep


def sort_ties(
    ties: npt.ArrayLike, tables: Floats, which: npt.ArrayLike | None
) -> tuple[Ints, Floats, Ints]:
    """Return ties with the smaller record first, in order, their tables turned with them, and whose
    is which.

    `tables` (…, x, y) or one (x, y) are of ties as they are written; `which` names each tie's, by
    default the first.
    """
    tables = tables[None] if tables.ndim == 2 else tables
    pairs = np.asarray(ties, dtype=np.int64).reshape(-1, 2)
    own = np.zeros(len(pairs), np.int64) if which is None else np.asarray(which, np.int64)
    turned = pairs[:, 0] > pairs[:, 1]
    if turned.any() and not np.array_equal(tables, tables.transpose(0, 2, 1)):
        own = own + turned * len(tables)
        tables = np.concatenate([tables, tables.transpose(0, 2, 1)])
    pairs = np.sort(pairs, axis=1)
    order = np.lexsort((pairs[:, 1], pairs[:, 0]))
    return pairs[order], tables, own[order]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dependence(TiedRecords):
    """n records, and for each tie (i, j) the joint law of the values of i and j.

    Tie t joins records ties[t, 0] < ties[t, 1], and laws[law_of[t], x, y] is the probability that
    they take the values x and y; many ties share a law, so a million of them are two numbers and
    an index each. This is a model of *pairs*: it stands for every joint law of all records that
    has these pairs and leaves different components (records linked by chains of ties)
    independent. About two records of one component that are not tied it says nothing at all.
    Liu, Chakraborty & Mittal 2016, Sections V and VI-D.
    """

    kind = "dependence"

    domain: RecordDomain
    records: int
    ties: Ints
    law_of: Ints
    laws: Floats

    def __post_init__(self) -> None:
        """Check ties and laws, and store them locked."""
        count = whole(self.records, "records")
        ties = validated_ties(self.ties, count)
        size = self.domain.size
        laws = numbers(self.laws, "laws")
        if laws.ndim != 3 or laws.shape[1:] != (size, size):
            raise InputError(
                f"laws has shape {laws.shape}; a domain of {size} values needs (laws, {size}, "
                f"{size})"
            )
        law_of = np.asarray(self.law_of)
        if law_of.shape != (len(ties),):
            raise InputError(f"law_of has shape {law_of.shape}; {len(ties)} ties need one each")
        if len(ties) and not (law_of.min() >= 0 and law_of.max() < len(laws)):
            raise InputError(f"law_of names a law that is not there; there are {len(laws)}")
        if len(laws):
            flat = laws.reshape(len(laws), -1)
            laws = checked_rows(flat, "laws", flat.shape).reshape(laws.shape)
        object.__setattr__(self, "records", count)
        object.__setattr__(self, "ties", ties)
        object.__setattr__(self, "law_of", as_read_only(law_of, np.int32))
        object.__setattr__(self, "laws", as_read_only(laws))

    @classmethod
    def of(
        cls,
        domain: RecordDomain,
        records: int,
        ties: npt.ArrayLike,
        laws: npt.ArrayLike,
        law_of: npt.ArrayLike | None = None,
    ) -> Self:
        """Return the model of ties in any order and direction; one law serves all unless `law_of`
        says which.

        A law is that of (first, second) as the tie is written; when a tie is turned so that the
        smaller record comes first, its law is turned with it.
        """
        pairs, tables, which = sort_ties(ties, numbers(laws, "laws"), law_of)
        return cls(domain=domain, records=records, ties=pairs, law_of=which, laws=tables)

    @property
    def dependence_size(self) -> int:
        """L of Liu et al., Section V: one more than the most ties of one record.

        It counts pairs. A promise needs `tied`, the size of a component, instead: a record may
        depend on two others together and on neither of them alone.
        """
        return int(self.degrees().max()) + 1

    def noise_bound(self, query: Query, noise: object) -> float:
        """Return the bound by conditional means. Proof: records/dependent_means.md."""
        from shoal.records.coefficients import means_bound

        return means_bound(self, query, noise)

    def answer_variance(self, query: Query) -> Floats | None:
        """Return variances of a sum over the records, of its values; None where no law says.

        A guide: records that are not tied count as uncorrelated, those without a tie as the others.
        """
        from shoal.records.coefficients import contributions

        adds = contributions(query, self)
        if adds is None or not len(self.ties):
            return None
        value = (adds.low + adds.high) / 2
        first, second = self.laws.sum(axis=2) @ value, self.laws.sum(axis=1) @ value
        joint = np.einsum("lxy,xk,yk->lk", self.laws, value, value) - first * second
        squares = self.laws.sum(axis=2) @ value**2 - first**2
        alone = np.zeros((self.records, value.shape[1]))
        known = np.zeros(self.records, dtype=bool)
        for side, law in ((0, squares), (1, self.laws.sum(axis=1) @ value**2 - second**2)):
            alone[self.ties[:, side]] = law[self.law_of]
            known[self.ties[:, side]] = True
        alone[~known] = alone[known].mean(axis=0)
        total = alone.sum(axis=0) + 2 * joint[self.law_of].sum(axis=0)
        return np.asarray(np.maximum(total, 0.0))

    def degrees(self) -> Ints:
        """Return how many ties each record has."""
        return np.bincount(self.ties.ravel(), minlength=self.records)

    def neighbours(self) -> Neighbours:
        """Return every tie twice, once from each end."""
        first, second = self.ties[:, 0], self.ties[:, 1]
        return Neighbours(
            np.concatenate([first, second]).astype(np.int64),
            np.concatenate([second, first]).astype(np.int64),
            np.concatenate([self.law_of, self.law_of + len(self.laws)]).astype(np.int64),
        )

    def conditionals(self) -> Floats:
        """Return P(other = y | record = x), (2m, x, y), for the laws as `neighbours` numbers them.

        A row of zeros marks a value the record never takes.
        """
        both = np.concatenate([self.laws, self.laws.transpose(0, 2, 1)])
        total = both.sum(axis=2, keepdims=True)
        return np.asarray(np.divide(both, total, out=np.zeros_like(both), where=total > 0))

    def agrees(self) -> bool:
        """Return whether all ties of a record give it the same law; otherwise no joint law
        exists.
        """
        near = self.neighbours()
        margins = np.concatenate([self.laws.sum(axis=2), self.laws.sum(axis=1)])
        low = np.full((self.records, self.domain.size), np.inf)
        high = np.full((self.records, self.domain.size), -np.inf)
        np.minimum.at(low, near.record, margins[near.law])
        np.maximum.at(high, near.record, margins[near.law])
        return bool((high - low <= AGREE).all())

    def pair(self, one: int, other: int) -> Floats | None:
        """Return the joint law of two records, or None when no tie gives it."""
        small, large = sorted((one, other))
        found = np.flatnonzero((self.ties[:, 0] == small) & (self.ties[:, 1] == large))
        if not len(found):
            return None
        law = self.laws[self.law_of[found[0]]]
        return np.asarray(law if one == small else law.T)

    def part(self, records: Sequence[int]) -> Dependence:
        """Return the model of some whole components, their records in the order given."""
        ties, keep = self._kept(records)
        which = self.law_of[keep].astype(np.int64)
        return Dependence.of(self.domain, len(records), ties, self.laws, which)

    def describe(self) -> str:
        return (
            f"{self.records} records with {len(self.ties)} pairwise ties, at most {self.tied} in "
            f"one component, on {self.domain.describe()}"
        )


@lru_cache(maxsize=16)
def _components(model: TiedRecords) -> Ints:
    return component_names(model.records, model.ties)


def component_names(records: int, ties: Ints) -> Ints:
    """Return the component of each record under these ties, numbered from 0; locked."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ones = np.ones(len(ties), dtype=np.int8)
    graph = coo_array((ones, (ties[:, 0], ties[:, 1])), shape=(records, records))
    _, names = connected_components(graph, directed=False)
    return as_read_only(names, np.int64)


def positions_of(records: Sequence[int], components: Ints) -> Ints:
    """Return the place of each record among `records`, -1 for all others; refused when they cut a
    tie.

    `components` names the component of every record.
    """
    chosen = [int(record) for record in records]
    if len(set(chosen)) < len(chosen) or not chosen:
        raise InputError("records names a record twice, or none; name each one once")
    if min(chosen) < 0 or max(chosen) >= len(components):
        raise InputError(f"records names one outside 0 … {len(components) - 1}")
    place = np.full(len(components), -1)
    place[chosen] = np.arange(len(chosen))
    cut = np.isin(components, components[chosen]) & (place < 0)
    if cut.any():
        gone = int(np.flatnonzero(cut)[0])
        kept = next(record for record in chosen if components[record] == components[gone])
        raise InputError(
            f"records has {kept} but not {gone}, which ties link to it; name whole components"
        )
    return place


def validated_ties(ties: npt.ArrayLike, records: int) -> Ints:
    """Return (t, 2) pairs, locked: the smaller record first, in order, none twice; others are
    refused.
    """
    array = np.asarray(ties)
    array = array.reshape(0, 2) if array.size == 0 else array
    if array.ndim != 2 or array.shape[1] != 2 or array.dtype.kind not in "iuf":
        raise InputError(f"ties has shape {array.shape}; it must be pairs of record numbers")
    pairs = array.astype(np.int64)
    if len(pairs) == 0:
        return as_read_only(pairs, np.int32)
    if pairs.min() < 0 or pairs.max() >= records:
        wrong = pairs[((pairs < 0) | (pairs >= records)).any(axis=1)][0].tolist()
        raise InputError(
            f"ties names a record outside 0 … {records - 1} in {wrong}; number records from 0, or "
            "raise their number"
        )
    if not (pairs[:, 0] < pairs[:, 1]).all():
        wrong = pairs[pairs[:, 0] >= pairs[:, 1]][0].tolist()
        raise InputError(
            f"ties holds {wrong}; a tie must name two records, the smaller first "
            "(Dependence.of puts them in order)"
        )
    code = pairs[:, 0] * records + pairs[:, 1]
    if not (np.diff(code) > 0).all():
        raise InputError("ties must be in order and none twice (Dependence.of sorts them)")
    return as_read_only(pairs, np.int32)
