"""Bodies of requests and answers, as the OpenAPI document describes them, and what every handler is
given. Unknown members of requests are refused. Times in answers are UTC seconds unless they are
text, which is RFC 3339.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from shoal.gateway.keys import Caller
from shoal.gateway.repeats import LONGEST_KEY, SHORTEST_KEY
from shoal.gateway.streams import Address

if TYPE_CHECKING:
    from shoal.gateway.app import Gateway


NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _without_controls(text: str) -> str:
    """Text without characters that no database keeps."""
    if "\0" in text:
        raise ValueError("holds a NUL character; leave it out")
    return text


Name = Annotated[str, Field(pattern=NAME)]
Text = Annotated[str, Field(max_length=200), AfterValidator(_without_controls)]
When = Annotated[str, Field(max_length=40, examples=["2026-03-04T08:30:00Z"])]
PersonPath = Annotated[str, Path(pattern=NAME)]
StreamPath = Annotated[str, Path(pattern=NAME)]
Idempotency = Annotated[
    str | None,
    Header(max_length=128, pattern=r"^[\x21-\x7e]+$", description="repeats are harmless"),
]

ReadingKey = Annotated[
    str | None,
    Header(
        min_length=SHORTEST_KEY,
        max_length=LONGEST_KEY,
        pattern=r"^[\x21-\x7e]+$",
        description="a random text; a repeat of the request under it is the same readings",
    ),
]


DayName = Annotated[
    str | None,
    Query(pattern=r"^[0-9T:+.-]{10,40}$", description="a day, as outputs name it: 2026-03-04"),
]
SeenAs = Annotated[str | None, Query(pattern=NAME, description="an application; for the person")]


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
    confirm: bool = Field(
        False, description="the person confirms what changes with another plan or zone"
    )
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
    context: Text | None = None
    state: Text | None = None
    lat: float | None = Field(None, ge=-90, le=90, allow_inf_nan=False, strict=True)
    lon: float | None = Field(None, ge=-180, le=180, allow_inf_nan=False, strict=True)

    def content(self) -> dict[str, Any]:
        """What the machine may look at."""
        # field by field: a dump takes seven times as long, and a request holds a thousand of them
        return {"context": self.context, "state": self.state, "lat": self.lat, "lon": self.lon}


class LimitBody(RequestBody):
    """The most that may be spent on a stream: on each day, or ever."""

    epsilon: float = Field(gt=0, allow_inf_nan=False, le=1e9)
    unit: Literal["epsilon", "eta"] = "epsilon"
    over: Literal["period", "lifetime"] = Field("period", description="each day, or all of them")


async def gateway_of(request: Request) -> Gateway:
    """The service behind a request."""
    found: Gateway = request.app.state.gateway
    return found


async def authenticate(request: Request) -> Caller:
    """Who is calling."""
    gateway: Gateway = request.app.state.gateway
    return await gateway.caller(request.headers.get("authorization"))


House = Annotated[Any, Depends(gateway_of)]
Who = Annotated[Caller, Depends(authenticate)]


async def address_of(person: PersonPath, stream: StreamPath, caller: Who) -> Address:
    """The stream that a path names, in the caller's own space."""
    return Address(caller.space, person, stream)


Stream = Annotated[Address, Depends(address_of)]


Seconds = float


class Answer(BaseModel):
    model_config = ConfigDict(populate_by_name=True)


class Dead(Answer):
    """A reading of a request that was refused: its place in the request, and why."""

    place: int
    reason: str
    detail: str


class Pushed(Answer):
    """What became of readings."""

    taken: int
    dead: list[Dead]


class Output(BaseModel):
    """A closed slot. With `context`, or `point`, `estimate`, `spread` and on maps `lat`, `lon`, or
    `counts`, of a step that ended.
    """

    model_config = ConfigDict(extra="allow")

    id: int = Field(description="its place in the order: what Last-Event-ID and `after` name")
    day: str
    slot: int
    opens: str
    ends: str
    status: Literal["shown", "suppressed", "counting", "silent", "paused", "refused"]
    plan: str
    guarantee: dict[str, str]


class Page(Answer):
    """Outputs, oldest first, and the `after` of the next page."""

    outputs: list[Output]
    after: int


class SeenBy(Answer):
    """What one application was given of a stream."""

    application: str
    first: int
    last: int
    outputs: int = Field(description="how many different ones")
    at: Seconds


class StreamTold(Answer):
    """Where a stream stands. `refused` counts readings by reason; `seen` is the person's alone."""

    stream: str
    kind: str
    plan: str
    next_plan: str | None = Field(description="what takes over when the day or step ends")
    timezone: str
    silence: str
    independent: bool
    paused: list[tuple[int, int | None]] = Field(description="[from, until) in ids")
    next: int = Field(description="the id that closes next")
    closes: Seconds
    forgotten: bool
    refused: dict[str, int]
    seen: list[SeenBy] | None


class PersonTold(Answer):
    """A person and their streams."""

    person: str
    streams: list[StreamTold]


class Spending(Answer):
    """What was spent on one stream up to its last closed slot.

    Streams of contexts keep a promise for each day (`each_day`); where `spent` adds up and there
    is a limit, `remaining`, `alert` and `until` (at this pace) say how long the tightest one lasts.
    """

    stream: str
    kind: str
    period: str
    notion: str
    each_day: str | None = None
    rule: str | None = None
    steps: int | None = None
    spent: float | None = None
    unit: str | None = Field(None, description="of `limit` and `remaining`")
    limit: float | None = None
    remaining: float | None = None
    alert: bool | None = Field(None, description="four fifths of the limit are spent")
    until: Seconds | None = None
    refused_from: int | None = Field(
        None, description="the id of the first slot that is refused, if every slot is read"
    )
    refused_at: Seconds | None = Field(None, description="when that slot opens")
    seen: list[SeenBy] | None = Field(None, description="who saw what; the person's alone")


class Budget(Answer):
    """What was spent on each stream of a person."""

    person: str
    streams: list[Spending]


class PersonRow(Answer):
    """A person as the operator's overview has them."""

    person: str
    streams: list[StreamTold]
    budget: list[Spending]


class Overview(Answer):
    """A space at a glance: numbers of the whole of it, and its people a page at a time."""

    people: int
    streams: int
    overdue: int = Field(description="streams with a slot that should have closed")
    connections: int = Field(description="open event streams of this worker, all spaces")
    refused: dict[str, int] = Field(description="readings by reason, of all people")
    page: list[PersonRow]
    after: str | None = Field(description="the `after` of the next page; null on the last")


class Refusal(Answer):
    """A reading that was refused: its place in the order, the slot it was for, and why."""

    place: int
    id: int | None
    reason: str
    detail: str


class Refusals(Answer):
    refused: list[Refusal]
    after: int


class People(Answer):
    people: list[str]


class Person(Answer):
    person: str


class StreamNamed(Answer):
    stream: str
    plan: str


class ClosedUntil(Answer):
    closed_until: Seconds


class From(Answer):
    """The id from which on it is so."""

    first: int = Field(alias="from")


class LimitTold(Answer):
    unit: str
    amount: float
    over: str


class Granted(Answer):
    application: str


class GrantTold(Answer):
    """What an application may see."""

    application: str
    streams: list[str] | None
    every: int
    since: Seconds | None
    until: Seconds | None


class Grants(Answer):
    grants: list[GrantTold]


class KeyMade(Answer):
    """A new key; `token` is in this answer only."""

    key: str
    token: str


class KeyTold(Answer):
    """A key without its secret."""

    key: str
    kind: str
    holder: str
    label: str
    made: Seconds
    expires: Seconds | None
    used: Seconds | None
    revoked: Seconds | None


class Keys(Answer):
    keys: list[KeyTold]


class Place(BaseModel):
    """A place and how likely it is; with coordinates where the model has a map."""

    state: str
    belief: float
    lat: float | None = None
    lon: float | None = None


class Given(Answer):
    """What an application was given of a day: how many outputs, the last id, and whether all."""

    application: str
    outputs: int
    last: int | None
    all: bool = Field(description="false: it saw a part, and knows less than `after` says")


class Beliefs(Answer):
    """What an adversary believes: `places`, or `before` and `after` by slot and context.

    With `given`, what one believes who saw all outputs up to the last that an application has.
    """

    kind: Literal["places", "contexts"]
    places: list[Place] | None = None
    contexts: list[str] | None = None
    day: str | None = None
    given: Given | None = None
    closed: int | None = None
    before: list[list[float]] | None = None
    after: list[list[float]] | None = None


class JobMade(Answer):
    job: str


class JobTold(BaseModel):
    """Where a job stands: `phase` while it works, `plan` when done, `detail` when it failed."""

    model_config = ConfigDict(extra="allow")

    job: str
    state: Literal["waiting", "working", "done", "failed"]


class PlanTold(BaseModel):
    """A plan in words and numbers; an estimate also has `ordinary` and `dry_run`."""

    model_config = ConfigDict(extra="allow")

    plan: str
    kind: str
    mechanism: str
    cost: float | None
    error: str | None
    guarantee: dict[str, Any]
    explanation: str
    alternatives: dict[str, Any] | None = None
    assumes: dict[str, Any] | None = Field(
        None, description="what the promise assumes applications know: a sentence, and the models"
    )


class PlanNamed(Answer):
    plan: str
    kind: str


class Plans(Answer):
    plans: list[PlanNamed]


class Released(Answer):
    """One release."""

    values: Any
    unit: str
    mechanism: str
    guarantee: dict[str, str]
    error: str | None
