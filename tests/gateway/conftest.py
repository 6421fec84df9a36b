"""One gateway for the tests of a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.gateway.gateway_house import House, running

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of a file go to one worker: they share a server."""
    for item in items:
        if item.path.parent == HERE:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    with running(tmp_path_factory.mktemp("gateway")) as found:
        for space in ("one", "two"):
            for person in ("ada", "ben"):
                found.ask("PUT", f"/v1/people/{person}", f"{space}/operator").raise_for_status()
        yield found
