"""The Live room: queries to a gateway on this computer, with the user's key."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from shoal.core.errors import InputError
from shoal.studio.bench import text
from shoal.studio.work import Say

LOOPBACK = ("127.0.0.1", "localhost", "::1")
METHODS = ("GET", "PUT", "POST", "DELETE")
MOST_QUESTIONS, SECONDS = 200, 30.0  # at once, and for each answer


class _Stay(urllib.request.HTTPRedirectHandler):
    """Refuse redirects, so that the key is sent to the named gateway only."""

    def redirect_request(self, *_: Any) -> None:
        return None


def ask(params: Mapping[str, Any], say: Say) -> dict[str, Any]:
    """The gateway's answers to questions under /v1/, in their order."""
    base, key = _base(text(params, "gateway")), text(params, "key")
    questions = params.get("questions")
    if not isinstance(questions, list) or not 1 <= len(questions) <= MOST_QUESTIONS:
        raise InputError(f"questions must be a list of 1 to {MOST_QUESTIONS}")
    if not key.isascii() or not key.isprintable():
        raise InputError("the key has letters that no key has; copy it again")
    say("asking the gateway", 0.2)
    return {"answers": [_answer(base, key, one) for one in questions]}


def _base(named: str) -> str:
    """The address of a gateway on this computer."""
    try:
        parts = urlsplit(named)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"gateway is {named!r}; it must look like http://127.0.0.1:8470")
    if parts.hostname not in LOOPBACK:
        raise InputError(
            f"gateway is {named!r}; the studio asks gateways on this computer only: open /page/ of "
            "that address instead"
        )
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}" + (f":{port}" if port else "")


def _answer(base: str, key: str, question: Any) -> Any:
    """One answer; a refusal is the gateway's own sentence."""
    path = question.get("path") if isinstance(question, dict) else None
    method = question.get("method", "GET") if isinstance(question, dict) else None
    if not isinstance(path, str) or not path.startswith("/v1/") or method not in METHODS:
        raise InputError("a question must name a path under /v1/ and a method")
    if not path.isascii() or not path.isprintable() or " " in path:
        raise InputError(f"path is {path!r}; letters that are not ASCII must be written as %…")
    body = question.get("body")
    data = None if body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {key}"} | (
        {"Content-Type": "application/json"} if data else {}
    )
    asked = urllib.request.Request(base + path, data=data, headers=headers, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)
    try:
        with opener.open(asked, timeout=SECONDS) as response:
            content = response.read()
    except urllib.error.HTTPError as error:
        raise InputError(_sentence(error)) from None
    except (OSError, ValueError):
        raise InputError(
            f"no gateway answers at {base}; start one with `shoal serve --town`, or name another"
        ) from None
    return json.loads(content) if content else None


def _sentence(error: urllib.error.HTTPError) -> str:
    try:
        problem = json.loads(error.read())
        return str(problem.get("detail") or problem["title"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return f"the gateway answered {error.code}"
