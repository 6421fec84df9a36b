"""A small typed client of the gateway, for programs: `Client`, and `AsyncClient` for event loops.

Every endpoint of the OpenAPI document is a method of `Endpoints`, which both have.

```python
with Client("https://shoal.example", key) as gateway:
    gateway.push("ada", "day", context="work")
    for output in gateway.follow("ada", "day"):
        print(output.status, output.value)
```
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from functools import wraps
from typing import Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload
from urllib.parse import quote, urlencode
from uuid import uuid4

import httpx

from shoal.core.errors import ShoalError

__all__ = ["AsyncClient", "Client", "GatewayError", "NewKey", "Output", "Pushed"]

P = ParamSpec("P")
T = TypeVar("T")
PAGE = 1000  # outputs of one request
TIMEOUT = 30.0
LONGEST_PAUSE = 30.0  # seconds between two attempts to connect
REQUEST_ATTEMPTS = 4  # of a request that may be made again
POLL_SECONDS = 0.3  # seconds between two looks at a job
AGAIN = (429, 502, 503, 504)


class GatewayError(ShoalError):
    """A problem document: `status` and the sentence that the gateway said."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True, slots=True)
class Output:
    """The output of one slot; `value` has its kind's members: context, or point and estimate."""

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
        rest = dict(body)
        own = {each.name: rest.pop(each.name) for each in fields(cls) if each.name != "value"}
        own |= {name: datetime.fromisoformat(own[name]) for name in ("opens", "ends")}
        return cls(**own, value=rest)


@dataclass(frozen=True, slots=True)
class Pushed:
    """How many readings were taken, and which were refused: place and reason."""

    taken: int
    dead: tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class NewKey:
    """A key: its name and its secret text, which the gateway shows only once."""

    key: str
    token: str


class Call(NamedTuple, Generic[T]):
    """A request, how to parse its response, and whether it is safe to repeat (`again`)."""

    method: str
    path: str
    parse: Callable[[Any], T]
    body: Any = None
    again: bool = False
    headers: Mapping[str, str] = {}


def get(path: str, parse: Callable[[Any], T], **query: Any) -> Call[T]:
    """Return a GET request, which is safe to repeat."""
    given = {name: value for name, value in query.items() if value is not None}
    return Call("GET", f"{path}?{urlencode(given)}" if given else path, parse, again=True)


def put(path: str, parse: Callable[[Any], T], body: Any = None) -> Call[T]:
    """Return a PUT request, which is safe to repeat."""
    return Call("PUT", path, parse, body, again=True)


def post(path: str, parse: Callable[[Any], T], body: Any = None, key: str | None = None) -> Call[T]:
    """A request that makes something; made again only under an Idempotency-Key."""
    headers = {} if key is None else {"Idempotency-Key": key}
    return Call("POST", path, parse, body, key is not None, headers)


def send_readings(person: str, stream: str, readings: list[dict[str, Any]]) -> Call[Pushed]:
    """Return the request for readings, whose tries are one request to the gateway.

    Time and Idempotency-Key are set here, before the first try: a try whose answer was lost and
    the next one say the same.
    """
    stamp = now_text()
    stamped = [each if each.get("at") else {**each, "at": stamp} for each in readings]
    path = of_stream(person, stream, "/readings")
    return post(path, parse_pushed, stamped, key=uuid4().hex)


def now_text() -> str:
    """Return the time by this machine's clock, as readings have it (RFC 3339, UTC)."""
    return datetime.now(UTC).isoformat()


def delete_request(path: str, parse: Callable[[Any], T]) -> Call[T]:
    """Return a DELETE request."""
    return Call("DELETE", path, parse)


def nothing(reply: Any) -> None:
    """Ignore the body of a response; return None."""


def plain(reply: Any) -> dict[str, Any]:
    """An answer as it came."""
    return dict(reply)


def rows(name: str) -> Callable[[Any], list[Any]]:
    """The list in an answer."""
    return lambda reply: list(reply[name])


def of_person(person: str, rest: str = "") -> str:
    """The path of a person."""
    return f"/v1/people/{quote(person, safe='')}{rest}"


def of_stream(person: str, stream: str, rest: str = "") -> str:
    """The path of a stream."""
    return of_person(person, f"/streams/{quote(stream, safe='')}{rest}")


def parse_pushed(reply: Any) -> Pushed:
    return Pushed(reply["taken"], tuple((each["place"], each["reason"]) for each in reply["dead"]))


class Endpoint(Generic[P, T]):
    """A request that both clients send: `Client` returns the response, `AsyncClient` an
    awaitable.
    """

    def __init__(self, call: Callable[Concatenate[Any, P], Call[T]]) -> None:
        self._call = call

    @overload
    def __get__(self, client: Client, owner: object = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: object = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, client: None, owner: object = None) -> Callable[..., Call[T]]: ...
    def __get__(self, client: Client | AsyncClient | None, owner: object = None) -> Any:
        """Return a function that sends the request with `client`; on a class, its builder."""
        if client is None:
            return self._call

        @wraps(self._call)
        def ask(*given: P.args, **named: P.kwargs) -> Any:
            return client._ask(self._call(client, *given, **named))

        return ask


class Endpoints:
    """The requests of both clients."""

    @Endpoint
    def push_many(self, person: str, stream: str, readings: list[dict[str, Any]]) -> Call[Pushed]:
        """Send readings and return what became of them.

        A reading without `at` is of now, by this machine's clock.
        """
        return send_readings(person, stream, readings)

    @Endpoint
    def push(
        self, /, person: str, stream: str, *, at: datetime | None = None, **reading: Any
    ) -> Call[Pushed]:
        """Send one reading and return what became of it.

        The reading is `context=`, or `state=`, or `lat=` and `lon=`. It is of `at`, or of now by
        this machine's clock.
        """
        if at is not None and at.tzinfo is None:
            raise ValueError("at has no zone; give it one, such as datetime.now(UTC)")
        said = {**reading, **({} if at is None else {"at": at.isoformat()})}
        return send_readings(person, stream, [said])

    @Endpoint
    def now(self, person: str, stream: str) -> Call[Output]:
        """The output of the last closed slot."""
        return get(of_stream(person, stream, "/now"), Output.of)

    @Endpoint
    def budget(self, person: str) -> Call[dict[str, Any]]:
        """What was spent on each stream, what is left, until when."""
        return get(of_person(person, "/budget"), plain)

    @Endpoint
    def beliefs(
        self, person: str, stream: str, day: str | None = None, application: str | None = None
    ) -> Call[dict[str, Any]]:
        """What an adversary believes after the last closed slot. For the person.

        Of contexts also of a kept day, and from what an application was given.
        """
        path = of_stream(person, stream, "/beliefs")
        return get(path, plain, day=day, application=application)

    @Endpoint
    def refused(self, person: str, stream: str, after: int = 0) -> Call[dict[str, Any]]:
        """Readings that were refused: place, id and reason. For the person."""
        return get(of_stream(person, stream, "/refused"), plain, after=after)

    @Endpoint
    def overview(self, after: str = "", limit: int = 50) -> Call[dict[str, Any]]:
        """The space at a glance, its people a page at a time. For operators."""
        return get("/v1/overview", plain, after=after, limit=limit)

    @Endpoint
    def people(self, after: str = "", limit: int = 100) -> Call[list[str]]:
        """Names of people, a page at a time. For operators."""
        return get("/v1/people", rows("people"), after=after, limit=limit)

    @Endpoint
    def person(self, person: str) -> Call[dict[str, Any]]:
        """Return a person's streams: the state of each, who saw it, what was refused."""
        return get(of_person(person), plain)

    @Endpoint
    def put_person(self, person: str) -> Call[None]:
        """Make a person of the space. For operators."""
        return put(of_person(person), nothing)

    @Endpoint
    def forget_person(self, person: str) -> Call[None]:
        """Forget a person: streams, grants and keys."""
        return delete_request(of_person(person), nothing)

    @Endpoint
    def put_stream(self, /, person: str, stream: str, plan: str, **options: Any) -> Call[None]:
        """Begin a stream or change its plan; `clock=`, `timezone=`, `silence=`, `independent=`."""
        return put(of_stream(person, stream), nothing, {"plan": plan, **options})

    @Endpoint
    def limit(
        self, /, person: str, stream: str, epsilon: float, **options: Any
    ) -> Call[dict[str, Any]]:
        """The most that may be spent on a stream; `unit=`, `over=`."""
        return put(of_stream(person, stream, "/limit"), plain, {"epsilon": epsilon, **options})

    @Endpoint
    def pause(self, person: str, stream: str, *, resume: bool = False) -> Call[int]:
        """Pause or resume a stream; return the id of the first slot that this applies to."""
        path = of_stream(person, stream, "/resume" if resume else "/pause")
        return Call("POST", path, lambda reply: int(reply["from"]), again=True)

    @Endpoint
    def forget(self, person: str, stream: str) -> Call[dict[str, Any]]:
        """Forget a stream's outputs and state; until when its name stays closed."""
        return delete_request(of_stream(person, stream), plain)

    @Endpoint
    def grant(self, /, person: str, application: str, **options: Any) -> Call[None]:
        """Let an application see outputs; `streams=`, `every=`, `since=`, `until=`."""
        return put(of_person(person, f"/grants/{application}"), nothing, options)

    @Endpoint
    def grants(self, person: str) -> Call[list[dict[str, Any]]]:
        """What a person granted to whom."""
        return get(of_person(person, "/grants"), rows("grants"))

    @Endpoint
    def withdraw(self, person: str, application: str) -> Call[None]:
        """Take a grant back."""
        return delete_request(of_person(person, f"/grants/{application}"), nothing)

    @Endpoint
    def make_key(
        self, kind: str, holder: str | None = None, label: str = "", expires: datetime | None = None
    ) -> Call[NewKey]:
        """A new key, whose text is in this answer only."""
        body = {"kind": kind, "holder": holder, "label": label}
        body |= {} if expires is None else {"expires": expires.isoformat()}
        return post("/v1/keys", lambda reply: NewKey(reply["key"], reply["token"]), body)

    @Endpoint
    def keys(self) -> Call[list[dict[str, Any]]]:
        """The keys this one may take back, without their secrets."""
        return get("/v1/keys", rows("keys"))

    @Endpoint
    def revoke_key(self, key: str) -> Call[None]:
        """Take a key back."""
        return delete_request(f"/v1/keys/{key}", nothing)

    @Endpoint
    def plans(self) -> Call[list[dict[str, Any]]]:
        """The plans of the space."""
        return get("/v1/plans", rows("plans"))

    @Endpoint
    def plan(self, plan: str) -> Call[dict[str, Any]]:
        """A plan in words and numbers."""
        return get(f"/v1/plans/{plan}", plain)

    @Endpoint
    def estimate(self, spec: str) -> Call[dict[str, Any]]:
        """What a spec would give, stored nowhere."""
        return post("/v1/plans/estimate", plain, {"spec": spec})

    @Endpoint
    def release(
        self,
        plan: str,
        data: Any,
        *,
        subject: str = "",
        period: str = "",
        key: str | None = None,
        independent: bool = False,
    ) -> Call[dict[str, Any]]:
        """One release of the data, charged; the same key gives the same one again.

        Of somebody who has a stream, only what is `independent` of it is released.
        """
        body = {"plan": plan, "data": data, "subject": subject, "period": period}
        body |= {"independent": True} if independent else {}
        return post("/v1/releases", plain, body, key)

    @Endpoint
    def start_plan(
        self,
        spec: str | dict[str, Any] | None = None,
        key: str | None = None,
        *,
        model: str | dict[str, Any] | None = None,
        plan: str | dict[str, Any] | None = None,
    ) -> Call[str]:
        """Return the name of a job that calibrates a spec, or checks a stored plan.

        `model` is a stored model in place of the spec's own.
        """
        given = {"spec": spec, "model": model, "plan": plan}
        body = {name: value for name, value in given.items() if value is not None}
        return post("/v1/plans", lambda reply: str(reply["job"]), body, key)

    @Endpoint
    def job(self, job: str) -> Call[dict[str, Any]]:
        """Where a job stands."""
        return get(f"/v1/jobs/{job}", plain)

    @Endpoint
    def _page(self, person: str, stream: str, after: int) -> Call[dict[str, Any]]:
        """The outputs after an id, one page of them."""
        return get(of_stream(person, stream, "/outputs"), plain, after=after, limit=PAGE)


class Client(Endpoints):
    """The gateway at a URL, with one key. Failed requests are retried where this is safe:
    readings carry their time and a key, and read requests have no effect.
    """

    def __init__(self, base: str, key: str, *, http: httpx.Client | None = None) -> None:
        self._http = http or httpx.Client(base_url=base, timeout=TIMEOUT)
        self._headers = {"Authorization": f"Bearer {key}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def outputs(self, person: str, stream: str, after: int = -1) -> Iterator[Output]:
        """All outputs after an id, page by page."""
        while True:
            found = self._page(person, stream, after)
            for each in found["outputs"]:
                yield Output.of(each)
            if not found["outputs"]:
                return
            after = found["after"]

    def follow(self, person: str, stream: str, after: int | None = None) -> Iterator[Output]:
        """Outputs as their slots close, without end; connects again where it was cut off."""
        failures = 0
        while True:
            try:
                for output in self._events(person, stream, after):
                    after, failures = output.id, 0
                    yield output
            except httpx.TransportError:
                failures += 1
            except GatewayError as error:
                if error.status not in AGAIN:
                    raise
                failures += 1
            time.sleep(pause(failures))

    def make_plan(
        self,
        spec: str | dict[str, Any] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
        **stored: Any,
    ) -> str:
        """Return the name of a plan, once its job is done; refused with the job's own sentence.

        `stored` is a `model` in place of the spec's own, or a `plan` instead of a spec.
        """
        job = self.start_plan(spec, **stored)
        while True:
            state = self.job(job)
            plan = _job_done(state)
            if plan is not None:
                return plan
            if progress is not None:
                progress(state)
            time.sleep(POLL_SECONDS)

    def _ask(self, call: Call[T]) -> T:
        """Send a request and return its parsed response.

        Requests that are safe to repeat are retried on transport errors and statuses in AGAIN.
        """
        attempts = REQUEST_ATTEMPTS if call.again else 1
        headers = {**self._headers, **call.headers}
        for attempt in range(1, attempts + 1):
            try:
                answer = self._http.request(call.method, call.path, json=call.body, headers=headers)
            except httpx.TransportError:
                if attempt == attempts:
                    raise
            else:
                if answer.status_code not in AGAIN or attempt == attempts:
                    return call.parse(_parse_response(answer))
            time.sleep(pause(attempt))
        raise AssertionError("unreachable")

    def _events(self, person: str, stream: str, after: int | None) -> Iterator[Output]:
        """Yield the outputs of one event stream after an id, until the connection ends."""
        path = of_stream(person, stream, "/events")
        headers = _resuming(self._headers, after)
        with self._http.stream("GET", path, headers=headers, timeout=_patient()) as answer:
            if answer.status_code != 200:
                answer.read()
                _parse_response(answer)
            frames = Frames()
            for line in answer.iter_lines():
                output = frames.line(line)
                if output is not None:
                    yield output


class AsyncClient(Endpoints):
    """The same for event loops: the methods of `Client`, each to be awaited."""

    def __init__(self, base: str, key: str, *, http: httpx.AsyncClient | None = None) -> None:
        self._http = http or httpx.AsyncClient(base_url=base, timeout=TIMEOUT)
        self._headers = {"Authorization": f"Bearer {key}"}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    async def close(self) -> None:
        await self._http.aclose()

    async def outputs(self, person: str, stream: str, after: int = -1) -> AsyncIterator[Output]:
        """Yield all stored outputs after an id, page by page."""
        while True:
            found = await self._page(person, stream, after)
            for each in found["outputs"]:
                yield Output.of(each)
            if not found["outputs"]:
                return
            after = found["after"]

    async def follow(
        self, person: str, stream: str, after: int | None = None
    ) -> AsyncIterator[Output]:
        """Yield outputs as their slots close, without end; reconnect after a lost connection."""
        failures = 0
        while True:
            try:
                async for output in self._events(person, stream, after):
                    after, failures = output.id, 0
                    yield output
            except httpx.TransportError:
                failures += 1
            except GatewayError as error:
                if error.status not in AGAIN:
                    raise
                failures += 1
            await asyncio.sleep(pause(failures))

    async def make_plan(
        self,
        spec: str | dict[str, Any] | None = None,
        progress: Callable[[dict[str, Any]], None] | None = None,
        **stored: Any,
    ) -> str:
        """Return the name of a plan, once its job is done.

        `stored` is a `model` in place of the spec's own, or a `plan` instead of a spec. `progress`
        receives the job's state at every poll. Raises GatewayError when the job fails.
        """
        job = await self.start_plan(spec, **stored)
        while True:
            state = await self.job(job)
            plan = _job_done(state)
            if plan is not None:
                return plan
            if progress is not None:
                progress(state)
            await asyncio.sleep(POLL_SECONDS)

    async def _ask(self, call: Call[T]) -> T:
        """Send a request and return its parsed response.

        Requests that are safe to repeat are retried on transport errors and statuses in AGAIN.
        """
        attempts = REQUEST_ATTEMPTS if call.again else 1
        headers = {**self._headers, **call.headers}
        for attempt in range(1, attempts + 1):
            try:
                answer = await self._http.request(
                    call.method, call.path, json=call.body, headers=headers
                )
            except httpx.TransportError:
                if attempt == attempts:
                    raise
            else:
                if answer.status_code not in AGAIN or attempt == attempts:
                    return call.parse(_parse_response(answer))
            await asyncio.sleep(pause(attempt))
        raise AssertionError("unreachable")

    async def _events(self, person: str, stream: str, after: int | None) -> AsyncIterator[Output]:
        """Yield the outputs of one event stream after an id, until the connection ends."""
        path = of_stream(person, stream, "/events")
        headers = _resuming(self._headers, after)
        async with self._http.stream("GET", path, headers=headers, timeout=_patient()) as answer:
            if answer.status_code != 200:
                await answer.aread()
                _parse_response(answer)
            frames = Frames()
            async for line in answer.aiter_lines():
                output = frames.line(line)
                if output is not None:
                    yield output


def pause(failures: int) -> float:
    """Seconds to wait after so many failures, longer each time."""
    return min(LONGEST_PAUSE, 0.1 * 2.0**failures)


def _patient() -> httpx.Timeout:
    """No limit on silence: comments come between slots, and slots may be hours."""
    return httpx.Timeout(TIMEOUT, read=None)


def _resuming(headers: dict[str, str], after: int | None) -> dict[str, str]:
    return headers if after is None else {**headers, "Last-Event-ID": str(after)}


def _parse_response(answer: httpx.Response) -> Any:
    """Return the JSON of a response, None without a body; raise GatewayError from 400 on."""
    if answer.status_code < 400:
        return answer.json() if answer.content else None
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"the answer was {answer.status_code}"
    raise GatewayError(answer.status_code, detail)


def _job_done(state: dict[str, Any]) -> str | None:
    """The plan of a job that is done; None while it works; its own sentence when it failed."""
    if state["state"] == "failed":
        raise GatewayError(state["status"], state["detail"])
    return str(state["plan"]) if state["state"] == "done" else None


class Frames:
    """Server-sent events, line by line."""

    def __init__(self) -> None:
        self._parse_event = ""
        self._data: list[str] = []

    def line(self, line: str) -> Output | None:
        """The output that this line completes, if it does; an `end` is raised."""
        name, _, value = line.partition(":")
        if name == "event":
            self._parse_event = value.removeprefix(" ")
        elif name == "data":
            self._data.append(value.removeprefix(" "))
        if line:
            return None
        event, data = self._parse_event, "\n".join(self._data)
        self._parse_event, self._data = "", []
        if event == "end":
            problem = json.loads(data)
            raise GatewayError(problem["status"], problem["detail"])
        return Output.of(json.loads(data)) if event == "output" else None
