"""Fixtures of Home Assistant: the integration in this folder is enabled."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def enabled(enable_custom_integrations: None) -> None:
    """Let Home Assistant load the integration."""
