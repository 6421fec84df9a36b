"""The service: one object that holds its parts, and the application around it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import PlainTextResponse
from starlette.exceptions import HTTPException

from shoal import __version__
from shoal.core.errors import ShoalError
from shoal.gateway import metrics
from shoal.gateway.anchor import check_anchor
from shoal.gateway.guards import Answers, Guard
from shoal.gateway.hub import Hub
from shoal.gateway.jobs import Jobs
from shoal.gateway.keys import Caller, Remembered, look_up, token_of
from shoal.gateway.logs import log, start_logs
from shoal.gateway.oidc import Provider, looks_like_token
from shoal.gateway.page import add_page
from shoal.gateway.problems import MEDIA, TITLES, Problem, problem_of
from shoal.gateway.routes import owntracks, people, person, plans, streams
from shoal.gateway.settings import Settings, load_settings
from shoal.gateway.sight import Seen
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import House
from shoal.gateway.ticker import Listener, Ticker
from shoal.gateway.vault import Vault, read_keys

STUCK = 30.0  # seconds without a tick, or a slot overdue, after which a worker is not ready


class Gateway:
    """The parts of one worker."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.vault = Vault(read_keys(settings.state_keys, settings.state_key_file))
        self.store = Store(settings)
        self.rooms = House(self.store, self.vault)
        self.seen = Seen()
        self.hub = Hub(self.store, self.seen, settings.heartbeat, settings.connections)
        self.remembered = Remembered()
        self.ticker = Ticker(self.rooms, self.hub, self.seen, self.remembered)
        self.provider = Provider(settings) if settings.oidc_issuer else None
        self.answers = Answers(settings)
        self.jobs = Jobs(self.store)
        self.estimating = asyncio.Semaphore(settings.plan_jobs)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Bring the schema up to date and start the clock."""
        await asyncio.to_thread(self.store.migrate)
        await asyncio.to_thread(check_anchor, self.store, self.settings.head_file)
        for work in (self.ticker.run(), self.jobs.run()):
            self._tasks.append(asyncio.create_task(work))
        if self.store.postgres:
            self._tasks.append(asyncio.create_task(Listener(self.store, self.hub).run()))

    async def stop(self) -> None:
        """End gracefully: connections first, then the clock, then the store."""
        self.hub.stop()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        with contextlib.suppress(Problem, ShoalError):
            await self.ticker.write_seen()
        await asyncio.to_thread(self.store.close)

    async def caller(self, header: str | None, *, fresh: bool = False) -> Caller:
        """Who holds the key in an Authorization header."""
        token = token_of(header)
        known = None if fresh else self.remembered.get(token)
        if known is not None:
            return known
        if self.provider is not None and looks_like_token(token):
            return await asyncio.to_thread(self.provider.caller, token)
        now = time.time()
        caller = await self.store.glance(ALL, lambda c: look_up(c, token, now))
        self.remembered.put(token, caller)
        return caller

    def ready(self) -> list[str]:
        """Why this worker should not get requests; none when it should."""
        found = []
        if time.monotonic() - self.ticker.alive > STUCK:
            found.append("the slot clock stands still")
        if self.ticker.behind > STUCK:
            found.append("slots are overdue")
        return found


def create(settings: Settings | None = None) -> FastAPI:
    """The application; settings come from the environment when none are given."""
    start_logs()
    gateway = Gateway(load_settings() if settings is None else settings)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await gateway.start()
        yield
        await gateway.stop()

    app = FastAPI(
        title="Shoal gateway",
        version=__version__,
        description=__doc__,
        lifespan=lifespan,
        responses=dict.fromkeys((400, 401, 403, 404, 409, 413, 422, 429, 503), PROBLEM),
    )
    app.state.gateway = gateway
    for router in ROUTERS:
        app.include_router(router)
    _health(app, gateway)
    add_page(app)
    _errors(app)
    app.add_middleware(Guard, settings=gateway.settings)
    return app


ROUTERS = (people.router, person.router, streams.router, plans.router, owntracks.router)

PROBLEM: dict[str, Any] = {
    "description": "what went wrong, in a sentence",
    "content": {
        MEDIA: {
            "schema": {
                "type": "object",
                "required": ["type", "title", "status", "detail"],
                "properties": {
                    "type": {"type": "string"},
                    "title": {"type": "string"},
                    "status": {"type": "integer"},
                    "detail": {"type": "string"},
                },
            }
        }
    },
}


def _health(app: FastAPI, gateway: Gateway) -> None:
    @app.get("/health/live", tags=["health"], responses={401: PROBLEM})
    async def live() -> dict[str, str]:
        """Whether the process answers."""
        return {"status": "alive"}

    @app.get("/health/ready", tags=["health"])
    async def ready() -> dict[str, str]:
        """Whether the database answers and the slot clock keeps up."""
        found = gateway.ready()
        if found:
            raise Problem(503, "; ".join(found))
        await gateway.store.reading(ALL, lambda c: c.exec_driver_sql("SELECT 1").scalar())
        return {"status": "ready"}

    @app.get("/metrics", tags=["health"], response_class=PlainTextResponse)
    async def numbers() -> Response:
        """Counts for Prometheus."""
        metrics.CONNECTIONS.set(gateway.hub.connections)
        body, media = metrics.rendered(gateway.settings.multiproc)
        return Response(body, media_type=media)


def _errors(app: FastAPI) -> None:
    def document(problem: Problem) -> Response:
        return Response(problem.text(), problem.status, problem.headers, MEDIA)

    @app.exception_handler(Problem)
    async def on_problem(request: Request, error: Problem) -> Response:
        return document(error)

    @app.exception_handler(ShoalError)
    async def on_shoal(request: Request, error: ShoalError) -> Response:
        problem = problem_of(error)
        if problem.status >= 500:
            log.error("failed", error=type(error).__name__, rule=str(error)[:200])
        return document(problem)

    @app.exception_handler(RequestValidationError)
    async def on_invalid(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if isinstance(part, str | int))
        return document(Problem(422, f"{where[:200]}: {first['msg'][:200]}"))

    @app.exception_handler(HTTPException)
    async def on_http(request: Request, error: HTTPException) -> Response:
        detail = TITLES.get(error.status_code, "this cannot be done here").lower()
        problem = Problem(error.status_code, detail, headers=dict(error.headers or {}))
        return document(problem)

    @app.exception_handler(Exception)
    async def on_other(request: Request, error: Exception) -> Response:
        log.error("failed", error=type(error).__name__)
        return document(
            Problem(500, "this failed here and was not your fault; nothing was released")
        )
