"""The app and the worker of the kill tests: `python -m tests.temporal.cluster_app ADDRESS FOLDER`, until it is killed.

The files in FOLDER are the witnesses. `effects` has a line for each effect of an action, and `seen` one for each result
of a step that an entry has seen. The provider does not deduplicate a second call.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio

from craftcore import App, Call, RetryPolicy, TaskContext
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import work_until_stopped


def cluster_app(folder: Path) -> App:
    """Return an app whose task has three steps, two acts and a sleep, with up to ten places for a kill."""
    app = App("kills")
    app.default_retry = RetryPolicy(max_attempts=5, base=0.1, cap=0.5)

    @app.action("send", irreversible=True, timeout=2)
    async def send(call: Call, what: str) -> str:
        await anyio.sleep(0.05)
        add_line(folder / "effects", call.key)
        await anyio.sleep(0.05)
        return call.key

    @app.workflow("order")
    async def order(ctx: TaskContext) -> list[str]:
        seen: list[str] = []

        async def look(name: str) -> None:
            token = await ctx.step(name, make_token)
            add_line(folder / "seen", f"{ctx.task_id} {name} {token}")
            seen.append(token)

        await look("first")
        await ctx.act(send, what="one")
        await look("second")
        await ctx.sleep(0.2)
        await ctx.act(send, what="two")
        await look("third")
        return seen

    return app


def make_token() -> str:
    return uuid4().hex


def add_line(path: Path, line: str) -> None:
    """Append a line by one write, so that a kill leaves no partial line."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


async def main(arguments: list[str]) -> None:
    """Work until the process is killed, or stopped."""
    address, folder = arguments
    settings = TemporalSettings(address=address, heartbeat_timeout=2, sticky_timeout=1)
    app: Any = cluster_app(Path(folder))
    await work_until_stopped(app, settings)


if __name__ == "__main__":
    anyio.run(main, sys.argv[1:])
