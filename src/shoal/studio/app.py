"""The studio's server and its checks: loopback only, one token, no outgoing request."""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import (
    FileResponse,
    JSONResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from shoal.core.errors import InputError, ShoalError
from shoal.studio.props import static_folder
from shoal.studio.tables import SUFFIXES, room_of
from shoal.studio.work import Work

COOKIE = "shoal-studio"
MOST_BYTES = 64 * 2**20  # most bytes of an uploaded file: larger tables belong to `shoal job`
MOST_JSON = 16 * 2**20  # most bytes of a question: a spec, two plans and some choices
PAINTED = 0.5  # seconds after which a page has been drawn: then the imports of workers may begin
LONGEST_NAME = 80  # of a file; what is longer loses its beginning
FILES = ("file", "friends", "backdrop", "model")  # choices that name a file of the user
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


def make_app(*, token: str, port: int, data: Path | None = None) -> Starlette:
    """Return the studio's application for one local port; every request needs `token`.

    `data` is a file that is opened at the start, in the room that fits it.
    """
    work = Work()
    uploads = Path(tempfile.mkdtemp(prefix="shoal-studio-"))
    page = static_folder()

    @asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        yield
        work.close()
        shutil.rmtree(uploads, ignore_errors=True)

    async def enter(_: Request) -> Response:
        """Set the token as a cookie, and redirect to the address without it."""
        answer = RedirectResponse("/", status_code=303)
        answer.set_cookie(COOKIE, token, httponly=True, samesite="strict", path="/")
        return answer

    async def index(_: Request) -> Response:
        return FileResponse(page / "index.html")

    hosts = {f"127.0.0.1:{port}", f"localhost:{port}"}
    origins = {f"http://{host}" for host in hosts}

    async def guard(request: Request, call: Next) -> Response:
        response = _refusal(request, hosts, origins, token) or await call(request)
        response.headers.update(HEADERS)
        return response

    return Starlette(
        lifespan=life,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        routes=[
            Route("/enter", enter),
            *_acts(work, uploads, data),
            Route("/", index),
            Mount("/", StaticFiles(directory=page)),
        ],
    )


def _acts(work: Work, uploads: Path, data: Path | None) -> list[Route]:
    """What the page may ask: files, acts, their progress and their end."""

    async def upload(request: Request) -> Response:
        """Store a file of the user in a private folder until the studio ends."""
        name = _plain_name(unquote(request.headers.get("x-file-name", "")))
        suffix = Path(name).suffix.lower()
        if suffix not in SUFFIXES:
            return sentence(
                f"the file ends in {suffix or 'nothing'}; the studio reads {', '.join(SUFFIXES)}"
            )
        body = await _read_body(request, MOST_BYTES)
        if body is None:
            limit = MOST_BYTES // 2**20
            return sentence(f"the file is larger than {limit} MB; use `shoal job` for such data")
        key = secrets.token_hex(12)
        (uploads / key).mkdir(mode=0o700)
        (uploads / key / name).write_bytes(body)
        return JSONResponse({"file": f"{key}/{name}"})

    async def start(_: Request) -> Response:
        """Return what the page needs to start; the workers are prepared after it is drawn."""
        asyncio.get_running_loop().call_later(PAINTED, work.prepare)
        room = None if data is None else await asyncio.to_thread(room_of, data)
        name = None if data is None else data.name
        return JSONResponse({"data": name, "room": room, "most": MOST_BYTES})

    async def begin(request: Request) -> Response:
        """Begin an act and return its name; progress and answer arrive as its events."""
        body = await _read_body(request, MOST_JSON)
        try:
            params = _params(body, uploads, data)
            begun = work.start(request.path_params["room"], request.path_params["act"], params)
            return JSONResponse({"work": begun}, status_code=202)
        except ShoalError as error:
            return sentence(str(error))

    async def follow(request: Request) -> Response:
        """Stream the events of an act, one JSON object each."""

        async def lines() -> AsyncIterator[str]:
            async for message in work.events(request.path_params["name"]):
                yield f"data: {json.dumps(message, allow_nan=False)}\n\n"

        return StreamingResponse(lines(), media_type="text/event-stream")

    async def cancel(request: Request) -> Response:
        work.cancel(request.path_params["name"])
        return Response(status_code=204)

    return [
        Route("/api/uploads", upload, methods=["POST"]),
        Route("/api/start", start),
        Route("/api/work/{name}", follow),
        Route("/api/work/{name}", cancel, methods=["DELETE"]),
        Route("/api/{room}/{act}", begin, methods=["POST"]),
    ]


def sentence(words: str, status: int = 422) -> JSONResponse:
    """Return the response for a refusal, in one sentence."""
    return JSONResponse({"sentence": words}, status_code=status)


def _refusal(request: Request, hosts: set[str], origins: set[str], token: str) -> Response | None:
    """Return the refusal of a wrong host, origin or token; None for a valid request."""
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


async def _read_body(request: Request, most: int) -> bytes | None:
    """Return the body of a request, or None as soon as it is too long."""
    if int(request.headers.get("content-length") or 0) > most:
        return None
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


def _params(body: bytes | None, uploads: Path, data: Path | None) -> dict[str, Any]:
    """Return the choices of a question, with names of files replaced by their paths."""
    if body is None:
        raise InputError(f"the question is larger than {MOST_JSON // 2**20} MB")
    try:
        params = json.loads(body or b"{}")
    except (ValueError, RecursionError):
        raise InputError("the question is no JSON object") from None
    if not isinstance(params, dict):
        raise InputError("the question is no JSON object")
    for part in FILES:
        if params.get(part) is not None:
            params[part] = str(_file(str(params[part]), uploads, data))
    return params


def _file(named: str, uploads: Path, data: Path | None) -> Path:
    """Return the path of a file that the page names: the one given at the start, or an upload.

    Refuses every path outside the folder of uploads, and files that no longer exist.
    """
    if data is not None and named == data.name:
        return data
    folder, _, name = named.partition("/")
    found = uploads / Path(folder).name / Path(name).name
    if found.parent.parent != uploads or not found.is_file():
        raise InputError("the file is not here any more; open it again")
    return found


def _plain_name(name: str) -> str:
    """Return a file's own name, without characters that have a meaning in a path."""
    return re.sub(r"[^\w.\- ]", "_", Path(name).name)[-LONGEST_NAME:].lstrip(". ")
