"""Secrets that are patterns over time: events, their automata, and what a chain says of them."""

from __future__ import annotations

from shoal.core.registry import Family

FAMILY = Family(
    name="events",
    about="patterns over time",
    kinds=(
        "shoal.events.event:AtLeast",
        "shoal.events.event:InOrder",
        "shoal.events.event:Stay",
        "shoal.events.event:AllOf",
        "shoal.events.event:AnyOf",
        "shoal.events.event:NotOf",
        "shoal.events.secrets:Events",
        "shoal.events.secrets:MaskOptions",
        "shoal.events.filter:Held",
    ),
    secrets_sections={
        "events": "shoal.spec.events:EventSecrets",
    },
)
