"""Set up a stream of a Shoal gateway without writing YAML.

The person's own key is enough: the flow lists the plans of the gateway in words, begins a stream
under the chosen one, and makes the key with which Home Assistant pushes readings.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import voluptuous as vol
from homeassistant import config_entries
from homeassistant.const import CONF_URL
from homeassistant.core import callback
from homeassistant.data_entry_flow import FlowResult
from homeassistant.helpers import selector
from homeassistant.helpers.aiohttp_client import async_get_clientsession

from .api import Gateway, GatewayError, person_path, stream_path
from .const import (
    CONF_DEVICE_KEY,
    CONF_ENTITY,
    CONF_KIND,
    CONF_PERSON,
    CONF_PERSON_KEY,
    CONF_PLAN,
    CONF_SECONDS,
    CONF_STREAM,
    DEFAULT_SECONDS,
    DEFAULT_STREAM,
    DOMAIN,
    MIN_SECONDS,
)

KINDS = ("places", "contexts")  # of plans that readings of Home Assistant fit
LONGEST_CHOICE = 160  # characters of a plan in words


async def plans_in_words(gateway: Gateway) -> dict[str, tuple[str, str]]:
    """Return kind and first sentence of every plan that a stream may have, by name."""
    found = {}
    for each in (await gateway.ask("GET", "/v1/plans"))["plans"]:
        if each["kind"] in KINDS:
            plan = await gateway.ask("GET", f"/v1/plans/{each['plan']}")
            words = str(plan["explanation"]).partition("\n")[0][:LONGEST_CHOICE]
            found[each["plan"]] = (each["kind"], words)
    return found


def choices(plans: dict[str, tuple[str, str]]) -> selector.SelectSelector:
    """Return the choice of a plan in words."""
    options = [
        selector.SelectOptionDict(value=name, label=f"{kind}: {words}")
        for name, (kind, words) in plans.items()
    ]
    return selector.SelectSelector(selector.SelectSelectorConfig(options=options))


class ShoalFlow(config_entries.ConfigFlow, domain=DOMAIN):
    """From the address of a gateway to a stream that hides where a person is."""

    VERSION = 1

    def __init__(self) -> None:
        self._given: dict[str, Any] = {}
        self._plans: dict[str, tuple[str, str]] = {}

    def _gateway(self) -> Gateway:
        session = async_get_clientsession(self.hass)
        return Gateway(session, self._given[CONF_URL], self._given[CONF_PERSON_KEY])

    async def async_step_user(self, user_input: dict[str, Any] | None = None) -> FlowResult:
        """Ask for the gateway and the person's key, and try them."""
        errors: dict[str, str] = {}
        if user_input is not None:
            self._given = user_input
            try:
                await self._gateway().ask("GET", person_path(user_input[CONF_PERSON]))
                self._plans = await plans_in_words(self._gateway())
            except GatewayError as error:
                errors["base"] = "invalid_auth" if error.status in (401, 403, 404) else "refused"
            except (aiohttp.ClientError, TimeoutError, ValueError):
                errors["base"] = "cannot_connect"
            else:
                if self._plans:
                    return await self.async_step_stream()
                errors["base"] = "no_plans"
        schema = vol.Schema(
            {
                vol.Required(CONF_URL): str,
                vol.Required(CONF_PERSON): str,
                vol.Required(CONF_PERSON_KEY): str,
            }
        )
        return self.async_show_form(step_id="user", data_schema=schema, errors=errors)

    async def async_step_stream(self, user_input: dict[str, Any] | None = None) -> FlowResult:
        """Ask what is hidden and whose place it is, then begin the stream."""
        errors: dict[str, str] = {}
        if user_input is not None:
            person, stream = self._given[CONF_PERSON], user_input[CONF_STREAM]
            await self.async_set_unique_id(f"{self._given[CONF_URL]}|{person}|{stream}")
            self._abort_if_unique_id_configured()
            try:
                key = await self._begin(person, user_input)
            except GatewayError:
                errors["base"] = "refused"
            except (aiohttp.ClientError, TimeoutError):
                errors["base"] = "cannot_connect"
            else:
                kind = self._plans[user_input[CONF_PLAN]][0]
                data = {**self._given, **user_input, CONF_DEVICE_KEY: key, CONF_KIND: kind}
                return self.async_create_entry(title=f"{person} ({stream})", data=data)
        schema = vol.Schema(
            {
                vol.Required(CONF_PLAN): choices(self._plans),
                vol.Required(CONF_ENTITY): selector.EntitySelector(
                    selector.EntitySelectorConfig(domain=["person", "device_tracker"])
                ),
                vol.Required(CONF_STREAM, default=DEFAULT_STREAM): str,
                vol.Required(CONF_SECONDS, default=DEFAULT_SECONDS): vol.All(
                    vol.Coerce(int), vol.Range(min=MIN_SECONDS)
                ),
            }
        )
        return self.async_show_form(step_id="stream", data_schema=schema, errors=errors)

    async def _begin(self, person: str, given: dict[str, Any]) -> str:
        """Begin the stream, and return a new key that may push its readings."""
        gateway = self._gateway()
        body = {"plan": given[CONF_PLAN], "clock": {"every": given[CONF_SECONDS]}}
        await gateway.ask("PUT", stream_path(person, given[CONF_STREAM]), body)
        wanted = {"kind": "device", "label": "Home Assistant"}
        return str((await gateway.ask("POST", "/v1/keys", wanted))["token"])

    @staticmethod
    @callback
    def async_get_options_flow(entry: config_entries.ConfigEntry) -> ShoalOptions:
        return ShoalOptions(entry)


class ShoalOptions(config_entries.OptionsFlow):
    """Change what is hidden: another plan, from the end of the day or step on."""

    def __init__(self, entry: config_entries.ConfigEntry) -> None:
        self._entry = entry
        self._plans: dict[str, tuple[str, str]] = {}
        self._changes = ""

    async def async_step_init(self, user_input: dict[str, Any] | None = None) -> FlowResult:
        """Offer the plans in words; what a change means is shown, and confirmed."""
        data, errors = self._entry.data, {}
        session = async_get_clientsession(self.hass)
        gateway = Gateway(session, data[CONF_URL], data[CONF_PERSON_KEY])
        try:
            self._plans = await plans_in_words(gateway)
            if user_input is not None:
                path = stream_path(data[CONF_PERSON], data[CONF_STREAM])
                await gateway.ask("PUT", path, user_input)
                return self.async_create_entry(title="", data={CONF_PLAN: user_input[CONF_PLAN]})
        except GatewayError as error:
            self._changes = str(error)
            errors["base"] = "not_confirmed" if error.status == 409 else "refused"
        except (aiohttp.ClientError, TimeoutError):
            errors["base"] = "cannot_connect"
        chosen = self._entry.options.get(CONF_PLAN, data[CONF_PLAN])
        schema = vol.Schema(
            {
                vol.Required(CONF_PLAN, default=chosen): choices(self._plans),
                vol.Required("confirm", default=False): bool,
            }
        )
        return self.async_show_form(
            step_id="init",
            data_schema=schema,
            errors=errors,
            description_placeholders={"changes": self._changes},
        )
