"""Workflow code that ends the daemon each time it runs: a dead letter after three starts, and other work is done."""

from __future__ import annotations

import pytest

from craftcore import Producer
from tests.support.engine_harness import look
from tests.support.processes import craftcore

APP = """
import asyncio
from craftcore import App

app = App("fatal")

@app.workflow("healthy")
async def healthy(n: int) -> int:
    return n

@app.workflow("fatal")
async def fatal() -> None:
    {code}
    await asyncio.sleep(600)
"""

SIDE = "async def side():\n        {}\n    asyncio.create_task(side())"
ENDS = {
    "SystemExit in a side task": SIDE.format("raise SystemExit(3)"),
    "KeyboardInterrupt in a side task": SIDE.format("raise KeyboardInterrupt"),
    "loop.stop()": "asyncio.get_running_loop().stop()",
    "cancels all": SIDE.format("[task.cancel() for task in asyncio.all_tasks()]"),
    "os._exit": "import os; os._exit(70)",
}


SIMILAR_ENDS = {"KeyboardInterrupt in a side task", "loop.stop()"}
"""The cases that end the event loop as SystemExit in a side task does."""


@pytest.mark.parametrize(
    "code",
    [
        pytest.param(code, id=name, marks=pytest.mark.acceptance if name in SIMILAR_ENDS else ())
        for name, code in ENDS.items()
    ],
)
def test_code_that_ends_the_daemon_is_poison_after_three_starts(tmp_path, code):
    (tmp_path / "fatal.py").write_text(APP.format(code=code))
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        fatal = producer.emit("fatal").id
        for n in range(5):
            producer.emit("healthy", {"n": n})

    run = ("run", "fatal:app", "--until-idle")
    starts = [craftcore(tmp_path, *run)]
    while starts[-1].code == 70 and len(starts) < 6:
        starts.append(craftcore(tmp_path, *run))

    rows = look(path, "SELECT workflow, status, reason, crash_count FROM triggers ORDER BY workflow, seq")
    assert [(row["workflow"], row["status"]) for row in rows] == [
        ("fatal", "DEAD"),
        *[("healthy", "DONE")] * 5,
    ]
    assert (rows[0]["reason"], rows[0]["crash_count"]) == ("poison", 3)
    assert [each.code for each in starts] == [70, 70, 70, 4]
    if "_exit" not in code:
        for each in starts[:3]:
            assert "ended without being asked to" in each.err
            assert f"fatal ({fatal})" in each.err
