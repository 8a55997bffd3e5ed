"""Fixtures of the tests on a cluster: a real development server of Temporal for each test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from craftcore.temporal.settings import TemporalSettings
from tests.temporal.dev_server import DevServer

HERE = Path(__file__).parent

running: list[DevServer] = []
"""The server of this process, while one runs."""


@pytest.fixture
def anyio_backend() -> str:
    """The library of Temporal runs on asyncio only."""
    return "asyncio"


@pytest.fixture(scope="module")
def cluster() -> TemporalSettings:
    """The settings of a server that runs while tests of this folder run."""
    if not running:
        running.append(DevServer())
    return running[0].settings


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the server after the last test of this folder: a server without work still takes processor time."""
    if nextitem is None or HERE not in nextitem.path.parents:
        pytest_sessionfinish()


def pytest_sessionfinish() -> None:
    """Stop the server also after a run that was interrupted."""
    while running:
        running.pop().close()


@pytest.fixture
def mortal_cluster(tmp_path: Path) -> Iterator[DevServer]:
    """A server of this test alone, which keeps a file and may be killed."""
    server = DevServer(tmp_path / "server.db")
    yield server
    server.close()
