"""Corrupt rows of tasks: the task fails with a reason, and the daemon and other tasks continue."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore import App, Continue, TaskContext
from tests.support.cells import cells
from tests.support.damage import NO_TEXT, damage
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.task_steps import begin, finish, look, rows

ROW_OF_TASK = {
    "tasks": "seq = 2",
    "waits": "task_seq = 2 AND status = 'WAITING'",
    "questions": "task_seq = 2",
    "mailbox": "task_seq = 2",
    "event_rows": "task_seq = 2 AND memo IS NOT NULL",
    "triggers": "id = (SELECT id FROM tasks WHERE seq = 2)",
}
"""The row of each table that is corrupted. It belongs to the second of three tasks."""


def echo(n: int) -> int:
    return n


def an_app() -> App:
    app = App("test")

    @app.workflow("talk", sources=["MESSAGE"])
    async def talk(ctx: TaskContext[dict[str, int]], n: int) -> Any:
        if ctx.state is None:
            return Continue({"n": n})
        seen = await ctx.step("look", echo, ctx.state["n"])
        await ctx.ask("Go on?", options=["yes"], timeout=3600, default="yes")
        message = await ctx.wait_for("message")
        return [seen, message["text"]]

    return app


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database of three tasks, each in its second turn, with a recorded step, a question and a message."""
    folder: Path = tmp_path_factory.mktemp("three")

    async def live() -> None:
        app = an_app()
        async with lab(app, folder, clock=VirtualClock()) as it:
            for n in range(3):
                emitted = await app.emit("talk", {"n": n}, session_id=f"s{n}", description="one of three")
                await it.waiting(emitted.id, turn=2)
            for n in range(3):
                message = await app.emit(None, {"text": f"word {n}"}, source="MESSAGE", session_id=f"s{n}")
                await it.settled(message.id)

    anyio.run(live)
    return folder


@pytest.fixture
def folder(three: Path, tmp_path: Path) -> Path:
    shutil.copytree(three, tmp_path / "copy")
    return tmp_path / "copy"


def clock_after_an_hour() -> VirtualClock:
    clock = VirtualClock()
    clock.advance(hours=1.5)
    return clock


async def require_others_done(it: Lab) -> None:
    others = "SELECT result_json FROM tasks WHERE seq <> 2 AND status = 'DONE' ORDER BY seq"
    await it.until(lambda: len(it.rows(others)) == 2)
    assert [row["result_json"] for row in it.rows(others)] == ['[0,"word 0"]', '[2,"word 2"]']


async def require_failed(it: Lab) -> dict[str, Any]:
    await it.until(lambda: bool(it.rows("SELECT 1 FROM tasks WHERE seq = 2 AND status = 'FAILED'")))
    [row] = it.rows("SELECT * FROM tasks WHERE seq = 2")
    assert row["error_message"]
    assert not it.rows("SELECT 1 FROM questions WHERE task_seq = 2 AND status = 'OPEN'")
    assert not it.rows("SELECT 1 FROM waits WHERE task_seq = 2 AND status <> 'RESOLVED'")
    assert not it.rows("SELECT 1 FROM mailbox WHERE task_seq = 2 AND status = 'UNREAD'")
    dead = "SELECT status FROM triggers WHERE id = :id"
    assert {row["status"] for row in it.rows(dead, id=row["trigger_id"])} <= {"DEAD", "FAILED"}
    return row


SET_ASIDE = [
    *(
        ("tasks", f"{name} = {NO_TEXT}")
        for name in (
            *("workflow", "session_id", "schedule_id", "parent_id", "status", "reason", "state_json"),
            *("result_json", "error_code", "trigger_id"),
        )
    ),
    ("tasks", "status = 'NONSENSE'"),
    ("tasks", f"status = 'RUNNING', id = {NO_TEXT}"),
    ("tasks", f"status = 'RUNNING', workflow = {NO_TEXT}"),
    ("tasks", "turn = 0"),
    ("tasks", "turn = 9223372036854775807"),
    ("tasks", "turns_alone = 9223372036854775807"),
    ("tasks", "steps_alone = -1"),
    ("tasks", "max_attempts = 0"),
    ("tasks", "workflow = 'two words'"),
    ("tasks", "session_id = ''"),
    *(("tasks", f"agents_json = {text}") for text in (NO_TEXT, "'garbage'", "'[]'", "'[7]'")),
    ("tasks", f"agents_json = '{'[' * 5_000}'"),
    ("tasks", """agents_json = '["talk","talk"]', agent = 'talk'"""),
    ("tasks", """agents_json = '["talk","other"]', agent = 'talks'"""),
    ("tasks", "agent = 'talk'"),
    ("tasks", f"agent = {NO_TEXT}"),
    *(("waits", f"{name} = {NO_TEXT}") for name in ("id", "name", "kind", "event", "value_json", "resolved_by")),
    ("waits", "kind = 'moon'"),
    ("waits", "resolved_by = 'unknown'"),
    ("waits", "status = 'NONSENSE'"),
    *(("questions", f"{name} = {NO_TEXT}") for name in ("id", "kind", "question", "options_json", "default_json")),
    ("questions", "kind = 'moon'"),
    ("questions", "status = 'NONSENSE'"),
    ("questions", "options_json = 'garbage'"),
    ("questions", "options_json = '[7]'"),
    ("event_rows", f"payload_json = {NO_TEXT}"),
    ("event_rows", f"memo = {NO_TEXT}"),
    ("triggers", f"payload_json = {NO_TEXT}"),
    ("triggers", f"description = {NO_TEXT}"),
    ("triggers", f"schedule_id = {NO_TEXT}"),
]


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("table", "change"), cells(SET_ASIDE, [f"{table}-{change:.60}" for table, change in SET_ASIDE])
)
async def test_corrupt_row_fails_its_task_with_the_reason_and_the_others_continue(folder, table, change):
    damage(folder / "agent.db", table, change, ROW_OF_TASK[table])

    async with lab(an_app(), folder, clock=clock_after_an_hour()) as it:
        await require_others_done(it)
        row = await require_failed(it)

    assert row["reason"] == "corrupt row"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("tasks", "state_json = 'garbage'"),
        ("tasks", "deadline_at = -1e300"),
        ("tasks", "deadline_at = 9e999"),
        ("tasks", "created_at = -9e999"),
        ("triggers", "payload_json = 'garbage'"),
        ("event_rows", "payload_json = 'garbage'"),
        ("waits", "value_json = 'garbage'"),
    ],
)
async def test_fault_that_only_the_turn_can_find_fails_that_turn(folder, table, change):
    damage(folder / "agent.db", table, change, ROW_OF_TASK[table])

    async with lab(an_app(), folder, clock=clock_after_an_hour()) as it:
        await require_others_done(it)
        await it.until(lambda: not it.rows("SELECT 1 FROM tasks WHERE seq = 2 AND status IN ('RUNNING', 'WAITING')"))


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("tasks", f"id = {NO_TEXT}"),
        ("tasks", "trigger_id = 'unknown'"),
        ("waits", f"event = {NO_TEXT}, kind = 'event'"),
        ("mailbox", f"event = {NO_TEXT}"),
        ("mailbox", "status = 'NONSENSE'"),
        ("mailbox", f"sent_by = {NO_TEXT}"),
    ],
)
async def test_unread_corruption_blocks_nothing(folder, table, change):
    damage(folder / "agent.db", table, change, ROW_OF_TASK[table])

    async with lab(an_app(), folder, clock=clock_after_an_hour()) as it:
        await require_others_done(it)
        await it.idle()


@pytest.mark.anyio
@pytest.mark.parametrize("change", ["payload_json = 'garbage'", f"payload_json = {NO_TEXT}"])
async def test_corrupt_mailbox_row_is_kept_and_its_message_becomes_a_dead_letter(folder, change):
    damage(folder / "agent.db", "mailbox", change, ROW_OF_TASK["mailbox"])
    app = an_app()
    async with lab(app, folder, clock=clock_after_an_hour()) as it:
        await require_others_done(it)
        await it.until(lambda: bool(it.rows("SELECT 1 FROM mailbox WHERE task_seq = 2 AND status = 'LEFT'")))
        [dead] = it.rows("SELECT * FROM triggers WHERE status = 'DEAD'")
        assert (dead["reason"], dead["source"], dead["payload_json"]) == ("corrupt row", "MESSAGE", '{"text":"word 1"}')
        [task] = it.rows("SELECT * FROM tasks WHERE seq = 2")
        assert task["status"] == "WAITING"

        core = VirtualCore(it.path, VirtualClock())
        core.do(core.triggers.requeue, dead["id"])
        core.close()
        it.engine.ring(schedules=False)

        assert (await it.ended(task["id"]))["result_json"] == '[1,"word 1"]'


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("table", "change"),
    [
        ("tasks", f"workflow = {NO_TEXT}"),
        ("tasks", "status = 'NONSENSE'"),
        ("waits", "kind = 'moon'"),
        ("questions", "options_json = '{'"),
        ("event_rows", f"payload_json = {NO_TEXT}"),
        ("triggers", f"payload_json = {NO_TEXT}"),
    ],
)
async def test_row_corrupted_under_a_running_daemon_stops_no_other_task(folder, table, change):
    clock = VirtualClock()
    async with lab(an_app(), folder, clock=clock) as it:
        await it.idle()
        damage(it.path, table, change, ROW_OF_TASK[table])
        clock.advance(hours=1.5)
        it.engine.ring(schedules=True)

        await require_others_done(it)
        assert (await require_failed(it))["reason"] == "corrupt row"


@pytest.mark.anyio
async def test_parent_is_informed_of_a_quarantined_child(tmp_path):
    app, clock = App("test"), VirtualClock()

    @app.workflow("child")
    async def child(ctx: TaskContext) -> None:
        await ctx.wait_for("never", timeout=3600)

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> Any:
        try:
            return await (await ctx.start_child("child")).result()
        except Exception as error:
            return str(error)

    async with lab(app, tmp_path, clock=clock) as it:
        emitted = await app.emit("parent")
        await it.until(lambda: len(it.rows("SELECT 1 FROM tasks WHERE status = 'WAITING'")) == 2)
        await it.idle()
        damage(it.path, "tasks", f"state_json = {NO_TEXT}", ROW_OF_TASK["tasks"])
        clock.advance(hours=2)
        it.engine.ring(schedules=True)

        result = (await it.ended(emitted.id))["result_json"]

    assert "is FAILED: " in result
    assert "state_json is not UTF-8" in result


def test_ended_task_read_again_is_made_readable_and_keeps_its_state(core):
    running = begin(core)
    finish(core, running, {"n": 1})
    damage(core.database.path, "tasks", f"result_json = {NO_TEXT}, reason = {NO_TEXT}", "true")
    with pytest.raises(ValueError, match="utf-8"):
        look(core, running.task.id)

    [wrong] = core.do(core.tasks.set_aside_corrupt)

    assert running.task.id in wrong
    task = look(core, running.task.id)
    assert (task.status, task.reason, task.result_json) == ("DONE", r"\xffA", r'"\\xffA"')


def test_sound_task_is_left_unchanged(core):
    begin(core)
    before = {table: rows(core, table) for table in ("tasks", "triggers", "waits", "questions", "mailbox")}

    assert core.do(core.tasks.set_aside_corrupt) == []
    assert {table: rows(core, table) for table in before} == before
