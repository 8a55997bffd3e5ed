"""Cancellation of all work at once, and no return of that work after a restart."""

from __future__ import annotations

import anyio
import pytest

from craftcore import App, Producer, TaskContext
from craftcore.errors import InvalidInput
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.tasks.all_work import CancelledWork
from tests.support.engine_harness import lab, settings
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.task_steps import a_question, begin, begin_child, for_child, for_event, rows, suspend
from tests.support.trigger_steps import claim_all, emit


def build_app(ran: list[str]) -> App:
    app = App()

    @app.workflow("forever")
    async def forever(ctx: TaskContext) -> None:
        ran.append("forever")
        await anyio.sleep_forever()

    @app.workflow("hears")
    async def hears(ctx: TaskContext) -> None:
        ran.append("hears")
        await ctx.wait_for("paid")

    @app.workflow("asks")
    async def asks(ctx: TaskContext) -> None:
        ran.append("asks")
        await ctx.ask("Send it?", ["yes", "no"])

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> None:
        ran.append("parent")
        await (await ctx.start_child("hears")).result()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext, **_message: str) -> None:
        ran.append("chat")
        await ctx.wait_for("never")

    @app.workflow("tick")
    async def tick() -> None:
        ran.append("tick")

    app.schedule("declared", "every 1m", workflow="tick")
    app.schedule("starts", "on startup", workflow="tick")
    return app


@pytest.mark.anyio
async def test_cancel_all_leaves_no_work_to_run_after_a_restart(tmp_path):
    """The work is running, asleep, waiting for an answer, a child or a message, or due by a schedule."""
    clock = VirtualClock()
    ran: list[str] = []
    path = tmp_path / "agent.db"
    async with lab(build_app(ran), tmp_path, clock=clock) as harness:
        ids = [(await harness.app.emit(name)).id for name in ("hears", "asks", "parent")]
        talk = await harness.app.emit("chat", source="MESSAGE", session_id="ada")
        for task_id in (*ids, talk.id):
            await harness.waiting(task_id)
        unread = await harness.app.emit(None, {"text": "hello"}, source="MESSAGE", session_id="ada")
        await harness.settled(unread.id)
        await harness.app.signal(ids[0], "other")
        await harness.app.emit("tick", delay=60)
        await harness.app.emit("forever")
        await harness.until(lambda: "forever" in ran)
        harness.engine.stop_now()
    core = VirtualCore(path, clock)
    core.do(core.schedules.put, ScheduleSpec(id="added", when="every 1m", workflow="tick"), Origin.OPERATOR)
    core.close()

    with Producer(path) as producer:
        cancelled = producer.cancel_all("wiped")

    assert isinstance(cancelled, CancelledWork)
    assert len(cancelled.tasks) == 6
    assert set(cancelled.schedules) == {"declared", "starts", "added"}
    before = len(ran)
    clock.advance(hours=2)
    async with lab(build_app(ran), tmp_path, clock=clock) as harness:
        await harness.until(lambda: harness.engine.scheduler.is_drained)
        await harness.idle()
        live = harness.rows("SELECT id, source, workflow FROM triggers WHERE settled_at IS NULL")
        tasks = harness.rows("SELECT DISTINCT status FROM tasks")
        questions = harness.rows("SELECT DISTINCT status FROM questions")
        schedules = harness.rows("SELECT id, status FROM schedules ORDER BY id")

    assert (ran[before:], live) == ([], [])
    assert (tasks, questions) == ([{"status": "CANCELLED"}], [{"status": "WITHDRAWN"}])
    assert {row["id"]: row["status"] for row in schedules} == {
        "added": "REMOVED",
        "declared": "PAUSED",
        "starts": "PAUSED",
    }


@pytest.mark.anyio
async def test_cancel_all_on_a_running_app_still_runs_later_triggers(tmp_path):
    """The cancel covers running, claimed, delayed and waiting work, and schedules."""
    ran: list[str] = []
    async with lab(build_app(ran), tmp_path, settings(concurrency=2)) as harness:
        hears = (await harness.app.emit("hears")).id
        await harness.waiting(hears)
        running = [(await harness.app.emit("forever")).id for _ in range(2)]
        await harness.until(lambda: ran.count("forever") == 2)
        claimed = (await harness.app.emit("tick")).id
        later = (await harness.app.emit("tick", delay=60)).id
        await harness.idle_window()
        begun = len(ran)

        work = await harness.app.cancel_all("wiped")

        assert set(work.triggers) >= {*running, claimed, later}
        assert set(work.tasks) == {hears, *running}
        assert set(work.schedules) == {"declared", "starts"}
        for trigger_id in work.triggers:
            row = await harness.settled(trigger_id)
            assert (row["status"], row["reason"]) == ("DONE", "wiped"), row
        await harness.idle()
        assert ran[begun:] == []
        assert {row["status"] for row in harness.rows("SELECT status FROM schedules")} == {"PAUSED"}
        assert harness.rows("SELECT 1 FROM tasks WHERE ended_at IS NULL") == []
        await harness.settled((await harness.app.emit("tick")).id)
        assert ran[begun:] == ["tick"]


@pytest.mark.anyio
async def test_cancel_all_inside_a_workflow_cancels_the_caller_and_may_keep_schedules(tmp_path):
    ran: list[str] = []
    app = build_app(ran)
    answers: list[CancelledWork] = []

    @app.workflow("wipes")
    async def wipes() -> None:
        answers.append(await app.cancel_all(with_schedules=False))
        await anyio.sleep_forever()

    async with lab(app, tmp_path) as harness:
        wiper = (await app.emit("wipes")).id
        await harness.settled(wiper)
        statuses = harness.rows("SELECT DISTINCT status FROM schedules")

    assert (wiper in answers[0].triggers, answers[0].schedules) == (True, [])
    assert statuses == [{"status": "ACTIVE"}]


@pytest.mark.anyio
async def test_cancel_all_is_refused_while_the_app_is_not_running():
    with pytest.raises(InvalidInput, match="the app is not running"):
        await App().cancel_all()


def test_cancel_all_cancels_waiting_tasks_without_a_trigger(core):
    waits = begin(core)
    suspend(core, waits, for_event("paid"))
    asks = begin(core)
    suspend(core, asks, a_question())
    parent = begin(core)
    child = begin_child(core, parent)
    suspend(core, parent, for_child(child.task.id))
    suspend(core, child, for_event("paid"))

    cancelled = core.do(core.cancel_all, "wiped")

    assert set(cancelled.tasks) == {one.task.id for one in (waits, asks, parent, child)}
    assert {row["status"] for row in rows(core, "tasks")} == {"CANCELLED"}
    assert claim_all(core) == []


def test_cancel_all_without_schedules_leaves_schedules_active(core):
    core.do(core.schedules.put, ScheduleSpec(id="added", when="every 1m", workflow="greet"), Origin.OPERATOR)
    emit(core)

    cancelled = core.do(core.cancel_all, with_schedules=False)

    assert (len(cancelled.triggers), cancelled.schedules) == (1, [])
    assert core.rows("SELECT status FROM schedules") == [{"status": "ACTIVE"}]
