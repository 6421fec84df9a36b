"""What went wrong, as a problem document (RFC 9457): one sentence that a person can act on."""

from __future__ import annotations

import json
from typing import Any

from shoal.core.errors import (
    BudgetError,
    InputError,
    LedgerError,
    Refused,
    ShoalError,
    StoredError,
)

MEDIA = "application/problem+json"
TITLES = {
    400: "Bad request",
    401: "No valid key",
    403: "Not for this kind of key",
    404: "Not found",
    405: "Not this way",
    408: "Too slow",
    409: "Not now",
    413: "Too large",
    415: "Not a format that is read here",
    422: "Not understood",
    429: "Too many",
    500: "Our mistake",
    503: "Busy",
}


class Problem(Exception):
    """An answer that is no success: status, sentence, and members of its own."""

    def __init__(self, status: int, detail: str, **more: Any) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.more = more

    def body(self) -> dict[str, Any]:
        """The document."""
        kind = self.more.get("kind", "about:blank")
        rest = {name: value for name, value in self.more.items() if name not in ("kind", "headers")}
        return {
            "type": kind,
            "title": TITLES.get(self.status, "Error"),
            "status": self.status,
            "detail": self.detail,
            **rest,
        }

    def text(self) -> bytes:
        """The document as bytes."""
        return json.dumps(self.body()).encode()

    @property
    def headers(self) -> dict[str, str]:
        """Headers that go with it."""
        return dict(self.more.get("headers", {}))


def missing() -> Problem:
    """The one answer for what is not there and for what is not the caller's to see."""
    return Problem(404, "there is nothing here that this key may see")


def over_limit(name: str, limit: object, *, status: int = 413, **more: Any) -> Problem:
    """A limit that was passed, by its name."""
    return Problem(status, f"more than the limit {name} = {limit} allows", limit=name, **more)


def not_understood(sentence: str) -> Problem:
    """Input that breaks a rule."""
    return Problem(422, sentence)


def problem_of(error: ShoalError) -> Problem:
    """The library's own errors as problems: what callers may mend, and what is ours."""
    if isinstance(error, LedgerError):
        return Problem(503, "the ledger cannot be used just now; try again", headers=RETRY)
    if isinstance(error, BudgetError):
        return Problem(409, str(error), kind="tag:shoal,2026:over-budget")
    if isinstance(error, StoredError):
        return Problem(
            500, "a stored state cannot be used; the operator's log says which rule broke"
        )
    if isinstance(error, InputError | Refused):
        return Problem(422, str(error))
    return Problem(500, "a promise failed its own check, so nothing was released")


RETRY = {"Retry-After": "1"}
