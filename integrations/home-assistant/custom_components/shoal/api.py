"""Requests to a Shoal gateway."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import aiohttp

TIMEOUT = aiohttp.ClientTimeout(total=20)


class GatewayError(Exception):
    """The gateway refused a request: `status` and the sentence that it said."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class Gateway:
    """A gateway at a URL, asked with one key."""

    def __init__(self, session: aiohttp.ClientSession, url: str, key: str) -> None:
        self._session, self._url = session, url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {key}"}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Return the JSON of an answer; GatewayError for one that refuses."""
        async with self._session.request(
            method,
            self._url + path,
            json=body,
            headers={**self._headers, **headers},
            timeout=TIMEOUT,
        ) as answer:
            if answer.status < 400:
                return await answer.json()
            try:
                detail = str((await answer.json(content_type=None))["detail"])
            except (ValueError, KeyError, TypeError):
                detail = f"the answer was {answer.status}"
            raise GatewayError(answer.status, detail)


def person_path(person: str) -> str:
    """Return the path of a person."""
    return f"/v1/people/{quote(person, safe='')}"


def stream_path(person: str, stream: str) -> str:
    """Return the path of a stream."""
    return f"{person_path(person)}/streams/{quote(stream, safe='')}"
