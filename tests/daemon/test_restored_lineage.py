"""Work that restored work emits a second time: the lost file may also have emitted it, with irreversible effects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from craftcore import App, Call, Fail, Notification, TaskContext, TriggerSpec
from craftcore.activities.ledger_rules import RESTORED_OTHER_KEY
from craftcore.daemon import notification_loop
from craftcore.storage.restored_work import end_doubt
from craftcore.triggers.derived_ids import derive_id
from tests.support.acts import Provider, ledger, statuses
from tests.support.engine_harness import lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.older_copies import copy, put_back, release

pytestmark = pytest.mark.anyio

APPS: list[App] = []
"""The apps of these tests. A workflow emits by the last one."""

MakeWork = Callable[[TaskContext], Awaitable[Any]]


def build_app(provider: Provider, make_work: MakeWork) -> App:
    """Build an app whose parent waits for `go` and makes work, and a workflow `pay` for that work."""
    app = App("payer")
    APPS.append(app)

    @app.action("pay", irreversible=True)
    async def pay(call: Call, *, to: str) -> Any:
        return await provider(call, to=to)

    @app.workflow("pay")
    async def payment(ctx: TaskContext) -> None:
        await ctx.act("pay", to="ada")

    @app.workflow("middle")
    async def middle(ctx: TaskContext) -> None:
        await ctx.start_child("pay")

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> None:
        await ctx.wait_for("go")
        await make_work(ctx)

    return app


async def emit_by_the_app(ctx: TaskContext) -> None:
    await APPS[-1].emit("pay")


async def emit_many_by_the_app(ctx: TaskContext) -> None:
    await APPS[-1].emit_many([TriggerSpec(workflow="pay")])


async def signal_by_the_app(ctx: TaskContext) -> None:
    await APPS[-1].signal(None, "go", start=TriggerSpec(workflow="pay"))


async def schedule_by_the_app(ctx: TaskContext) -> None:
    await APPS[-1].schedules.add("soon", "immediate", workflow="pay")


async def restore_before_payment(app: App, provider: Provider, folder: Path, *, id: str | None = None) -> str:
    """Copy the file while the parent waits, continue until the payment, and restore the copy."""
    async with lab(app, folder) as harness:
        parent_id = (await harness.app.emit("parent", id=id)).id
        await harness.waiting(parent_id)
        copied = copy(harness.path)
        await harness.app.signal(parent_id, "go")
        await harness.until(lambda: statuses(harness) == ["DONE"])
        await harness.idle()
    assert len(provider.calls) == 1
    put_back(copied, harness.path)
    return parent_id


WORK_MAKERS: dict[str, MakeWork] = {
    "a child": lambda ctx: ctx.start_child("pay"),
    "a child with a key": lambda ctx: ctx.start_child("pay", key="ada"),
    "a child of a child": lambda ctx: ctx.start_child("middle"),
    "an emit": lambda ctx: ctx.emit("pay"),
    "an emit with a dedup key": lambda ctx: ctx.emit("pay", dedup_key="order-1"),
    "an emit with an id": lambda ctx: ctx.emit("pay", id="order-1"),
}


@pytest.mark.parametrize(
    ("made", "parent_id"),
    [
        *((made, None) for made in WORK_MAKERS),
        ("a child", "order-7"),
        ("an emit", "order-7"),
        *(
            pytest.param(made, "order-7", marks=pytest.mark.acceptance)
            for made in [*WORK_MAKERS][1:]
            if made != "an emit"
        ),
    ],
)
async def test_payment_of_work_that_is_made_again_after_a_restore_is_asked_about(tmp_path, made, parent_id):
    provider = Provider()
    app = build_app(provider, WORK_MAKERS[made])
    parent_id = await restore_before_payment(app, provider, tmp_path, id=parent_id)

    async with lab(app, tmp_path) as harness:
        release(harness)
        await harness.app.signal(parent_id, "go")
        await harness.until(lambda: statuses(harness) in (["UNKNOWN"], ["DONE"]))
        [doubt] = ledger(harness)

    assert len(provider.calls) == 1
    assert (doubt["status"], doubt["idem_key"]) == ("UNKNOWN", provider.calls[0][0])


@pytest.mark.parametrize("make_work", [emit_by_the_app, emit_many_by_the_app, signal_by_the_app, schedule_by_the_app])
async def test_payment_of_work_that_is_made_without_ctx_is_asked_about(tmp_path, make_work):
    """The new work has another id than the lost one, so a person is asked under every policy."""
    provider = Provider()
    app = build_app(provider, make_work)
    parent_id = await restore_before_payment(app, provider, tmp_path)

    async with lab(app, tmp_path) as harness:
        release(harness)
        await harness.app.signal(parent_id, "go")
        await harness.until(lambda: statuses(harness) in (["UNKNOWN"], ["DONE"]))
        assert [row["reason"] for row in ledger(harness)] == [RESTORED_OTHER_KEY]

    assert len(provider.calls) == 1


async def test_payment_behind_a_dedup_key_of_another_program_is_asked_about(tmp_path):
    """The trigger of the lost file was emitted by another program, so its id differs from that of the turn."""
    provider = Provider()
    app = build_app(provider, lambda ctx: ctx.emit("pay", dedup_key="order-1"))

    async with lab(app, tmp_path) as harness:
        parent_id = (await harness.app.emit("parent")).id
        await harness.waiting(parent_id)
        copied = copy(harness.path)
        await harness.app.emit("pay", dedup_key="order-1", dedup_scope="ever")
        await harness.until(lambda: statuses(harness) == ["DONE"])
    put_back(copied, tmp_path / "agent.db")

    async with lab(app, tmp_path) as harness:
        release(harness)
        await harness.app.signal(parent_id, "go")
        await harness.until(lambda: statuses(harness) in (["UNKNOWN"], ["DONE"]))
        assert [row["reason"] for row in ledger(harness)] == [RESTORED_OTHER_KEY]

    assert len(provider.calls) == 1


async def test_work_that_others_start_after_a_restore_is_not_asked_about(tmp_path):
    provider = Provider()
    app = build_app(provider, WORK_MAKERS["a child"])
    await restore_before_payment(app, provider, tmp_path)

    async with lab(app, tmp_path) as harness:
        release(harness)
        await harness.ended((await harness.app.emit("pay")).id)

    assert len(provider.calls) == 2


async def test_payment_after_a_retry_of_a_restored_task_is_asked_about(tmp_path):
    """The task had failed before the copy and was retried after it."""
    provider = Provider()
    app = App("payer")
    is_broken = True

    @app.action("pay", irreversible=True)
    async def pay(call: Call, *, to: str) -> Any:
        return await provider(call, to=to)

    @app.workflow("pay")
    async def payment(ctx: TaskContext) -> None:
        if is_broken:
            raise Fail("BROKEN", "not today")
        await ctx.act("pay", to="ada")

    async with lab(app, tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        await harness.ended(task_id)
        copied = copy(harness.path)
        is_broken = False
        await harness.app.retry_task(task_id)
        await harness.until(lambda: statuses(harness) == ["DONE"])
    put_back(copied, tmp_path / "agent.db")

    async with lab(app, tmp_path) as harness:
        release(harness)
        await harness.app.retry_task(task_id)
        await harness.until(lambda: statuses(harness) in (["UNKNOWN"], ["DONE"]))

    assert len(provider.calls) == 1


async def test_payment_of_a_failure_handler_is_asked_about_after_a_restore(tmp_path, monkeypatch):
    """The failed work existed at the restore, so it may have failed and been handled before."""
    monkeypatch.setattr(notification_loop, "LOOK_SECONDS", 0.01)
    provider = Provider()

    async def fails(ctx: TaskContext) -> None:
        raise Fail("BROKEN", "not today")

    app = build_app(provider, fails)

    @app.on_failure
    async def pay_back(ctx: TaskContext, notification: Notification) -> None:
        await ctx.act("pay", to="bob")

    parent_id = await restore_before_payment(app, provider, tmp_path)
    async with lab(app, tmp_path) as harness:
        release(harness)
        await harness.app.signal(parent_id, "go")
        await harness.until(lambda: statuses(harness) in (["UNKNOWN"], ["DONE"]))
        assert [row["reason"] for row in ledger(harness)] == [RESTORED_OTHER_KEY]

    assert len(provider.calls) == 1


async def test_complete_file_puts_nothing_in_doubt(tmp_path):
    provider = Provider()
    app = build_app(provider, WORK_MAKERS["a child"])
    parent_id = await restore_before_payment(app, provider, tmp_path)

    async with lab(app, tmp_path) as harness:
        core = VirtualCore(harness.path, VirtualClock())
        assert core.do(end_doubt)
        core.close()
        release(harness)
        await harness.app.signal(parent_id, "go")
        await harness.until(lambda: statuses(harness) in (["UNKNOWN"], ["DONE"]))
        assert statuses(harness) == ["DONE"]


async def test_payment_of_a_schedule_that_restored_work_adds_is_asked_about(tmp_path):
    """The schedule is due after the restore, and was due before it in the lost file."""
    provider = Provider()
    app = build_app(provider, lambda ctx: ctx.schedules.add("soon", "immediate", workflow="pay"))
    parent_id = await restore_before_payment(app, provider, tmp_path)

    async with lab(app, tmp_path) as harness:
        release(harness)
        await harness.app.signal(parent_id, "go")
        await harness.until(lambda: statuses(harness) in (["UNKNOWN"], ["DONE"]))

    assert len(provider.calls) == 1


async def test_child_whose_id_is_in_use_gets_another_id(tmp_path):
    """Retention removed an earlier parent with the same id, and its child is still live."""
    app = build_app(Provider(), lambda ctx: ctx.start_child("patient"))

    @app.workflow("patient")
    async def patient(ctx: TaskContext) -> None:
        await ctx.wait_for("nothing")

    async with lab(app, tmp_path) as harness:
        await harness.waiting((await harness.app.emit("patient", id=derive_id("weekly", "1/start_child#2"))).id)
        parent_id = (await harness.app.emit("parent", id="weekly")).id
        await harness.app.signal(parent_id, "go")

        assert (await harness.ended(parent_id))["status"] == "DONE"
        assert [
            row["parent_id"] for row in harness.rows("SELECT * FROM tasks WHERE workflow = 'patient' ORDER BY seq")
        ] == [
            None,
            parent_id,
        ]


async def test_emit_whose_id_was_that_of_earlier_work_is_run(tmp_path):
    """Retention removed an earlier parent with the same id and the trigger it had emitted, but not yet the task and the
    records of that trigger."""
    provider = Provider()
    app = build_app(provider, lambda ctx: ctx.emit("pay"))

    async with lab(app, tmp_path) as harness:
        await harness.ended((await harness.app.emit("pay", id=derive_id("weekly", "1/emit#2"))).id)
        await harness.idle()
        core = VirtualCore(harness.path, VirtualClock())
        core.do(lambda tx: tx.run("DELETE FROM triggers"))
        core.close()
        parent_id = (await harness.app.emit("parent", id="weekly")).id
        await harness.app.signal(parent_id, "go")
        await harness.ended(parent_id)
        await harness.idle()

        assert [row["status"] for row in harness.rows("SELECT status FROM triggers WHERE workflow = 'pay'")] == ["DONE"]
    assert len(provider.calls) == 2
