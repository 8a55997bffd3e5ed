"""Handles of an app in this process: results, states, cancellation and search."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import anyio
import pytest

from craftcore import (
    App,
    Continue,
    DedupScope,
    Done,
    Emitted,
    ErrorCode,
    Fail,
    Handle,
    NotFound,
    TaskContext,
    TriggerSpec,
    WorkUpdate,
)
from craftcore.config import RecordSettings
from craftcore.errors import InvalidInput, PayloadTooLarge, StateRefused, StillWaiting, WorkFailed
from craftcore.results.handle import EmittedHandle
from craftcore.tasks.model import Task
from craftcore.triggers.model import Trigger, TriggerStatus
from tests.support.engine_harness import lab, settings
from tests.support.statements import record_statements

pytestmark = pytest.mark.anyio


@dataclass
class Sum:
    total: int


def build_app() -> App:
    app = App()

    @app.workflow("add")
    async def add(a: int, b: int) -> Sum:
        return Sum(a + b)

    @app.workflow("untyped")
    async def untyped(value: Any = None):
        return value

    @app.workflow("turns")
    async def turns(ctx: TaskContext[int]) -> Done[Sum] | Continue[int]:
        return Continue(ctx.turn) if ctx.turn < 3 else Done(Sum(ctx.turn))

    @app.workflow("waits")
    async def waits(ctx: TaskContext) -> str:
        return str(await ctx.wait_for("go"))

    @app.workflow("refuses")
    async def refuses() -> None:
        raise Fail("VALIDATION_ERROR", "no such customer")

    @app.workflow("breaks", max_attempts=1)
    async def breaks(ctx: TaskContext) -> None:
        raise RuntimeError("it broke")

    @app.workflow("chat")
    async def chat(ctx: TaskContext) -> str:
        return str((await ctx.wait_for("message"))["text"])

    return app


async def test_result_of_a_trigger_is_of_the_workflows_return_type(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        emitted = await app.emit("add", {"a": 2, "b": 3})

        assert isinstance(emitted, Emitted)
        assert asdict(emitted)["id"] == emitted.id
        assert await emitted.result() == Sum(5)
        assert await emitted.result(dict) == {"total": 5}
        assert await emitted.result(timeout=0) == Sum(5)
        assert await app.handle(emitted.id).result(timeout=timedelta(seconds=5)) == Sum(5)


async def test_handle_has_every_field_of_the_answer(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        answer = Emitted(
            id="1",
            created=False,
            status=TriggerStatus.DEAD,
            due_at=2.0,
            payload_differs=True,
            dedup_scope=DedupScope.EVER,
            held="dedup_key",
        )
        assert asdict(EmittedHandle(host.engine.client, answer)) == asdict(answer)


@pytest.mark.parametrize("key", [None, "k"])
async def test_handle_of_an_inserted_row_has_the_fields_of_a_new_trigger(tmp_path, key):
    app = build_app()
    async with lab(app, tmp_path) as host:
        row = host.engine.accept(TriggerSpec(workflow="add", payload={"a": 2, "b": 3}, dedup_key=key))

        assert asdict(EmittedHandle(host.engine.client, row)) == asdict(
            Emitted(
                id=row.id,
                created=True,
                status=TriggerStatus.PENDING,
                due_at=row.due_at,
                dedup_scope=DedupScope.ACTIVE if key else None,
            )
        )


async def test_result_of_a_task_comes_after_its_last_turn(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        assert await (await app.emit("turns")).result() == Sum(3)


async def test_result_of_an_untyped_workflow_is_plain_json(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        assert await (await app.emit("untyped", {"value": {"a": [1]}})).result() == {"a": [1]}
        assert await (await app.emit("untyped")).result() is None


async def test_result_that_does_not_fit_the_asked_type_is_refused(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        emitted = await app.emit("add", {"a": 2, "b": 3})
        with pytest.raises(InvalidInput, match=r"the result of .* Expected `int`, got `object`"):
            await emitted.result(int)


async def test_failure_of_a_trigger_is_raised_with_its_code(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        refused = await app.emit("refuses")
        with pytest.raises(WorkFailed, match=r"refuses .* ended FAILED: no such customer") as failed:
            await refused.result()

    assert failed.value.code is ErrorCode.VALIDATION_ERROR
    assert failed.value.details["id"] == refused.id
    assert failed.value.details["status"] == "FAILED"


async def test_failure_of_a_task_is_raised_with_its_code(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        with pytest.raises(WorkFailed, match=r"ended FAILED: .*it broke") as failed:
            await (await app.emit("breaks")).result()

    assert failed.value.code is ErrorCode.INTERNAL_AGENT_ERROR


async def test_failure_with_a_code_of_user_code_is_raised_with_that_code(tmp_path):
    app = App()

    @app.workflow("sell")
    async def sell(key: str) -> None:
        raise Fail("SOLD_OUT", "none is left", left=0)

    @app.workflow("order")
    async def order(handle: str) -> None:
        await app.handle(handle).result(timeout=0)

    async with lab(app, tmp_path) as host:
        sale = await app.emit("sell", {"key": "lamp"})
        with pytest.raises(WorkFailed, match="none is left") as failed:
            await sale.result()
        waiter = await host.settled((await app.emit("order", {"handle": sale.id}, max_attempts=1)).id)

    assert failed.value.code == failed.value.details["code"] == "SOLD_OUT"
    assert waiter["error_code"] == "SOLD_OUT"


async def test_timeout_leaves_the_work_alone(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        waiting = await app.emit("waits")
        with pytest.raises(TimeoutError, match=r"has not ended within 0.05 seconds; it goes on"):
            await waiting.result(timeout=0.05)

        await host.waiting(waiting.id)
        await app.signal(waiting.id, "go", "now")
        assert await waiting.result() == "now"


@pytest.mark.parametrize("timeout", [-1, float("nan"), "soon"])
async def test_timeout_with_an_invalid_value_is_refused(tmp_path, timeout):
    app = build_app()
    async with lab(app, tmp_path):
        with pytest.raises(InvalidInput, match="timeout"):
            await (await app.emit("untyped")).result(timeout=timeout)


async def test_cancelled_caller_leaves_the_work_and_other_callers_alone(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        waiting = await app.emit("waits")
        results: list[str] = []

        async def ask() -> None:
            results.append(await waiting.result())

        async with anyio.create_task_group() as callers:
            callers.start_soon(ask)
            with anyio.move_on_after(0.05) as scope:
                await waiting.result()
            assert scope.cancelled_caught
            await host.waiting(waiting.id)
            await app.signal(waiting.id, "go", "now")

    assert results == ["now"]


async def test_state_is_the_trigger_and_then_the_task(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        later = await app.emit("waits", delay=3600)
        state = await later.state()
        assert isinstance(state, Trigger)
        assert state.status == "PENDING"

        now = await app.emit("waits")
        await host.waiting(now.id)
        state = await now.state()
        assert isinstance(state, Task)
        assert state.status == "WAITING"


async def test_function_of_a_workflow_is_started_with_its_arguments(tmp_path):
    app = App()

    @app.workflow("sums.add")
    async def add(ctx: TaskContext, a: int, b: int = 1) -> Sum:
        return Sum(a + b)

    async def undeclared() -> None: ...

    class Sums:
        async def double(self, a: int) -> int:
            return 2 * a

    sums = Sums()
    app.declare("sums.double", sums.double)
    async with lab(app, tmp_path):
        assert await (await app.start_workflow(add, a=2)).result() == Sum(3)
        assert await (await app.start_workflow(sums.double, a=2)).result() == 4
        for call, message in (
            (lambda: app.start_workflow(undeclared), r"is not declared as a workflow of app app"),
            (lambda: app.start_workflow(add, 2), "takes the arguments of a workflow by name"),
            (lambda: app.start_workflow(add, a="two"), "the payload does not fit sums.add"),  # type: ignore[call-overload]
        ):
            with pytest.raises(InvalidInput, match=message):
                await call()


async def test_events_follow_progress_and_end_with_the_work(tmp_path):
    app = App()

    @app.workflow("counts")
    async def counts(ctx: TaskContext) -> str:
        await ctx.progress({"done": 1})
        await ctx.wait_for("go")
        await ctx.progress({"done": 2})
        await ctx.wait_for("end")
        return "all"

    async with lab(app, tmp_path) as host:
        work = await app.emit("counts")
        seen: list[WorkUpdate] = []
        async for update in work.events():
            seen.append(update)
            if update.status == "WAITING" and update.progress == {"done": 1}:
                await app.signal(work.id, "go")
            elif update.status == "WAITING":
                await app.signal(work.id, "end")
        assert await work.result() == "all"

        assert [update.progress for update in seen if update.status == "WAITING"][:1] == [{"done": 1}]
        assert (seen[-1].status, seen[-1].progress, seen[-1].is_over) == ("DONE", {"done": 2}, True)
        assert [update.is_over for update in seen].count(True) == 1
        assert all(update != before for before, update in pairwise(seen)), "each is new"
        assert host.task(work.id)["progress_count"] >= 2
        assert [update.status async for update in app.handle(work.id).events()] == ["DONE"]


async def test_events_read_nothing_while_nothing_changes(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        work = await app.emit("waits")
        await host.waiting(work.id)
        await host.idle()
        seen: list[str] = []

        async def follow() -> None:
            async for update in work.events():
                seen.append(update.status)

        async with anyio.create_task_group() as group:
            group.start_soon(follow)
            await host.until(lambda: seen == ["WAITING"])
            with record_statements() as statements:
                await anyio.sleep(0.3)
                assert [sql for sql in statements if "asked" in sql] == []
            await app.signal(work.id, "go", "now")
        assert seen[-1] == "DONE"


async def test_engine_that_stops_ends_the_events(tmp_path):
    app = build_app()
    ended: list[str] = []

    async def follow(work: Any) -> None:
        try:
            async for _ in work.events():
                pass
        except StillWaiting as error:
            ended.append(str(error))

    async with anyio.create_task_group() as group:
        async with lab(app, tmp_path) as host:
            work = await app.emit("waits")
            await host.waiting(work.id)
            group.start_soon(follow, work)
            await anyio.sleep(0.05)
    assert ended == ["the engine has stopped; the work goes on when it runs again"]


async def test_progress_that_is_too_large_is_refused(tmp_path):
    app = App()

    @app.workflow("talks", max_attempts=1)
    async def talks(ctx: TaskContext) -> None:
        await ctx.progress("x" * 70_000)

    async with lab(app, tmp_path) as host:
        work = await app.emit("talks")
        with pytest.raises(WorkFailed, match="progress has 70,002 bytes; the limit is 65,536"):
            await work.result()
        assert host.task(work.id)["progress_json"] is None


async def test_unknown_id_is_not_found(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        nothing = app.handle("01900000-0000-7000-8000-000000000000")
        for call in (nothing.result, nothing.state, nothing.cancel):
            with pytest.raises(NotFound):
                await call()


async def test_cancelled_work_raises_its_cancellation(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        trigger = await app.emit("waits", delay=3600)
        task = await app.emit("waits")
        await host.waiting(task.id)
        for work in (trigger, task):
            await work.cancel()
            with pytest.raises(WorkFailed, match="cancelled") as failed:
                await work.result()
            assert failed.value.details["reason"] == "cancelled"
            with pytest.raises(StateRefused):
                await work.cancel()


async def test_message_delivered_to_a_live_task_has_no_result(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        chat = await app.emit("chat")
        await host.waiting(chat.id)
        message = await app.emit(None, {"text": "hi"}, source="MESSAGE", task_id=chat.id)

        assert await message.result() is None
        assert await chat.result() == "hi"


async def test_result_that_was_too_large_for_its_record_is_refused(tmp_path):
    app = build_app()
    small = replace(settings(), records=RecordSettings(response_max_bytes=1024))
    async with lab(app, tmp_path, small):
        work = await app.emit("untyped", {"value": "x" * 2000})
        with pytest.raises(PayloadTooLarge, match=r"has 2002 bytes and was not stored: records.response_max_bytes"):
            await work.result()


async def test_result_that_is_not_json_is_refused(tmp_path):
    app = build_app()

    @app.workflow("opaque")
    async def opaque() -> object:
        return object()

    async with lab(app, tmp_path):
        with pytest.raises(InvalidInput, match="was not stored"):
            await (await app.emit("opaque")).result()


async def test_engine_that_stops_ends_the_wait(tmp_path):
    app = build_app()
    errors: list[BaseException] = []

    async def ask(work: Any) -> None:
        try:
            await work.result()
        except StillWaiting as error:
            errors.append(error)

    async with anyio.create_task_group() as callers:
        async with lab(app, tmp_path) as host:
            work = await app.emit("waits")
            callers.start_soon(ask, work)
            await host.waiting(work.id)

    assert len(errors) == 1
    with pytest.raises(StillWaiting, match="the engine has stopped"):
        await work.result()


async def test_find_matches_everything_that_is_given(tmp_path):
    app = build_app()
    async with lab(app, tmp_path) as host:
        first = await app.emit("waits", session_id="ada", dedup_key="a")
        second = await app.emit("waits", session_id="ada")
        other = await app.emit("untyped", session_id="bob")
        await host.waiting(first.id)
        await host.waiting(second.id)
        await other.result()

        async def found(**filters: Any) -> list[str]:
            return [work.id for work in await app.find(**filters)]

        assert await found(session_id="ada") == [second.id, first.id]
        assert await found(dedup_key="a") == [first.id]
        assert await found(workflow="waits", status="WAITING", limit=1) == [second.id]
        assert await found(workflow="untyped", status="DONE") == [other.id]
        assert await found(session_id="nobody") == []
        with pytest.raises(InvalidInput, match="status 'ENDED' is unknown"):
            await app.find(status="ENDED")
        with pytest.raises(InvalidInput, match="limit 0"):
            await app.find(limit=0)


async def test_id_given_to_emit_is_that_of_the_work(tmp_path):
    app = build_app()
    async with lab(app, tmp_path):
        id = "01900000-0000-7000-8000-000000000001"
        first = await app.emit("untyped", {"value": 1}, id=id)
        again = await app.emit("untyped", {"value": 1}, id=id)

        assert (first.id, first.created) == (id, True)
        assert (again.id, again.created) == (id, False)
        assert await again.result() == 1


async def test_many_callers_read_nothing_while_nothing_changes(tmp_path):
    app = build_app()
    results: list[str] = []

    async def ask(work: Handle[str]) -> None:
        results.append(await work.result())

    with record_statements() as statements:
        async with lab(app, tmp_path) as host, anyio.create_task_group() as callers:
            works = await app.emit_many([TriggerSpec(workflow="waits") for _ in range(30)])
            for work in works:
                callers.start_soon(ask, work)
            waiting = "SELECT count(*) AS n FROM tasks WHERE status = 'WAITING'"
            await host.until(lambda: host.rows(waiting) == [{"n": 30}])
            await host.idle()
            await anyio.sleep(0.2)  # the reads after the last commit

            statements.clear()
            await anyio.sleep(1)
            assert [sql for sql in statements if "SELECT copies.asked, copies.id" in sql] == []

            for work in works:
                await app.signal(work.id, "go", work.id)

    assert sorted(results) == sorted(work.id for work in works)
    assert [sql for sql in statements if "SELECT copies.asked, copies.id" in sql] != []
