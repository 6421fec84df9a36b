"""A small typed client of the gateway, for programs: `Client`, and `AsyncClient` for event loops.

Both have the same methods, and every endpoint of the OpenAPI document is one of them.

```python
with Client("https://shoal.example", key) as gateway:
    gateway.push("ada", "day", context="work")
    for output in gateway.follow("ada", "day"):
        print(output.status, output.value)
```
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import datetime
from typing import Any, Self, TypeVar

import httpx

from shoal.gateway.clients import calls
from shoal.gateway.clients.calls import (
    Call,
    Frames,
    GatewayError,
    NewKey,
    Output,
    Pushed,
    get,
    gone,
    nothing,
    of_person,
    of_stream,
    plain,
    post,
    put,
    rows,
)

__all__ = ["AsyncClient", "Client", "GatewayError", "NewKey", "Output", "Pushed"]

T = TypeVar("T")
TIMEOUT = 30.0
LONGEST_PAUSE = 30.0  # seconds between two attempts to connect
ATTEMPTS = 4  # of a request that may be made again
LOOK = 0.3  # seconds between two looks at a job
AGAIN = (429, 502, 503, 504)


class Client:
    """The gateway behind a URL, with one key. Requests that failed on the way are made again when
    that is harmless: readings are their own key, and what is only read changes nothing.
    """

    def __init__(self, base: str, key: str, *, http: httpx.Client | None = None) -> None:
        self._http = http or httpx.Client(base_url=base, timeout=TIMEOUT)
        self._headers = {"Authorization": f"Bearer {key}"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the connections back."""
        self._http.close()

    def push(
        self, person: str, stream: str, *, at: datetime | None = None, **reading: Any
    ) -> Pushed:
        """What became of one reading: `context=`, or `state=`, or `lat=` and `lon=`."""
        return self.push_many(person, stream, [calls.reading(at, reading)])

    def outputs(self, person: str, stream: str, after: int = -1) -> Iterator[Output]:
        """All outputs after an id, page by page."""
        while True:
            found = self._ask(calls.page(person, stream, after))
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

    def make_plan(self, spec: str, progress: Callable[[dict[str, Any]], None] | None = None) -> str:
        """The name of a plan, once its job is done; refused with the job's own sentence."""
        job = self.start_plan(spec)
        while True:
            told = self.job(job)
            plan = calls.job_done(told)
            if plan is not None:
                return plan
            if progress is not None:
                progress(told)
            time.sleep(LOOK)

    def push_many(self, person: str, stream: str, readings: list[dict[str, Any]]) -> Pushed:
        """What became of readings; sent again they are drawn once."""
        return self._ask(calls.push(person, stream, readings))

    def now(self, person: str, stream: str) -> Output:
        """The output of the last closed slot."""
        return self._ask(get(of_stream(person, stream, "/now"), Output.of))

    def budget(self, person: str) -> dict[str, Any]:
        """What was spent on each stream, what is left, until when."""
        return self._ask(get(of_person(person, "/budget"), plain))

    def beliefs(self, person: str, stream: str) -> dict[str, Any]:
        """What an adversary believes after the last closed slot. For the person."""
        return self._ask(get(of_stream(person, stream, "/beliefs"), plain))

    def refused(self, person: str, stream: str, after: int = 0) -> dict[str, Any]:
        """Readings that were refused: place, id and reason. For the person."""
        return self._ask(get(of_stream(person, stream, "/refused"), plain, after=after))

    def overview(self, after: str = "", limit: int = 50) -> dict[str, Any]:
        """The space at a glance, its people a page at a time. For operators."""
        return self._ask(get("/v1/overview", plain, after=after, limit=limit))

    def people(self, after: str = "", limit: int = 100) -> list[str]:
        """Names of people, a page at a time. For operators."""
        return self._ask(get("/v1/people", rows("people"), after=after, limit=limit))

    def person(self, person: str) -> dict[str, Any]:
        """A person's streams: where each stands, who saw it, what was refused."""
        return self._ask(get(of_person(person), plain))

    def put_person(self, person: str) -> None:
        """Make a person of the space. For operators."""
        self._ask(put(of_person(person), nothing))

    def forget_person(self, person: str) -> None:
        """Forget a person: streams, grants and keys."""
        self._ask(gone(of_person(person), nothing))

    def put_stream(self, person: str, stream: str, plan: str, **options: Any) -> None:
        """Begin a stream or change its plan; `clock=`, `timezone=`, `silence=`, `independent=`."""
        self._ask(put(of_stream(person, stream), nothing, {"plan": plan, **options}))

    def limit(self, person: str, stream: str, epsilon: float, **options: Any) -> dict[str, Any]:
        """The most that may be spent on a stream; `unit=`, `over=`."""
        return self._ask(
            put(of_stream(person, stream, "/limit"), plain, {"epsilon": epsilon, **options})
        )

    def pause(self, person: str, stream: str, *, resume: bool = False) -> int:
        """The id from which on nothing is read, or again."""
        return self._ask(calls.paused(person, stream, resume=resume))

    def forget(self, person: str, stream: str) -> dict[str, Any]:
        """Forget a stream's outputs and state; until when its name stays closed."""
        return self._ask(gone(of_stream(person, stream), plain))

    def grant(self, person: str, application: str, **options: Any) -> None:
        """Let an application see outputs; `streams=`, `every=`, `since=`, `until=`."""
        self._ask(put(of_person(person, f"/grants/{application}"), nothing, options))

    def grants(self, person: str) -> list[dict[str, Any]]:
        """What a person granted to whom."""
        return self._ask(get(of_person(person, "/grants"), rows("grants")))

    def withdraw(self, person: str, application: str) -> None:
        """Take a grant back."""
        self._ask(gone(of_person(person, f"/grants/{application}"), nothing))

    def make_key(
        self, kind: str, holder: str | None = None, label: str = "", expires: datetime | None = None
    ) -> NewKey:
        """A new key, whose text is in this answer only."""
        return self._ask(calls.new_key(kind, holder, label, expires))

    def keys(self) -> list[dict[str, Any]]:
        """The keys this one may take back, without their secrets."""
        return self._ask(get("/v1/keys", rows("keys")))

    def revoke_key(self, key: str) -> None:
        """Take a key back."""
        self._ask(gone(f"/v1/keys/{key}", nothing))

    def plans(self) -> list[dict[str, Any]]:
        """The plans of the space."""
        return self._ask(get("/v1/plans", rows("plans")))

    def plan(self, plan: str) -> dict[str, Any]:
        """A plan in words and numbers."""
        return self._ask(get(f"/v1/plans/{plan}", plain))

    def estimate(self, spec: str) -> dict[str, Any]:
        """What a spec would give, stored nowhere."""
        return self._ask(post("/v1/plans/estimate", plain, {"spec": spec}))

    def release(
        self, plan: str, data: Any, *, subject: str = "", period: str = "", key: str | None = None
    ) -> dict[str, Any]:
        """One release of the data, charged; the same key gives the same one again."""
        return self._ask(calls.released(plan, data, subject, period, key))

    def start_plan(self, spec: str, key: str | None = None) -> str:
        """The name of a job that calibrates a spec."""
        return self._ask(post("/v1/plans", lambda told: str(told["job"]), {"spec": spec}, key))

    def job(self, job: str) -> dict[str, Any]:
        """Where a job stands."""
        return self._ask(get(f"/v1/jobs/{job}", plain))

    def _ask(self, call: Call[T]) -> T:
        attempts = ATTEMPTS if call.again else 1
        headers = {**self._headers, **call.headers}
        for attempt in range(1, attempts + 1):
            try:
                answer = self._http.request(call.method, call.path, json=call.body, headers=headers)
            except httpx.TransportError:
                if attempt == attempts:
                    raise
            else:
                if answer.status_code not in AGAIN or attempt == attempts:
                    return call.parse(_told(answer))
            time.sleep(pause(attempt))
        raise AssertionError("unreachable")

    def _events(self, person: str, stream: str, after: int | None) -> Iterator[Output]:
        path = of_stream(person, stream, "/events")
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

    async def push(
        self, person: str, stream: str, *, at: datetime | None = None, **reading: Any
    ) -> Pushed:
        return await self.push_many(person, stream, [calls.reading(at, reading)])

    async def outputs(self, person: str, stream: str, after: int = -1) -> AsyncIterator[Output]:
        while True:
            found = await self._ask(calls.page(person, stream, after))
            for each in found["outputs"]:
                yield Output.of(each)
            if not found["outputs"]:
                return
            after = found["after"]

    async def follow(
        self, person: str, stream: str, after: int | None = None
    ) -> AsyncIterator[Output]:
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
        self, spec: str, progress: Callable[[dict[str, Any]], None] | None = None
    ) -> str:
        job = await self.start_plan(spec)
        while True:
            told = await self.job(job)
            plan = calls.job_done(told)
            if plan is not None:
                return plan
            if progress is not None:
                progress(told)
            await asyncio.sleep(LOOK)

    async def push_many(self, person: str, stream: str, readings: list[dict[str, Any]]) -> Pushed:
        return await self._ask(calls.push(person, stream, readings))

    async def now(self, person: str, stream: str) -> Output:
        return await self._ask(get(of_stream(person, stream, "/now"), Output.of))

    async def budget(self, person: str) -> dict[str, Any]:
        return await self._ask(get(of_person(person, "/budget"), plain))

    async def beliefs(self, person: str, stream: str) -> dict[str, Any]:
        return await self._ask(get(of_stream(person, stream, "/beliefs"), plain))

    async def refused(self, person: str, stream: str, after: int = 0) -> dict[str, Any]:
        return await self._ask(get(of_stream(person, stream, "/refused"), plain, after=after))

    async def overview(self, after: str = "", limit: int = 50) -> dict[str, Any]:
        return await self._ask(get("/v1/overview", plain, after=after, limit=limit))

    async def people(self, after: str = "", limit: int = 100) -> list[str]:
        return await self._ask(get("/v1/people", rows("people"), after=after, limit=limit))

    async def person(self, person: str) -> dict[str, Any]:
        return await self._ask(get(of_person(person), plain))

    async def put_person(self, person: str) -> None:
        await self._ask(put(of_person(person), nothing))

    async def forget_person(self, person: str) -> None:
        await self._ask(gone(of_person(person), nothing))

    async def put_stream(self, person: str, stream: str, plan: str, **options: Any) -> None:
        await self._ask(put(of_stream(person, stream), nothing, {"plan": plan, **options}))

    async def limit(
        self, person: str, stream: str, epsilon: float, **options: Any
    ) -> dict[str, Any]:
        return await self._ask(
            put(of_stream(person, stream, "/limit"), plain, {"epsilon": epsilon, **options})
        )

    async def pause(self, person: str, stream: str, *, resume: bool = False) -> int:
        return await self._ask(calls.paused(person, stream, resume=resume))

    async def forget(self, person: str, stream: str) -> dict[str, Any]:
        return await self._ask(gone(of_stream(person, stream), plain))

    async def grant(self, person: str, application: str, **options: Any) -> None:
        await self._ask(put(of_person(person, f"/grants/{application}"), nothing, options))

    async def grants(self, person: str) -> list[dict[str, Any]]:
        return await self._ask(get(of_person(person, "/grants"), rows("grants")))

    async def withdraw(self, person: str, application: str) -> None:
        await self._ask(gone(of_person(person, f"/grants/{application}"), nothing))

    async def make_key(
        self, kind: str, holder: str | None = None, label: str = "", expires: datetime | None = None
    ) -> NewKey:
        return await self._ask(calls.new_key(kind, holder, label, expires))

    async def keys(self) -> list[dict[str, Any]]:
        return await self._ask(get("/v1/keys", rows("keys")))

    async def revoke_key(self, key: str) -> None:
        await self._ask(gone(f"/v1/keys/{key}", nothing))

    async def plans(self) -> list[dict[str, Any]]:
        return await self._ask(get("/v1/plans", rows("plans")))

    async def plan(self, plan: str) -> dict[str, Any]:
        return await self._ask(get(f"/v1/plans/{plan}", plain))

    async def estimate(self, spec: str) -> dict[str, Any]:
        return await self._ask(post("/v1/plans/estimate", plain, {"spec": spec}))

    async def release(
        self, plan: str, data: Any, *, subject: str = "", period: str = "", key: str | None = None
    ) -> dict[str, Any]:
        return await self._ask(calls.released(plan, data, subject, period, key))

    async def start_plan(self, spec: str, key: str | None = None) -> str:
        return await self._ask(
            post("/v1/plans", lambda told: str(told["job"]), {"spec": spec}, key)
        )

    async def job(self, job: str) -> dict[str, Any]:
        return await self._ask(get(f"/v1/jobs/{job}", plain))

    async def _ask(self, call: Call[T]) -> T:
        attempts = ATTEMPTS if call.again else 1
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
                    return call.parse(_told(answer))
            await asyncio.sleep(pause(attempt))
        raise AssertionError("unreachable")

    async def _events(self, person: str, stream: str, after: int | None) -> AsyncIterator[Output]:
        path = of_stream(person, stream, "/events")
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


def pause(failures: int) -> float:
    """Seconds to wait after so many failures, longer each time."""
    return min(LONGEST_PAUSE, 0.1 * 2.0**failures)


def _patient() -> httpx.Timeout:
    """No limit on silence: comments come between slots, and slots may be hours."""
    return httpx.Timeout(TIMEOUT, read=None)


def _resuming(headers: dict[str, str], after: int | None) -> dict[str, str]:
    return headers if after is None else {**headers, "Last-Event-ID": str(after)}


def _told(answer: httpx.Response) -> Any:
    if answer.status_code < 400:
        return answer.json() if answer.content else None
    try:
        detail = answer.json()["detail"]
    except (ValueError, KeyError, TypeError):
        detail = f"the answer was {answer.status_code}"
    raise GatewayError(answer.status_code, detail)
