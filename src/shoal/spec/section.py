"""What every section of a spec is: exactly its own keys, of exactly their own types."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A section takes exactly its own keys, of exactly their own types."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)
