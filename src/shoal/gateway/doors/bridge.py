"""OwnTracks over MQTT: messages of a broker go to the gateway.

A bridge knows which topic of a broker is whose, `owntracks/USER/DEVICE` to a device key; what
arrives under another topic is dropped unseen.

    asyncio.run(Bridge("localhost", {"owntracks/ada/phone": key}, gateway_url).run())
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import httpx

from shoal.core.errors import InputError
from shoal.gateway.doors.messages import LONGEST_MESSAGE, hand_on, stamped_message
from shoal.gateway.telemetry import log

PAUSE = 2.0  # seconds before connecting again


class Bridge:
    """A bridge that forwards messages of an MQTT broker to the gateway's OwnTracks endpoint.

    `keys` maps each topic to the key of its device. No part of a message is kept or logged. A
    message that the gateway cannot take is retried a few times, then dropped: its slot would be
    closed.
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
        """Set up without connecting; `login` goes to aiomqtt.Client. Refuse without aiomqtt."""
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
        """Subscribe to all topics and forward messages to the gateway until the broker closes.

        Drops messages of unknown topics, above LONGEST_MESSAGE bytes, or without usable content.
        """
        async with self._mqtt.Client(self._broker, self._port, **self._login) as client:
            for topic in self._keys:
                await client.subscribe(topic, qos=1)
            self.connected.set()
            async for message in client.messages:
                key, content = self._keys.get(str(message.topic)), bytes(message.payload)
                if key is not None and len(content) <= LONGEST_MESSAGE:
                    body = stamped_message(content, retained=bool(message.retain))
                    if body is not None:
                        await hand_on(http, self._stream, key, body)
