"""The app of the booted machine: workflows that report their state. Only the machine imports this module."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from craftcore import App, RetryPolicy

app = App("probes")


def trace(line: str) -> None:
    with open("trace", "a") as file:
        file.write(line + "\n")


trace("import")
while Path("/srv/agent/hold").exists():  # the start lasts until the test removes the file
    time.sleep(0.01)


@app.workflow("note")
async def note(number: int = 0) -> int:
    trace(f"note {number}")
    return number


@app.workflow("runs.on")
async def runs_on() -> str:
    trace("runs on")
    try:
        while not Path("go").exists():  # noqa: ASYNC110 - a file has no event to wait on
            await asyncio.sleep(0.01)
    except asyncio.CancelledError:
        trace("cancelled")
        raise
    trace("finished")
    return "finished"


@app.workflow("hangs", retry=RetryPolicy(max_attempts=5, base=0, cap=0))
async def hangs() -> None:
    """Block the event loop, which handlers must not do."""
    trace("hangs")
    time.sleep(3600)


@app.workflow("writes")
async def writes(paths: list[str]) -> dict[str, str]:
    """Try to create each file, and return the outcome for each path."""
    outcomes: dict[str, str] = {}
    for path in paths:
        try:
            Path(path).write_text("")
            outcomes[path] = "written"
        except OSError as error:
            outcomes[path] = error.strerror or str(error)
    return outcomes
