"""Return values of turns: end, continuation, typed state, failure, and code changed by a deployment."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

import anyio
import msgspec
import pytest

from craftcore import App, Continue, Done, Fail, Retry, RetryPolicy, Snooze, TaskContext
from craftcore.config import TaskSettings
from tests.support.engine_harness import lab, settings
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.log_capture import capture_logs
from tests.support.loops import ON_ASYNCIO
from tests.support.turns import Counting, begin, failure, result, run

pytestmark = pytest.mark.anyio


# Return values


@ON_ASYNCIO
@pytest.mark.parametrize("value", [None, 7, "seven", [1, {"a": None}], {"n": 7}])
async def test_turn_that_returns_a_value_ends_like_done_with_that_value(tmp_path, value):
    async def plain(ctx: TaskContext) -> Any:
        return value

    async def done(ctx: TaskContext) -> Any:
        return Done(value)

    async with lab(App(), tmp_path) as harness:
        for turn in (plain, done):
            row = await run(harness, turn)
            assert (row["status"], result(row), row["turn"]) == ("DONE", value, 1)
            assert harness.response(row["id"])["payload"] == value


@ON_ASYNCIO
async def test_turn_result_that_is_not_json_is_not_retried(tmp_path):
    ran: list[int] = []

    async def turn(ctx: TaskContext) -> Any:
        ran.append(1)
        return {"a": [object()]}

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == {"result_unstored": "result.a[0]: object is not JSON"}
        assert ran == [1]


async def test_state_returned_by_a_turn_is_given_to_the_next_turn(tmp_path):
    seen: list[tuple[int, Any, str]] = []

    async def turn(ctx: TaskContext[dict[str, int]]) -> Any:
        seen.append((ctx.turn, ctx.state, ctx.resume))
        state = ctx.state or {"n": 0}
        return Continue({"n": state["n"] + 1}) if state["n"] < 3 else Done(state["n"])

    async with lab(App(), tmp_path) as harness:
        row = await run(harness, turn)
        assert (result(row), row["turn"], row["state_json"]) == (3, 4, '{"n":3}')
        assert seen == [
            (1, None, "FIRST"),
            (2, {"n": 1}, "NEXT"),
            (3, {"n": 2}, "NEXT"),
            (4, {"n": 3}, "NEXT"),
        ]
        keys = [row["dedup_key"] for row in harness.rows("SELECT dedup_key FROM triggers ORDER BY seq")]
        assert keys == [None, *(f"turn:{row['id']}:{turn}" for turn in (2, 3, 4))]


@ON_ASYNCIO
async def test_state_changed_in_place_is_not_kept_for_the_next_attempt(tmp_path):
    async def turn(ctx: TaskContext[dict[str, int]]) -> Any:
        if ctx.state is None:
            return Continue({"n": 1})
        ctx.state["n"] += 1
        if ctx.attempt < 3:
            raise ValueError("once more")
        return ctx.state["n"]

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == 2


@ON_ASYNCIO
async def test_workflow_without_ctx_that_returns_continue_fails(tmp_path):
    app = App()

    @app.workflow("plain")
    async def plain() -> Any:
        return Continue(1)

    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit("plain")).id)
        assert (row["status"], row["error_code"], row["attempts"]) == ("FAILED", "VALIDATION_ERROR", 1)
        assert row["error_message"] == "plain returned Continue and takes no ctx: only a workflow with ctx has turns"
        assert harness.rows("SELECT * FROM tasks") == []


# Continuations


async def test_continue_with_after_runs_the_next_turn_when_due(tmp_path):
    clock, entered = VirtualClock(), list[tuple[str, float]]()

    async def turn(ctx: TaskContext[int]) -> Any:
        entered.append((ctx.resume, clock.now() - NEW_YEAR))
        return Continue(1, after=timedelta(hours=1)) if ctx.state is None else ctx.received

    async with lab(App(), tmp_path, clock=clock) as harness:
        task_id = await begin(harness, turn)
        row = await harness.waiting(task_id, turn=2)
        assert row["state_json"] == "1"
        for seconds in (3599, 1):
            clock.advance(seconds)
            await harness.idle_window()
            await harness.idle()
        assert result(await harness.ended(task_id)) is None
        assert entered == [("FIRST", 0.0), ("TIMER", 3600.0)]


async def test_continue_with_on_runs_the_next_turn_with_the_event_payload(tmp_path):
    async def turn(ctx: TaskContext[int]) -> Any:
        return Continue(1, on="paid") if ctx.state is None else [ctx.received, str(ctx.resume)]

    async with lab(App(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.waiting(task_id)
        assert not await harness.app.signal(task_id, "shipped")
        assert await harness.app.signal(task_id, "paid", {"amount": 3})
        assert result(await harness.ended(task_id)) == [{"amount": 3}, "SIGNAL"]


@pytest.mark.parametrize("first", ["event", "time"])
async def test_continue_with_after_and_on_goes_by_whichever_comes_first(tmp_path, first):
    clock = VirtualClock()

    async def turn(ctx: TaskContext[int]) -> Any:
        return Continue(1, after=60, on="paid") if ctx.state is None else [ctx.received, str(ctx.resume)]

    async with lab(App(), tmp_path, clock=clock) as harness:
        task_id = await begin(harness, turn)
        await harness.waiting(task_id)
        if first == "event":
            await harness.app.signal(task_id, "paid", 3)
        else:
            clock.advance(60)
            harness.engine.ring(schedules=False)
        row = await harness.ended(task_id)
        assert result(row) == ([3, "SIGNAL"] if first == "event" else [None, "TIMER"])
        clock.advance(60)
        await harness.idle_window()
        await harness.idle()
        assert harness.task(task_id)["turn"] == 2


@ON_ASYNCIO
async def test_continue_with_on_goes_on_at_once_for_an_earlier_event(tmp_path):
    gate = anyio.Event()

    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.state is None:
            await gate.wait()
            return Continue(1, on="paid")
        return ctx.received

    async with lab(App(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.until(lambda: harness.engine.running == 1)
        for n in range(2):
            await harness.app.signal(task_id, "paid", n)
        gate.set()
        assert result(await harness.ended(task_id)) == 0


INVALID_CONTINUATIONS: list[tuple[Any, str]] = [
    (Continue(1, after=-1), "Continue: after -1 must be at least 0 and at most "),
    (Continue(1, after=float("nan")), "Continue: after nan must be at least 0 and at most "),
    (
        Continue(1, after="soon"),
        "Continue: after 'soon' must be seconds, a timedelta, or text like",
    ),
    (Continue(1, on="two words"), "Continue(on='two words'): an event is 1 to 200 characters"),
    (Continue(1, on=""), "Continue(on=''): an event is 1 to 200 characters"),
    (Continue({"a": [1, object()]}), "state.a[1]: object is not JSON"),
    (Continue({"a": float("inf")}), "state.a is infinite"),
    (Continue({1.5: 1}), "state: key 1.5 is not text"),
]


@ON_ASYNCIO
async def test_continue_with_invalid_arguments_fails_the_task_with_the_cause(tmp_path):
    async with lab(App(), tmp_path) as harness:
        for returned, refusal in INVALID_CONTINUATIONS:

            async def turn(ctx: TaskContext, returned: Any = returned) -> Any:
                return returned

            row = await run(harness, turn)
            code, message = failure(row)
            assert (code, message[: len(refusal)]) == ("VALIDATION_ERROR", refusal)
            assert (row["turn"], harness.trigger(row["id"])["attempts"]) == (1, 1)


@ON_ASYNCIO
async def test_state_over_twice_the_limit_fails_the_task_with_a_remedy(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        return Continue("x" * 2_047)

    config = replace(settings(), tasks=TaskSettings(state_max_bytes=1024))
    async with lab(App(), tmp_path, config) as harness:
        code, message = failure(await run(harness, turn))
        assert code == "PAYLOAD_TOO_LARGE"
        assert message == (
            "the state has 2,049 bytes; the limit is 1,024 (tasks.state_max_bytes), and no turn may leave more than "
            "twice as much. Store what is large elsewhere and keep a reference"
        )


@ON_ASYNCIO
async def test_turn_that_finds_a_state_over_the_limit_is_refused_before_its_code(tmp_path):
    entered: list[int] = []

    async def turn(ctx: TaskContext) -> Any:
        entered.append(ctx.turn)
        return Continue("x" * 1_022 * ctx.turn)

    config = replace(settings(), tasks=TaskSettings(state_max_bytes=1024))
    with capture_logs() as logged:
        async with lab(App(), tmp_path, config) as harness:
            row = await run(harness, turn)
    assert failure(row) == (
        "PAYLOAD_TOO_LARGE",
        "the state has 2,046 bytes; the limit is 1,024 (tasks.state_max_bytes), so turn 3 was not begun. Raise the "
        "limit and retry the task, with code that stores what is large elsewhere",
    )
    assert entered == [1, 2]
    assert row["state_json"] == '"' + "x" * 2_044 + '"'  # what the second turn has paid for is kept
    found = [(one["event"], one["bytes"]) for one in logged if one["event"].startswith("state.")]
    assert found == [("state.near_limit", 1_024), ("state.over_limit", 2_046)]


@ON_ASYNCIO
async def test_turn_that_waits_goes_on_although_the_limit_was_lowered(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        return Continue("x" * 1_500) if ctx.turn == 1 else await ctx.wait_for("go")

    async with lab(App(), tmp_path, settings()) as harness:
        harness.app.declare("waits", turn)
        task_id = (await harness.app.emit("waits")).id
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM waits")))
    app = App()
    app.declare("waits", turn)
    lowered = replace(settings(), tasks=TaskSettings(state_max_bytes=1024))
    async with lab(app, tmp_path, lowered) as harness:
        await app.signal(task_id, "go", 7)
        assert result(await harness.ended(task_id)) == 7


@ON_ASYNCIO
async def test_state_within_the_depth_limit_is_kept_and_deeper_is_refused(tmp_path):
    def nest(levels: int) -> Any:
        return [nest(levels - 1)] if levels else 7

    async def turn(ctx: TaskContext[Any]) -> Any:
        return Continue(nest(60)) if ctx.state is None else ctx.state

    async def too_deep(ctx: TaskContext[Any]) -> Any:
        return Continue(nest(70))

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == nest(60)
        assert failure(await run(harness, too_deep))[1].endswith("is deeper than 64 levels")


# Typed state


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)
    paid: bool = False


class Basket(msgspec.Struct):
    items: list[str] = []
    paid: bool = False


@ON_ASYNCIO
async def test_state_has_the_type_of_the_context_annotation(tmp_path):
    app = App()

    @app.workflow("cart")
    async def cart(ctx: TaskContext[Cart]) -> Any:
        if ctx.state is None:
            return Continue(Cart(items=["book"]))
        assert type(ctx.state) is Cart
        return Continue(replace(ctx.state, paid=True)) if not ctx.state.paid else ctx.state

    @app.workflow("basket")
    async def basket(ctx: TaskContext[Basket | None]) -> Any:
        if ctx.state is None:
            return Continue(Basket(items=["book"]))
        assert type(ctx.state) is Basket
        return Done(ctx.state)

    @app.workflow("bare")
    async def bare(ctx: TaskContext) -> Any:
        return Continue(Cart(items=["book"])) if ctx.state is None else [ctx.state, type(ctx.state).__name__]

    async with lab(app, tmp_path) as harness:
        book = {"items": ["book"], "paid": False}
        assert result(await harness.ended((await app.emit("cart")).id)) == {**book, "paid": True}
        assert result(await harness.ended((await app.emit("basket")).id)) == book
        assert result(await harness.ended((await app.emit("bare")).id)) == [book, "dict"]


# Failures


@ON_ASYNCIO
async def test_failed_turn_keeps_the_state_of_the_previous_turn(tmp_path):
    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.state is None:
            return Continue(7)
        raise Fail("BROKEN", "it never will", where="here")

    async with lab(App(), tmp_path) as harness:
        row = await run(harness, turn)
        assert (*failure(row), row["state_json"], row["turn"]) == ("BROKEN", "it never will", "7", 2)
        [response] = harness.rows("SELECT response_json FROM executions WHERE error_code = 'BROKEN'")
        assert json.loads(response["response_json"])["error"]["details"] == {"where": "here"}


@ON_ASYNCIO
async def test_attempts_are_counted_separately_for_each_turn_and_wake_up(tmp_path):
    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.attempt < 3:
            raise ValueError("once more")
        if ctx.turn == 3:
            await ctx.sleep(0)
            return "each had three"
        return Continue(ctx.turn)

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "each had three"
        assert [row["attempts"] for row in harness.rows("SELECT attempts FROM triggers ORDER BY seq")] == [3, 3, 3, 3]


@ON_ASYNCIO
async def test_max_attempts_of_an_emit_apply_to_each_turn_of_the_task(tmp_path):
    app = App()

    @app.workflow("shaky")
    async def shaky(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            return Continue(1)
        raise ValueError("broken")

    async with lab(app, tmp_path) as harness:
        row = await harness.ended((await app.emit("shaky", max_attempts=2)).id)
        assert (row["status"], row["turn"]) == ("FAILED", 2)
        assert [r["attempts"] for r in harness.rows("SELECT attempts FROM triggers ORDER BY seq")] == [1, 2]


async def test_turn_may_snooze_and_retry_with_a_delay(tmp_path):
    clock = VirtualClock()

    async def turn(ctx: TaskContext) -> Any:
        entered.append((ctx.attempt, str(ctx.resume), clock.now() - NEW_YEAR))
        if len(entered) == 1:
            raise Snooze(until=NEW_YEAR + 60)
        if len(entered) == 2:
            raise Retry("soon", after=60)
        return "done"

    entered: list[tuple[int, str, float]] = []
    async with lab(App(), tmp_path, clock=clock) as harness:
        task_id = await begin(harness, turn)
        for count in (1, 2):
            await harness.until(lambda: len(entered) == count and harness.trigger(task_id)["status"] == "PENDING")  # noqa: B023
            assert harness.task(task_id)["status"] == "RUNNING"
            clock.advance(60)
            harness.engine.ring(schedules=False)
        assert result(await harness.ended(task_id)) == "done"
        assert entered == [(1, "FIRST", 0.0), (1, "RETRY", 60.0), (2, "RETRY", 120.0)]


async def test_fail_in_an_exception_group_fails_the_task_without_a_retry(tmp_path):
    """An anyio task group raises a group of the errors of its tasks."""
    ran: list[int] = []

    async def turn(ctx: TaskContext) -> None:
        ran.append(1)

        async def one(error: Exception) -> None:
            raise error

        async with anyio.create_task_group() as group:
            for error in errors:
                group.start_soon(one, error)

    async with lab(App(), tmp_path) as harness:
        errors: list[Exception] = [Fail("BROKEN", "it never will")]
        assert failure(await run(harness, turn)) == ("BROKEN", "it never will")
        errors = [ValueError("by chance"), Fail("BROKEN", "it never will")]
        assert failure(await run(harness, turn))[0] == "BROKEN"
        assert len(ran) == 2
        errors = [ValueError("first"), ConnectionError("second")]
        code, message = failure(await run(harness, turn))
        assert (code, sorted(message.split("; "))) == ("INTERNAL_AGENT_ERROR", ["first", "second"])
        errors = [ConnectionError("reset")]
        assert failure(await run(harness, turn)) == ("TRANSPORT_ERROR", "reset")


# Deployments


async def start_waiting_task(folder: Any, state: Any) -> str:
    """Start a task of `flow` with the given state, wait until it waits for `go`, and return its id."""
    app = App()

    @app.workflow("flow")
    async def flow(ctx: TaskContext[Any]) -> Any:
        return Continue(state, on="go")

    async with lab(app, folder) as harness:
        task_id = (await app.emit("flow")).id
        await harness.waiting(task_id)
        return task_id


@ON_ASYNCIO
async def test_state_unreadable_after_a_deploy_holds_the_task_and_fails_on_retry(tmp_path):
    task_id = await start_waiting_task(tmp_path, {"items": "one"})
    app = App()

    @app.workflow("flow")
    async def flow(ctx: TaskContext[Cart]) -> Any:
        return ctx.state

    async with lab(app, tmp_path) as harness:
        await app.signal(task_id, "go")
        assert await harness.held(task_id) == "the state does not fit flow: state.items: Expected `array`, got `str`"
        await app.retry_task(task_id)
        row = await harness.ended(task_id)
        assert failure(row) == ("VALIDATION_ERROR", "state.items: Expected `array`, got `str`")
        assert (row["state_json"], row["turn"]) == ('{"items":"one"}', 2)

    mended = App()

    @mended.workflow("flow")
    async def flow_mended(ctx: TaskContext[dict[str, Any]]) -> Any:
        return [ctx.state, str(ctx.resume)]

    async with lab(mended, tmp_path) as harness:
        await mended.retry_task(task_id)
        assert result(await harness.ended(task_id)) == [{"items": "one"}, "RETRY"]


@ON_ASYNCIO
async def test_task_of_a_removed_workflow_fails_on_retry_and_goes_on_once_restored(tmp_path):
    task_id = await start_waiting_task(tmp_path, 7)
    async with lab(App(), tmp_path) as harness:
        await harness.app.signal(task_id, "go")
        assert await harness.held(task_id) == "workflow flow is not declared"
        await harness.app.retry_task(task_id)
        assert failure(await harness.ended(task_id)) == ("CAPABILITY_NOT_FOUND", "No agent found for intent: flow/1.0")

    app = App()

    @app.workflow("flow")
    async def flow(ctx: TaskContext[int]) -> Any:
        return ctx.state

    async with lab(app, tmp_path) as harness:
        await app.retry_task(task_id)
        assert result(await harness.ended(task_id)) == 7


@ON_ASYNCIO
async def test_task_in_backoff_of_the_first_turn_is_held_without_the_workflow(tmp_path):
    app, clock = App(), VirtualClock()

    @app.workflow("flow", retry=RetryPolicy(base=60, cap=60))
    async def flow(ctx: TaskContext) -> None:
        raise ValueError("not yet")

    async with lab(app, tmp_path, clock=clock) as harness:
        task_id = (await app.emit("flow")).id
        await harness.until(lambda: harness.trigger(task_id)["reason"] == "INTERNAL_AGENT_ERROR")
    clock.advance(60)
    async with lab(App(), tmp_path, clock=clock) as harness:
        assert await harness.held(task_id) == "workflow flow is not declared"
        await harness.app.retry_task(task_id)
        assert failure(await harness.ended(task_id))[0] == "CAPABILITY_NOT_FOUND"


@ON_ASYNCIO
async def test_task_of_a_workflow_that_lost_ctx_is_held_and_ends_on_retry(tmp_path):
    task_id = await start_waiting_task(tmp_path, 7)
    app = App()

    @app.workflow("flow")
    async def flow() -> str:
        return "plain"

    async with lab(app, tmp_path) as harness:
        await app.signal(task_id, "go")
        wrong = "flow takes no ctx with this payload, and the task has begun with one"
        assert await harness.held(task_id) == wrong
        await app.retry_task(task_id)
        assert result(await harness.ended(task_id)) == "plain"


@ON_ASYNCIO
async def test_payload_unreadable_after_a_deploy_holds_the_task_and_fails_on_retry(tmp_path):
    task_id = await start_waiting_task(tmp_path, 7)
    app = App()

    @app.workflow("flow")
    async def flow(ctx: TaskContext, city: str) -> None: ...

    async with lab(app, tmp_path) as harness:
        await app.signal(task_id, "go")
        wrong = "the payload does not fit flow: Object missing required field `city`"
        assert await harness.held(task_id) == wrong
        await app.retry_task(task_id)
        assert failure(await harness.ended(task_id)) == ("VALIDATION_ERROR", wrong)


# Events of a task


@ON_ASYNCIO
async def test_task_reads_the_stream_of_all_attempts_and_turns(tmp_path):
    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.state is None:
            await ctx.step("fetch", Counting(), 1)
            if ctx.attempt == 1:
                raise ValueError("once more")
            return Continue(1)
        await ctx.note("second")
        await ctx.sleep(0)
        events = await ctx.events()
        assert {event.turn for event in events} == {1, 2}
        assert [event.at for event in events] == sorted(event.at for event in events)
        assert len(await ctx.events(limit=2)) == 2
        return [event.type for event in events]

    async with lab(App(), tmp_path) as harness:
        types = result(await run(harness, turn))
        counted = ("STEP_COMPLETED", "NOTE", "TURN_ENTERED", "TURN_CONTINUED", "TURN_SUSPENDED")
        assert [type_ for type_ in types if type_ in counted] == [
            "STEP_COMPLETED",
            "TURN_ENTERED",
            "TURN_CONTINUED",
            "TURN_ENTERED",
            "NOTE",
            "TURN_SUSPENDED",
            "TURN_ENTERED",
        ]


@ON_ASYNCIO
async def test_stream_of_a_task_has_no_events_of_other_tasks(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.note("mine", ctx.task_id)
        return [event.data["data"] for event in await ctx.events() if event.type == "NOTE"]

    async with lab(App(), tmp_path) as harness:
        ids = [await begin(harness, turn) for _ in range(3)]
        assert [result(await harness.ended(task_id)) for task_id in ids] == [[task_id] for task_id in ids]
