"""Checks before every handler: body size, rate limit, repeated requests, access log."""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from typing import Any

from sqlalchemy import Connection, delete, insert, select

from shoal.core.errors import ShoalError
from shoal.gateway import telemetry
from shoal.gateway.http.rates import Rates
from shoal.gateway.keys import Caller
from shoal.gateway.problems import MEDIA, Problem, over_limit, problem_of
from shoal.gateway.settings import Settings
from shoal.gateway.tables import ANSWERS
from shoal.gateway.telemetry import log
from shoal.gateway.vault import Vault

PLAIN = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
)
UNLIMITED = ("/health/live", "/health/ready", "/metrics")


class Guard:
    """An ASGI layer around the application."""

    def __init__(self, app: Any, settings: Settings, rates: Rates) -> None:
        self._app = app
        self._settings = settings
        self._rates = rates

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Serve one request within the limits of rate and size, and log it without its content.

        Adds security headers, a request id and the rate limit's headers to the response.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began, response = time.perf_counter(), {"status": 500}
        left = None if scope["path"] in UNLIMITED else self._rates.take(scope)
        extra = [*PLAIN, (b"x-request-id", secrets.token_hex(8).encode())]
        if left is not None:
            extra += self._rates.headers(left)

        async def answer(message: Any) -> None:
            if message["type"] == "http.response.start":
                response["status"] = message["status"]
                own = {name for name, _ in message["headers"]}
                message["headers"] += [pair for pair in extra if pair[0] not in own]
            await send(message)

        try:
            if left is not None and left < 0:
                problem = over_limit("rate", self._settings.rate, status=429)
                problem.more["headers"] = {"Retry-After": "1"}
                await respond(problem, answer)
            else:
                await self._run_with_limit(scope, receive, answer)
        finally:
            self._note(scope, response["status"], time.perf_counter() - began, dict(extra))

    async def _run_with_limit(self, scope: Any, receive: Any, answer: Any) -> None:
        """Run the application; answer with a problem when the body is too long or late."""
        most = self._settings.body_bytes
        given = dict(scope["headers"]).get(b"content-length", b"0")
        if given.isdigit() and int(given) > most:
            await respond(over_limit("body_bytes", most), answer)
            return
        count, whole = 0, False
        failed: Problem | None = None
        seconds = self._settings.request_body_seconds
        end = asyncio.get_running_loop().time() + seconds

        async def receive_counted() -> Any:
            """Return the next body message; raise a Problem above `most` bytes, or too late."""
            nonlocal count, failed, whole
            if whole:
                return await receive()  # waits until the client leaves
            try:
                async with asyncio.timeout_at(end):
                    message = await receive()
            except TimeoutError:
                failed = over_limit("request_body_seconds", seconds, status=408)
                raise failed from None
            count += len(message.get("body", b""))
            whole = not message.get("more_body", False)
            if count > most:
                failed = over_limit("body_bytes", most)
                raise failed
            return message

        async def send_answer(message: Any) -> None:
            """Forward the application's response, or the problem with the body."""
            if failed is None:
                await answer(message)
            elif message["type"] == "http.response.start":
                await respond(failed, answer)

        await self._app(scope, receive_counted, send_answer)

    def _note(self, scope: Any, status: int, seconds: float, extra: dict[bytes, bytes]) -> None:
        """Count and log one response; the route is a template, so no names of people are logged."""
        route = getattr(scope.get("route"), "path", "none")
        telemetry.REQUESTS.labels(route, str(status)).inc()
        telemetry.SECONDS.labels(route).observe(seconds)
        log.info(
            "answered",
            request=extra[b"x-request-id"].decode(),
            method=scope["method"] if scope["method"] in METHODS else "other",
            route=route,
            status=status,
            milliseconds=round(seconds * 1000, 1),
        )


METHODS = ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")


class Answers:
    """Stored responses to requests with an Idempotency-Key, for repeated requests."""

    def __init__(self, settings: Settings, vault: Vault) -> None:
        self._kept, self._vault = settings.idempotent_hours * 3600, vault

    def before(
        self, connection: Connection, who: Caller, name: str | None, request: Any
    ) -> dict[str, Any] | None:
        """The answer under this name; refused when it was for another request."""
        if name is None:
            return None
        row = connection.execute(select(ANSWERS).filter_by(**_own(who, name))).first()
        if row is None or row.made < time.time() - self._kept:
            return None
        sealer, colon, _ = row.request.partition(":")
        if not colon or row.request != self._fingerprint(who, name, request, sealer):
            raise Problem(422, "Idempotency-Key was used for another request; use a new one")
        found: dict[str, Any] = json.loads(row.body)
        return found

    def keep(
        self, connection: Connection, who: Caller, name: str | None, request: Any, body: Any
    ) -> None:
        """Remember an answer, and forget those that are too old."""
        if name is None:
            return
        now, own = time.time(), _own(who, name)
        old = delete(ANSWERS).filter_by(space=who.space).where(ANSWERS.c.made < now - self._kept)
        connection.execute(old)
        connection.execute(delete(ANSWERS).filter_by(**own))
        values = {"status": 200, "made": now, "body": json.dumps(body)}
        values["request"] = self._fingerprint(who, name, request, self._vault.newest)
        connection.execute(insert(ANSWERS), own | values)

    def _fingerprint(self, who: Caller, name: str, request: Any, sealer: str) -> str:
        """Return the name of a state key and the request's fingerprint under it.

        A request may hold data, and a plain hash of few values is as good as the values.
        """
        canonical = json.dumps(request, sort_keys=True, default=str).encode()
        place = f"{who.space}|{who.key}|{name}"
        return f"{sealer}:{self._vault.fingerprint(canonical, place, sealer)}"

    def once(self, connection: Connection, who: Caller, name: str | None, what: str) -> None:
        """Refuse a repeated request whose answer must not be kept."""
        if self.before(connection, who, name, what) is not None:
            raise Problem(
                409,
                f"{what} was made by the request with this Idempotency-Key, and its secret is "
                "shown once; take it back and make another if the answer was lost",
            )
        self.keep(connection, who, name, what, {})


def problem_from(error: ShoalError) -> Problem:
    """Return the library's error as a problem; log internal errors, without data."""
    problem = problem_of(error)
    if problem.status >= 500:
        log.error("failed", error=type(error).__name__, rule=str(error)[:200])
    return problem


async def respond(problem: Problem, send: Any) -> None:
    """A problem document as an ASGI answer."""
    headers = [(b"content-type", MEDIA.encode())]
    headers += [(name.lower().encode(), text.encode()) for name, text in problem.headers.items()]
    await send({"type": "http.response.start", "status": problem.status, "headers": headers})
    await send({"type": "http.response.body", "body": problem.text()})


def _own(who: Caller, name: str) -> dict[str, Any]:
    return {"space": who.space, "key": who.key, "name": name}
