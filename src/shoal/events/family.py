"""What common code knows of `shoal.events`; each part is imported when it is first used."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shoal.core.family import Family, LazyModules

if TYPE_CHECKING:
    import shoal.events.event
    import shoal.events.filter
    import shoal.events.secrets
    import shoal.spec.events
else:
    shoal = LazyModules("shoal")

FAMILY = Family(
    package="shoal.events",
    about="patterns over time",
    kinds={
        "at-least": lambda: shoal.events.event.AtLeast,
        "in-order": lambda: shoal.events.event.InOrder,
        "stay": lambda: shoal.events.event.Stay,
        "all-of": lambda: shoal.events.event.AllOf,
        "any-of": lambda: shoal.events.event.AnyOf,
        "not-of": lambda: shoal.events.event.NotOf,
        "events": lambda: shoal.events.secrets.Events,
        "mask-options": lambda: shoal.events.secrets.MaskOptions,
        "held": lambda: shoal.events.filter.Held,
    },
    secrets_sections={
        "events": lambda: shoal.spec.events.EventSecrets,
    },
)
