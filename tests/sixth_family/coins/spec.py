"""The section of a spec for coins."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from coins.model import Coins  # type: ignore[import-not-found]
from shoal.spec.fields import ModelSection, Probabilities


class CoinsModel(ModelSection):
    """Coins thrown apart."""

    kind: Literal["coins"]
    chances: Probabilities = Field(description="how likely each coin is heads")

    def model(self, folder: Path) -> Coins:
        return Coins(tuple(self.chances))
