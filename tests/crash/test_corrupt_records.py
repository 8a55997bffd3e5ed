"""A record that a bad disk changed while its attempt ran is named by verify; the attempt ends as it would have, and so
do the others."""

from __future__ import annotations

import anyio
import apsw
import pytest

from craftcore import App, TaskContext
from craftcore.executions.verification import Verification
from tests.crash.spoiling import unguarded
from tests.engine.lab import lab, settings
from tests.virtual import NEW_YEAR, VirtualClock, VirtualCore

NOT_UTF8 = "CAST(x'7b22ff227d' AS TEXT)"


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["returns", "is shut down"])
@pytest.mark.parametrize(
    "change",
    [
        f"UPDATE events SET payload_json = {NOT_UTF8} WHERE execution_seq = :seq AND seq = 1",
        f"UPDATE executions SET routing_json = {NOT_UTF8} WHERE seq = :seq",
        f"UPDATE executions SET workflow = {NOT_UTF8} WHERE seq = :seq",
    ],
)
@pytest.mark.parametrize("steps", [0, 1])
async def test_an_open_record_that_cannot_be_read_any_more_stops_nobody_and_is_named(tmp_path, change, end, steps):
    """Without a step it is sealed as it was opened, with one it would have to be read, and stays open."""
    app, go_on = App("test"), anyio.Event()
    ready: list[int] = []

    @app.workflow("hold")
    async def hold(ctx: TaskContext, n: int) -> int:
        for step in range(steps):
            await ctx.step(f"step-{step}", str.upper, "a")
        ready.append(n)
        await go_on.wait()
        return n

    async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as it:
        held = [(await app.emit("hold", {"n": n})).id for n in range(3)]
        await it.until(lambda: len(ready) == 3)
        [spoiled] = it.rows("SELECT seq FROM executions WHERE trigger_id = :id", id=held[1])
        connection = apsw.Connection(str(it.path))
        connection.set_busy_timeout(60_000)
        with connection, unguarded(connection):
            connection.execute(change, {"seq": spoiled["seq"]})
        connection.close()
        if end == "returns":
            go_on.set()
            assert [(await it.settled(id))["status"] for id in held] == ["DONE"] * 3

    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    ended = core.rows("SELECT trigger_id, ended_at IS NOT NULL AS ended, seq FROM executions ORDER BY seq")
    assert {row["trigger_id"]: row["ended"] for row in ended} == {held[0]: 1, held[1]: 1 - steps, held[2]: 1}
    with core.reading() as reader:
        fault = next(Verification(reader, NEW_YEAR).faults())
    assert fault.id == f"exec-{held[1]}.1"
    assert "cannot be read" in fault.wrong
    core.close()
