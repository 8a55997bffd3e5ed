"""Fixtures of the tests on a cluster: a real development server of Temporal for each test process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from craftcore.temporal.entries import heartbeats
from craftcore.temporal.settings import TemporalSettings
from tests.temporal.dev_server import DevServer

HERE = Path(__file__).parent

running: list[DevServer] = []
"""The running server of this process, if there is one."""


@pytest.fixture
def anyio_backend() -> str:
    """Return the only event loop that the library of Temporal supports."""
    return "asyncio"


@pytest.fixture(autouse=True)
def frequent_heartbeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a worker keep its entries on a slow machine, and see quickly that one is cancelled."""
    monkeypatch.setattr(heartbeats, "HEARTBEATS", 30)


@pytest.fixture(scope="module")
def cluster() -> TemporalSettings:
    """Return the settings of a server for the tests of this folder.

    A test in which a worker is killed has a shorter `heartbeat_timeout` of its own.
    """
    if not running:
        running.append(DevServer())
    return replace(running[0].settings, heartbeat_timeout=20)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the server after the last test of this folder, because an idle server takes processor time."""
    if nextitem is None or HERE not in nextitem.path.parents:
        stop_server()


def pytest_sessionfinish() -> None:
    """Stop the server, also after an interrupted run."""
    stop_server()


def stop_server() -> None:
    """Stop the server of this process, if there is one."""
    while running:
        running.pop().close()


@pytest.fixture
def mortal_cluster(tmp_path: Path) -> Iterator[DevServer]:
    """Run a server for this test alone; it keeps a file and may be killed."""
    server = DevServer(tmp_path / "server.db")
    yield server
    server.close()
