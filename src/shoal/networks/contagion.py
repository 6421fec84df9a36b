"""Contagion in groups of people: who meets whom, and how many of a group fall ill."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from shoal.chains.model import checked_rows, numbers
from shoal.core.charge import Rng, categorical, uniforms
from shoal.core.codec import Floats
from shoal.core.errors import InputError
from shoal.core.records import Sequences, checked_states, label
from shoal.core.task import AnswerLaws, EntryLift, Law, Query, Secrets
from shoal.core.walk import Wide, product
from shoal.networks.bayesnet import Where, allowed_values
from shoal.networks.graph import connected_components, undirected_graph
from shoal.networks.table import JointTable, admit_variables, normalised_table

if TYPE_CHECKING:
    from shoal.networks.laws import NamedSum
    from shoal.networks.parts import SumParts

MAX_TABLE_PEOPLE = 20  # people of a joint table: 2^20 outcomes
GroupLaw = npt.ArrayLike | Callable[[int], npt.ArrayLike]


@dataclass(frozen=True, kw_only=True, eq=False)
class Contagion(Law):
    """People in groups that are independent of each other, each person well or ill.

    `groups[g]` lists the people of group g by number, in increasing order, and `which[g]` says
    which of `laws` it follows. A law of shape (size + 1,) is that of the number of people ill,
    who is ill being equally likely for all; a law of shape (2, 2, …, 2), one axis per person of
    the group, is a joint law written out. Song, Wang & Chaudhuri 2017, Sections 2.2 and 3.1.
    """

    kind = "contagion"

    variables: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    which: tuple[int, ...]
    laws: tuple[Floats, ...]
    states: tuple[str, ...] = ("well", "ill")

    def __post_init__(self) -> None:
        """Check people, states, laws and groups, and store them in their own types."""
        object.__setattr__(self, "variables", checked_states(self.variables, "people"))
        object.__setattr__(self, "states", checked_states(self.states))
        if len(self.states) != 2:
            raise InputError(f"states is {list(self.states)}; a person is in one of two states")
        laws = tuple(_validated_law(law) for law in self.laws)
        object.__setattr__(self, "laws", laws)
        self._check_groups()

    @classmethod
    def cliques(
        cls,
        sizes: Sequence[int],
        law: GroupLaw | Mapping[int, npt.ArrayLike],
        *,
        people: Sequence[Any] | None = None,
        states: Sequence[Any] = ("well", "ill"),
    ) -> Self:
        """Return groups of the given sizes, one after the other; all people of a group meet each
        other.

        `law` is that of the number of people ill: one list when all sizes are equal, a mapping
        from sizes to lists, or a function of the size such as `exponential_law(2)`.
        """
        ends = np.cumsum([0, *sizes]).tolist()
        groups = [range(a, b) for a, b in pairwise(ends)]
        names = people if people is not None else [f"person {i + 1}" for i in range(ends[-1])]
        return cls._from_groups(names, groups, law, {}, states)

    @classmethod
    def from_edges(
        cls,
        people: Sequence[Any],
        edges: Iterable[tuple[Any, Any]],
        law: GroupLaw | Mapping[int, npt.ArrayLike],
        *,
        tables: Mapping[Any, npt.ArrayLike] | None = None,
        states: Sequence[Any] = ("well", "ill"),
    ) -> Self:
        """Return the connected components of who meets whom, each with a law by its size.

        `tables` maps a person to the joint law of the whole component they belong to, one axis per
        person in the order of `people`; it replaces the law by size there.
        """
        names = [label(person) for person in people]
        number = {name: i for i, name in enumerate(names)}
        pairs = [(label(a), label(b)) for a, b in edges]
        for name in (name for pair in pairs for name in pair):
            if name not in number:
                raise InputError(f"edges names {name!r}, who is not one of people; add them")
        joined = undirected_graph(len(names), ((number[a], number[b]) for a, b in pairs))
        explicit = {}
        for person, table in (tables or {}).items():
            if label(person) not in number:
                raise InputError(f"tables names {label(person)!r}, who is not one of people")
            explicit[number[label(person)]] = table
        return cls._from_groups(names, connected_components(joined), law, explicit, states)

    @classmethod
    def _from_groups(
        cls,
        people: Sequence[Any],
        groups: Sequence[Sequence[int]],
        law: GroupLaw | Mapping[int, npt.ArrayLike],
        explicit: Mapping[int, npt.ArrayLike],
        states: Sequence[Any],
    ) -> Self:
        """Return the model of these groups, with a law by size or the joint table of one of its
        people.
        """
        by_size: dict[int, int] = {}
        laws: list[Floats] = []
        which: list[int] = []
        for group in groups:
            own = [person for person in group if person in explicit]
            if len(own) > 1:
                first, second = (label(people[person]) for person in own[:2])
                raise InputError(
                    f"tables names {first!r} and {second!r}, who are in one group; give its law "
                    "once"
                )
            if own:
                which.append(len(laws))
                laws.append(numbers(explicit[own[0]], "a table"))
                continue
            size = len(group)
            if size not in by_size:
                by_size[size] = len(laws)
                laws.append(_law_for_size(law, size))
            which.append(by_size[size])
        return cls(
            variables=tuple(label(person) for person in people),
            groups=tuple(tuple(group) for group in groups),
            which=tuple(which),
            laws=tuple(laws),
            states=tuple(label(state) for state in states),
        )

    @property
    def parts(self) -> tuple[tuple[int, ...], ...]:
        """The groups: people of different ones are independent."""
        return self.groups

    @property
    def domains(self) -> tuple[tuple[str, ...], ...]:
        return (self.states,) * len(self.variables)

    @property
    def tied(self) -> int | None:
        """The size of the largest group."""
        return max(map(len, self.groups))

    @property
    def records(self) -> int:
        """How many entries the data has: one per person."""
        return len(self.variables)

    @cached_property
    def group_of(self) -> dict[int, int]:
        """The group of every person."""
        return {person: g for g, group in enumerate(self.groups) for person in group}

    def law_of(self, group: int) -> Floats:
        """Return the law of a group: of its number of people ill, or its joint table."""
        return self.laws[self.which[group]]

    def exchangeable(self, group: int) -> bool:
        """Return whether only the number of people ill matters in a group."""
        return self.law_of(group).shape == (len(self.groups[group]) + 1,)

    def as_table(self) -> JointTable:
        """Return the joint law of all people written out, for at most 20 people."""
        people = len(self.variables)
        if people > MAX_TABLE_PEOPLE:
            raise InputError(
                f"the model has {people} people; a table holds at most {MAX_TABLE_PEOPLE}"
            )
        factors = []
        for g, group in enumerate(self.groups):
            shape = [2 if person in group else 1 for person in range(people)]
            law = self.written(g)
            factors.append(Wide(law.part.reshape(shape), law.power.reshape(shape)))
        return normalised_table(product(factors), self.variables, self.domains)

    def written(self, group: int) -> Wide:
        """Return the joint law of a group, one axis per person."""
        law = self.law_of(group)
        if not self.exchangeable(group):
            return Wide.of(law)
        size = len(law) - 1
        ill = np.indices((2,) * size).sum(axis=0)
        each = np.array([1.0 / math.comb(size, n) for n in range(size + 1)])
        return Wide.of(law).times(Wide.of(each)).map_layout(lambda numbers: numbers[ill])

    def check_fact(self, fact: Any) -> None:
        """Refuse an event about a variable or a value the model does not have, or about an "or"."""
        self.evidence(fact.mapping())

    def evidence(self, where: Where) -> dict[int, Floats]:
        """Return, for every person an event names, 1 at the states it allows and 0 elsewhere."""
        return allowed_values(where, self.variables, self.domains)

    def sample(self, rng: Rng) -> tuple[str, ...]:
        """Return one random outcome, a state per person."""
        ill = np.zeros(len(self.variables), dtype=bool)
        for g, group in enumerate(self.groups):
            law = self.law_of(g)
            place = categorical(law.ravel(), float(uniforms(1, rng)[0]))
            if self.exchangeable(g):
                order = np.argsort(uniforms(len(group), rng))  # a tie has probability 2^-53
                ill[[group[i] for i in order[:place]]] = True
            else:
                ill[list(group)] = [bool(i) for i in np.unravel_index(place, law.shape)]
        return tuple(self.states[int(value)] for value in ill)

    def answer_laws(self, query: Query, secrets: Secrets) -> AnswerLaws | str:
        from shoal.networks.exact import contagion_answers

        return contagion_answers(self, query, secrets)

    def sum_parts(self, query: NamedSum, *, alike: bool) -> SumParts:
        from shoal.networks.contagion_sums import contagion_parts

        return contagion_parts(self, query, alike=alike)

    def lift(self, query: Query | None) -> EntryLift:
        from shoal.networks.entry_lift import contagion_lift

        return contagion_lift(self, query)

    def written_out(self) -> JointTable:
        return self.as_table()

    def admit(self, records: Sequences) -> None:
        admit_variables(records, self.variables, self.domains)

    def describe(self) -> str:
        return (
            f"contagion among {len(self.variables)} people in {len(self.groups)} independent "
            f"group(s) of at most {self.tied}"
        )

    def _check_groups(self) -> None:
        """Refuse groups that do not hold each person once, in order, with a law of the right
        shape.
        """
        members = [person for group in self.groups for person in group]
        if sorted(members) != list(range(len(self.variables))):
            raise InputError("groups must hold every person exactly once")
        if len(self.which) != len(self.groups):
            raise InputError("which needs one law for every group")
        for g, group in enumerate(self.groups):
            if not group:
                raise InputError(f"group {g} is empty; leave it out")
            if not 0 <= self.which[g] < len(self.laws):
                raise InputError(f"group {g} follows law {self.which[g]}, which does not exist")
            shape = self.law_of(g).shape
            if shape != (len(group) + 1,) and shape != (2,) * len(group):
                raise InputError(
                    f"the law of group {g} has shape {shape}; a group of {len(group)} needs "
                    f"({len(group) + 1},) for the number of people ill, or one axis of 2 each"
                )
            if list(group) != sorted(group):
                raise InputError(f"group {g} is not in increasing order")


def exponential_law(rate: float) -> Callable[[int], Floats]:
    """Return the law P(N = j) = e^{rate·j} / Σ_i e^{rate·i}, j = 0 … size, as a function of the
    size.

    A number too unlikely for a double gets the least one that keeps its digits, about 1e-307:
    what can happen must not become impossible.
    """
    if not math.isfinite(rate):
        raise InputError(f"rate is {rate}; it must be a finite number")

    def law(size: int) -> Floats:
        weight = np.exp(rate * (np.arange(size + 1) - (size if rate > 0 else 0)))
        return np.asarray(np.maximum(weight / weight.sum(), 8 * sys.float_info.min))

    return law


def _law_for_size(law: GroupLaw | Mapping[int, npt.ArrayLike], size: int) -> Floats:
    """Return the law of the number of people ill in a group of `size`; refused in another
    length.
    """
    if isinstance(law, Mapping):
        if size not in law:
            raise InputError(f"law has no entry for groups of {size}; add one with that key")
        return numbers(law[size], "law")
    found = numbers(law(size) if callable(law) else law, "law")
    if found.shape != (size + 1,):
        raise InputError(
            f"law has shape {found.shape} for a group of {size}; it needs {size + 1} numbers, the "
            "probabilities that 0, 1, … of the group are ill"
        )
    return found


def _validated_law(law: npt.ArrayLike) -> Floats:
    """Return a law, or a joint table of at most 20 people, locked; refused when it is none."""
    array = numbers(law, "law")
    if array.ndim > MAX_TABLE_PEOPLE:
        raise InputError(
            f"a joint table covers {array.ndim} people; at most {MAX_TABLE_PEOPLE} are handled: "
            "give the law of the number of people ill instead"
        )
    flat = checked_rows(array.ravel(), "law", (math.prod(array.shape),))
    checked = flat.reshape(array.shape)
    checked.setflags(write=False)
    return checked
