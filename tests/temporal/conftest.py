"""A real development server of Temporal for each process of tests. Without its program the tests skip."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from craftcore.temporal.settings import TemporalSettings
from tests.temporal.dev_server import DevServer


@pytest.fixture
def anyio_backend() -> str:
    """The library of Temporal runs on asyncio only."""
    return "asyncio"


@pytest.fixture(scope="session")
def cluster() -> Iterator[TemporalSettings]:
    """The settings of a server that runs while the tests run."""
    server = DevServer()
    yield server.settings
    server.close()


@pytest.fixture
def mortal_cluster(tmp_path: Path) -> Iterator[DevServer]:
    """A server of this test alone, which keeps a file and may be killed."""
    server = DevServer(tmp_path / "server.db")
    yield server
    server.close()
