"""Waits of a turn: suspension without objects in memory, re-entry, and concurrent wake-ups."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import anyio
import pytest

from craftcore import App, Continue, TaskContext, failpoints
from craftcore.errors import KeyRequired, StateRefused
from craftcore.failpoints import Failpoint
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.loops import ON_ASYNCIO
from tests.support.turns import Counting, begin, failure, result, run

pytestmark = pytest.mark.anyio


async def nothing() -> None: ...


async def wait_for_rows(harness: Lab, sql: str, count: int) -> None:
    """Wait until the query returns the given number of rows."""
    await harness.until(lambda: len(harness.rows(sql)) == count)


# Suspension


async def test_suspended_turn_unwinds_all_code_and_is_entered_again_from_the_top(tmp_path):
    seen: list[str] = []

    async def turn(ctx: TaskContext) -> None:
        seen.append(f"enters {ctx.resume}")
        try:
            async with anyio.create_task_group() as group:
                group.start_soon(sibling)
                with anyio.move_on_after(3600):
                    try:
                        await ctx.sleep(0)
                    finally:
                        seen.append("inner")
                group.cancel_scope.cancel()
        finally:
            seen.append("outer")

    async def sibling() -> None:
        seen.append("sibling begins")
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("sibling")

    async with lab(App(), tmp_path) as harness:
        result(await run(harness, turn))
        assert (seen[0], seen[-1]) == ("enters FIRST", "outer")
        assert seen.count("enters TIMER") == 1
        assert (seen.count("inner"), seen.count("outer")) == (2, 2)
        assert seen.count("sibling") == seen.count("sibling begins")


async def test_waiting_turn_leaves_no_object_in_memory(tmp_path):
    alive: list[weakref.ref[Any]] = []

    class Large:
        pass

    async def turn(ctx: TaskContext) -> None:
        large = Large()
        alive.append(weakref.ref(large))
        await ctx.wait_for("never")

    async with lab(App(), tmp_path) as harness:
        ids = [await begin(harness, turn) for _ in range(5)]
        for task_id in ids:
            await harness.waiting(task_id)
        await harness.idle()

        assert harness.engine.running == 0
        gc.collect()
        assert [ref() for ref in alive] == [None] * 5


SwallowingTurn = Callable[[TaskContext], Any]


async def ignore_suspension(ctx: TaskContext) -> str:
    try:
        await ctx.sleep(0)
    except BaseException:
        pass
    return "went on"


async def continue_after_suspension(ctx: TaskContext) -> Any:
    try:
        await ctx.sleep(0)
    except BaseException:
        return Continue("went on")


async def raise_after_suspension(ctx: TaskContext) -> None:
    try:
        await ctx.sleep(0)
    except BaseException as error:
        raise ValueError("something else") from error


async def wait_after_suspension(ctx: TaskContext) -> None:
    try:
        await ctx.sleep(0)
    except BaseException:
        await ctx.wait_for("something")


async def note_after_suspension(ctx: TaskContext) -> None:
    try:
        await ctx.sleep(0)
    finally:
        await ctx.note("cleaned-up")


async def test_turn_that_swallows_the_suspension_fails_and_keeps_no_wait(tmp_path):
    async with lab(App(), tmp_path) as harness:
        for turn in (
            ignore_suspension,
            continue_after_suspension,
            raise_after_suspension,
            wait_after_suspension,
            note_after_suspension,
        ):
            row = await run(harness, turn)

            assert failure(row) == (
                "INTERNAL_AGENT_ERROR",
                "the workflow went on after sleep#1 had suspended it: let BaseException pass",
            ), turn
            assert harness.rows("SELECT * FROM waits") == [], turn
            assert row["turn"] == 1, turn


async def test_suspension_is_not_caught_by_except_exception(tmp_path):
    async def turn(ctx: TaskContext) -> str:
        try:
            await ctx.sleep(0)
        except Exception:
            return "caught"
        return "waited"

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "waited"


async def test_suspended_turn_does_not_fail_when_a_sibling_is_about_to_begin_a_step(tmp_path):
    """The engine wakes the turn before it stops the sibling, which must not fail the turn."""

    async def turn(ctx: TaskContext) -> str:
        woken = anyio.Event()

        async def sibling() -> None:
            await woken.wait()
            await ctx.step("sibling", nothing)

        async with anyio.create_task_group() as group:
            group.start_soon(sibling)
            await ctx.step("first", nothing)
            woken.set()
            await ctx.sleep(0)
        return str(ctx.resume)

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "TIMER"
        assert [row["attempts"] for row in harness.rows("SELECT attempts FROM triggers")] == [1, 1]


async def test_sibling_steps_of_a_suspended_turn_are_kept_if_completed_or_run_again(tmp_path):
    ran: list[str] = []

    async def quick() -> str:
        ran.append("quick")
        return "quick"

    async def slow() -> str:
        ran.append("slow")
        if ran.count("slow") == 1:
            await anyio.sleep_forever()
        return "slow"

    async def turn(ctx: TaskContext) -> list[str]:
        got: list[str] = []
        done = anyio.Event()

        async def both() -> None:
            got.append(await ctx.step("quick", quick))
            done.set()
            got.append(await ctx.step("slow", slow))

        async with anyio.create_task_group() as group:
            group.start_soon(both)
            await done.wait()
            await ctx.sleep(0)
        return got

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == ["quick", "slow"]
        assert ran.count("quick") == 1


async def test_plain_sibling_step_is_recorded_before_a_suspended_turn_ends(tmp_path):
    """A thread cannot be cancelled, and the step would run a second time after the re-entry of the turn."""
    inside, proceed = threading.Event(), threading.Event()
    ran: list[int] = []

    def blocks() -> int:
        ran.append(1)
        inside.set()
        proceed.wait()
        return len(ran)

    async def turn(ctx: TaskContext) -> int:
        got: list[int] = []

        async def sibling() -> None:
            got.append(await ctx.step("block", blocks))

        async with anyio.create_task_group() as group:
            group.start_soon(sibling)
            await anyio.to_thread.run_sync(inside.wait)
            await ctx.sleep(0)
        return got[0]

    async with lab(App(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await anyio.to_thread.run_sync(inside.wait)
        await harness.idle_window()
        assert harness.rows("SELECT * FROM waits") == []
        proceed.set()

        assert result(await harness.ended(task_id)) == 1
        assert ran == [1]


# Identity of waits


@ON_ASYNCIO
async def test_waits_are_identified_by_key_or_else_by_order(tmp_path):
    async def turn(ctx: TaskContext) -> list[Any]:
        got: list[Any] = []
        keys = ["b", "a"] if len(await ctx.events()) % 2 else ["a", "b"]  # in either order
        for key in keys:
            got.append((key, await ctx.wait_for("word", key=key)))
        for _ in range(2):
            got.append(("", await ctx.wait_for("word")))
        return sorted(got)

    async with lab(App(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        for n in range(4):
            await harness.waiting(task_id)
            await harness.app.signal(task_id, "word", n)
            await wait_for_rows(harness, "SELECT 1 FROM waits WHERE status = 'RESOLVED'", n + 1)
        got = result(await harness.ended(task_id))

        assert [pair for pair in got if not pair[0]] == [["", 2], ["", 3]]
        assert sorted(value for key, value in got if key) == [0, 1]
        names = {row["name"] for row in harness.rows("SELECT name FROM waits")}
        assert names == {"wait_for:a", "wait_for:b", "wait_for#1", "wait_for#2"}


@ON_ASYNCIO
async def test_wait_returns_the_same_event_payload_at_each_re_entry(tmp_path):
    entered: list[list[Any]] = []

    async def turn(ctx: TaskContext) -> list[Any]:
        got: list[Any] = []
        entered.append(got)
        for _ in range(3):
            got.append(await ctx.wait_for("word"))
            await ctx.sleep(0)
        return got

    async with lab(App(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        for n in range(3):
            await wait_for_rows(harness, "SELECT 1 FROM waits WHERE kind = 'event'", n + 1)
            await harness.waiting(task_id)
            await harness.app.signal(task_id, "word", {"n": n})
        assert result(await harness.ended(task_id)) == [{"n": 0}, {"n": 1}, {"n": 2}]
        assert entered == [
            [],
            [{"n": 0}],
            [{"n": 0}],
            *[[{"n": 0}, {"n": 1}]] * 2,
            *[[{"n": 0}, {"n": 1}, {"n": 2}]] * 2,
        ]


@ON_ASYNCIO
async def test_wait_key_used_twice_in_a_turn_is_refused(tmp_path):
    async def turn(ctx: TaskContext) -> None:
        await ctx.sleep(0, key="nap")
        await ctx.sleep(0, key="nap")

    async with lab(App(), tmp_path) as harness:
        code, message = failure(await run(harness, turn))
        assert (code, message.split(":")[0]) == ("STEP_CONFLICT", "sleep nap was used before in this turn")


Ask = Callable[[TaskContext], Any]
CONCURRENT_CALLS: dict[str, Ask] = {
    "sleep": lambda ctx: ctx.sleep(0),
    "sleep_until": lambda ctx: ctx.sleep_until(NEW_YEAR),
    "wait_for": lambda ctx: ctx.wait_for("word"),
    "ask": lambda ctx: ctx.ask("Send it?"),
    "emit": lambda ctx: ctx.emit("other"),
    "start_child": lambda ctx: ctx.start_child("other"),
}


async def test_wait_emit_or_child_in_a_concurrent_task_needs_a_key(tmp_path):
    async def turn_of(ctx: TaskContext, ask: Ask) -> list[str]:
        refused: list[str] = []

        async def sibling() -> None:
            try:
                await ask(ctx)
            except KeyRequired as error:
                refused.append(str(error))

        async with anyio.create_task_group() as group:
            group.start_soon(sibling)
        return refused

    async with lab(App(), tmp_path) as harness:
        for name, ask in CONCURRENT_CALLS.items():
            [refused] = result(await run(harness, partial(turn_of, ask=ask)))
            assert "in a task beside the turn's own needs key=" in refused, name
            assert harness.rows("SELECT * FROM waits") == [], name


async def test_keyed_emit_in_a_concurrent_task_is_allowed_after_a_wait(tmp_path):
    app = App()

    @app.workflow("other")
    async def other() -> None: ...

    async def turn(ctx: TaskContext) -> list[Any]:
        got: list[Any] = []

        async def sibling(n: int) -> None:
            await ctx.emit("other", key=f"n-{n}")
            got.append(n)

        await ctx.sleep(0)
        async with anyio.create_task_group() as group:
            for n in range(3):
                group.start_soon(sibling, n)
        return sorted(got)

    async with lab(app, tmp_path) as harness:
        assert result(await run(harness, turn)) == [0, 1, 2]
        await harness.until(lambda: len(harness.rows("SELECT 1 FROM triggers WHERE workflow = 'other'")) == 3)


# Refused waits


INVALID_WAITS: list[tuple[Ask, str]] = [
    (lambda ctx: ctx.sleep(-1), "ctx.sleep: seconds -1 must be at least 0 and at most "),
    (lambda ctx: ctx.sleep(float("nan")), "ctx.sleep: seconds nan must be at least 0 and at most "),
    (lambda ctx: ctx.sleep(float("inf")), "ctx.sleep: seconds inf must be at least 0 and at most "),
    (
        lambda ctx: ctx.sleep(1e12),
        "ctx.sleep: seconds 1000000000000.0 must be at least 0 and at most ",
    ),
    (lambda ctx: ctx.sleep(True), "ctx.sleep: seconds True must be seconds, a timedelta, or text"),
    (lambda ctx: ctx.sleep("soon"), "ctx.sleep: seconds 'soon' must be seconds, a timedelta, or text"),
    (
        lambda ctx: ctx.sleep(timedelta(days=-1)),
        "ctx.sleep: seconds datetime.timedelta(days=-1) must be at least 0 and at most ",
    ),
    (lambda ctx: ctx.sleep_until(datetime(2026, 1, 1)), "at 2026-01-01T00:00:00 has no time zone"),  # noqa: DTZ001
    (lambda ctx: ctx.sleep_until("tomorrow"), "at 'tomorrow' is not a moment: add a time of day"),
    (lambda ctx: ctx.wait_for("two words"), "event 'two words' must be 1 to 200 characters"),
    (
        lambda ctx: ctx.wait_for("word", timeout=-1),
        "ctx.wait_for: timeout -1 must be at least 0 and at most ",
    ),
    (lambda ctx: ctx.wait_for("word", key=""), "wait_for name '' must be 1 to 200 characters"),
    (lambda ctx: ctx.ask(""), "a question, its options and default are text"),
    (lambda ctx: ctx.ask("x" * 4_001), "a question, its options and default are text"),
    (lambda ctx: ctx.ask("\ud800"), "question holds a lone surrogate"),
    (lambda ctx: ctx.ask("Send?", []), "a question has 1 to 100 options"),
    (lambda ctx: ctx.ask("Send?", ["yes", "yes"]), "a question has 1 to 100 options, each another one"),
    (lambda ctx: ctx.ask("Send?", [str(n) for n in range(101)]), "a question has 1 to 100 options"),
    (lambda ctx: ctx.ask("Send?", [1]), "a question, its options and default are text"),  # type: ignore[list-item]
    (lambda ctx: ctx.ask("Send?", ["yes"], default="no"), "the default 'no' is not one of the options: yes"),
]


@ON_ASYNCIO
async def test_wait_with_invalid_arguments_fails_the_task_with_the_cause(tmp_path):
    async with lab(App(), tmp_path) as harness:
        for ask, refusal in INVALID_WAITS:

            async def turn(ctx: TaskContext, ask: Ask = ask) -> None:
                await ask(ctx)

            code, message = failure(await run(harness, turn))
            assert (code, message[: len(refusal)]) == ("VALIDATION_ERROR", refusal)
        assert harness.rows("SELECT * FROM waits") == []


# Causes of a wake-up


@ON_ASYNCIO
async def test_turn_resume_names_the_cause_of_each_wake_up(tmp_path):
    app = App()

    @app.workflow("child")
    async def child(ctx: TaskContext) -> None: ...

    async def turn(ctx: TaskContext) -> list[str]:
        await ctx.note("why", str(ctx.resume), key=str(len(await ctx.events())))
        await ctx.sleep(0)
        await ctx.wait_for("word")
        await ctx.wait_for("message")
        await ctx.ask("Go on?")
        await (await ctx.start_child("child")).result()
        return [event.data["data"] for event in await ctx.events() if event.type == "NOTE"]

    async with lab(app, tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM waits WHERE event = 'word'")))
        await harness.waiting(task_id)
        await app.signal(task_id, "word")
        await harness.until(lambda: bool(harness.rows("SELECT 1 FROM waits WHERE event = 'message'")))
        await app.signal(task_id, "message", {"text": "hi"})
        await app.answer((await harness.question())["id"], "yes", answered_by="ada")

        causes = result(await harness.ended(task_id))
        assert causes == ["FIRST", "TIMER", "SIGNAL", "MESSAGE", "ANSWER", "CHILD"]


@ON_ASYNCIO
async def test_wait_returns_the_default_on_timeout_and_the_payload_on_an_event(tmp_path):
    clock = VirtualClock()

    async def turn(ctx: TaskContext) -> list[Any]:
        return [
            await ctx.wait_for("first", timeout=60),
            await ctx.wait_for("second", timeout=timedelta(minutes=1), default={"none": True}),
            await ctx.wait_for("third", timeout=60, default="late"),
            await ctx.ask("Fourth?", timeout=60, default="nobody"),
        ]

    async with lab(App(), tmp_path, clock=clock) as harness:
        task_id = await begin(harness, turn)
        for n in range(4):
            await wait_for_rows(harness, "SELECT 1 FROM waits", n + 1)
            if n == 2:
                await harness.app.signal(task_id, "third")  # a signal without a payload
            else:
                clock.advance(60)
                harness.engine.ring(schedules=False)
        assert result(await harness.ended(task_id)) == [None, {"none": True}, None, "nobody"]


@ON_ASYNCIO
async def test_sleep_ends_at_the_due_time_and_not_before(tmp_path):
    clock = VirtualClock()
    woken: list[float] = []

    async def turn(ctx: TaskContext) -> None:
        await ctx.sleep(timedelta(hours=1))
        woken.append(clock.now() - NEW_YEAR)
        await ctx.sleep_until(datetime.fromtimestamp(NEW_YEAR + 7200, UTC))
        woken.append(clock.now() - NEW_YEAR)

    async with lab(App(), tmp_path, clock=clock) as harness:
        task_id = await begin(harness, turn)
        for seconds in (0, 3599, 1, 3599, 1):
            clock.advance(seconds)
            await harness.idle_window()
            await harness.idle()
        await harness.ended(task_id)
        assert woken == [3600, 7200, 7200]


@ON_ASYNCIO
async def test_wait_until_a_past_time_ends_at_once(tmp_path):
    async def turn(ctx: TaskContext) -> str:
        await ctx.sleep_until(NEW_YEAR)
        await ctx.sleep(0)
        return str(await ctx.wait_for("never", timeout=0, default="none"))

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "none"


# After the turn


async def test_ctx_is_refused_after_the_turn_is_over(tmp_path):
    kept: list[TaskContext] = []

    async def turn(ctx: TaskContext) -> None:
        kept.append(ctx)

    async with lab(App(), tmp_path) as harness:
        result(await run(harness, turn))
        [ctx] = kept
        uses: list[Callable[[], Any]] = [
            lambda: ctx.step("late", nothing),
            lambda: ctx.note("late"),
            lambda: ctx.emit("turn-0"),
            lambda: ctx.start_child("turn-0"),
            lambda: ctx.sleep(0),
            lambda: ctx.wait_for("word"),
            lambda: ctx.ask("Send it?"),
            lambda: ctx.transaction("late", lambda tx: None),
            lambda: ctx.events(),
        ]
        for use in uses:
            with pytest.raises(StateRefused, match="the turn is over"):
                await use()
        assert len(harness.rows("SELECT 1 FROM triggers")) == 1


# Concurrent changes


@pytest.fixture
def run_at_failpoint(monkeypatch: pytest.MonkeyPatch) -> Callable[[Failpoint, Callable[[], None]], None]:
    """Return a function that runs an action once, at the given failpoint."""

    def arm(point: Failpoint, action: Callable[[], None]) -> None:
        def once() -> None:
            monkeypatch.delitem(failpoints._armed, point)
            action()

        monkeypatch.setitem(failpoints._armed, point, once)

    return arm


def change_from_outside(harness: Lab, change: Callable[[VirtualCore], Any]) -> None:
    """Apply a change as another process does."""
    core = VirtualCore(harness.path, VirtualClock())
    try:
        change(core)
    finally:
        core.close()


async def test_task_cancelled_during_the_suspension_does_not_wait(tmp_path, run_at_failpoint):
    async def turn(ctx: TaskContext) -> None:
        run_at_failpoint(
            Failpoint.TURN_SUSPENDED,
            lambda: change_from_outside(harness, lambda core: core.do(core.tasks.cancel, ctx.task_id)),
        )
        await ctx.wait_for("never")

    async with lab(App(), tmp_path) as harness:
        row = await run(harness, turn)
        assert (row["status"], row["error_code"]) == ("CANCELLED", "WORKFLOW_ABORTED")
        assert harness.rows("SELECT * FROM waits") == []


@pytest.mark.parametrize("point", [Failpoint.TURN_SUSPENDED, Failpoint.SETTLE_BEGUN])
async def test_signal_during_the_suspension_of_the_task_is_not_missed(tmp_path, run_at_failpoint, point):
    async def turn(ctx: TaskContext) -> Any:
        if ctx.resume == "FIRST":
            signal = (ctx.task_id, "word", "in time")
            run_at_failpoint(
                point, lambda: change_from_outside(harness, lambda core: core.do(core.tasks.signal, *signal))
            )
        return await ctx.wait_for("word")

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "in time"


@ON_ASYNCIO
async def test_answer_during_the_start_of_the_timer_is_taken_first(tmp_path, run_at_failpoint):
    """The timer is claimed, and another process answers before the timer starts."""
    clock = VirtualClock()
    answered: list[bool] = []

    def answer(core: VirtualCore) -> None:
        [question] = core.rows("SELECT id FROM questions")
        core.do(core.tasks.answer, question["id"], "yes", answered_by="ada")
        answered.append(True)

    async def turn(ctx: TaskContext) -> list[Any]:
        return [await ctx.ask("Go on?", ["yes", "no"], timeout=60, default="no"), str(ctx.resume)]

    async with lab(App(), tmp_path, clock=clock) as harness:
        task_id = await begin(harness, turn)
        await harness.waiting(task_id)
        await harness.idle()
        clock.advance(60)
        run_at_failpoint(Failpoint.CLAIM_COMMITTED, lambda: change_from_outside(harness, answer))
        harness.engine.ring(schedules=False)

        assert result(await harness.ended(task_id)) == ["yes", "ANSWER"]
        assert answered == [True]


async def test_concurrent_signals_end_a_wait_each_and_none_is_lost(tmp_path):
    async def turn(ctx: TaskContext) -> list[Any]:
        return sorted([await ctx.wait_for("word"), await ctx.wait_for("word")])

    async with lab(App(), tmp_path) as harness:
        task_id = await begin(harness, turn)
        await harness.waiting(task_id)
        async with anyio.create_task_group() as group:
            for n in range(2):
                group.start_soon(harness.app.signal, task_id, "word", n)
        assert result(await harness.ended(task_id)) == [0, 1]


@ON_ASYNCIO
async def test_steps_before_a_wait_run_once_over_all_suspensions(tmp_path):
    fetch = Counting()

    async def turn(ctx: TaskContext) -> Any:
        for n in range(5):
            await ctx.step("fetch", fetch, n, key=str(n))
            await ctx.sleep(0)
        return await ctx.step("last", fetch, "last")

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "last"
        assert fetch.calls == [(0,), (1,), (2,), (3,), (4,), ("last",)]
