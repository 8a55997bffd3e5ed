"""Records corrupted during their attempt: `verify` names them, and all attempts end as usual."""

from __future__ import annotations

import anyio
import pytest

from craftcore import App, TaskContext
from craftcore.errors import DatabaseInvalid
from craftcore.executions.chain.verify import Verification
from craftcore.executions.recorder import AttemptInfo, Recorder, Routed
from craftcore.storage.integrity import check_file
from craftcore.tasks.turn_event_store import MemoStore, NewEvent
from craftcore.triggers.settlement import Succeeded
from tests.support.damage import NO_TEXT, damage
from tests.support.engine_harness import lab, settings
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.trigger_steps import emit, start_one


@pytest.mark.anyio
@pytest.mark.parametrize("end", ["returns", "is shut down"])
@pytest.mark.parametrize(
    "change",
    [
        f"first_events = {NO_TEXT}",
        f"routing_json = {NO_TEXT}",
        f"workflow = {NO_TEXT}",
    ],
)
@pytest.mark.parametrize("steps", [0, 1])
async def test_open_unreadable_record_stops_nothing_and_is_named(tmp_path, change, end, steps):
    """A record without steps is closed without a read. A record with steps must be read, so it stays open."""
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
        damage(it.path, "executions", change, "seq = ?", spoiled["seq"])
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


RENUMBERED = ("event_rows", "seq = 6", "execution_seq = ? AND seq = 3")
"""An event with the number that the record's last event would get: one bit differs."""

NO_MOMENT = ("executions", "created_at = 'soon'", "seq = ?")


@pytest.mark.parametrize("change", [RENUMBERED, NO_MOMENT])
def test_record_with_wrong_numbers_stays_open_and_the_others_are_closed(tmp_path, change):
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    recorder, memos = Recorder(), MemoStore()
    records = []
    for n in range(3):
        emit(core, id=f"t-{n}")
        [record] = core.do(recorder.open_all, 1, [AttemptInfo(start_one(core), Routed("greet", "explicit workflow"))])
        step = NewEvent(0, "", record.seq, 1, 1, "STEP_COMPLETED", "{}", f"step|{n}")
        core.do(memos.add_all, [(3, step)])
        records.append(record)
    core.close()
    damage(core.database.path, *change, records[1].seq, any_type=change is NO_MOMENT)

    core.do(recorder.close_all, [(record, Succeeded(result_json="1")) for record in records])

    ended = core.rows("SELECT id FROM executions WHERE ended_at IS NOT NULL ORDER BY chain_seq")
    assert [row["id"] for row in ended] == ["exec-t-0.1", "exec-t-2.1"]
    with core.database.reading(with_checks=True) as reader:
        by_verify = {fault.id for fault in Verification(reader, NEW_YEAR).faults()}
        assert by_verify == {"exec-t-1.1"} or not check_file(reader).is_sound


@pytest.mark.anyio
@pytest.mark.parametrize(
    "change", ["DELETE FROM record_chain", "UPDATE record_chain SET head_hash = CAST(x'ff' AS TEXT)"]
)
async def test_triggers_do_not_run_when_the_chain_has_lost_its_end(tmp_path, change):
    """A trigger that ran could not be settled, and the crash would count against it."""
    app, ran = App("test"), []

    @app.workflow("work")
    async def work() -> None:
        ran.append("work")

    async with lab(app, tmp_path):
        pass
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    emit(core, workflow="work")
    with core.transaction() as tx:
        tx.run(change)
    core.close()

    with pytest.raises(DatabaseInvalid, match="the end of the chain of records is damaged"):
        async with lab(app, tmp_path):
            pass

    assert ran == []
    assert [row["attempts"] for row in core.rows("SELECT attempts FROM triggers")] == [0]
