"""Schedules that programs create through an app, a turn or a producer."""

from __future__ import annotations

import time
from typing import Any

import anyio
import pytest

from craftcore import App, AsyncProducer, NotFound, Producer, StateRefused, TaskContext
from craftcore.errors import ConfigInvalid, InvalidInput, KeyRequired, ScheduleInvalid, UnknownWorkflow
from tests.support.engine_harness import lab, look

SCHEDULES = "SELECT id, origin, status, expression, payload_json FROM schedules ORDER BY id"


def build_app() -> App:
    app = App()

    @app.workflow("greet")
    async def greet(name: str = "you") -> str:
        return f"Hello {name}"

    return app


@pytest.mark.anyio
async def test_added_schedule_has_origin_api_and_survives_a_restart(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        await app.schedules.add("brief", "every day at 7am", workflow="greet", payload={"name": "Ada"})
        before = host.rows("SELECT * FROM schedules")
    async with lab(build_app(), tmp_path) as host:
        assert host.rows("SELECT * FROM schedules") == before
        assert host.rows(SCHEDULES) == [
            {
                "id": "brief",
                "origin": "api",
                "status": "ACTIVE",
                "expression": "every day at 7am",
                "payload_json": '{"name":"Ada"}',
            }
        ]


@pytest.mark.anyio
async def test_added_schedule_fires(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        await app.schedules.add("now", "in 1s", workflow="greet")
        await host.until(lambda: host.rows("SELECT status FROM triggers") == [{"status": "DONE"}])
        [line] = await app.schedules.history("now")
        assert line.outcome == "fired"
        assert (await app.schedules.get("now")).status == "FINISHED"


@pytest.mark.anyio
async def test_edit_changes_the_given_fields_only(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        await app.schedules.add("brief", "every day at 7am", workflow="greet", payload={"name": "Ada"}, jitter=5)
        edited = await app.schedules.edit("brief", when="every day at 8am", description="later")

    assert (edited.expression, edited.description, edited.jitter) == ("every day at 8am", "later", 5.0)
    assert edited.payload_json == '{"name":"Ada"}'


@pytest.mark.anyio
async def test_pause_resume_skip_and_run_now_return_their_results(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        await app.schedules.add("brief", "every 1h", workflow="greet")
        first, second, third = await app.schedules.preview("brief", count=3)
        assert (second - first, third - second) == (3600, 3600)
        assert await app.schedules.skip_next("brief") == first
        assert await app.schedules.preview("brief", count=2) == [second, third]
        assert (await app.schedules.pause("brief", "holidays")).reason == "holidays"
        assert (await app.schedules.resume("brief")).status == "ACTIVE"
        fired = await app.schedules.run_now("brief")
        assert fired.trigger_id is not None
        await host.settled(fired.trigger_id)
        assert [schedule.id for schedule in await app.schedules.list()] == ["brief"]
        assert await app.schedules.remove("brief") == []
        assert await app.schedules.list() == []


@pytest.mark.anyio
async def test_preview_of_an_expression_needs_no_schedule(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        moments = await app.schedules.preview(when="every day at 7am", timezone="UTC", count=2)
        assert moments[1] - moments[0] == 86_400
        assert moments[0] > time.time()
        with pytest.raises(ScheduleInvalid):
            await app.schedules.preview(when="whenever")
        with pytest.raises(InvalidInput, match="preview takes the id"):
            await app.schedules.preview("brief", when="every 1h")  # type: ignore[call-overload]
        with pytest.raises(InvalidInput, match="count 0"):
            await app.schedules.preview(when="every 1h", count=0)


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("when", "workflow", "payload", "error"),
    [
        ("every day at 25", "greet", {}, ScheduleInvalid),
        ("at 2020-01-01T00:00Z", "greet", {}, ScheduleInvalid),
        ("every 1h", "nobody", {}, UnknownWorkflow),
        ("every 1h", "greet", {"nam": "Ada"}, InvalidInput),
        ("every 1h", "greet", {"name": 5}, InvalidInput),
    ],
)
async def test_schedule_that_could_only_fail_is_refused(tmp_path, when, workflow, payload, error):
    app = build_app()
    async with lab(app, tmp_path) as host:
        with pytest.raises(error):
            await app.schedules.add("wrong", when, workflow=workflow, payload=payload)
        assert host.rows(SCHEDULES) == []


@pytest.mark.anyio
async def test_schedule_of_code_is_neither_changed_nor_removed(tmp_path):
    app = build_app()
    app.schedule("declared", "every 1h", workflow="greet")
    async with lab(app, tmp_path):
        with pytest.raises(StateRefused, match="is declared in code"):
            await app.schedules.edit("declared", when="every 2h")
        with pytest.raises(StateRefused, match="is declared in code"):
            await app.schedules.remove("declared")
        assert (await app.schedules.pause("declared")).origin == "code"


@pytest.mark.anyio
async def test_unknown_schedule_is_not_found(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        calls: list[Any] = [
            *(app.schedules.get, app.schedules.edit, app.schedules.pause, app.schedules.resume),
            *(app.schedules.remove, app.schedules.run_now, app.schedules.skip_next),
            *(app.schedules.history, app.schedules.preview),
        ]
        for call in calls:
            with pytest.raises(NotFound, match="no schedule nothing"):
                await call("nothing")


@pytest.mark.anyio
async def test_turn_changes_schedules_once_over_a_reentry(tmp_path):
    app = build_app()
    entries: list[list[str]] = []

    @app.workflow("agent")
    async def agent(ctx: TaskContext) -> list[float]:
        added = await ctx.schedules.add("brief", "every 1h", workflow="greet")
        await ctx.schedules.add("tea", "in 1h", workflow="greet")
        skipped = [await ctx.schedules.skip_next("brief"), await ctx.schedules.skip_next("brief")]
        fired = await ctx.schedules.run_now("brief")
        cancelled = await ctx.schedules.remove("tea")
        entries.append([added.id, str(added.timing), str(skipped), str(fired), str(cancelled)])
        if ctx.attempt == 1:
            raise ConnectionError("once more")
        return skipped

    async with lab(app, tmp_path) as host:
        work = await app.emit("agent")
        skipped = await work.result()
        account = await app.schedules.history("brief")
        assert [line.cause for line in account] == ["run-now"]
        assert (await app.schedules.preview("brief", count=1))[0] == skipped[1] + 3600
        names = [row["name"] for row in host.rows("SELECT id AS name FROM schedules WHERE status = 'REMOVED'")]
        assert names == ["tea"]

    assert len(entries) == 2
    assert entries[0] == entries[1]


@pytest.mark.anyio
async def test_turn_that_makes_another_call_at_reentry_conflicts(tmp_path):
    app = build_app()

    @app.workflow("agent", max_attempts=2)
    async def agent(ctx: TaskContext) -> None:
        await ctx.schedules.add("brief", f"every {ctx.attempt}h", workflow="greet")
        raise ConnectionError("once more")

    async with lab(app, tmp_path) as host:
        task = await host.ended((await app.emit("agent")).id)
        assert task["error_code"] == "STEP_CONFLICT"
        assert [row["expression"] for row in host.rows(SCHEDULES)] == ["every 1h"]


@pytest.mark.anyio
async def test_schedules_of_a_turn_refuse_another_asyncio_task(tmp_path):
    app = build_app()
    refused: list[str] = []

    @app.workflow("agent")
    async def agent(ctx: TaskContext) -> None:
        async def elsewhere() -> None:
            try:
                await ctx.schedules.add("brief", "every 1h", workflow="greet")
            except KeyRequired as error:
                refused.append(error.message)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(elsewhere)

    async with lab(app, tmp_path) as host:
        await (await app.emit("agent")).result()
        assert host.rows(SCHEDULES) == []

    assert refused == [
        "call ctx.schedules in the turn's own task, outside of steps: its calls are known by their order"
    ]


def test_producer_adds_edits_and_removes(tmp_path):
    with Producer(tmp_path / "agent.db") as producer:
        producer.schedules.add("brief", "every 1h", workflow="greet")
        assert producer.schedules.edit("brief", when="every 2h").expression == "every 2h"
        assert [schedule.id for schedule in producer.schedules.list()] == ["brief"]
        first, second = producer.schedules.preview("brief", count=2)
        assert second - first == 7200
        assert producer.schedules.skip_next("brief") == first
        producer.schedules.pause("brief")
        assert producer.schedules.resume("brief").status == "ACTIVE"
        fired = producer.schedules.run_now("brief")
        assert producer.schedules.history("brief")[0].trigger_id == fired.trigger_id
        assert producer.schedules.remove("brief") == [fired.trigger_id]
        with pytest.raises(NotFound):
            producer.schedules.get("brief")
    assert look(tmp_path / "agent.db", "SELECT status, reason FROM triggers") == [
        {"status": "DONE", "reason": "schedule brief was removed"}
    ]


@pytest.mark.anyio
async def test_async_producer_adds_and_lists(tmp_path):
    async with AsyncProducer(tmp_path / "agent.db") as producer:
        await producer.schedules.add("brief", "every 1h", workflow="greet")
        assert [schedule.origin for schedule in await producer.schedules.list()] == ["api"]
        with pytest.raises(ScheduleInvalid):
            await producer.schedules.edit("brief", when="whenever")


@pytest.mark.anyio
async def test_decorators_declare_workflow_and_schedule(tmp_path):
    app = App()

    @app.every("5m")
    async def sweep() -> None: ...

    @app.cron("0 7 * * *", "daily.brief", timezone="Europe/Berlin")
    async def brief() -> None: ...

    async with lab(app, tmp_path) as host:
        rows = host.rows("SELECT id, workflow, origin, expression, timezone FROM schedules ORDER BY id")
        assert [tuple(row.values())[:4] for row in rows] == [
            ("daily.brief", "daily.brief", "code", "0 7 * * *"),
            ("sweep", "sweep", "code", "every 5m"),
        ]
        assert rows[0]["timezone"] == "Europe/Berlin"
        with pytest.raises(ConfigInvalid):
            app.every("5m")(sweep)


@pytest.mark.anyio
async def test_turn_that_makes_a_call_of_another_name_at_reentry_conflicts(tmp_path):
    app = build_app()

    @app.workflow("agent", max_attempts=2)
    async def agent(ctx: TaskContext) -> None:
        call = ctx.schedules.skip_next if ctx.attempt == 1 else ctx.schedules.run_now
        await call("brief")
        raise ConnectionError("once more")

    async with lab(app, tmp_path) as host:
        await app.schedules.add("brief", "every day at 7am", workflow="greet")
        task = await host.ended((await app.emit("agent")).id)
        assert task["error_code"] == "STEP_CONFLICT"
        assert [line.cause for line in await app.schedules.history("brief")] == []
