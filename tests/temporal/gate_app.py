"""The app and the worker of the kill tests of gates: `python -m tests.temporal.gate_app ADDRESS FOLDER`.

The file `seen` has a line for each begin and each end of an entry.
"""

from __future__ import annotations

import sys
from pathlib import Path

import anyio

from craftcore import App, RetryPolicy
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import work_until_stopped
from tests.temporal.cluster_app import add_line


def gate_app(folder: Path) -> App:
    """Return an app whose work is long enough for a kill."""
    app = App("gates-under-kills")
    app.default_retry = RetryPolicy(max_attempts=5, base=0.1, cap=0.5)

    @app.workflow("work")
    async def work(session: str, number: int) -> None:
        add_line(folder / "seen", f"begins {session} {number}")
        await anyio.sleep(0.1)
        add_line(folder / "seen", f"ends {session} {number}")

    return app


async def main(arguments: list[str]) -> None:
    """Work until the process is killed."""
    address, folder = arguments
    settings = TemporalSettings(address=address, heartbeat_timeout=2, sticky_timeout=1)
    await work_until_stopped(gate_app(Path(folder)), settings)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
