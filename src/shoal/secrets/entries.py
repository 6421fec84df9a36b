"""The usual secret: the value of every single entry."""

from __future__ import annotations

from dataclasses import dataclass

from shoal.core.task import Model
from shoal.core.value import Value


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
