"""Secrets named one by one: pairs of events to keep indistinguishable."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from shoal.core.codec import Value
from shoal.core.errors import InputError
from shoal.core.records import labels
from shoal.core.task import Model
from shoal.networks.bayesnet import BayesNet
from shoal.networks.contagion import Contagion
from shoal.networks.table import JointTable


@dataclass(frozen=True, slots=True, eq=False)
class Event(Value):
    """A named fact: each listed variable takes one of its listed values."""

    name: str
    where: tuple[tuple[str, tuple[str, ...]], ...]

    @classmethod
    def of(cls, name: str, where: Mapping[str, Any]) -> Event:
        """An event from a mapping of variables to a value or values, named as the model's are."""
        return cls(name, tuple((variable, labels(values)) for variable, values in where.items()))

    def mapping(self) -> dict[str, tuple[str, ...]]:
        return dict(self.where)


@dataclass(frozen=True, slots=True, eq=False)
class SecretPairs(Value):
    """Pairs of events over named variables; nobody may tell the two of a pair apart."""

    pairs: tuple[tuple[Event, Event], ...]

    def __post_init__(self) -> None:
        if not self.pairs:
            raise InputError("pairs is empty; name at least one pair of events")

    @classmethod
    def of(cls, pairs: Iterable[tuple[Event, Event]]) -> SecretPairs:
        return cls(tuple((a, b) for a, b in pairs))

    @property
    def notion(self) -> str:
        return "pufferfish"

    @property
    def subject(self) -> str:
        return "the named pairs of facts"

    def check(self, family: tuple[Model, ...]) -> None:
        """Named events need models that have their variables and values."""
        for model in family:
            if not isinstance(model, JointTable | BayesNet | Contagion):
                raise InputError(
                    f"secrets name events over variables, but {model.describe()} has none; "
                    "use EachEntry for a time series"
                )
            for event in {event for pair in self.pairs for event in pair}:
                if isinstance(model, JointTable):
                    model.event(event.mapping())
                else:
                    model.evidence(event.mapping())

    def tied_under(self, model: Model) -> int | None:
        """The most entries that depend on what one pair is about.

        A pair may be about variables of several independent components: then all of them count,
        not only the largest.
        """
        if isinstance(model, BayesNet):
            home = {v: part for part in model.parts for v in part}
        elif isinstance(model, Contagion):
            home = {v: group for group in model.groups for v in group}
        else:
            return model.tied
        reached = (
            {home[v] for event in pair for v in model.evidence(event.mapping())}
            for pair in self.pairs
        )
        return max(1, *(sum(map(len, parts)) for parts in reached))

    def describe(self) -> str:
        names = [f"{a.name!r} against {b.name!r}" for a, b in self.pairs]
        more = f" and {len(names) - 4} more pairs" if len(names) > 4 else ""
        return "which of two facts holds: " + ", ".join(names[:4]) + more
