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
while Path("/srv/agent/hold").exists():  # a start that takes as long as the test wants
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
    trace("came to its end")
    return "went"


@app.workflow("hangs", retry=RetryPolicy(max_attempts=5, base=0, cap=0))
async def hangs() -> None:
    """Hold the event loop, as no handler should."""
    trace("hangs")
    time.sleep(3600)


@app.workflow("writes")
async def writes(paths: list[str]) -> dict[str, str]:
    """Try to make each file; what came of it."""
    came: dict[str, str] = {}
    for path in paths:
        try:
            Path(path).write_text("")
            came[path] = "written"
        except OSError as error:
            came[path] = error.strerror or str(error)
    return came
