"""Logs as JSON lines, and counters for Prometheus; they never hold readings, outputs or
recipients.
"""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog
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

# the only fields that are ever written: a name, a reading or an output has no field to be in
FIELDS = frozenset(
    (
        "event",
        "level",
        "timestamp",
        "request",
        "method",
        "route",
        "status",
        "milliseconds",
        "kind",
        "error",
        "rule",
        "workers",
        "address",
        "seconds",
        "streams",
    )
)


def only_known(logger: Any, method: str, event: Any) -> Any:
    """The event without fields that are not on the list."""
    return {name: value for name, value in event.items() if name in FIELDS}


class LogLines:
    """Writes lines to standard error as it is at that moment."""

    def msg(self, line: str) -> None:
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()

    log = debug = info = warning = error = critical = exception = msg


def start_logs(level: int = logging.INFO) -> None:
    """Write JSON lines to standard error; the server's own lines, which name paths, are off."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            only_known,
            structlog.processors.JSONRenderer(),
        ],
        logger_factory=lambda *_: LogLines(),
        wrapper_class=structlog.make_filtering_bound_logger(level),
        cache_logger_on_first_use=True,
    )
    logging.getLogger("uvicorn.access").disabled = True


log: Any = structlog.get_logger()


REQUESTS = Counter("shoal_requests", "Requests answered", ["route", "status"])
SECONDS = Histogram("shoal_request_seconds", "Time until a request was answered", ["route"])
READINGS = Counter("shoal_readings", "Readings by what became of them", ["outcome"])
SLOTS = Counter("shoal_slots_closed", "Slots that were closed")
BEHIND = Gauge(
    "shoal_clock_behind_seconds", "How overdue the oldest slot is", multiprocess_mode="max"
)
JUMP = Gauge(
    "shoal_clock_jump_seconds",
    "How far the clock jumped, while it is not believed",
    multiprocess_mode="max",
)
CONNECTIONS = Gauge("shoal_event_connections", "Open event streams", multiprocess_mode="livesum")


def render_metrics(folder: str) -> tuple[bytes, str]:
    """All numbers, of every worker when they share a folder."""
    registry = REGISTRY
    if folder:
        registry = CollectorRegistry()
        multiprocess.MultiProcessCollector(registry, folder)  # type: ignore[no-untyped-call]
    return generate_latest(registry), CONTENT_TYPE_LATEST
