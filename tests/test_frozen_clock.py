"""The time of log lines and of the engine under a frozen clock."""

from __future__ import annotations

import io
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
from freezegun import freeze_time

from craftcore import App
from craftcore.daemon import logging as logs
from craftcore.log import get_logger
from tests.support.engine_harness import look
from tests.support.processes import PATIENCE

FROZEN = "2031-05-06T07:08:09Z"


@pytest.mark.parametrize("format", ["json", "text"])
def test_log_line_has_the_time_of_the_frozen_clock(format):
    stream = io.StringIO()
    logs.configure("info", format, stream=stream, under_systemd=False)

    with freeze_time(FROZEN):
        get_logger("craftcore.frozen").info("thing.happened")

    line = stream.getvalue()
    assert "2031-05-06" in line
    assert "07:08:09" in line


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_engine_runs_under_a_frozen_clock_with_a_running_loop(tmp_path: Path, backend):
    """The test sets `real_asyncio=True` on asyncio and `tick=True` on both. With neither, every sleep would hang."""
    app, path = App(), tmp_path / "agent.db"

    @app.workflow("greet")
    async def greet() -> str:
        return "hello"

    async def run_engine() -> str:
        async with app.running(path):
            emitted = await app.emit("greet")
            with anyio.fail_after(PATIENCE):
                while not settled(path, emitted.id):  # noqa: ASYNC110 - a table has no event to wait on
                    await anyio.sleep(0.01)
            return emitted.id

    with freeze_time(FROZEN, tick=True, real_asyncio=backend == "asyncio"):
        id = anyio.run(run_engine, backend=backend)

    assert settled(path, id)[0]["created_at"] - datetime.fromisoformat(FROZEN).timestamp() < 2 * PATIENCE


def settled(path: Path, id: str) -> list[dict[str, Any]]:
    return look(path, "SELECT created_at FROM triggers WHERE id = :id AND status = 'DONE'", id=id)
