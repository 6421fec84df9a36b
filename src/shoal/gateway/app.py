"""The service: one object that holds its parts, and the application around it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import FileResponse, PlainTextResponse
from sqlalchemy.exc import DBAPIError
from starlette.exceptions import HTTPException

from shoal import __version__
from shoal.core.errors import LedgerError, ShoalError
from shoal.gateway import telemetry
from shoal.gateway.copies.head import check_head
from shoal.gateway.doors import door_router
from shoal.gateway.http.api_page import add_api_page
from shoal.gateway.http.guards import Answers, Guard, problem_from
from shoal.gateway.http.rates import Rates
from shoal.gateway.hub import Hub
from shoal.gateway.jumps import JumpWatch, accepted_file, jump_text
from shoal.gateway.keys import (
    ONE_KEY,
    Caller,
    KeyRow,
    Provider,
    Remembered,
    check_holder,
    holder_of,
    look_up,
    looks_like_token,
    name_of,
    token_of,
)
from shoal.gateway.planning.calibration import Jobs
from shoal.gateway.problems import MEDIA, TITLES, Problem, missing
from shoal.gateway.repeats import Reasons
from shoal.gateway.rounds import Asked, BatchAborted, RequestBatcher, take_all, warm_up
from shoal.gateway.routes import people, person, plans, streams
from shoal.gateway.seen import Seen
from shoal.gateway.settings import Settings, load_settings
from shoal.gateway.store import ALL, Store
from shoal.gateway.streams import House
from shoal.gateway.telemetry import log, start_logs
from shoal.gateway.ticker import Listener, Ticker
from shoal.gateway.vault import Vault, read_keys
from shoal.ledger.database import BROKE
from shoal.ledger.engines import UNREACHABLE

T = TypeVar("T")

GROUPS = 2  # transactions of readings under way in a worker: one computes while one waits
SWITCH = 0.0005  # seconds a thread may hold others up: the writer gives way at every statement
AWAY = 30.0  # seconds that a database may be away when a worker starts
RESTART = 0.5  # seconds before what failed is tried again
SERVER_TIME = "SELECT extract(epoch FROM clock_timestamp())"
STUCK = 30.0  # seconds without a tick, or a slot overdue, after which a worker is not ready
DEAD = 60.0  # seconds without a tick after which a worker is to be restarted


class Gateway:
    """The parts of one worker."""

    def __init__(self, settings: Settings) -> None:
        """Open the store and set up all parts of the service; no task is started yet.

        Waits a while for a database that cannot be reached.
        """
        self.settings = settings
        self.vault = Vault(read_keys(settings.state_keys, settings.state_key_file))
        self.store = patiently(lambda: Store(settings))
        self.rooms = House(self.store, self.vault)
        self.seen = Seen()
        self.hub = Hub(
            self.store,
            self.seen,
            heartbeat=settings.heartbeat,
            most=settings.connections,
            database_seconds=settings.database_seconds,
        )
        self.remembered = Remembered()
        self.watch = JumpWatch(settings.clock_jump, accepted_file(settings.head_file))
        self.ticker = Ticker(self.rooms, self.hub, self.seen, self.remembered, self.watch)
        self.provider = Provider(settings) if settings.oidc_issuer else None
        self.answers = Answers(settings, self.vault)
        self.rates = Rates(settings.rate, settings.burst)
        self.jobs = Jobs(self.store)
        self.intake: RequestBatcher[Asked, Reasons] = RequestBatcher(
            self._take, groups=GROUPS if self.store.postgres else 1, waiting=settings.waiting
        )
        self.lookups: RequestBatcher[str, Caller] = RequestBatcher(
            self._look_up, waiting=settings.waiting
        )
        self.estimating = asyncio.Semaphore(settings.plan_jobs)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Bring the schema up to date and start the clock."""
        sys.setswitchinterval(SWITCH)
        await asyncio.to_thread(patiently, self._made_ready)
        parts = [self.ticker.run, self.jobs.run, self.hub.run]
        if self.store.postgres:
            parts.append(Listener(self.store, self.hub).run)
        self._tasks = [asyncio.create_task(kept_going(part)) for part in parts]

    def _made_ready(self) -> None:
        """The schema is the newest, the database no older copy, plans are built."""
        self.store.migrate()
        check_head(self.store)
        self._compare_clocks()
        warm_up(self.rooms)

    def _compare_clocks(self) -> None:
        """Do not believe a clock that is far from the server's, or behind the last note."""
        most, now = self.settings.clock_jump, self.watch.wall()
        noted = self.store.head.read()
        if noted is not None and now < noted.at - most:
            self.watch.expect(noted.at)
        if self.store.postgres:
            there = self.store.read(ALL, lambda c: c.exec_driver_sql(SERVER_TIME).scalar_one())
            if abs(float(there) - now) > most:
                self.watch.expect(float(there))

    async def stop(self) -> None:
        """End gracefully: connections first, then the clock, then the store."""
        self.hub.stop()
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        await self.ticker.stop()
        with contextlib.suppress(Problem, ShoalError):
            await self.ticker.write_seen()
        try:
            await self.ticker.write_head()
        except (Problem, ShoalError, OSError) as error:
            log.error("the head could not be noted", error=type(error).__name__)
        await asyncio.to_thread(self.store.close)

    async def caller(self, header: str | None, *, fresh: bool = False) -> Caller:
        """Return the caller whose key is in an Authorization header."""
        token = token_of(header)
        known = None if fresh else self.remembered.get(token)
        if known is not None:
            return known
        if self.provider is not None and looks_like_token(token):
            caller = await asyncio.to_thread(self.provider.caller, token)
            await self.store.reading(caller.space, partial(check_holder, caller=caller))
        elif self.store.postgres:
            caller = await self.lookups.ask(token)
        else:
            rows = self.store.glance(ONE_KEY, key=name_of(token))
            found = holder_of(KeyRow(*rows[0]) if rows else None, token, time.time())
            if isinstance(found, Problem):
                raise found
            caller = found
        self.remembered.put(token, caller)
        self.rates.recognise(token, caller)
        return caller

    async def _look_up(self, tokens: list[str]) -> list[Caller | Problem]:
        """Return the caller of each key, looked up in one query."""
        now = time.time()
        return await self.store.reading(ALL, lambda c: look_up(c, tokens, now))

    async def _take(self, asked: list[Asked]) -> list[Reasons | ShoalError | Problem]:
        """Return the outcome of each set of readings, in one transaction per space.

        A set that fails after a charge is left out, and the others of its space are retried.
        """
        spaces = [each.address.space if self.store.postgres else ALL for each in asked]
        answers: dict[int, Reasons | ShoalError | Problem] = {}
        while len(answers) < len(asked):
            left = [place for place in range(len(asked)) if place not in answers]
            space = spaces[left[0]]
            left = [place for place in left if spaces[place] == space]
            work = partial(take_all, self.rooms, asked=[asked[place] for place in left])
            try:
                found = await self.store.writing(space, work)
            except BatchAborted as aborted:
                answers.update(dict.fromkeys((left[at] for at in aborted.places), aborted.error))
            else:
                answers.update(zip(left, found, strict=True))
        return [answers[place] for place in range(len(asked))]

    def alive(self) -> bool:
        """Whether this worker has worked a moment ago, and need not be restarted."""
        return time.monotonic() - self.ticker.alive <= DEAD

    def ready(self) -> list[str]:
        """Why this worker should not get requests; none when it should."""
        found = []
        if self.hub.stale:
            found.append("the database is away")
        if time.monotonic() - self.ticker.alive > STUCK:
            found.append("the slot clock stands still")
        if self.store.failing:
            found.append("the database cannot be written; is its disk full?")
        jump = self.watch.jump()
        if jump:
            found.append(jump_text(jump))
        if self.ticker.unnoted:
            found.append("the head of the database cannot be noted, so no slot closes")
        if self.ticker.behind > STUCK and not jump:
            found.append("slots are overdue")
        return found


async def kept_going(part: Callable[[], Awaitable[None]]) -> None:
    """A part of a worker that ends with it and not before: what fails begins again."""
    while True:
        try:
            await part()
        except Exception as error:  # noqa: BLE001 - a worker without its clock must end
            log.error("a part failed and begins again", error=type(error).__name__)
        await asyncio.sleep(RESTART)


def patiently(work: Callable[[], T]) -> T:
    """The result of `work`, tried again for a while when the database cannot be reached.

    It may start beside this process.
    """
    end = time.monotonic() + AWAY
    while True:
        try:
            return work()
        except Exception as error:
            if not _away(error) or time.monotonic() > end:
                raise
            log.warning("the database is away", error=type(error).__name__)
            time.sleep(RESTART)


def _away(error: Exception) -> bool:
    """Return whether the database was unreachable or closed the connection, not a faulty request.

    A connection that breaks while it is prepared raises the driver's own error, which has a state.
    """
    if isinstance(error, Problem):
        return error.status == 503
    if isinstance(error, LedgerError):
        return any(said in str(error) for said in (UNREACHABLE, BROKE))
    return isinstance(error, DBAPIError) or hasattr(error, "sqlstate")


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
        docs_url=None,
        redoc_url=None,
        responses=dict.fromkeys((400, 401, 403, 404, 409, 413, 422, 429, 503), PROBLEM),
    )
    app.state.gateway = gateway
    for router in ROUTERS:
        app.include_router(router)
    _health(app, gateway)
    add_api_page(app)
    add_page(app)
    for kind in (Problem, ShoalError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, _answer)
    app.add_middleware(streams.Shortcut, house=gateway)
    app.add_middleware(Guard, settings=gateway.settings, rates=gateway.rates)
    return app


ROUTERS = (people.router, person.router, streams.router, plans.router, door_router())

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
    """Add the routes of health, metrics and the root path to `app`."""

    @app.get("/health/live", tags=["health"], responses={401: PROBLEM})
    async def live() -> dict[str, str]:
        """Whether the process works; one that did not for a minute is to be restarted."""
        if not gateway.alive():
            raise Problem(503, "the slot clock has stood still for a minute; restart this worker")
        return {"status": "alive"}

    @app.get("/", include_in_schema=False)
    async def home() -> dict[str, str]:
        """What this service is, for a visitor."""
        return {"service": "Shoal gateway", "api": "/docs", "page": "/page/"}

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
        telemetry.CONNECTIONS.set(gateway.hub.connections)
        body, media = telemetry.render_metrics(gateway.settings.multiproc)
        return Response(body, media_type=media)


async def _answer(request: Request, error: Exception) -> Response:
    """What went wrong as a problem document."""
    problem = _problem(error)
    return Response(problem.text(), problem.status, problem.headers, MEDIA)


def _problem(error: Exception) -> Problem:
    """Return the problem document for an exception of a request.

    An unknown exception becomes 500 and is logged by its class name only, without its message.
    """
    match error:
        case Problem():
            return error
        case ShoalError():
            return problem_from(error)
        case RequestValidationError():
            first = error.errors()[0]
            where = ".".join(str(part) for part in first["loc"] if isinstance(part, str | int))
            return Problem(422, f"{where[:200]}: {first['msg'][:200]}")
        case HTTPException():
            detail = TITLES.get(error.status_code, "this cannot be done here").lower()
            return Problem(error.status_code, detail, headers=dict(error.headers or {}))
    log.error("failed", error=type(error).__name__)
    return Problem(500, "this failed here and was not your fault; nothing was released")


FILES = {
    "": "text/html",
    "person.js": "text/javascript",
    "shared.js": "text/javascript",
    "studio.css": "text/css",
}
NOT_BUILT = (
    "the page was not built here; run `make views`, or use the container image, which has it"
)
HEADERS = {
    # Plot puts <style> into the charts it makes, which only 'unsafe-inline' lets pass
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' "
    "'unsafe-inline'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; "
    "form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


def add_page(app: FastAPI) -> None:
    """Serve the page at /page/, where it was built; elsewhere say how to build it."""
    built = Path(str(files("shoal.studio"))) / "static"

    @app.get("/page/{name}", include_in_schema=False)
    @app.get("/page/", include_in_schema=False)
    async def page(name: str = "") -> Response:
        """Return a file of the built page; a problem 404 when it is unknown or not built."""
        file = built / (name or "person.html")
        if name not in FILES:
            raise missing()
        if not file.is_file():
            raise Problem(404, NOT_BUILT)
        return FileResponse(file, media_type=FILES[name], headers=HEADERS)
