"""Pairwise fields: a joint law of tied records, made of a potential per tie."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import numbers
from shoal.core.codec import Floats, Ints, locked
from shoal.core.errors import InputError
from shoal.core.numbers import whole
from shoal.core.progress import time_over
from shoal.core.task import AnswerLaws, EntryLift, Influences, Law, Model, Query, Secrets
from shoal.core.walk import LEAST_NORMAL, TooUnlikely, Wide, held, product
from shoal.mechanisms.mixture import DEEPEST_LINEAR
from shoal.mechanisms.variables import per_variable
from shoal.networks.bayesnet import BayesNet
from shoal.networks.elimination import Factor, good_order
from shoal.networks.laws import (
    GivenSum,
    NamedSum,
    NetworkComponent,
    SumParts,
    contributions,
    parts_of,
)
from shoal.networks.table import MAX_OUTCOMES, JointTable, table_of
from shoal.records.sources import FriendModel
from shoal.records.ties import Dependence, RecordDomain, TiedRecords, checked_ties, ordered_ties

UNSEEN, SEEN, APART = 50, 200, 2  # sweeps before the first outcome, outcomes, sweeps between two
MOST_DRAWN = 10_000  # ties of a field that outcomes are drawn from: about a second
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
        found = ordered_ties(ties, numbers(potentials, "potentials"), potential_of)
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
        """The field of some whole components, their records in the order given."""
        ties, keep = self._kept(records)
        own = self.own if len(self.own) == 1 else self.own[list(records)]
        which = self.potential_of[keep].astype(np.int64)
        return PairwiseField.of(self.domain, len(records), ties, self.potentials, which, own)

    def table(self) -> JointTable:
        """The joint law written out; refused when it has too many outcomes."""
        return _table(self)

    def small(self, most: int = 2**16) -> bool:
        """Whether the law can be written out with at most `most` outcomes."""
        return self.records * float(np.log2(self.domain.size)) <= float(np.log2(most))

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        """Those of the same law as a network or table, or factor by factor."""
        from shoal.networks.exact import LARGEST_REACH, PartedLaws, named_sum

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
        """The components, in wide numbers."""
        whole = FieldFactors(self)
        added = contributions(query, whole.variables, whole.domains)
        return parts_of([FieldComponent(whole, part, added) for part in whole.parts])

    def lift(self, query: Query | None) -> EntryLift:
        from shoal.records.rows import FieldLift

        return FieldLift(self, query)

    def answer_variance(self, query: Query) -> Floats | None:
        """Variances of a sum over the records, of outcomes drawn; None for other queries.

        A guide: Gibbs sampling with a fixed seed, which strong ties slow down.
        """
        from shoal.records.coefficients import contributions

        adds = contributions(query, self)
        if adds is None or len(self.ties) > MOST_DRAWN:
            return None
        value = (adds.low + adds.high) / 2
        return np.asarray(np.var([value[x].sum(axis=0) for x in _outcomes(self)], axis=0))

    def influences(self) -> Influences | str:
        law = as_network(self)
        return Law.influences(self) if law is self else law.influences()

    def describe(self) -> str:
        shape = "without loops" if self.forest else "with loops"
        return (
            f"a pairwise field of {self.records} records with {len(self.ties)} ties {shape}, at "
            f"most {self.tied} in one component, on {self.domain.describe()}"
        )


def _outcomes(field: PairwiseField) -> Iterator[Ints]:
    """Outcomes by Gibbs sampling: records of one colour are drawn at once, given all others."""
    draw, count = np.random.default_rng(1), field.records
    with np.errstate(divide="ignore"):
        logs = np.maximum(np.log([*field.potentials, *field.potentials.transpose(0, 2, 1)]), -1e6)
        alone = np.maximum(np.log(np.broadcast_to(field.own, (count, field.domain.size))), -1e6)
    record, other = np.concatenate([field.ties, field.ties[:, ::-1]]).T
    which = np.concatenate([field.potential_of, field.potential_of + len(field.potentials)])
    colour = _colours(field)
    classes = [np.flatnonzero(colour[record] == one) for one in range(int(colour.max()) + 1)]
    x = np.zeros(count, dtype=np.int64)
    for sweep in range(UNSEEN + SEEN * APART):
        for number, rows in enumerate(classes):
            scores = alone + draw.gumbel(size=alone.shape)
            np.add.at(scores, record[rows], logs[which[rows], :, x[other[rows]]])
            x = np.where(colour == number, scores.argmax(axis=1), x)
        if sweep >= UNSEEN and sweep % APART == 0:
            yield x


def _colours(field: PairwiseField) -> Ints:
    """A colour for each record, none the same as that of a record it is tied to."""
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
def _table(model: PairwiseField) -> JointTable:
    count, size = model.records, model.domain.size
    if not model.small(MAX_OUTCOMES):
        raise InputError(
            f"{count} records of {size} values have more than {MAX_OUTCOMES} outcomes; "
            "write out fewer records, or bound the field with dependent-field"
        )
    factors = [_spread(row, (record,), count) for record, row in enumerate(_own(model))]
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


# A pairwise field as a law that other mechanisms can follow: a network, or a table.


MOST_FOLLOWED = 200  # records; a larger forest is left as a field


def as_field(model: Model) -> PairwiseField | None:
    """`model` where it is a pairwise field; None for any other."""
    return model if isinstance(model, PairwiseField) else None


def as_network(model: Model) -> Model:
    """A field as a Bayesian network when it has no loops, as a table when it is small; else itself.

    Itself too when something possible is too unlikely for a double of the network or table: it
    must not become impossible. Other models are returned as they are, so that a mechanism can ask
    this of its whole family.
    """
    field = as_field(model)
    if field is None or field.states is None:
        return model
    try:
        if field.forest and field.records <= MOST_FOLLOWED:
            return network_of_field(field)
        return field.table() if field.small() else field
    except TooUnlikely:
        return model


@lru_cache(maxsize=16)
def network_of_field(model: PairwiseField) -> BayesNet:
    """The network with the same joint law: each record is drawn given the tied one before it.

    In every component the first record is the root; P(x_c | x_p) is proportional to
    own(x_c) ψ(x_p, x_c) Π of what the records beyond c weigh. Refused when ties form a loop, and
    when a double cannot hold something possible: a hub of many ties may take a value so rarely.
    """
    if not model.forest:
        raise InputError("the ties form a loop, so the field is no network; use table() if small")
    near = _neighbours(model)
    order, parent = _walk(model.records, near)
    weight = [Wide.of(row) for row in _own(model)]
    for record in reversed(order):  # leaves first: what lies beyond a record weighs its values
        above = parent[record]
        if above is not None:
            behind = near[above][record].times(weight[record]).total(-1)
            weight[above] = weight[above].times(behind)
    names = tuple(f"record {record}" for record in range(model.records))
    tables = []
    for record in range(model.records):
        above = parent[record]
        table = weight[record]
        if above is None and not table.possible.any():
            raise InputError(NOTHING_POSSIBLE)
        if above is not None:
            table = near[above][record].times(table)
        total = table.total(-1, keepdims=True)
        law = table.over(total)
        if not held(law, table.possible):
            raise TooUnlikely(
                f"record {record} takes a value with a probability below "
                f"{LEAST_NORMAL:.2g}, which no "
                "table of a network holds; use dependent-field or group"
            )
        # a parent's value that never occurs may have any law
        tables.append(np.where(total.possible, law, 1.0 / law.shape[-1]))
    return BayesNet(
        variables=names,
        domains=(model.states or (),) * model.records,
        parents=tuple(() if above is None else (names[above],) for above in parent),
        tables=tuple(tables),
    )


def summable(model: Model) -> bool:
    """Whether sums over the records of a field can be followed factor by factor (FieldFactors)."""
    field = as_field(model)
    if field is None or field.states is None:
        return False
    return field.small() or (field.forest and field.records <= MOST_FOLLOWED)


class FieldFactors:
    """A field as its own weights and ties: what a law of its records is proportional to.

    For fields that no network or table holds: nothing has to be normalised before it is divided.
    """

    depth = math.inf  # products of weights may be of any size

    def __init__(self, model: PairwiseField) -> None:
        self.model = model
        self.variables = tuple(f"record {record}" for record in range(model.records))
        self.domains = (model.states or (),) * model.records
        self.sizes = (model.domain.size,) * model.records
        names = model.components()
        self.parts = tuple(
            tuple(np.flatnonzero(names == name).tolist()) for name in range(int(names.max()) + 1)
        )

    @cached_property
    def elimination_order(self) -> tuple[int, ...]:
        """A good order in which to sum the records out."""
        alone = tuple((record,) for record in range(self.model.records))
        return good_order((*alone, *self.ties), self.sizes)

    @cached_property
    def ties(self) -> dict[tuple[int, ...], Floats]:
        """The potential of each pair of tied records."""
        pairs = map(tuple, self.model.ties.tolist())
        return dict(zip(pairs, self.model.potentials[self.model.potential_of], strict=True))

    @cached_property
    def alike(self) -> list[tuple[object, ...]]:
        """A key for every record; those with the same one can change places: leaves of a record."""
        near = [list[tuple[int, bool, int]]() for _ in range(self.model.records)]
        for (one, other), which in zip(
            self.model.ties.tolist(), self.model.potential_of.tolist(), strict=True
        ):
            near[one].append((other, True, which))
            near[other].append((one, False, which))
        return [
            (*near[v], self.own[v].tobytes()) if len(near[v]) == 1 else (v,)
            for v in range(self.model.records)
        ]

    @cached_property
    def own(self) -> Floats:
        """What the values of each record weigh by themselves."""
        return _own(self.model)

    def factors(self, among: Iterable[int]) -> list[Factor]:
        """The weights of some whole components, one factor for each record and then each tie."""
        chosen = sorted(among)
        inside = set(chosen)
        ties = [Factor(pair, table) for pair, table in self.ties.items() if inside.issuperset(pair)]
        return [*(Factor((v,), self.own[v]) for v in chosen), *ties]


class FieldComponent(NetworkComponent):
    """A component of a field that no network holds: sums over it in wide numbers throughout.

    Weights are not normalised, so that an event is as likely as its share of all of them.
    """

    def __init__(
        self, net: FieldFactors, nodes: Sequence[int], contributions: Sequence[Ints]
    ) -> None:
        super().__init__(net, nodes, contributions)
        self.asked = tuple({net.alike[v]: v for v in reversed(self.nodes)}.values())[::-1]

    def deepest(self, probability: float) -> float:
        return DEEPEST_LINEAR

    def _laws(self) -> tuple[Floats, Floats]:
        return self._followed()

    def given(self, seen: Mapping[int, Floats]) -> GivenSum:
        return self._followed_given(seen)


def _neighbours(model: PairwiseField) -> list[dict[int, Wide]]:
    """For each record the tied ones, with the potential as (own value, their value)."""
    near: list[dict[int, Wide]] = [{} for _ in range(model.records)]
    for (one, other), which in zip(model.ties.tolist(), model.potential_of, strict=True):
        potential = model.potentials[which]
        near[one][other], near[other][one] = Wide.of(potential), Wide.of(potential.T)
    return near


def _walk(records: int, near: list[dict[int, Wide]]) -> tuple[list[int], list[int | None]]:
    """Every record after the one it hangs on, and that one (None for roots)."""
    parent: list[int | None] = [None] * records
    order: list[int] = []
    seen = [False] * records
    for root in range(records):
        waiting = [] if seen[root] else [root]
        while waiting:
            record = waiting.pop()
            seen[record] = True
            order.append(record)
            for other in near[record]:
                if not seen[other]:
                    parent[other] = record
                    waiting.append(other)
    return order, parent


def _own(model: PairwiseField) -> Floats:
    """What the values of each record weigh by themselves, (records, values)."""
    return np.broadcast_to(model.own, (model.records, model.domain.size))


# How far one record of a pairwise field reaches: the weight of all walks along ties.


REACH_ROUNDS = 400
REACH_SETTLED = 1e-7  # relative change of the largest reach at which the rounds stop
RAISED = 1e-12  # relative amount added for rounding in every round


def contractions(potentials: Floats) -> Floats:
    """κ = tanh(δ/4) of each potential, δ its largest log cross-ratio.

    δ = max over a, a', y, y' of log ψ(a,y)ψ(a',y') / (ψ(a',y)ψ(a,y')); 1 where ψ has a zero. The
    contraction of Birkhoff's theorem for the rows of ψ. Rounds up.
    """
    out = np.ones(len(potentials))
    for place, table in enumerate(potentials):
        if (table <= 0).any():
            continue
        logs = np.log(table)
        gaps = logs[:, None, :] - logs[None, :, :]
        delta = float(np.ptp(gaps, axis=2).max()) * (1 + RAISED) + RAISED
        out[place] = min(math.tanh(delta / 4) * (1 + RAISED), 1.0)
    return out


def field_reach(model: PairwiseField, inside: float = 1.0) -> Floats:
    """W_i with: the loss about record i of any release that is η-DP for one record is ≤ η·W_i.

    On a domain of cells whose places are free it is min(n_i, W_i + n_i·inside), n_i being the size
    of the component and `inside` the most that a move within its cell changes a release by, as a
    share of η: 1, and n_i in all, unless given.
    """
    share = 0.0 if model.domain.known_inside else inside
    sizes = model.component_sizes().astype(np.float64)
    return np.minimum(_walks(model, sizes) + sizes * share * (1 + RAISED), sizes)


def _walks(model: PairwiseField, sizes: Floats) -> Floats:
    """The weight of all walks from each record, at most the sizes of the components.

    W_i = 1 + Σ_j κ_ij M(i→j), M(i→j) = 1 + Σ over ties (j, k), k ≠ i, of κ_jk M(j→k): the weight
    of all walks from i that never turn straight back, κ being each tie's contraction. Never more
    than the size of the component. The equations are iterated from the component sizes downwards,
    and every round is a bound by itself, so stopping early only adds noise. Exact sums on a
    forest. Rounds up. Proof: records/dependent_field.md.
    """
    if not len(model.ties):
        return sizes
    one, other = model.ties[:, 0].astype(np.int64), model.ties[:, 1].astype(np.int64)
    start, end = np.concatenate([one, other]), np.concatenate([other, one])
    kappa = np.tile(contractions(model.potentials)[model.potential_of], 2)
    back = np.concatenate([np.arange(len(one)) + len(one), np.arange(len(one))])
    cap = sizes[start] - 1.0
    walk, before = cap, math.inf
    for turn in range(REACH_ROUNDS):
        if turn and time_over():  # every round is a bound
            break
        carried = kappa * walk
        out = np.bincount(start, carried, model.records)
        reach = np.minimum(1.0 + out * (1 + RAISED), sizes)
        largest = float(reach.max())
        if before - largest <= REACH_SETTLED * largest:
            break
        before = largest
        # the walks that leave `end`, without the one that goes straight back to `start`
        onward = out[end] * (1 + RAISED) - carried[back]
        walk = np.minimum(walk, 1.0 + np.maximum(onward, 0.0) + RAISED * out[end])
    return np.asarray(reach)
