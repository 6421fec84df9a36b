"""From a clean Home Assistant to a first hidden place, and to another plan."""

from __future__ import annotations

from typing import Any

import pytest
from custom_components.shoal.const import DOMAIN
from homeassistant import config_entries
from homeassistant.data_entry_flow import FlowResultType
from pytest_homeassistant_custom_component.common import MockConfigEntry

URL = "http://gateway.test"
ADA = f"{URL}/v1/people/ada"
STREAM = f"{ADA}/streams/home-assistant"
OUTPUT = {
    "id": 4,
    "day": "",
    "slot": 4,
    "ends": "2026-03-04T08:40:00.000+00:00",
    "status": "shown",
    "lat": 52.5,
    "lon": 13.4,
    "spread": 0.7,
}
BUDGET = {
    "streams": [
        {
            "stream": "home-assistant",
            "notion": "epsilon",
            "spent": 3.0,
            "remaining": 7.0,
            "seen": [{"application": "calendar", "outputs": 3}],
        }
    ]
}
GATEWAY = {"url": URL, "person": "ada", "person_key": "shoal_p_1"}
CHOICE = {
    "plan": "walk",
    "entity": "person.ada",
    "stream": "home-assistant",
    "seconds": 600,
}


@pytest.fixture
def gateway(aioclient_mock: Any) -> Any:
    """A gateway with two plans, of which one is no stream."""
    plans = [{"plan": "walk", "kind": "places"}, {"plan": "count", "kind": "release"}]
    told = {"explanation": "Places are shown with noise.\nMore."}
    aioclient_mock.get(ADA, json={"person": "ada", "streams": []})
    aioclient_mock.get(f"{URL}/v1/plans", json={"plans": plans})
    aioclient_mock.get(f"{URL}/v1/plans/walk", json=told)
    aioclient_mock.put(STREAM, json={"stream": "home-assistant", "plan": "walk"})
    aioclient_mock.post(f"{URL}/v1/keys", json={"key": "k", "token": "shoal_d_1"})
    aioclient_mock.post(f"{STREAM}/readings", json={"taken": 1, "dead": []}, status=202)
    aioclient_mock.get(f"{STREAM}/now", json=OUTPUT)
    aioclient_mock.get(f"{ADA}/budget", json=BUDGET)
    return aioclient_mock


def sent(gateway: Any, method: str, url: str) -> list[Any]:
    """Bodies of the requests of a method to a URL."""
    return [
        call[2] for call in gateway.mock_calls if (call[0].upper(), str(call[1])) == (method, url)
    ]


async def test_a_stream_is_set_up_without_yaml(hass: Any, gateway: Any) -> None:
    hass.states.async_set("person.ada", "home", {"latitude": 52.51, "longitude": 13.39})
    source = {"source": config_entries.SOURCE_USER}
    form = await hass.config_entries.flow.async_init(DOMAIN, context=source)
    assert form["step_id"] == "user"
    form = await hass.config_entries.flow.async_configure(form["flow_id"], GATEWAY)
    assert form["step_id"] == "stream", form
    made = await hass.config_entries.flow.async_configure(form["flow_id"], CHOICE)
    assert made["type"] == FlowResultType.CREATE_ENTRY, made
    assert made["data"]["device_key"] == "shoal_d_1"
    await hass.async_block_till_done()
    assert sent(gateway, "PUT", STREAM) == [{"plan": "walk", "clock": {"every": 600}}]
    (reading,) = sent(gateway, "POST", f"{STREAM}/readings")
    assert (reading["lat"], reading["lon"]) == (52.51, 13.39)
    states = {each.entity_id: each for each in hass.states.async_all("sensor")}
    shown = states["sensor.ada_home_assistant_output"]
    assert shown.state == "52.5000, 13.4000"
    assert shown.attributes["latitude"] == 52.5
    assert states["sensor.ada_home_assistant_spread"].state == "0.7"
    assert states["sensor.ada_home_assistant_status_of_the_slot"].state == "shown"
    assert states["sensor.ada_home_assistant_budget"].state == "7.0"
    assert states["sensor.ada_home_assistant_outputs_given_to_applications"].state == "3"


@pytest.mark.parametrize(
    ("status", "error"), [(401, "invalid_auth"), (404, "invalid_auth"), (503, "refused")]
)
async def test_what_the_gateway_refuses_is_said(
    hass: Any, aioclient_mock: Any, status: int, error: str
) -> None:
    aioclient_mock.get(ADA, status=status, json={"detail": "no"})
    source = {"source": config_entries.SOURCE_USER}
    form = await hass.config_entries.flow.async_init(DOMAIN, context=source)
    form = await hass.config_entries.flow.async_configure(form["flow_id"], GATEWAY)
    assert form["errors"] == {"base": error}


async def entry_of(hass: Any) -> Any:
    data = {**GATEWAY, **CHOICE, "device_key": "shoal_d_1", "kind": "places"}
    entry = MockConfigEntry(domain=DOMAIN, data=data)
    entry.add_to_hass(hass)
    assert await hass.config_entries.async_setup(entry.entry_id)
    await hass.async_block_till_done()
    return entry


async def test_nothing_is_pushed_while_nobody_knows_the_place(hass: Any, gateway: Any) -> None:
    hass.states.async_set("person.ada", "unknown")
    entry = await entry_of(hass)
    assert sent(gateway, "POST", f"{STREAM}/readings") == []
    assert await hass.config_entries.async_unload(entry.entry_id)


async def test_another_plan_is_chosen_in_words_and_confirmed(hass: Any, gateway: Any) -> None:
    entry = await entry_of(hass)
    form = await hass.config_entries.options.async_init(entry.entry_id)
    assert form["step_id"] == "init"
    gateway.clear_requests()
    gateway.get(f"{URL}/v1/plans", json={"plans": [{"plan": "walk", "kind": "places"}]})
    gateway.get(f"{URL}/v1/plans/walk", json={"explanation": "Noise."})
    gateway.put(STREAM, status=409, json={"detail": "the promise is weaker: 2 instead of 1"})
    given = {"plan": "walk", "confirm": False}
    form = await hass.config_entries.options.async_configure(form["flow_id"], given)
    assert form["errors"] == {"base": "not_confirmed"}
    assert "weaker" in form["description_placeholders"]["changes"]
