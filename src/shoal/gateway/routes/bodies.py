"""The bodies of requests, and what every handler is given. Unknown members are refused."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Header, Path, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shoal.gateway.keys import Caller
from shoal.gateway.streams import Address

if TYPE_CHECKING:
    from shoal.gateway.app import Gateway

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _plain(text: str) -> str:
    """Text without characters that no database keeps."""
    if "\0" in text:
        raise ValueError("holds a NUL character; leave it out")
    return text


Name = Annotated[str, Field(pattern=NAME)]
Text = Annotated[str, Field(max_length=200), AfterValidator(_plain)]
When = Annotated[str, Field(max_length=40, examples=["2026-03-04T08:30:00Z"])]
PersonPath = Annotated[str, Path(pattern=NAME)]
StreamPath = Annotated[str, Path(pattern=NAME)]
Idempotency = Annotated[
    str | None,
    Header(max_length=128, pattern=r"^[\x21-\x7e]+$", description="repeats are harmless"),
]


class RequestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")


class NewKey(RequestBody):
    """A key to be made: a person's, a device's (by its person), an application's, an operator's."""

    kind: Literal["operator", "person", "device", "application"]
    holder: Name | None = Field(None, description="the person or application it is for")
    label: Text = Field("", description="what the holder calls it")
    expires: When | None = None


class ClockBody(RequestBody):
    """Slots of equal length (`every`, in seconds), or by the wall clock as the model has them."""

    every: float | None = Field(None, gt=0, le=7 * 86400, allow_inf_nan=False)
    grace: float = Field(0.0, ge=0, le=86400, description="seconds a slot stays open after its end")
    begins: str | None = Field(
        None, pattern=r"^\d{4}-\d\d-\d\d$", description="date of a first day, such as a Monday"
    )


class StreamBody(RequestBody):
    """A stream under a plan of the space."""

    plan: Name
    clock: ClockBody | None = None
    timezone: str | None = Field(None, max_length=64, examples=["Europe/Berlin"])
    silence: Literal["publish", "hide"] = "publish"
    independent: bool = Field(
        False, description="the person says that this stream tells nothing of their others"
    )


class GrantBody(RequestBody):
    """What an application may see: some streams or all, some time, every so many slots."""

    streams: list[Name] | None = Field(None, max_length=64)
    every: int = Field(1, ge=1, le=1_000_000)
    since: When | None = None
    until: When | None = None


class ReadingBody(RequestBody):
    """A context, a place by its state's name or its coordinates, or the state of an entry that is
    counted; `at` is now when left out.
    """

    at: When | None = None
    context: Annotated[str, Field(max_length=200), AfterValidator(_plain)] | None = None
    state: Annotated[str, Field(max_length=200), AfterValidator(_plain)] | None = None
    lat: float | None = Field(None, ge=-90, le=90, allow_inf_nan=False, strict=True)
    lon: float | None = Field(None, ge=-180, le=180, allow_inf_nan=False, strict=True)

    def content(self) -> dict[str, Any]:
        """What the machine may look at."""
        return {
            "context": self.context,
            "state": self.state,
            "lat": self.lat,
            "lon": self.lon,
        }


class LimitBody(RequestBody):
    """The most that may be spent on a stream: on each day, or ever."""

    epsilon: float = Field(gt=0, allow_inf_nan=False, le=1e9)
    unit: Literal["epsilon", "eta"] = "epsilon"
    over: Literal["period", "lifetime"] = Field("period", description="each day, or all of them")


async def gateway_of(request: Request) -> Gateway:
    """The service behind a request."""
    found: Gateway = request.app.state.gateway
    return found


async def authenticated(request: Request) -> Caller:
    """Who is calling."""
    gateway: Gateway = request.app.state.gateway
    return await gateway.caller(request.headers.get("authorization"))


House = Annotated[Any, Depends(gateway_of)]
Who = Annotated[Caller, Depends(authenticated)]


async def addressed(person: PersonPath, stream: StreamPath, caller: Who) -> Address:
    """The stream that a path names, in the caller's own space."""
    return Address(caller.space, person, stream)


Stream = Annotated[Address, Depends(addressed)]


def finite(value: float) -> float | None:
    """A number that JSON has; None for infinity."""
    return value if math.isfinite(value) else None
