"""A task: what is asked, what must stay hidden, and what the adversary may know."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, runtime_checkable

from shoal.core.codec import Value
from shoal.core.errors import InputError


@runtime_checkable
class Model(Protocol):
    """A law of the data, or a set of laws: one member of the family an adversary may hold."""

    def __hash__(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def states(self) -> tuple[str, ...] | None:
        """The values an entry may take; None when the model does not name them."""
        ...

    @property
    def tied(self) -> int | None:
        """How many entries may depend on each other; None when there is no limit."""
        ...

    def describe(self) -> str: ...
    def admit(self, records: Any) -> None:
        """Refuse, with a DataError, data the model does not cover."""
        ...


@runtime_checkable
class Secrets(Protocol):
    """Facts, and the pairs of them to keep indistinguishable."""

    @property
    def fingerprint(self) -> str: ...
    @property
    def notion(self) -> str:
        """The notion of privacy these secrets ask for."""
        ...

    @property
    def subject(self) -> str:
        """What is hidden, as a short noun phrase."""
        ...

    def describe(self) -> str: ...
    def check(self, family: tuple[Model, ...]) -> None:
        """Refuse, with an InputError, a family these secrets say nothing about."""
        ...

    def tied_under(self, model: Model) -> int | None:
        """The most entries that depend on what one pair is about; None when there is no limit."""
        ...


@runtime_checkable
class Query(Protocol):
    """A value asked of the data, on a public lattice, with its sensitivity and unit."""

    def __hash__(self) -> int: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def states(self) -> tuple[str, ...]: ...
    @property
    def labels(self) -> tuple[str, ...]:
        """One name per coordinate."""
        ...

    @property
    def unit(self) -> str: ...
    @property
    def lattice(self) -> Fraction:
        """Every coordinate of every answer is an integer multiple of this."""
        ...

    @property
    def lipschitz(self) -> Fraction:
        """The most the answer moves, in the l1 norm, when one entry changes."""
        ...

    def describe(self) -> str: ...
    def read(self, data: Any) -> Any:
        """`data` checked and put in the form `evaluate` takes."""
        ...

    def evaluate(self, records: Any) -> tuple[int, ...]:
        """The true answer, in exact multiples of `lattice`."""
        ...


def entry_of(query: Query) -> str:
    """What one entry is, the unit whose change `query.lipschitz` bounds: its `entry`, in words.

    Queries about sequences and records need not say it: there an entry is one value of them.
    """
    return getattr(query, "entry", "one value of the data")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Task(Value):
    """A query, the secrets, and the family of models an adversary may hold."""

    query: Query
    secrets: Secrets
    family: tuple[Model, ...]

    def __post_init__(self) -> None:
        if not self.family:
            raise InputError("the family holds no model; give at least one")
        for model in self.family:
            if model.states is not None and model.states != self.query.states:
                raise InputError(
                    f"the query is about states {list(self.query.states)} and a model about "
                    f"{list(model.states)}; they must be the same, in the same order"
                )
        self.secrets.check(self.family)

    @property
    def tied(self) -> int | None:
        """The most entries that depend on what a pair of secrets is about; None when unlimited."""
        most = 0
        for model in self.family:
            tied = self.secrets.tied_under(model)
            if tied is None:
                return None
            most = max(most, tied)
        return most

    def read(self, data: Any) -> Any:
        """`data` checked against the query and every model."""
        records = self.query.read(data)
        for model in self.family:
            model.admit(records)
        return records


# The usual secret: the value of every single entry.


@dataclass(frozen=True, slots=True, eq=False)
class EachEntry(Value):
    """For every entry, each pair of values it can take must stay indistinguishable."""

    @property
    def notion(self) -> str:
        return "pufferfish"

    @property
    def subject(self) -> str:
        return "any single entry"

    def check(self, family: tuple[Model, ...]) -> None:
        """Every model has entries, so nothing is refused."""

    def tied_under(self, model: Model) -> int | None:
        """Every entry the model ties to the one a pair is about."""
        return model.tied

    def describe(self) -> str:
        return "the value of every single entry: no time or record is exempt"


def as_family(*members: Model | Sequence[Model]) -> tuple[Model, ...]:
    """The tuple of models an adversary may hold, from models or lists of them."""
    flat: list[Any] = []
    for member in members:
        if isinstance(member, Model | str) or not isinstance(member, Iterable):
            flat.append(member)
        else:
            flat.extend(member)
    for model in flat:
        if not isinstance(model, Model):
            raise InputError(
                f"the family holds {model!r}, which is no model; give one such as "
                "shoal.MarkovChain.of(...), or several"
            )
    if not flat:
        raise InputError("the family holds no model; give at least one")
    return tuple(flat)
