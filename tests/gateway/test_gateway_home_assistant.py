"""The integration for Home Assistant: its files are whole, and the gateway takes what it sends.

Its own tests run where Home Assistant is installed: see integrations/home-assistant/README.md.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.gateway.gateway_house import House

FOLDER = Path(__file__).parents[2] / "integrations" / "home-assistant"
CODE = FOLDER / "custom_components" / "shoal"
STRINGS: dict[str, Any] = json.loads((CODE / "strings.json").read_text())


def constants() -> dict[str, str]:
    """Values of the names in const.py that are texts."""
    return dict(re.findall(r'^(\w+) = "(.*)"$', (CODE / "const.py").read_text(), re.MULTILINE))


def test_the_manifest_has_what_home_assistant_asks_of_a_custom_integration() -> None:
    manifest = json.loads((CODE / "manifest.json").read_text())
    needed = {
        "domain",
        "name",
        "codeowners",
        "config_flow",
        "documentation",
        "iot_class",
        "version",
    }
    assert needed <= set(manifest)
    assert manifest["domain"] == CODE.name == constants()["DOMAIN"]
    assert list(manifest)[:2] == ["domain", "name"]
    assert list(manifest)[2:] == sorted(list(manifest)[2:])
    assert manifest["config_flow"] is True
    assert re.fullmatch(r"\d+\.\d+\.\d+", manifest["version"])
    assert json.loads((FOLDER / "hacs.json").read_text())["name"] == manifest["name"]


def test_every_field_error_and_sensor_has_words() -> None:
    assert json.loads((CODE / "translations" / "en.json").read_text()) == STRINGS
    flow, known = (CODE / "config_flow.py").read_text(), constants()
    for step, fields in (("user", ("CONF_PERSON", "CONF_PERSON_KEY")), ("stream", ("CONF_PLAN",))):
        words = STRINGS["config"]["step"][step]["data"]
        assert {known[each] for each in fields} <= set(words)
    for name in re.findall(r"vol\.Required\((CONF_\w+)", flow):
        value = known.get(name, name.removeprefix("CONF_").lower())
        assert any(value in each["data"] for each in STRINGS["config"]["step"].values()), name
    errors = set(re.findall(r'"base"\] = "(\w+)"', flow)) | {"invalid_auth", "not_confirmed"}
    there = set(STRINGS["config"]["error"]) | set(STRINGS["options"]["error"])
    assert errors <= there
    sensors = re.findall(r'translation_key="(\w+)"', (CODE / "sensor.py").read_text())
    assert set(sensors) == set(STRINGS["entity"]["sensor"])


def test_the_gateway_takes_what_the_flow_and_the_coordinator_send(house: House) -> None:
    """The same requests in the same order, from the person's key alone to a hidden place."""
    assert house.ask("GET", "/v1/people/ada", "one/ada").status_code == 200
    plans = house.ask("GET", "/v1/plans", "one/ada").json()["plans"]
    kinds = {each["plan"]: each["kind"] for each in plans}
    assert kinds["walk"] == "places"
    assert house.ask("GET", "/v1/plans/walk", "one/ada").json()["explanation"].partition("\n")[0]
    path = "/v1/people/ada/streams/home-assistant"
    body = {"plan": "walk", "clock": {"every": 600}}
    house.ask("PUT", path, "one/ada", body).raise_for_status()
    wanted = {"kind": "device", "label": "Home Assistant"}
    key = house.ask("POST", "/v1/keys", "one/ada", wanted).json()["token"]
    assert house.ask("GET", f"{path}/now", "one/ada").status_code == 409  # before the first slot
    house.pass_time(600)
    reading = {"lat": 52.5031, "lon": 13.3652}
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": "0" * 32}
    sent = house.http.post(f"{path}/readings", json=reading, headers=headers)
    assert sent.json() == {"taken": 1, "dead": []}
    house.pass_time(600)
    output = house.ask("GET", f"{path}/now", "one/ada").json()
    assert {"status", "lat", "lon", "spread", "day", "slot", "ends"} <= set(output)
    told = house.ask("GET", "/v1/people/ada/budget", "one/ada").json()["streams"]
    own = next(each for each in told if each["stream"] == "home-assistant")
    assert {"spent", "notion", "seen"} <= set(own)
