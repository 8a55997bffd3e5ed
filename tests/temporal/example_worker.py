"""A worker of the unchanged examples: `python -m tests.temporal.example_worker ADDRESS NAMES [TIMEOUT]`.

NAMES are the names of files in examples/, or `witness`, separated by commas. They write to the current folder. TIMEOUT
replaces the seconds that a call may take, and with them the seconds before a doubt is put to a person.
"""

from __future__ import annotations

import sys
from contextlib import AsyncExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import anyio

from craftcore import App
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from tests.temporal.cluster_app import cluster_app


def app_of(name: str, folder: Path) -> App:
    """Return the app of an example, or the witness in this folder."""
    app: App = cluster_app(folder) if name == "witness" else import_module(f"examples.{name}").app
    return app


async def main(address: str, names: str, *timeout: str) -> None:
    """Work until the process is killed."""
    settings = TemporalSettings(address=address, heartbeat_timeout=2, sticky_timeout=1)
    async with AsyncExitStack() as workers:
        for name in names.split(","):
            app = app_of(name, Path.cwd())
            if timeout:
                for action in app.actions.values():
                    action.terms = replace(action.terms, timeout=float(timeout[0]))
            await workers.enter_async_context(working(app, settings))
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, sys.argv[1], sys.argv[2], *sys.argv[3:])
