"""One look a slot: push where the person is, and read what was shown and spent."""

from __future__ import annotations

import logging
from datetime import timedelta
from typing import Any
from uuid import uuid4

import aiohttp
from homeassistant.config_entries import ConfigEntry
from homeassistant.const import CONF_URL, STATE_UNAVAILABLE, STATE_UNKNOWN
from homeassistant.core import HomeAssistant
from homeassistant.exceptions import ConfigEntryAuthFailed
from homeassistant.helpers.aiohttp_client import async_get_clientsession
from homeassistant.helpers.update_coordinator import DataUpdateCoordinator, UpdateFailed
from homeassistant.util import dt as dt_util

from .api import Gateway, GatewayError, person_path, stream_path
from .const import (
    CONF_DEVICE_KEY,
    CONF_ENTITY,
    CONF_KIND,
    CONF_PERSON,
    CONF_PERSON_KEY,
    CONF_SECONDS,
    CONF_STREAM,
    DOMAIN,
)

LOOKS_A_SLOT = 2  # so that every slot has a reading, whenever it begins


class ShoalCoordinator(DataUpdateCoordinator[dict[str, Any]]):
    """Pushes readings by the clock, never on a change: a push that comes only then would tell."""

    def __init__(self, hass: HomeAssistant, entry: ConfigEntry) -> None:
        seconds = entry.data[CONF_SECONDS] / LOOKS_A_SLOT
        super().__init__(
            hass,
            logging.getLogger(__name__),
            name=DOMAIN,
            update_interval=timedelta(seconds=seconds),
        )
        session, url = async_get_clientsession(hass), entry.data[CONF_URL]
        self._given = entry.data
        self._device = Gateway(session, url, entry.data[CONF_DEVICE_KEY])
        self._person = Gateway(session, url, entry.data[CONF_PERSON_KEY])
        self._path = stream_path(entry.data[CONF_PERSON], entry.data[CONF_STREAM])

    async def _async_update_data(self) -> dict[str, Any]:
        """Push a reading if there is one, then return the last output and the budget."""
        try:
            reading = self.reading()
            if reading is not None:
                at = dt_util.utcnow().isoformat()
                headers = {"Idempotency-Key": uuid4().hex}
                path = f"{self._path}/readings"
                await self._device.ask("POST", path, {**reading, "at": at}, **headers)
            return {"output": await self._output(), "budget": await self._budget()}
        except GatewayError as error:
            if error.status == 401:
                raise ConfigEntryAuthFailed(str(error)) from error
            raise UpdateFailed(str(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise UpdateFailed("the gateway cannot be reached") from error

    def reading(self) -> dict[str, Any] | None:
        """Return where the person is, as the stream's plan reads it; None while nobody knows."""
        state = self.hass.states.get(self._given[CONF_ENTITY])
        if state is None or state.state in (STATE_UNAVAILABLE, STATE_UNKNOWN):
            return None
        if self._given[CONF_KIND] == "contexts":
            return {"context": state.state}
        place = [state.attributes.get(name) for name in ("latitude", "longitude")]
        return None if None in place else {"lat": float(place[0]), "lon": float(place[1])}

    async def _output(self) -> dict[str, Any]:
        """Return the output of the last closed slot; {} before the first."""
        try:
            found: dict[str, Any] = await self._person.ask("GET", f"{self._path}/now")
        except GatewayError as error:
            if error.status != 409:
                raise
            return {}
        return found

    async def _budget(self) -> dict[str, Any]:
        """Return what was spent on this stream, and what applications were given of it."""
        told = await self._person.ask("GET", f"{person_path(self._given[CONF_PERSON])}/budget")
        own = (each for each in told["streams"] if each["stream"] == self._given[CONF_STREAM])
        return next(own, {})
