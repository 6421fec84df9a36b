"""The owner's journal: which rides were shared, in which order, and with how many legs."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from shoal.core.errors import DataError, InputError, OtherHistory
from shoal.data.write import atomic_write
from shoal.share.formats import Ride


@dataclass(slots=True)
class Journal:
    """Which rides were shared, in which order, with how many legs; for the owner alone.

    Rides are known by a salted hash of their positions, so that the journal holds no place.
    """

    path: Path
    plan: str = ""
    salt: str = ""
    rides: list[dict[str, Any]] = field(default_factory=list)

    @classmethod
    def load(cls, path: Path) -> Journal:
        """Return the journal at a path, a new one where there is none."""
        if not path.exists():
            return cls(path, salt=secrets.token_hex(16))
        try:
            return cls(path, **json.loads(path.read_text()))
        except (ValueError, TypeError):
            raise DataError(f"{path} cannot be read; restore it from a copy") from None

    def save(self) -> None:
        """Write the journal whole, readable by its owner alone."""
        content = {"plan": self.plan, "salt": self.salt, "rides": self.rides}
        atomic_write(self.path, json.dumps(content, indent=1), private=True)

    def name_of(self, ride: Ride) -> str:
        """Return the name of a ride: equal positions have equal names."""
        content = self.salt.encode() + np.round(ride.positions, 7).tobytes()
        return hashlib.sha256(content).hexdigest()

    def refuse_apart(self, charged: int) -> None:
        """Refuse a journal and a ledger of `charged` legs of which one is an older copy.

        The ledger tells what was published, the journal which ride it was. Where one of them is
        behind, other rides would take the places of published ones.
        """
        begun = sum(one["legs"] for one in self.rides)
        done = sum(one["legs"] for one in self.rides if one["done"])
        if done <= charged <= begun:
            return
        older, newer = ("ledger", "journal") if charged < done else ("journal", "ledger")
        raise OtherHistory(
            f"the {older} in {self.path.parent} knows fewer legs than the {newer} beside it "
            f"({charged} charged, {done} to {begun} by the journal): it is lost or an older copy",
            (f"restore the {older} of the same day as the {newer}",),
        )

    def refuse_missing(self, out: Path) -> None:
        """Refuse when a ride that was published is no longer there: dropping one tells."""
        gone = [
            one["file"] for one in self.rides if one["done"] and not (out / one["file"]).exists()
        ]
        if gone:
            raise InputError(
                f"{gone[0]} was shared and is missing from {out}; put it back: what is dropped "
                "after its cut was seen tells of the part that was withheld"
            )
