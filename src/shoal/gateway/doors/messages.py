"""Messages of a broker: each gets a time, and is handed on to the gateway once."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any
from uuid import uuid4

import httpx

from shoal.gateway.telemetry import log

LONGEST_MESSAGE = 10_000  # bytes of a message


async def hand_on(http: httpx.AsyncClient, stream: str, key: str, body: dict[str, Any]) -> None:
    """Send a message until it is answered, at most three times; all tries are one request."""
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": uuid4().hex}
    for attempt in range(3):
        try:
            answer = await http.post(
                "/owntracks", params={"stream": stream}, json=body, headers=headers
            )
        except httpx.TransportError:
            await asyncio.sleep(2.0**attempt)
            continue
        if answer.status_code < 500:
            if answer.status_code >= 400:
                log.warning("a message was refused", status=answer.status_code)
            return
        await asyncio.sleep(2.0**attempt)


def stamped_message(content: bytes, *, retained: bool) -> dict[str, Any] | None:
    """Return a message with its time in `tst`, or None for one that cannot be handed on.

    A message without a time gets the current time, before the first try. A broker repeats retained
    messages to every new connection, so a retained one without a time is dropped.
    """
    try:
        body = json.loads(content)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        log.warning("a message is no JSON object")
        return None
    if body.get("tst") is None:
        if retained:
            log.warning("a retained message has no time")
            return None
        body["tst"] = int(time.time())
    return body
