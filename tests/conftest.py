"""Settings of the whole suite."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# the same cases in every run, and no clock: SHOAL_EXPLORE=1 looks for new ones
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", deadline=None, max_examples=1000)
os.environ["SHOAL_PLAN_CACHE"] = ""  # tests of the folder itself name one
settings.load_profile("explore" if os.environ.get("SHOAL_EXPLORE") else "repeatable")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What the random attackers judged, whether or not somebody watched."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in getattr(report, "user_properties", ()):
            if name == "attack" and report.when == "call":
                terminalreporter.write_line(f"{report.nodeid}: {value}")
