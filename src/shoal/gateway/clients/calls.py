"""Every request a client makes, as values: both clients make the same ones, each in its way."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import quote, urlencode

from shoal.core.errors import ShoalError

T = TypeVar("T")
PAGE = 1000  # outputs of one request


class GatewayError(ShoalError):
    """A problem document: `status` and the sentence that the gateway said."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True, slots=True)
class Output:
    """What a slot shows. `value` holds the members of its kind: context, or point and estimate."""

    id: int
    day: str
    slot: int
    opens: datetime
    ends: datetime
    status: str
    plan: str
    guarantee: Mapping[str, str]
    value: Mapping[str, Any]

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> Output:
        """The output of a JSON object."""
        names = ("id", "day", "slot", "status", "plan", "guarantee")
        own: dict[str, Any] = {name: body[name] for name in names}
        times: dict[str, Any] = {
            name: datetime.fromisoformat(body[name]) for name in ("opens", "ends")
        }
        rest = {name: value for name, value in body.items() if name not in {*own, *times}}
        return cls(**own, **times, value=rest)


@dataclass(frozen=True, slots=True)
class Pushed:
    """How many readings were taken, and which were refused: place and reason."""

    taken: int
    dead: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key: its name, and its text, which nobody can ask for again."""

    key: str
    token: str


class Call(NamedTuple, Generic[T]):
    """A request, what its answer means, and whether making it again is harmless."""

    method: str
    path: str
    parse: Callable[[Any], T]
    body: Any = None
    again: bool = False
    headers: Mapping[str, str] = {}


def get(path: str, parse: Callable[[Any], T], **query: Any) -> Call[T]:
    """A request that changes nothing."""
    given = {name: value for name, value in query.items() if value is not None}
    return Call("GET", f"{path}?{urlencode(given)}" if given else path, parse, again=True)


def put(path: str, parse: Callable[[Any], T], body: Any = None) -> Call[T]:
    """A request that says how something is to be, once or twice."""
    return Call("PUT", path, parse, body, again=True)


def post(path: str, parse: Callable[[Any], T], body: Any = None, key: str | None = None) -> Call[T]:
    """A request that makes something; made again only under an Idempotency-Key."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return Call("POST", path, parse, body, key is not None, headers)


def gone(path: str, parse: Callable[[Any], T]) -> Call[T]:
    """A request that takes something away."""
    return Call("DELETE", path, parse)


def nothing(told: Any) -> None:
    """An answer that says no more than that it was done."""


def plain(told: Any) -> dict[str, Any]:
    """An answer as it came."""
    return dict(told)


def rows(name: str) -> Callable[[Any], list[Any]]:
    """The list in an answer."""
    return lambda told: list(told[name])


def of_person(person: str, rest: str = "") -> str:
    """The path of a person."""
    return f"/v1/people/{quote(person, safe='')}{rest}"


def of_stream(person: str, stream: str, rest: str = "") -> str:
    """The path of a stream."""
    return of_person(person, f"/streams/{quote(stream, safe='')}{rest}")


def reading(at: datetime | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """A reading as it is sent; refused when its time has no zone."""
    if at is not None and at.tzinfo is None:
        raise ValueError("at has no zone; give it one, such as datetime.now(UTC)")
    return {**given, **({} if at is None else {"at": at.isoformat()})}


def push(person: str, stream: str, readings: list[dict[str, Any]]) -> Call[Pushed]:
    return Call("POST", of_stream(person, stream, "/readings"), pushed, readings, again=True)


def pushed(told: Any) -> Pushed:
    return Pushed(told["taken"], tuple((each["place"], each["reason"]) for each in told["dead"]))


def new_key(kind: str, holder: str | None, label: str, expires: datetime | None) -> Call[NewKey]:
    body = {"kind": kind, "holder": holder, "label": label}
    body |= {} if expires is None else {"expires": expires.isoformat()}
    return post("/v1/keys", lambda told: NewKey(told["key"], told["token"]), body)


def paused(person: str, stream: str, *, resume: bool) -> Call[int]:
    path = of_stream(person, stream, "/resume" if resume else "/pause")
    return Call("POST", path, lambda told: int(told["from"]), again=True)


def released(
    plan: str, data: Any, subject: str, period: str, key: str | None
) -> Call[dict[str, Any]]:
    body = {"plan": plan, "data": data, "subject": subject, "period": period}
    return post("/v1/releases", plain, body, key)


def page(person: str, stream: str, after: int) -> Call[dict[str, Any]]:
    """The outputs after an id, one page of them."""
    return get(of_stream(person, stream, "/outputs"), plain, after=after, limit=PAGE)


def job_done(told: dict[str, Any]) -> str | None:
    """The plan of a job that is done; None while it works; its own sentence when it failed."""
    if told["state"] == "failed":
        raise GatewayError(told["status"], told["detail"])
    return str(told["plan"]) if told["state"] == "done" else None


class Frames:
    """Server-sent events, line by line."""

    def __init__(self) -> None:
        self._event = ""
        self._data: list[str] = []

    def line(self, line: str) -> Output | None:
        """The output that this line completes, if it does; an `end` is raised."""
        name, _, value = line.partition(":")
        if name == "event":
            self._event = value.removeprefix(" ")
        elif name == "data":
            self._data.append(value.removeprefix(" "))
        if line:
            return None
        event, data = self._event, "\n".join(self._data)
        self._event, self._data = "", []
        if event == "end":
            problem = json.loads(data)
            raise GatewayError(problem["status"], problem["detail"])
        return Output.of(json.loads(data)) if event == "output" else None
