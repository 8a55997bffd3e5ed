"""A task advances by turns: what a turn returns is what the task comes to, in the commit that settles its trigger."""

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
from tests.support.turns import Counting, begin, failure, result, run

pytestmark = pytest.mark.anyio


# Returning


@pytest.mark.parametrize("value", [None, 7, "seven", [1, {"a": None}], {"n": 7}])
async def test_returning_a_value_and_returning_done_with_it_are_the_same(tmp_path, value):
    async def plain(ctx: TaskContext) -> Any:
        return value

    async def done(ctx: TaskContext) -> Any:
        return Done(value)

    async with lab(App(), tmp_path) as it:
        for turn in (plain, done):
            row = await run(it, turn)
            assert (row["status"], result(row), row["turn"]) == ("DONE", value, 1)
            assert it.response(row["id"])["payload"] == value


async def test_a_result_that_is_not_json_is_no_reason_to_run_the_work_again(tmp_path):
    ran: list[int] = []

    async def turn(ctx: TaskContext) -> Any:
        ran.append(1)
        return {"a": [object()]}

    async with lab(App(), tmp_path) as it:
        assert result(await run(it, turn)) == {"result_unstored": "result.a[0]: object is not JSON"}
        assert ran == [1]


async def test_the_state_that_a_turn_returns_is_what_the_next_one_takes(tmp_path):
    seen: list[tuple[int, Any, str]] = []

    async def turn(ctx: TaskContext[dict[str, int]]) -> Any:
        seen.append((ctx.turn, ctx.state, ctx.resume))
        state = ctx.state or {"n": 0}
        return Continue({"n": state["n"] + 1}) if state["n"] < 3 else Done(state["n"])

    async with lab(App(), tmp_path) as it:
        row = await run(it, turn)
        assert (result(row), row["turn"], row["state_json"]) == (3, 4, '{"n":3}')
        assert seen == [
            (1, None, "FIRST"),
            (2, {"n": 1}, "NEXT"),
            (3, {"n": 2}, "NEXT"),
            (4, {"n": 3}, "NEXT"),
        ]
        keys = [row["dedup_key"] for row in it.rows("SELECT dedup_key FROM triggers ORDER BY seq")]
        assert keys == [None, *(f"turn:{row['id']}:{turn}" for turn in (2, 3, 4))]


async def test_changing_the_state_in_place_changes_nothing(tmp_path):
    async def turn(ctx: TaskContext[dict[str, int]]) -> Any:
        if ctx.state is None:
            return Continue({"n": 1})
        ctx.state["n"] += 1
        if ctx.attempt < 3:
            raise ValueError("once more")
        return ctx.state["n"]

    async with lab(App(), tmp_path) as it:
        assert result(await run(it, turn)) == 2


async def test_a_workflow_without_ctx_has_no_turns(tmp_path):
    app = App()

    @app.workflow("plain")
    async def plain() -> Any:
        return Continue(1)

    async with lab(app, tmp_path) as it:
        row = await it.settled((await app.emit("plain")).id)
        assert (row["status"], row["error_code"], row["attempts"]) == ("FAILED", "VALIDATION_ERROR", 1)
        assert row["error_message"] == "plain returned Continue and takes no ctx: only a workflow with ctx has turns"
        assert it.rows("SELECT * FROM tasks") == []


# Continuing later


async def test_a_task_continues_after_a_while(tmp_path):
    clock, entered = VirtualClock(), list[tuple[str, float]]()

    async def turn(ctx: TaskContext[int]) -> Any:
        entered.append((ctx.resume, clock.now() - NEW_YEAR))
        return Continue(1, after=timedelta(hours=1)) if ctx.state is None else ctx.received

    async with lab(App(), tmp_path, clock=clock) as it:
        task_id = await begin(it, turn)
        row = await it.waiting(task_id, turn=2)
        assert row["state_json"] == "1"
        for seconds in (3599, 1):
            clock.advance(seconds)
            await it.idle_window()
            await it.idle()
        assert result(await it.ended(task_id)) is None
        assert entered == [("FIRST", 0.0), ("TIMER", 3600.0)]


async def test_a_task_continues_when_the_event_comes_and_is_told_what_it_brought(tmp_path):
    async def turn(ctx: TaskContext[int]) -> Any:
        return Continue(1, on="paid") if ctx.state is None else [ctx.received, str(ctx.resume)]

    async with lab(App(), tmp_path) as it:
        task_id = await begin(it, turn)
        await it.waiting(task_id)
        assert not await it.app.signal(task_id, "shipped")
        assert await it.app.signal(task_id, "paid", {"amount": 3})
        assert result(await it.ended(task_id)) == [{"amount": 3}, "SIGNAL"]


@pytest.mark.parametrize("first", ["event", "time"])
async def test_with_both_a_task_continues_by_whichever_comes_first(tmp_path, first):
    clock = VirtualClock()

    async def turn(ctx: TaskContext[int]) -> Any:
        return Continue(1, after=60, on="paid") if ctx.state is None else [ctx.received, str(ctx.resume)]

    async with lab(App(), tmp_path, clock=clock) as it:
        task_id = await begin(it, turn)
        await it.waiting(task_id)
        if first == "event":
            await it.app.signal(task_id, "paid", 3)
        else:
            clock.advance(60)
            it.engine.ring(schedules=False)
        row = await it.ended(task_id)
        assert result(row) == ([3, "SIGNAL"] if first == "event" else [None, "TIMER"])
        clock.advance(60)
        await it.idle_window()
        await it.idle()
        assert it.task(task_id)["turn"] == 2


async def test_a_task_continues_at_once_on_an_event_that_came_before(tmp_path):
    gate = anyio.Event()

    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.state is None:
            await gate.wait()
            return Continue(1, on="paid")
        return ctx.received

    async with lab(App(), tmp_path) as it:
        task_id = await begin(it, turn)
        await it.until(lambda: it.engine.running == 1)
        for n in range(2):
            await it.app.signal(task_id, "paid", n)
        gate.set()
        assert result(await it.ended(task_id)) == 0


NO_CONTINUATION: list[tuple[Any, str]] = [
    (Continue(1, after=-1), "Continue: after -1 must be at least 0 and at most "),
    (Continue(1, after=float("nan")), "Continue: after nan must be at least 0 and at most "),
    (
        Continue(1, after="soon"),  # type: ignore[arg-type]
        "Continue: after 'soon' must be a number of seconds or a timedelta: write 30 or",
    ),
    (Continue(1, on="two words"), "Continue(on='two words'): an event is 1 to 200 characters"),
    (Continue(1, on=""), "Continue(on=''): an event is 1 to 200 characters"),
    (Continue({"a": [1, object()]}), "state.a[1]: object is not JSON"),
    (Continue({"a": float("inf")}), "state.a is infinite"),
    (Continue({1.5: 1}), "state: key 1.5 is not text"),
]


async def test_what_cannot_be_continued_with_fails_the_task_and_says_why(tmp_path):
    async with lab(App(), tmp_path) as it:
        for returned, refusal in NO_CONTINUATION:

            async def turn(ctx: TaskContext, returned: Any = returned) -> Any:
                return returned

            row = await run(it, turn)
            code, message = failure(row)
            assert (code, message[: len(refusal)]) == ("VALIDATION_ERROR", refusal)
            assert (row["turn"], it.trigger(row["id"])["attempts"]) == (1, 1)


async def test_a_state_that_is_too_large_fails_the_task_and_says_what_to_do(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        return Continue("x" * 2_000)

    config = replace(settings(), tasks=TaskSettings(state_max_bytes=1024))
    async with lab(App(), tmp_path, config) as it:
        code, message = failure(await run(it, turn))
        assert code == "PAYLOAD_TOO_LARGE"
        assert message == (
            "the state has 2,002 bytes; the limit is 1,024 (tasks.state_max_bytes). "
            "Store what is large elsewhere and keep a reference"
        )


async def test_a_state_as_deep_as_it_may_be_goes_from_turn_to_turn(tmp_path):
    def nest(levels: int) -> Any:
        return [nest(levels - 1)] if levels else 7

    async def turn(ctx: TaskContext[Any]) -> Any:
        return Continue(nest(60)) if ctx.state is None else ctx.state

    async def too_deep(ctx: TaskContext[Any]) -> Any:
        return Continue(nest(70))

    async with lab(App(), tmp_path) as it:
        assert result(await run(it, turn)) == nest(60)
        assert failure(await run(it, too_deep))[1].endswith("is deeper than 64 levels")


# Typed state


@dataclass
class Cart:
    items: list[str] = field(default_factory=list)
    paid: bool = False


class Basket(msgspec.Struct):
    items: list[str] = []
    paid: bool = False


async def test_a_state_is_what_the_annotation_says(tmp_path):
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

    async with lab(app, tmp_path) as it:
        book = {"items": ["book"], "paid": False}
        assert result(await it.ended((await app.emit("cart")).id)) == {**book, "paid": True}
        assert result(await it.ended((await app.emit("basket")).id)) == book
        assert result(await it.ended((await app.emit("bare")).id)) == [book, "dict"]


# Failing


async def test_a_turn_that_fails_keeps_the_state_of_the_one_before(tmp_path):
    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.state is None:
            return Continue(7)
        raise Fail("BROKEN", "it never will", where="here")

    async with lab(App(), tmp_path) as it:
        row = await run(it, turn)
        assert (*failure(row), row["state_json"], row["turn"]) == ("BROKEN", "it never will", "7", 2)
        [response] = it.rows("SELECT response_json FROM executions WHERE error_code = 'BROKEN'")
        assert json.loads(response["response_json"])["error"]["details"] == {"where": "here"}


async def test_attempts_are_counted_for_each_turn_and_each_wake_up(tmp_path):
    async def turn(ctx: TaskContext[int]) -> Any:
        if ctx.attempt < 3:
            raise ValueError("once more")
        if ctx.turn == 3:
            await ctx.sleep(0)
            return "each had three"
        return Continue(ctx.turn)

    async with lab(App(), tmp_path) as it:
        assert result(await run(it, turn)) == "each had three"
        assert [row["attempts"] for row in it.rows("SELECT attempts FROM triggers ORDER BY seq")] == [3, 3, 3, 3]


async def test_a_task_may_be_told_how_often_each_of_its_turns_is_tried(tmp_path):
    app = App()

    @app.workflow("shaky")
    async def shaky(ctx: TaskContext[int]) -> Any:
        if ctx.turn == 1:
            return Continue(1)
        raise ValueError("broken")

    async with lab(app, tmp_path) as it:
        row = await it.ended((await app.emit("shaky", max_attempts=2)).id)
        assert (row["status"], row["turn"]) == ("FAILED", 2)
        assert [r["attempts"] for r in it.rows("SELECT attempts FROM triggers ORDER BY seq")] == [1, 2]


async def test_a_turn_may_ask_to_be_tried_later_and_to_be_put_off(tmp_path):
    clock = VirtualClock()

    async def turn(ctx: TaskContext) -> Any:
        entered.append((ctx.attempt, str(ctx.resume), clock.now() - NEW_YEAR))
        if len(entered) == 1:
            raise Snooze(until=NEW_YEAR + 60)
        if len(entered) == 2:
            raise Retry("soon", after=60)
        return "done"

    entered: list[tuple[int, str, float]] = []
    async with lab(App(), tmp_path, clock=clock) as it:
        task_id = await begin(it, turn)
        for count in (1, 2):
            await it.until(lambda: len(entered) == count and it.trigger(task_id)["status"] == "PENDING")  # noqa: B023
            assert it.task(task_id)["status"] == "RUNNING"
            clock.advance(60)
            it.engine.ring(schedules=False)
        assert result(await it.ended(task_id)) == "done"
        assert entered == [(1, "FIRST", 0.0), (1, "RETRY", 60.0), (2, "RETRY", 120.0)]


async def test_what_fails_for_good_beside_others_fails_the_task_for_good(tmp_path):
    """A nursery raises a group of what was raised in it."""
    ran: list[int] = []

    async def turn(ctx: TaskContext) -> None:
        ran.append(1)

        async def one(error: Exception) -> None:
            raise error

        async with anyio.create_task_group() as group:
            for error in errors:
                group.start_soon(one, error)

    async with lab(App(), tmp_path) as it:
        errors: list[Exception] = [Fail("BROKEN", "it never will")]
        assert failure(await run(it, turn)) == ("BROKEN", "it never will")
        errors = [ValueError("by chance"), Fail("BROKEN", "it never will")]
        assert failure(await run(it, turn))[0] == "BROKEN"
        assert len(ran) == 2
        errors = [ValueError("first"), ConnectionError("second")]
        code, message = failure(await run(it, turn))
        assert (code, sorted(message.split("; "))) == ("INTERNAL_AGENT_ERROR", ["first", "second"])
        errors = [ConnectionError("reset")]
        assert failure(await run(it, turn)) == ("TRANSPORT_ERROR", "reset")


# Between two deployments


async def leave_waiting(folder: Any, state: Any) -> str:
    """A task of `flow` that waits for `go`, with this state."""
    app = App()

    @app.workflow("flow")
    async def flow(ctx: TaskContext[Any]) -> Any:
        return Continue(state, on="go")

    async with lab(app, folder) as it:
        task_id = (await app.emit("flow")).id
        await it.waiting(task_id)
        return task_id


async def test_a_state_that_the_next_deployment_cannot_read_holds_the_task_and_fails_it_when_it_is_retried(tmp_path):
    task_id = await leave_waiting(tmp_path, {"items": "one"})
    app = App()

    @app.workflow("flow")
    async def flow(ctx: TaskContext[Cart]) -> Any:
        return ctx.state

    async with lab(app, tmp_path) as it:
        await app.signal(task_id, "go")
        assert await it.held(task_id) == "the state does not fit flow: state.items: Expected `array`, got `str`"
        await app.retry_task(task_id)
        row = await it.ended(task_id)
        assert failure(row) == ("VALIDATION_ERROR", "state.items: Expected `array`, got `str`")
        assert (row["state_json"], row["turn"]) == ('{"items":"one"}', 2)

    mended = App()

    @mended.workflow("flow")
    async def flow_mended(ctx: TaskContext[dict[str, Any]]) -> Any:
        return [ctx.state, str(ctx.resume)]

    async with lab(mended, tmp_path) as it:
        await mended.retry_task(task_id)
        assert result(await it.ended(task_id)) == [{"items": "one"}, "RETRY"]


async def test_a_task_whose_workflow_is_gone_is_held_fails_when_it_is_retried_and_goes_on_when_it_is_back(tmp_path):
    task_id = await leave_waiting(tmp_path, 7)
    async with lab(App(), tmp_path) as it:
        await it.app.signal(task_id, "go")
        assert await it.held(task_id) == "workflow flow is not declared"
        await it.app.retry_task(task_id)
        assert failure(await it.ended(task_id)) == ("CAPABILITY_NOT_FOUND", "No agent found for intent: flow/1.0")

    app = App()

    @app.workflow("flow")
    async def flow(ctx: TaskContext[int]) -> Any:
        return ctx.state

    async with lab(app, tmp_path) as it:
        await app.retry_task(task_id)
        assert result(await it.ended(task_id)) == 7


async def test_a_first_turn_in_backoff_whose_workflow_is_gone_holds_its_task_too(tmp_path):
    app, clock = App(), VirtualClock()

    @app.workflow("flow", retry=RetryPolicy(base=60, cap=60))
    async def flow(ctx: TaskContext) -> None:
        raise ValueError("not yet")

    async with lab(app, tmp_path, clock=clock) as it:
        task_id = (await app.emit("flow")).id
        await it.until(lambda: it.trigger(task_id)["reason"] == "INTERNAL_AGENT_ERROR")
    clock.advance(60)
    async with lab(App(), tmp_path, clock=clock) as it:
        assert await it.held(task_id) == "workflow flow is not declared"
        await it.app.retry_task(task_id)
        assert failure(await it.ended(task_id))[0] == "CAPABILITY_NOT_FOUND"


async def test_a_task_whose_workflow_takes_no_ctx_any_more_is_held_and_retried_ends_with_what_it_returns(tmp_path):
    task_id = await leave_waiting(tmp_path, 7)
    app = App()

    @app.workflow("flow")
    async def flow() -> str:
        return "plain"

    async with lab(app, tmp_path) as it:
        await app.signal(task_id, "go")
        wrong = "flow takes no ctx with this payload, and the task has begun with one"
        assert await it.held(task_id) == wrong
        await app.retry_task(task_id)
        assert result(await it.ended(task_id)) == "plain"


async def test_a_payload_that_the_next_deployment_cannot_read_holds_the_task_and_fails_it_when_it_is_retried(tmp_path):
    task_id = await leave_waiting(tmp_path, 7)
    app = App()

    @app.workflow("flow")
    async def flow(ctx: TaskContext, city: str) -> None: ...

    async with lab(app, tmp_path) as it:
        await app.signal(task_id, "go")
        wrong = "the payload does not fit flow: Object missing required field `city`"
        assert await it.held(task_id) == wrong
        await app.retry_task(task_id)
        assert failure(await it.ended(task_id)) == ("VALIDATION_ERROR", wrong)


# The stream


async def test_a_task_reads_its_own_stream_over_all_its_attempts_and_turns(tmp_path):
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

    async with lab(App(), tmp_path) as it:
        told = result(await run(it, turn))
        ours = ("STEP_COMPLETED", "NOTE", "TURN_ENTERED", "TURN_CONTINUED", "TURN_SUSPENDED")
        assert [type_ for type_ in told if type_ in ours] == [
            "STEP_COMPLETED",
            "TURN_ENTERED",
            "TURN_CONTINUED",
            "TURN_ENTERED",
            "NOTE",
            "TURN_SUSPENDED",
            "TURN_ENTERED",
        ]


async def test_the_stream_of_a_task_is_its_own(tmp_path):
    async def turn(ctx: TaskContext) -> Any:
        await ctx.note("mine", ctx.task_id)
        return [event.data["data"] for event in await ctx.events() if event.type == "NOTE"]

    async with lab(App(), tmp_path) as it:
        ids = [await begin(it, turn) for _ in range(3)]
        assert [result(await it.ended(task_id)) for task_id in ids] == [[task_id] for task_id in ids]
