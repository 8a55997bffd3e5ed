"""Live tasks that do not fit newly deployed code are held, and continue without loss once released."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest

from craftcore import App, Continue, Done, Producer, TaskContext, TriggerSpec
from craftcore.engine.held_tasks import misfit
from craftcore.errors import StateRefused
from craftcore.tasks.hold_store import LiveTask
from tests.support.engine_harness import lab, settings

pytestmark = pytest.mark.anyio

Declare = Callable[[App], None]


class Count(msgspec.Struct):
    seen: int


class Total(msgspec.Struct):
    seen: int
    total: float


class PickyPayload:
    @classmethod
    def model_validate(cls, value: object) -> Any:
        raise KeyboardInterrupt("whatever it likes")


def build_old_app() -> App:
    """Build an app in which `brief` waits for the event `go` and returns its city, and `chat` counts its turns."""
    app = App()

    @app.action("paper.print", irreversible=True)
    async def print_paper(call: Any, *, text: str) -> str:
        return "printed"

    @app.workflow("brief")
    async def brief(ctx: TaskContext[Any], city: str) -> str:
        await ctx.act(print_paper, text=city)
        await ctx.wait_for("go")
        return city

    @app.workflow("chat")
    async def chat(ctx: TaskContext[Count]) -> Continue[Count] | Done[int]:
        seen = 1 if ctx.state is None else ctx.state.seen + 1
        return Continue(Count(seen=seen), on="message") if seen < 3 else Done(seen)

    return app


async def wait_in_old_app(folder: Path) -> tuple[str, str]:
    """Start a `brief` and a `chat` until both wait, stop the engine, and return their task ids."""
    async with lab(build_old_app(), folder) as harness:
        brief = (await harness.app.emit("brief", {"city": "Rome"})).id
        chat = (await harness.app.emit("chat", session_id="ada")).id
        await harness.waiting(brief)
        await harness.waiting(chat)
        return brief, chat


def omit_brief(app: App) -> None:
    app.remove_workflow("brief")


def redeclare_brief(app: App, fn: Callable[..., Any]) -> None:
    app.remove_workflow("brief")
    app.declare("brief", fn)


def add_argument(app: App) -> None:
    async def brief(ctx: TaskContext[Any], city: str, country: str) -> str:
        return country

    redeclare_brief(app, brief)


def rename_argument(app: App) -> None:
    async def brief(ctx: TaskContext[Any], town: str = "") -> str:
        return town

    redeclare_brief(app, brief)


def change_type(app: App) -> None:
    async def brief(ctx: TaskContext[Any], city: int) -> int:
        return city

    redeclare_brief(app, brief)


def drop_ctx(app: App) -> None:
    def brief(city: str) -> str:
        return city

    redeclare_brief(app, brief)


def omit_action(app: App) -> None:
    app.remove_action("paper.print")


@pytest.mark.parametrize(
    ("change", "wrong"),
    [
        (omit_brief, "workflow brief is not declared"),
        (add_argument, "the payload does not fit brief: Object missing required field `country`"),
        (rename_argument, "the payload does not fit brief: Object contains unknown field `city`"),
        (change_type, "the payload does not fit brief: Expected `int`, got `str` - at `$.city`"),
        (drop_ctx, "brief takes no ctx with this payload, and the task has begun with one"),
        (omit_action, "its turn has called action paper.print, which is not declared"),
    ],
)
async def test_task_that_does_not_fit_the_code_is_held_until_fitting_code_starts(
    tmp_path: Path, change: Declare, wrong: str
) -> None:
    brief, chat = await wait_in_old_app(tmp_path)
    app = build_old_app()
    change(app)
    async with lab(app, tmp_path) as harness:
        await app.signal(brief, "go")  # a signal to a held task is kept and wakes it later
        await app.emit(None, {"text": "hi"}, source="MESSAGE", session_id="ada")
        await harness.waiting(chat, turn=3)
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM task_holds WHERE trigger_id IS NOT NULL")))
        await harness.idle_window()
        [held] = harness.rows("SELECT * FROM task_holds")
        assert (held["task_id"], held["reason"]) == (brief, wrong)
        task, trigger = harness.task(brief), harness.trigger(held["trigger_id"])
        assert (task["status"], trigger["status"]) == ("RUNNING", "PENDING")
        assert (trigger["attempts"], trigger["starts"]) == (0, 0), "a hold costs no attempt"
        assert trigger["reason"] == f"held: {wrong}"
        assert len(harness.engine._window) == 0, "a held task takes no place in the window"
        fresh = (await app.emit("chat")).id
        await harness.waiting(fresh)
    async with lab(build_old_app(), tmp_path) as harness:
        assert (await harness.ended(brief))["result_json"] == '"Rome"'
        assert harness.rows("SELECT * FROM task_holds") == []
        assert harness.trigger(held["trigger_id"])["reason"] == "succeeded"
        assert harness.rows("SELECT calls FROM activity_log") == [{"calls": 1}]


async def test_held_task_keeps_the_first_held_time_over_several_starts(tmp_path: Path) -> None:
    brief, _ = await wait_in_old_app(tmp_path)
    moments = []
    for _ in range(3):
        app = build_old_app()
        omit_brief(app)
        async with lab(app, tmp_path) as harness:
            await harness.idle_window()
            [held] = harness.rows("SELECT * FROM task_holds")
            moments.append(held["held_at"])
            assert held["task_id"] == brief
    assert len(set(moments)) == 1
    async with lab(build_old_app(), tmp_path) as harness:
        assert harness.task(brief)["status"] == "WAITING", "the task still waits, since no event arrived"
        await harness.app.signal(brief, "go")
        assert (await harness.ended(brief))["status"] == "DONE"


async def test_task_is_held_when_the_state_does_not_fit_the_new_annotation(tmp_path: Path) -> None:
    _, chat = await wait_in_old_app(tmp_path)
    app = build_old_app()
    app.remove_workflow("chat")

    @app.workflow("chat")
    async def chat_on(ctx: TaskContext[Total]) -> None: ...

    async with lab(app, tmp_path) as harness:
        await app.emit(None, {"text": "hi"}, source="MESSAGE", session_id="ada")
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM task_holds WHERE trigger_id IS NOT NULL")))
        [held] = harness.rows("SELECT * FROM task_holds")
        assert held["task_id"] == chat
        assert held["reason"] == "the state does not fit chat: state: Object missing required field `total`"
    async with lab(build_old_app(), tmp_path) as harness:
        await harness.waiting(chat, turn=3)


async def test_held_task_retried_by_an_operator_runs_and_fails(tmp_path: Path) -> None:
    brief, chat = await wait_in_old_app(tmp_path)
    app = build_old_app()
    omit_brief(app)
    async with lab(app, tmp_path) as harness:
        await app.signal(brief, "go")
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM task_holds WHERE trigger_id IS NOT NULL")))
        await app.retry_task(brief)
        assert (await harness.ended(brief))["error_code"] == "CAPABILITY_NOT_FOUND"
        assert harness.rows("SELECT * FROM task_holds") == []
        with pytest.raises(StateRefused, match="only one that is FAILED or held"):
            await app.retry_task(chat)


async def test_task_of_a_removed_workflow_is_held_and_fails_with_the_trigger_on_retry(tmp_path):
    """The first turn of the task is interrupted, and the new deployment lacks the workflow."""
    before, after = App(), App()

    @before.workflow("gone")
    async def gone(ctx: TaskContext) -> None:
        await anyio.sleep_forever()

    async with lab(before, tmp_path, settings(shutdown_grace=0.0)) as harness:
        emitted = await before.emit("gone")
        await harness.until(lambda: harness.engine.running == 1)
    async with lab(after, tmp_path) as harness:
        assert await harness.held(emitted.id) == "workflow gone is not declared"
        await after.retry_task(emitted.id)
        row = await harness.ended(emitted.id)
        trigger = harness.trigger(emitted.id)
        assert (row["status"], row["error_code"]) == ("FAILED", "CAPABILITY_NOT_FOUND")
        assert (trigger["status"], trigger["error_code"]) == ("FAILED", "CAPABILITY_NOT_FOUND")


async def test_held_task_can_be_cancelled(tmp_path: Path) -> None:
    brief, _ = await wait_in_old_app(tmp_path)
    app = build_old_app()
    omit_brief(app)
    async with lab(app, tmp_path) as harness:
        await app.signal(brief, "go")
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM task_holds WHERE trigger_id IS NOT NULL")))
        await app.cancel_task(brief)
        assert (await harness.ended(brief))["status"] == "CANCELLED"
    async with lab(app, tmp_path) as harness:
        assert harness.rows("SELECT * FROM task_holds") == [], "the next start removes the hold"


async def test_task_held_after_a_stop_in_mid_turn_keeps_the_attempt_count(tmp_path: Path) -> None:
    """The task ran when its daemon was stopped, so its trigger returns with a counted crash."""
    app = build_old_app()

    @app.workflow("slow")
    async def slow(ctx: TaskContext[Any]) -> None:
        await ctx.step("once", lambda: None)
        raise TimeoutError

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit_many([TriggerSpec(workflow="slow", max_attempts=100)])
        await harness.until(lambda: harness.trigger(emitted[0].id)["attempts"] >= 2)
    async with lab(build_old_app(), tmp_path) as harness:
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM task_holds WHERE trigger_id IS NOT NULL")))
        spent = harness.trigger(emitted[0].id)["attempts"]
        await harness.idle_window()
        assert harness.trigger(emitted[0].id)["attempts"] == spent
        [before] = harness.rows("SELECT trigger_reason FROM task_holds")
    app = build_old_app()

    @app.workflow("slow")
    async def slow_on(ctx: TaskContext[Any]) -> str:
        return str(ctx.resume)

    async with lab(app, tmp_path) as harness:
        row = await harness.ended(emitted[0].id)
        assert row["status"] == "DONE"
        assert before["trigger_reason"] in ("AGENT_TIMEOUT", "released at shutdown", "shutdown")
        assert harness.trigger(emitted[0].id)["attempts"] == spent + 1


async def test_fresh_trigger_for_an_unknown_workflow_fails_and_is_not_held(tmp_path: Path) -> None:
    """No task has begun, so the trigger fails with CAPABILITY_NOT_FOUND and can be requeued."""
    async with lab(build_old_app(), tmp_path):
        pass
    with Producer(tmp_path / "agent.db") as producer:
        fresh = producer.emit("chat").id
    app = build_old_app()
    app.remove_workflow("chat")
    async with lab(app, tmp_path) as harness:
        assert (await harness.settled(fresh))["error_code"] == "CAPABILITY_NOT_FOUND"
        assert harness.rows("SELECT * FROM task_holds") == []


async def test_workflow_declared_after_the_start_releases_the_held_task(tmp_path: Path) -> None:
    brief, _ = await wait_in_old_app(tmp_path)
    app = build_old_app()
    fn = app.workflows["brief"].fn
    omit_brief(app)
    async with lab(app, tmp_path) as harness:
        app.declare("brief", fn)
        await app.signal(brief, "go")
        assert (await harness.ended(brief))["status"] == "DONE"


def build_parent_and_child(*, with_child: bool) -> App:
    app = App()

    @app.workflow("parent")
    async def parent(ctx: TaskContext[Any]) -> Any:
        child = await ctx.start_child("child")
        return await child.result()

    async def child(ctx: TaskContext[Any]) -> str:
        await ctx.wait_for("go")
        return "grown"

    if with_child:
        app.declare("child", child)
    return app


async def test_held_child_keeps_the_parent_waiting(tmp_path: Path) -> None:
    async with lab(build_parent_and_child(with_child=True), tmp_path) as harness:
        parent = (await harness.app.emit("parent")).id
        await harness.waiting(parent)
        [child] = [row["id"] for row in harness.rows("SELECT id FROM tasks WHERE workflow = 'child'")]
        await harness.waiting(child)
    async with lab(build_parent_and_child(with_child=False), tmp_path) as harness:
        await harness.app.signal(child, "go")
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM task_holds WHERE trigger_id IS NOT NULL")))
        assert harness.task(parent)["status"] == "WAITING"
    async with lab(build_parent_and_child(with_child=True), tmp_path) as harness:
        assert (await harness.ended(parent))["result_json"] == '"grown"'


async def test_child_without_ctx_is_not_held_after_a_restart(tmp_path: Path) -> None:
    """The child is a task because its parent started it, although its function takes no ctx."""
    app, begun = App(), anyio.Event()

    @app.workflow("parent")
    async def parent(ctx: TaskContext[Any]) -> Any:
        return await (await ctx.start_child("plain")).result()

    @app.workflow("plain")
    async def plain() -> str:
        if not begun.is_set():
            begun.set()
            await anyio.sleep_forever()
        return "grown"

    async with lab(app, tmp_path, settings(shutdown_grace=0)) as harness:
        parent_id = (await harness.app.emit("parent")).id
        await begun.wait()
    async with lab(app, tmp_path) as harness:
        assert harness.rows("SELECT * FROM task_holds") == []
        assert (await harness.ended(parent_id))["result_json"] == '"grown"'


async def test_held_tasks_take_no_place_in_the_claim_window(tmp_path: Path) -> None:
    """Three windows full of held tasks are due before a healthy trigger."""
    app = build_old_app()

    @app.workflow("sleeper")
    async def sleeper(ctx: TaskContext[Any]) -> None:
        await ctx.wait_for("go")

    async with lab(app, tmp_path) as harness:
        await app.emit_many([TriggerSpec(workflow="sleeper")] * 30)
        await harness.until(
            lambda: harness.rows("SELECT count(*) AS n FROM waits WHERE status = 'WAITING'")[0]["n"] == 30
        )
        sleepers = [row["id"] for row in harness.rows("SELECT id FROM tasks")]
    with Producer(tmp_path / "agent.db") as producer:
        for task_id in sleepers:
            producer.signal(task_id, "go")
        healthy = producer.emit("chat", priority=99).id
    async with lab(build_old_app(), tmp_path, settings(claim_batch=10)) as harness:
        await harness.waiting(healthy)
        put_off = "SELECT count(*) AS n FROM task_holds WHERE trigger_id IS NOT NULL"
        await harness.until(lambda: harness.rows(put_off)[0]["n"] == 30)
        looks = harness.engine.feeder.polls
        await harness.idle_window()
        assert harness.engine.feeder.polls - looks <= 4, "held tasks cause no further polls"
        assert harness.engine.is_idle


def test_damaged_task_row_raises_nothing_in_the_signature_check() -> None:
    """A value that cannot be judged is left to the turn, which quarantines the task."""
    task = LiveTask(b"one", b"brief", None, None, b"null", b'{"city":"Rome"}', None, True)
    app = build_old_app()
    assert misfit(task, app.workflows, app.actions) is None
    for damaged_task in (
        task._replace(workflow=b"\xff"),
        task._replace(payload=b"\xff{}"),
        task._replace(payload=b"{"),
        task._replace(payload=b"[" * 100_000),
        task._replace(state=b"{"),
        task._replace(agents=b"{"),
        task._replace(agents=b"1"),
        task._replace(agents=b"[]"),
        task._replace(agents=b"[1]"),
        task._replace(agents=b'["brief"]', agent=b"nobody"),
        task._replace(actions=b"\xff"),
    ):
        misfit(damaged_task, app.workflows, app.actions)  # must not raise


def test_payload_refused_by_a_custom_type_does_not_fit_the_workflow() -> None:
    app = App()

    @app.workflow("odd")
    async def odd(ctx: TaskContext[Any], value: PickyPayload) -> None: ...

    task = LiveTask(b"one", b"odd", None, None, b"null", b'{"value":1}', None, True)
    assert misfit(task, app.workflows, app.actions) == "the payload does not fit odd: whatever it likes"


def test_task_with_an_undeclared_fallback_does_not_fit_the_code() -> None:
    app = build_old_app()
    task = LiveTask(b"one", b"brief", b'["brief","plan.b"]', None, b"null", b'{"city":"Rome"}', None, True)
    assert misfit(task, app.workflows, app.actions) == "workflow plan.b is not declared"
