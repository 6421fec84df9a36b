"""What a stream shows, how wide it is, whether it is silent, and what its budget is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from homeassistant.components.sensor import SensorEntity, SensorEntityDescription
from homeassistant.config_entries import ConfigEntry
from homeassistant.const import UnitOfLength
from homeassistant.core import HomeAssistant
from homeassistant.helpers.device_registry import DeviceEntryType, DeviceInfo
from homeassistant.helpers.entity_platform import AddEntitiesCallback
from homeassistant.helpers.update_coordinator import CoordinatorEntity

from .const import CONF_PERSON, CONF_STREAM, DOMAIN
from .coordinator import ShoalCoordinator


@dataclass(frozen=True, kw_only=True)
class ShoalDescription(SensorEntityDescription):
    """A sensor: its value and attributes from the coordinator's data."""

    value: Callable[[dict[str, Any]], Any]
    more: Callable[[dict[str, Any]], dict[str, Any]] = lambda _: {}


def _shown(data: dict[str, Any]) -> Any:
    """Return the context or the place of the last slot; None where it shows nothing."""
    output = data["output"]
    if "lat" in output:
        return f"{output['lat']:.4f}, {output['lon']:.4f}"
    return output.get("context")


def _place(data: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes by which a map shows the place, and which slot it is of."""
    output = data["output"]
    found = {name: output[name] for name in ("day", "slot", "ends") if name in output}
    if "lat" in output:
        found |= {"latitude": output["lat"], "longitude": output["lon"]}
    return found


def _applications(data: dict[str, Any]) -> dict[str, Any]:
    """Return how many outputs each application was given."""
    return {each["application"]: each["outputs"] for each in data["budget"].get("seen") or ()}


SENSORS = (
    ShoalDescription(key="output", translation_key="output", value=_shown, more=_place),
    ShoalDescription(
        key="spread",
        translation_key="spread",
        native_unit_of_measurement=UnitOfLength.KILOMETERS,
        value=lambda data: data["output"].get("spread"),
    ),
    ShoalDescription(
        key="silence",
        translation_key="silence",
        value=lambda data: data["output"].get("status"),
    ),
    ShoalDescription(
        key="budget",
        translation_key="budget",
        value=lambda data: data["budget"].get("remaining", data["budget"].get("spent")),
        more=lambda data: {
            name: data["budget"][name]
            for name in ("notion", "spent", "limit", "refused_at")
            if name in data["budget"]
        },
    ),
    ShoalDescription(
        key="seen",
        translation_key="seen",
        value=lambda data: sum(_applications(data).values()),
        more=_applications,
    ),
)


async def async_setup_entry(
    hass: HomeAssistant, entry: ConfigEntry, async_add_entities: AddEntitiesCallback
) -> None:
    """Add the sensors of a stream."""
    coordinator = hass.data[DOMAIN][entry.entry_id]
    async_add_entities(ShoalSensor(coordinator, entry, each) for each in SENSORS)


class ShoalSensor(CoordinatorEntity[ShoalCoordinator], SensorEntity):
    """One number or word about a stream."""

    entity_description: ShoalDescription
    _attr_has_entity_name = True

    def __init__(
        self, coordinator: ShoalCoordinator, entry: ConfigEntry, description: ShoalDescription
    ) -> None:
        super().__init__(coordinator)
        self.entity_description = description
        self._attr_unique_id = f"{entry.entry_id}_{description.key}"
        self._attr_device_info = DeviceInfo(
            identifiers={(DOMAIN, entry.entry_id)},
            name=f"{entry.data[CONF_PERSON]} {entry.data[CONF_STREAM]}",
            entry_type=DeviceEntryType.SERVICE,
        )

    @property
    def native_value(self) -> Any:
        return self.entity_description.value(self.coordinator.data)

    @property
    def extra_state_attributes(self) -> dict[str, Any]:
        return self.entity_description.more(self.coordinator.data)
