"""A shell in an empty folder for each journey."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.journeys.shell import Server, Shell


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    """One server of `shoal` for all journeys; its socket needs a short path."""
    with tempfile.TemporaryDirectory(prefix="shoal") as folder:
        running = Server.start(Path(folder))
        yield running
        running.stop()
        print(running.times())


@pytest.fixture
def shell(server: Server, tmp_path: Path) -> Shell:
    """Bash in an empty folder."""
    return Shell(tmp_path, server.path)
