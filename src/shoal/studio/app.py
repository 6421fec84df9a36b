"""The studio's page and its guard: loopback only, one token, no request that leaves the machine."""

from __future__ import annotations

import json
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, JSONResponse, RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.responses import StreamingResponse

from shoal.core.errors import InputError, ShoalError
from shoal.studio.bundle import static_folder
from shoal.studio.work import Work

COOKIE = "shoal-studio"
MOST_BYTES = 64 * 2**20  # of an uploaded file: larger tables belong to `shoal job`
MOST_JSON = 16 * 2**20  # of a question: a spec, two plans and some choices
SUFFIXES = (".csv", ".tsv", ".parquet", ".json", ".jsonl", ".ndjson", ".toml", ".bif")
HEADERS = {
    # Plot puts <style> into the charts it makes, which only 'unsafe-inline' lets pass
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self' "
    "'unsafe-inline'; img-src 'self' data: blob:; connect-src 'self'; font-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}

Next = Callable[[Request], Awaitable[Response]]


def make_app(*, token: str, port: int, data: Path | None = None) -> FastAPI:
    """The studio on one port of this computer, for whoever holds `token`.

    `data` is a file that the Leak room opens by itself.
    """
    work = Work()
    uploads = Path(tempfile.mkdtemp(prefix="shoal-studio-"))
    page = static_folder()

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        yield
        work.close()
        shutil.rmtree(uploads, ignore_errors=True)

    app = FastAPI(title="Shoal studio", lifespan=life, docs_url=None, redoc_url=None)
    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    origins = {f"http://{host}" for host in hosts}

    @app.middleware("http")
    async def guard(request: Request, call: Next) -> Response:
        refused = _refused(request, hosts, origins, token)
        response = refused or await call(request)
        response.headers.update(HEADERS)
        return response

    @app.get("/enter")
    async def enter() -> Response:
        """The token of the address becomes a cookie, and the address is clean again."""
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
        return answer

    _add_acts(app, work, uploads, data)

    @app.get("/")
    async def index() -> FileResponse:
        return FileResponse(page / "index.html")

    app.mount("/", StaticFiles(directory=page), name="page")
    return app


def _add_acts(app: FastAPI, work: Work, uploads: Path, data: Path | None) -> None:
    """What the page may ask: files, acts, their progress and their end."""

    @app.post("/api/uploads")
    async def upload(request: Request) -> JSONResponse:
        """A file of the person's, kept in a private folder until the studio ends."""
        name = request.headers.get("x-file-name", "")
        suffix = Path(name).suffix.lower()
        if suffix not in SUFFIXES:
            return sentence(f"the file ends in {suffix or 'nothing'}; it must be a table or a spec")
        body = await _bounded(request, MOST_BYTES)
        if body is None:
            limit = MOST_BYTES // 2**20
            return sentence(f"the file is larger than {limit} MB; use `shoal job` for such data")
        key = secrets.token_urlsafe(12)
        (uploads / f"{key}{suffix}").write_bytes(body)
        return JSONResponse({"file": f"{key}{suffix}"})

    @app.get("/api/start")
    async def start() -> dict[str, Any]:
        """What the page needs to begin."""
        return {"data": None if data is None else data.name, "most": MOST_BYTES}

    @app.post("/api/{room}/{act}")
    async def begin(room: str, act: str, request: Request) -> JSONResponse:
        """Begin an act; its progress and its answer are told by its events."""
        body = await _bounded(request, MOST_JSON)
        try:
            params = _params(body, uploads, data)
            return JSONResponse({"work": work.start(room, act, params)}, status_code=202)
        except ShoalError as error:
            return sentence(str(error))

    @app.get("/api/work/{name}")
    async def follow(name: str) -> StreamingResponse:
        """The events of an act, one JSON object each."""

        async def lines() -> AsyncIterator[str]:
            async for message in work.events(name):
                yield f"data: {json.dumps(message, allow_nan=False)}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    @app.delete("/api/work/{name}")
    async def cancel(name: str) -> Response:
        work.cancel(name)
        return Response(status_code=204)


def sentence(words: str, status: int = 422) -> JSONResponse:
    """A refusal in one sentence."""
    return JSONResponse({"sentence": words}, status_code=status)


def _refused(request: Request, hosts: set[str], origins: set[str], token: str) -> Response | None:
    """Why a request is turned away before anything looks at it; None when it is not."""
    if request.headers.get("host", "") not in hosts:
        return sentence("this studio answers on its own computer only", 421)
    origin = request.headers.get("origin")
    if origin is not None and origin not in origins:
        return sentence("another page asked; the studio answers its own page only", 403)
    given = (
        request.query_params.get("token", "")
        if request.url.path == "/enter"
        else request.cookies.get(COOKIE, "")
    )
    if not secrets.compare_digest(given.encode(), token.encode()):
        return sentence("open the address that `shoal studio` printed; it holds the key", 401)
    return None


async def _bounded(request: Request, most: int) -> bytes | None:
    """The body, or None as soon as it is too long."""
    if int(request.headers.get("content-length") or 0) > most:
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


def _params(body: bytes | None, uploads: Path, data: Path | None) -> dict[str, Any]:
    """The choices of a question; a file is one that was uploaded, or the one named at the start."""
    if body is None:
        raise InputError(f"the question is larger than {MOST_JSON // 2**20} MB")
    try:
        params = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise InputError("the question is no JSON object") from None
    if not isinstance(params, dict):
        raise InputError("the question is no JSON object")
    named = params.get("file")
    if named is not None:
        params["file"] = str(_file(str(named), uploads, data))
    return params


def _file(named: str, uploads: Path, data: Path | None) -> Path:
    if data is not None and named == data.name:
        return data
    found = uploads / Path(named).name
    if not found.is_file():
        raise InputError("the file is not here any more; open it again")
    return found
