"""The bodies of answers, as the OpenAPI document describes them. Times are UTC seconds unless they
are text, which is RFC 3339.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

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
    outputs: int
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


class Beliefs(Answer):
    """What an adversary believes: `places`, or `before` and `after` by slot and context."""

    kind: Literal["places", "contexts"]
    places: list[Place] | None = None
    contexts: list[str] | None = None
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
