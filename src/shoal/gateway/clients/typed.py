"""A small typed client of the gateway, for programs: `Client`, and `AsyncClient` for event loops.

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
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any, Self

import httpx

from shoal.core.errors import ShoalError

TIMEOUT = 30.0
LONGEST_PAUSE = 30.0  # seconds between two attempts to connect
AGAIN = (429, 502, 503, 504)


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


class Requests:
    """Every request the client makes, as method, path and body; both clients share them."""

    @staticmethod
    def stream(person: str, stream: str, rest: str = "") -> str:
        return f"/v1/people/{person}/streams/{stream}{rest}"

    @staticmethod
    def reading(at: datetime | None, given: Mapping[str, Any]) -> dict[str, Any]:
        if at is not None and at.tzinfo is None:
            raise ValueError("at has no zone; give it one, such as datetime.now(UTC)")
        return {**given, **({} if at is None else {"at": at.isoformat()})}


class Client:
    """The gateway behind a URL, with one key. Requests that failed on the way are made again when
    that is harmless: readings are their own key, and what is only read changes nothing.
    """

    def __init__(self, base: str, key: str, *, http: httpx.Client | None = None) -> None:
        self._http = http or httpx.Client(base_url=base, timeout=TIMEOUT)
        self._headers = {"Authorization": f"Bearer {key}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def push(
        self, person: str, stream: str, *, at: datetime | None = None, **reading: Any
    ) -> Pushed:
        """What became of one reading: `context=`, or `state=`, or `lat=` and `lon=`."""
        return self.push_many(person, stream, [Requests.reading(at, reading)])

    def push_many(self, person: str, stream: str, readings: list[dict[str, Any]]) -> Pushed:
        """What became of readings; sent again they are drawn once."""
        told = self._ask("POST", Requests.stream(person, stream, "/readings"), readings, again=True)
        return _pushed(told)

    def now(self, person: str, stream: str) -> Output:
        """The output of the last closed slot."""
        return Output.of(self._ask("GET", Requests.stream(person, stream, "/now"), again=True))

    def outputs(self, person: str, stream: str, after: int = -1) -> Iterator[Output]:
        """All outputs after an id, page by page."""
        while True:
            path = Requests.stream(person, stream, f"/outputs?after={after}&limit=1000")
            found = self._ask("GET", path, again=True)
            yield from map(Output.of, found["outputs"])
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

    def put_person(self, person: str) -> None:
        """Make a person of the space. For operators."""
        self._ask("PUT", f"/v1/people/{person}", again=True)

    def put_stream(self, person: str, stream: str, plan: str, **options: Any) -> None:
        """Begin a stream or change its plan; `clock=`, `timezone=`, `silence=`, `independent=`."""
        self._ask("PUT", Requests.stream(person, stream), {"plan": plan, **options}, again=True)

    def grant(self, person: str, application: str, **options: Any) -> None:
        """Let an application see outputs; `streams=`, `every=`, `since=`, `until=`."""
        self._ask("PUT", f"/v1/people/{person}/grants/{application}", options, again=True)

    def make_key(self, kind: str, holder: str | None = None, label: str = "") -> NewKey:
        """A new key, whose text is in this answer only."""
        told = self._ask("POST", "/v1/keys", {"kind": kind, "holder": holder, "label": label})
        return NewKey(told["key"], told["token"])

    def make_plan(self, spec: str, progress: Callable[[dict[str, Any]], None] | None = None) -> str:
        """The name of a plan, once its job is done; refused with the job's own sentence."""
        job = self._ask("POST", "/v1/plans", {"spec": spec})["job"]
        while True:
            told = self._ask("GET", f"/v1/jobs/{job}", again=True)
            if told["state"] == "done":
                return str(told["plan"])
            if told["state"] == "failed":
                raise GatewayError(told["status"], told["detail"])
            if progress is not None:
                progress(told)
            time.sleep(0.3)

    def budget(self, person: str) -> dict[str, Any]:
        """What was spent on each stream, what is left, until when."""
        return dict(self._ask("GET", f"/v1/people/{person}/budget", again=True))

    def beliefs(self, person: str, stream: str) -> dict[str, Any]:
        """What an adversary believes after the last closed slot. For the person."""
        return dict(self._ask("GET", Requests.stream(person, stream, "/beliefs"), again=True))

    def pause(self, person: str, stream: str, *, resume: bool = False) -> int:
        """The id from which on nothing is read, or again."""
        rest = "/resume" if resume else "/pause"
        return int(self._ask("POST", Requests.stream(person, stream, rest), again=True)["from"])

    def forget(self, person: str, stream: str) -> None:
        """Forget a stream's outputs and state."""
        self._ask("DELETE", Requests.stream(person, stream))

    def _ask(self, method: str, path: str, body: Any = None, *, again: bool = False) -> Any:
        attempts = 4 if again else 1
        for attempt in range(1, attempts + 1):
            try:
                answer = self._http.request(method, path, json=body, headers=self._headers)
            except httpx.TransportError:
                if attempt == attempts:
                    raise
            else:
                if answer.status_code not in AGAIN or attempt == attempts:
                    return _told(answer)
            time.sleep(pause(attempt))
        raise AssertionError("unreachable")

    def _events(self, person: str, stream: str, after: int | None) -> Iterator[Output]:
        path = Requests.stream(person, stream, "/events")
        headers = _resuming(self._headers, after)
        with self._http.stream("GET", path, headers=headers, timeout=_patient()) as answer:
            if answer.status_code != 200:
                answer.read()
                _told(answer)
            frames = Frames()
            for line in answer.iter_lines():
                output = frames.line(line)
                if output is not None:
                    yield output


class AsyncClient:
    """The same for event loops: what devices and applications need."""

    def __init__(self, base: str, key: str, *, http: httpx.AsyncClient | None = None) -> None:
        self._http = http or httpx.AsyncClient(base_url=base, timeout=TIMEOUT)
        self._headers = {"Authorization": f"Bearer {key}"}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._http.aclose()

    async def push(
        self, person: str, stream: str, *, at: datetime | None = None, **reading: Any
    ) -> Pushed:
        """What became of one reading: `context=`, or `state=`, or `lat=` and `lon=`."""
        body = Requests.reading(at, reading)
        path = Requests.stream(person, stream, "/readings")
        return _pushed(await self._ask("POST", path, body, attempts=4))

    async def now(self, person: str, stream: str) -> Output:
        """The output of the last closed slot."""
        return Output.of(
            await self._ask("GET", Requests.stream(person, stream, "/now"), attempts=4)
        )

    async def follow(
        self, person: str, stream: str, after: int | None = None
    ) -> AsyncIterator[Output]:
        """Outputs as their slots close, without end; connects again where it was cut off."""
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

    async def _events(self, person: str, stream: str, after: int | None) -> AsyncIterator[Output]:
        path = Requests.stream(person, stream, "/events")
        headers = _resuming(self._headers, after)
        async with self._http.stream("GET", path, headers=headers, timeout=_patient()) as answer:
            if answer.status_code != 200:
                await answer.aread()
                _told(answer)
            frames = Frames()
            async for line in answer.aiter_lines():
                output = frames.line(line)
                if output is not None:
                    yield output

    async def _ask(self, method: str, path: str, body: Any = None, *, attempts: int) -> Any:
        for attempt in range(1, attempts + 1):
            try:
                answer = await self._http.request(method, path, json=body, headers=self._headers)
            except httpx.TransportError:
                if attempt == attempts:
                    raise
            else:
                if answer.status_code not in AGAIN or attempt == attempts:
                    return _told(answer)
            await asyncio.sleep(pause(attempt))
        raise AssertionError("unreachable")


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


def pause(failures: int) -> float:
    """Seconds to wait after so many failures, longer each time."""
    return min(LONGEST_PAUSE, 0.1 * 2.0**failures)


def _patient() -> httpx.Timeout:
    """No limit on silence: comments come between slots, and slots may be hours."""
    return httpx.Timeout(TIMEOUT, read=None)


def _resuming(headers: dict[str, str], after: int | None) -> dict[str, str]:
    return headers if after is None else {**headers, "Last-Event-ID": str(after)}


def _pushed(told: Any) -> Pushed:
    return Pushed(told["taken"], tuple((each["place"], each["reason"]) for each in told["dead"]))


def _told(answer: httpx.Response) -> Any:
    if answer.status_code < 400:
        return answer.json() if answer.content else None
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"the answer was {answer.status_code}"
    raise GatewayError(answer.status_code, detail)
