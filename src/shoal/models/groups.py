"""Records in independent groups, of which only the size of the largest is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from shoal.core.numbers import whole
from shoal.core.value import Value


@dataclass(frozen=True, slots=True, eq=False)
class RecordGroups(Value):
    """All laws under which every record depends on at most `largest` - 1 others.

    Groups (households, circles of friends) are independent of each other; inside a group anything
    is possible. `largest` = 1 is the assumption of ordinary differential privacy: independent
    records. It takes records of every kind, numbers and graphs too.
    """

    largest: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "largest", whole(self.largest, "largest"))

    @property
    def states(self) -> None:
        return None

    @property
    def tied(self) -> int | None:
        return self.largest

    def admit(self, records: Any) -> None:
        """Any records: which of them form a group need not be known."""

    def describe(self) -> str:
        if self.largest == 1:
            return "independent records, of any law"
        return f"records in independent groups of at most {self.largest}, of any law"
