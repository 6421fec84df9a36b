"""Counts for Prometheus: by route and outcome, never by person, stream or key."""

from __future__ import annotations

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
)

REQUESTS = Counter("shoal_requests", "Requests answered", ["route", "status"])
SECONDS = Histogram("shoal_request_seconds", "Time until a request was answered", ["route"])
READINGS = Counter("shoal_readings", "Readings by what became of them", ["outcome"])
SLOTS = Counter("shoal_slots_closed", "Slots that were closed")
BEHIND = Gauge(
    "shoal_clock_behind_seconds", "How overdue the oldest slot is", multiprocess_mode="max"
)
CONNECTIONS = Gauge("shoal_event_connections", "Open event streams", multiprocess_mode="livesum")


def rendered(folder: str) -> tuple[bytes, str]:
    """All numbers, of every worker when they share a folder."""
    registry = REGISTRY
    if folder:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry), CONTENT_TYPE_LATEST
