"""OwnTracks' other mode: readings from an MQTT broker, pushed as the device they belong to.

A bridge knows which topic is whose: `owntracks/USER/DEVICE` to a device key. What arrives under
another topic is dropped unseen.

    asyncio.run(Bridge("localhost", {"owntracks/ada/phone": key}, gateway_url).run())
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from shoal.core.errors import InputError
from shoal.gateway.logs import log

LARGEST = 10_000  # bytes of a message
PAUSE = 2.0  # seconds before connecting again


class Bridge:
    """Messages of a broker on their way to the gateway's OwnTracks door.

    `keys` maps each topic to the key of its device. Nothing of a message is kept or logged; one
    that the gateway cannot be given just now is tried again a few times, then dropped: it would
    come for a closed slot.
    """

    def __init__(
        self,
        broker: str,
        keys: Mapping[str, str],
        gateway: str,
        *,
        port: int = 1883,
        stream: str = "places",
        **login: Any,
    ) -> None:
        try:
            import aiomqtt
        except ImportError:
            raise InputError("MQTT needs its extra; run: pip install 'shoal[mqtt]'") from None
        self._mqtt = aiomqtt
        self._broker, self._port, self._login = broker, port, login
        self._keys, self._stream = dict(keys), stream
        self._gateway = gateway
        self.connected = asyncio.Event()

    async def run(self) -> None:
        """Listen until cancelled; a broken connection is made again."""
        async with httpx.AsyncClient(base_url=self._gateway, timeout=10) as http:
            while True:
                try:
                    await self._listen(http)
                except self._mqtt.MqttError as error:
                    log.warning("the broker is away", error=type(error).__name__)
                    await asyncio.sleep(PAUSE)

    async def _listen(self, http: httpx.AsyncClient) -> None:
        async with self._mqtt.Client(self._broker, self._port, **self._login) as client:
            for topic in self._keys:
                await client.subscribe(topic, qos=1)
            self.connected.set()
            async for message in client.messages:
                key, content = self._keys.get(str(message.topic)), bytes(message.payload)
                if key is not None and len(content) <= LARGEST:
                    await self._hand_on(http, key, content)

    async def _hand_on(self, http: httpx.AsyncClient, key: str, content: bytes) -> None:
        try:
            body = json.loads(content)
        except ValueError:
            log.warning("a message is no JSON")
            return
        for attempt in range(3):
            try:
                answer = await http.post(
                    "/owntracks",
                    params={"stream": self._stream},
                    json=body,
                    headers={"Authorization": f"Bearer {key}"},
                )
            except httpx.TransportError:
                await asyncio.sleep(2.0**attempt)
                continue
            if answer.status_code < 500:
                if answer.status_code >= 400:
                    log.warning("a message was refused", status=answer.status_code)
                return
            await asyncio.sleep(2.0**attempt)
