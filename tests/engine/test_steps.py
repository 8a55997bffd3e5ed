"""Steps and notes of a turn: run once and recorded, with typed results, retries and refusals."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Any, NamedTuple
from uuid import UUID

import anyio
import msgspec
import pytest

from craftcore import App, Fail, Retry, RetryPolicy, Snooze, TaskContext
from craftcore.config import TaskSettings
from craftcore.errors import InvalidInput, StepConflict
from tests.support.engine_harness import lab, settings
from tests.support.fakes import NEW_YEAR, VirtualClock
from tests.support.processes import PATIENCE
from tests.support.turns import Counting, begin, failure, result, run

pytestmark = pytest.mark.anyio

AT_ONCE = RetryPolicy(max_attempts=3, base=0, cap=0)

# Completed steps


async def test_completed_step_is_not_run_again_when_the_turn_is_retried(tmp_path):
    fetch = Counting()

    async def turn(ctx: TaskContext) -> list[Any]:
        got = [await ctx.step("first", fetch, 1), await ctx.step("second", fetch, 2)]
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return [got, ctx.attempt]

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == [[1, 2], 3]
        assert fetch.calls == [(1,), (2,)]


async def test_failed_step_is_run_again_on_retry_and_completed_steps_are_not(tmp_path):
    fetch, broken = Counting(), Counting()

    async def breaks(n: int) -> int:
        await broken(n)
        if len(broken.calls) == 1:
            raise ValueError("broken")
        return n

    async def turn(ctx: TaskContext) -> list[Any]:
        return [await ctx.step("fetch", fetch, 1), await ctx.step("break", breaks, 2)]

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == [1, 2]
        assert (len(fetch.calls), len(broken.calls)) == (1, 2)


async def test_step_error_caught_by_the_turn_does_not_fail_the_turn(tmp_path):
    async def breaks() -> None:
        raise ValueError("broken")

    async def turn(ctx: TaskContext) -> str:
        try:
            await ctx.step("break", breaks)
        except ValueError as error:
            return f"it was {error}"
        return "it worked"

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "it was broken"


async def test_concurrent_steps_are_recorded_separately(tmp_path):
    """The third step fails the turn after the others are recorded, and the others do not run again."""
    ran: Counter[str] = Counter()
    recorded = anyio.Event()

    async def work(name: str) -> str:
        ran[name] += 1
        if name == "c" and ran["c"] == 1:
            await recorded.wait()
            raise ValueError("broken")
        return name.upper()

    async def turn(ctx: TaskContext) -> dict[str, str]:
        got: dict[str, str] = {}
        left = {"a", "b"}

        async def one(name: str) -> None:
            got[name] = await ctx.step("work", work, name, key=name)
            left.discard(name)
            if not left:
                recorded.set()

        async with anyio.create_task_group() as group:
            for name in "abc":
                group.start_soon(one, name)
        return dict(sorted(got.items()))

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == {"a": "A", "b": "B", "c": "C"}
        assert ran == {"a": 1, "b": 1, "c": 2}


async def test_hundred_concurrent_steps_have_a_hundred_results(tmp_path):
    async def turn(ctx: TaskContext) -> int:
        got: list[int] = []

        async def one(n: int) -> None:
            got.append(await ctx.step("square", lambda: n * n, key=str(n)))

        async with anyio.create_task_group() as group:
            for n in range(100):
                group.start_soon(one, n)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return sum(got)

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == sum(n * n for n in range(100))
        [events] = harness.rows("SELECT count(*) AS n FROM events WHERE type = 'STEP_COMPLETED'")
        assert events["n"] == 100


# Names, keys and arguments


async def test_step_name_used_twice_is_refused_and_the_second_is_not_run(tmp_path):
    fetch = Counting()

    async def turn(ctx: TaskContext) -> None:
        for n in range(2):
            await ctx.step("fetch", fetch, n)

    async with lab(App(), tmp_path) as harness:
        row = await run(harness, turn)
        code, message = failure(row)
        assert (code, fetch.calls) == ("STEP_CONFLICT", [(0,)])
        assert "step fetch was used before in this turn: give each its own key=" in message
        assert harness.trigger(row["id"])["attempts"] == 1, "a retry cannot succeed"


async def test_step_conflict_can_be_caught_and_the_step_run_with_a_key(tmp_path):
    async def turn(ctx: TaskContext) -> str:
        await ctx.step("fetch", Counting(), 1)
        try:
            await ctx.step("fetch", Counting(), 1)
        except StepConflict:
            return str(await ctx.step("fetch", Counting(), "keyed", key="2"))
        return "it ran twice"

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "keyed"


async def test_step_keys_identify_loop_steps_in_any_order(tmp_path):
    fetch = Counting()

    async def turn(ctx: TaskContext) -> dict[str, Any]:
        cities = ["rome", "oslo", "bonn"][:: 1 if ctx.attempt == 1 else -1]
        got = {city: await ctx.step("fetch", fetch, city, key=city) for city in cities}
        if ctx.attempt == 1:
            raise ValueError("once more")
        return got

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == {city: city for city in ("rome", "oslo", "bonn")}
        assert fetch.calls == [("rome",), ("oslo",), ("bonn",)]


async def test_step_with_an_invalid_name_or_key_is_refused(tmp_path):
    fetch = Counting()
    invalid_names: list[Any] = ["", "two words", "x" * 201, "ä", 'a"b', 7]

    async with lab(App(), tmp_path) as harness:
        for name, key in [
            *((name, None) for name in [*invalid_names, None]),
            *(("fetch", key) for key in invalid_names),
        ]:

            async def turn(ctx: TaskContext, name: Any = name, key: Any = key) -> None:
                await ctx.step(name, fetch, key=key)

            code, message = failure(await run(harness, turn))
            assert (code, fetch.calls) == ("VALIDATION_ERROR", [])
            assert message.startswith("step name " if key is None else "step key "), (name, key)


async def test_step_with_other_arguments_than_recorded_is_a_conflict(tmp_path):
    fetch = Counting()

    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", fetch, {"city": "rome", "n": ctx.attempt})
        raise ValueError("once more")

    async with lab(App(), tmp_path) as harness:
        code, message = failure(await run(harness, turn))
        assert (code, len(fetch.calls)) == ("STEP_CONFLICT", 1)
        assert "completed with other arguments in this turn: argument 1.n was 1 and is 2. Give it" in message


async def test_step_with_on_change_rerun_runs_again_and_records_the_new_result(tmp_path):
    fetch = Counting()
    asked = [1, 2, 2, 1]

    async def turn(ctx: TaskContext) -> Any:
        got = await ctx.step("fetch", fetch, asked[ctx.attempt - 1], on_change="rerun")
        if ctx.attempt < 4:
            raise ValueError("once more")
        return got

    async with lab(App(), tmp_path, settings_of(max_attempts=4)) as harness:
        assert result(await run(harness, turn)) == 1
        assert fetch.calls == [(1,), (2,), (1,)]


async def test_step_with_on_change_keep_returns_the_recorded_result_for_other_arguments(tmp_path):
    fetch, write = Counting(), Counting()

    def store(tx: Any, number: int) -> int:
        write.calls.append((number,))
        return number

    async def turn(ctx: TaskContext) -> Any:
        fetched = await ctx.step("fetch", fetch, ctx.attempt, object(), on_change="keep")
        stored = await ctx.transaction("store", store, ctx.attempt, on_change="keep")
        if ctx.attempt < 3:
            raise ValueError("once more")
        return [fetched, stored]

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == [1, 1]
        assert [call[0] for call in fetch.calls] == [1]
        assert write.calls == [(1,)]


def settings_of(*, max_attempts: int = 3, **tasks: Any):
    config = settings()
    return replace(config, retry=replace(config.retry, max_attempts=max_attempts), tasks=TaskSettings(**tasks))


async def test_step_arguments_are_compared_by_value(tmp_path):
    fetch = Counting()

    async def turn(ctx: TaskContext) -> str:
        arguments = ({"b": 2, "a": [1, 2.5, None, True]}, datetime(2026, 1, 1, tzinfo=UTC), Point(x=1, y=2), {3, 1, 2})
        await ctx.step("fetch", fetch, *arguments)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return "done"

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "done"
        assert len(fetch.calls) == 1


async def test_step_argument_that_is_not_json_is_compared_by_type(tmp_path):
    fetch = Counting()

    class Client:
        pass

    async def turn(ctx: TaskContext) -> str:
        await ctx.step("fetch", fetch, 1, Client() if ctx.attempt < 3 else object())
        raise ValueError("once more")

    async with lab(App(), tmp_path) as harness:
        assert failure(await run(harness, turn))[0] == "STEP_CONFLICT"
        assert len(fetch.calls) == 1


# Retries within the turn


async def test_step_with_a_retry_policy_is_retried_in_the_same_attempt(tmp_path):
    tries: list[int] = []

    async def flaky() -> str:
        tries.append(len(tries))
        if len(tries) < 3:
            raise ConnectionError("reset")
        return "at last"

    async def turn(ctx: TaskContext) -> Any:
        return [await ctx.step("fetch", flaky, retry=AT_ONCE), ctx.attempt]

    async with lab(App(), tmp_path) as harness:
        row = await run(harness, turn)
        assert result(row) == ["at last", 1]
        failed = harness.rows("SELECT payload_json FROM events WHERE type = 'STEP_FAILED' ORDER BY seq")
        attempts = [json.loads(event["payload_json"]) for event in failed]
        assert [(event["attempt"], event["error"], event["name"]) for event in attempts] == [
            (1, "reset", "fetch"),
            (2, "reset", "fetch"),
        ]


async def test_step_with_spent_retries_fails_the_turn_with_the_last_error(tmp_path):
    tries: list[int] = []

    async def broken() -> None:
        tries.append(1)
        raise ConnectionError(f"reset {len(tries)}")

    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", broken, retry=replace(AT_ONCE, max_attempts=2))

    async with lab(App(), tmp_path) as harness:
        assert failure(await run(harness, turn)) == ("TRANSPORT_ERROR", "reset 6")
        assert len(tries) == 2 * 3


async def test_step_retries_keep_their_count_over_a_restart(tmp_path):
    tries: list[int] = []
    stuck = anyio.Event()

    async def broken() -> None:
        tries.append(len(tries))
        if len(tries) == 3:
            stuck.set()
            await anyio.sleep_forever()  # until the engine stops
        raise ConnectionError(f"reset {len(tries)}")

    app = App()

    @app.workflow("fetches", max_attempts=1)
    async def fetches(ctx: TaskContext) -> None:
        await ctx.step("fetch", broken, retry=replace(AT_ONCE, max_attempts=4))

    config = replace(settings(), daemon=replace(settings().daemon, shutdown_grace=0.0))
    async with lab(app, tmp_path, config):
        work = await app.emit("fetches")
        await stuck.wait()
    async with lab(app, tmp_path, config) as harness:
        assert failure(await harness.ended(work.id)) == ("TRANSPORT_ERROR", "reset 5")

    assert len(tries) == 5, "two failures, the interrupted try and two more: the last is the fourth counted try"


async def test_step_has_all_its_tries_in_the_attempts_of_a_retried_task(tmp_path):
    tries: list[int] = []
    stuck = anyio.Event()

    async def broken() -> None:
        tries.append(1)
        if len(tries) == 8:
            stuck.set()
            await anyio.sleep_forever()  # until the engine stops
        raise ConnectionError("reset")

    app = App()

    @app.workflow("fetches", max_attempts=2)
    async def fetches(ctx: TaskContext) -> None:
        await ctx.step("fetch", broken, retry=AT_ONCE)

    config = replace(settings(), daemon=replace(settings().daemon, shutdown_grace=0.0))
    async with lab(app, tmp_path, config) as harness:
        work = await app.emit("fetches")
        assert failure(await harness.ended(work.id))[0] == "TRANSPORT_ERROR"
        assert len(tries) == 2 * 3
        await app.retry_task(work.id)
        await stuck.wait()
    async with lab(app, tmp_path, config) as harness:
        assert failure(await harness.ended(work.id))[0] == "TRANSPORT_ERROR"

    assert len(tries) == 2 * 3 + 2 * 3 + 1, "the try that the shutdown interrupted does not count"


@pytest.mark.parametrize("pause", ["sleep", "snooze"])
async def test_step_has_all_its_tries_after_a_pause_of_its_turn(tmp_path, pause):
    tries: list[list[int]] = []

    async def broken() -> None:
        tries[-1].append(1)
        raise ConnectionError("reset")

    async def turn(ctx: TaskContext) -> str:
        tries.append([])
        try:
            await ctx.step("fetch", broken, retry=AT_ONCE)
        except ConnectionError:
            if pause == "sleep":
                await ctx.sleep(0.001)
            elif len(tries) == 1:
                raise Snooze("waits", until=0.001) from None
        return "gave up"

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "gave up"
    assert [len(one) for one in tries] == [3, 3]


async def test_step_timeout_fails_the_try_and_is_retried(tmp_path):
    tries: list[int] = []

    async def slow() -> str:
        tries.append(len(tries))
        if len(tries) == 1:
            await anyio.sleep_forever()
        return "at last"

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.step("fetch", slow, retry=AT_ONCE, timeout=0.05)

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "at last"
        [failed] = harness.rows("SELECT payload_json FROM events WHERE type = 'STEP_FAILED'")
        assert "step fetch did not end within 0.05 seconds" in failed["payload_json"]


async def test_step_timeout_without_retry_fails_the_turn(tmp_path):
    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", anyio.sleep_forever, timeout=timedelta(milliseconds=10))

    async with lab(App(), tmp_path) as harness:
        code, message = failure(await run(harness, turn))
        assert (code, message) == ("AGENT_TIMEOUT", "step fetch did not end within 0.01 seconds")


@pytest.mark.parametrize("timeout", [0, -1, "soon"])
async def test_invalid_step_timeout_is_refused(tmp_path, timeout):
    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", anyio.sleep_forever, timeout=timeout)

    async with lab(App(), tmp_path) as harness:
        assert failure(await run(harness, turn))[0] == "VALIDATION_ERROR"


async def test_step_timeout_of_a_plain_function_is_refused(tmp_path):
    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", str, timeout=5)

    async with lab(App(), tmp_path) as harness:
        code, message = failure(await run(harness, turn))
        assert code == "VALIDATION_ERROR"
        assert "timeout needs an async function" in message


async def test_step_retry_waits_for_the_longer_of_retry_after_and_backoff(tmp_path):
    async def limited() -> str:
        if not waits:
            waits.append(1)
            raise Retry("too many requests", after=0.05)
        return "done"

    waits: list[int] = []

    async def turn(ctx: TaskContext) -> str:
        return await ctx.step("fetch", limited, retry=AT_ONCE)

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "done"
        [failed] = harness.rows("SELECT payload_json FROM events WHERE type = 'STEP_FAILED'")
        assert json.loads(failed["payload_json"])["retry_in"] == 0.05


NOT_RETRYABLE: list[tuple[Exception, str]] = [
    (Fail("NO_SUCH_CITY", "there is none"), "NO_SUCH_CITY"),
    (InvalidInput("nonsense"), "VALIDATION_ERROR"),
]


@pytest.mark.parametrize(("error", "code"), NOT_RETRYABLE)
async def test_step_error_that_is_not_retryable_is_not_retried(tmp_path, error, code):
    tries: list[int] = []

    async def not_retryable() -> None:
        tries.append(1)
        raise error

    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", not_retryable, retry=AT_ONCE)

    async with lab(App(), tmp_path) as harness:
        assert failure(await run(harness, turn))[0] == code
        assert len(tries) == 1


async def test_snooze_in_a_step_snoozes_the_turn(tmp_path):
    tries: list[int] = []

    async def later() -> str:
        tries.append(1)
        if len(tries) == 1:
            raise Snooze(until=NEW_YEAR + 3600)
        return "done"

    async def turn(ctx: TaskContext) -> list[Any]:
        return [await ctx.step("fetch", later, retry=AT_ONCE), ctx.attempt]

    clock = VirtualClock()
    async with lab(App(), tmp_path, clock=clock) as harness:
        task_id = await begin(harness, turn)
        await harness.until(lambda: harness.trigger(task_id)["reason"] == "snoozed")
        clock.advance(hours=1)
        harness.engine.feeder.ring()
        assert result(await harness.ended(task_id)) == ["done", 1]
        assert len(tries) == 2


# Results


class Colour(Enum):
    RED = "red"


@dataclass
class Point:
    x: int
    y: int


class Item(msgspec.Struct):
    name: str
    at: datetime
    points: list[Point] = []


class Pair(NamedTuple):
    left: int
    right: str


MOMENT = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)
VALUES: list[tuple[Any, Any]] = [
    (int, 7),
    (float, 2.0),
    (str, "Grüße \N{SNOWMAN}"),
    (bool, True),
    (type(None), None),
    (Point, Point(1, 2)),
    (Item, Item(name="a", at=MOMENT, points=[Point(1, 2)])),
    (list[Point], [Point(1, 2), Point(3, 4)]),
    (dict[str, Item], {"a": Item(name="a", at=MOMENT)}),
    (dict[int, str], {1: "one"}),
    (Pair, Pair(1, "one")),
    (tuple[int, str], (1, "one")),
    (set[int], {3, 1, 2}),
    (frozenset[str], frozenset({"a", "b"})),
    (Colour, Colour.RED),
    (datetime, MOMENT),
    (date, date(2026, 1, 2)),
    (timedelta, timedelta(seconds=90)),
    (UUID, UUID(int=7)),
    (Decimal, Decimal("1.10")),
    (bytes, b"\x00\xff"),
    (Point | None, None),
    (Point | None, Point(1, 2)),
]


async def test_step_result_has_the_annotated_type_at_first_and_at_a_retry(tmp_path):
    got: list[Any] = []

    async def turn(ctx: TaskContext) -> None:
        got.append(await ctx.step("fetch", fetch))
        if ctx.attempt == 1:
            raise ValueError("once more")

    async with lab(App(), tmp_path) as harness:
        for kind, value in VALUES:
            got.clear()

            async def fetch(value: Any = value) -> Any:
                return value

            fetch.__annotations__["return"] = kind
            result(await run(harness, turn))
            assert got == [value, value], kind
            assert type(got[0]) is type(got[1]) is type(value), kind


async def test_step_result_without_annotation_is_plain_json_at_first_and_at_a_retry(tmp_path):
    got: list[Any] = []

    async def fetch():
        return Point(1, 2), {"at": MOMENT}, {2, 1}

    async def turn(ctx: TaskContext) -> None:
        got.append(await ctx.step("fetch", fetch))
        if ctx.attempt == 1:
            raise ValueError("once more")

    async with lab(App(), tmp_path) as harness:
        result(await run(harness, turn))
    assert got[0] == got[1] == [{"x": 1, "y": 2}, {"at": "2026-03-29T02:30:00Z"}, [1, 2]]


async def test_step_result_changed_by_the_turn_leaves_the_record_unchanged(tmp_path):
    async def fetch() -> dict[str, list[int]]:
        return {"n": [1]}

    async def turn(ctx: TaskContext) -> Any:
        got = await ctx.step("fetch", fetch)
        got["n"].append(2)
        if ctx.attempt == 1:
            raise ValueError("once more")
        return got

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == {"n": [1, 2]}


UNSTORABLE_RESULTS: list[tuple[Any, str]] = [
    (object(), "the result of step fetch: object is not JSON"),
    ({"a": [1, object()]}, "the result of step fetch.a[1]: object is not JSON"),
    ({"a": float("nan")}, "the result of step fetch.a is NaN"),
    ({"a": {"b": "\ud800"}}, "the result of step fetch.a.b holds a lone surrogate"),
    ({1.5: "a"}, "the result of step fetch: key 1.5 is not text"),
    (lambda: None, "the result of step fetch: function is not JSON"),
]


async def test_step_result_that_is_not_json_fails_the_task_with_the_path(tmp_path):
    ran: list[Any] = []

    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", fetch)

    async with lab(App(), tmp_path) as harness:
        for value, refusal in UNSTORABLE_RESULTS:

            async def fetch(value: Any = value) -> Any:
                ran.append(value)
                return value

            code, message = failure(await run(harness, turn))
            assert (code, message[: len(refusal)]) == ("VALIDATION_ERROR", refusal)
        assert len(ran) == len(UNSTORABLE_RESULTS), "no step is retried"


async def test_step_result_that_does_not_fit_the_annotation_fails_the_task(tmp_path):
    async def fetch() -> list[Point]:
        return [Point(1, 2), {"x": 1, "y": "two"}]  # type: ignore[list-item]

    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", fetch)

    async with lab(App(), tmp_path) as harness:
        code, message = failure(await run(harness, turn))
        assert code == "VALIDATION_ERROR"
        assert message.startswith("the result of step fetch[1].y: ")


async def test_step_result_over_the_limit_fails_the_task_with_a_remedy(tmp_path):
    async def fetch() -> str:
        return "x" * 2_000

    async def turn(ctx: TaskContext) -> None:
        await ctx.step("fetch", fetch)

    async with lab(App(), tmp_path, settings_of(result_max_bytes=1024)) as harness:
        code, message = failure(await run(harness, turn))
        assert code == "PAYLOAD_TOO_LARGE"
        assert message == (
            "the result of step fetch has 2,002 bytes; the limit is 1,024 (tasks.result_max_bytes). "
            "Store it elsewhere and keep a reference"
        )


# Kinds of step functions


def plain(n: int) -> list[Any]:
    return [n, threading.current_thread() is threading.main_thread()]


class Fetcher:
    def __init__(self, n: int) -> None:
        self.n = n

    def method(self) -> list[Any]:
        return plain(self.n)

    async def awaited(self) -> list[Any]:
        return plain(self.n)

    def __call__(self) -> list[Any]:
        return plain(self.n)


STEPS: list[tuple[Callable[[], Any], bool]] = [
    (partial(plain, 7), False),
    (Fetcher(7), False),
    (Fetcher(7).method, False),
    (Fetcher(7).awaited, True),
    (partial(Fetcher(7).awaited), True),
    (lambda: plain(7), False),
]


async def test_step_that_is_not_async_runs_in_a_thread(tmp_path):
    async def turn_of(ctx: TaskContext, fn: Callable[[], Any]) -> Any:
        return await ctx.step("fetch", fn)

    async with lab(App(), tmp_path) as harness:
        for fn, on_the_loop in STEPS:
            assert result(await run(harness, partial(turn_of, fn=fn))) == [7, on_the_loop], fn


async def test_plain_step_that_blocks_does_not_delay_other_tasks(tmp_path):
    inside, proceed = threading.Event(), threading.Event()

    def blocks() -> str:
        inside.set()
        proceed.wait()
        return "went on"

    async def turn(ctx: TaskContext) -> str:
        return await ctx.step("block", blocks)

    async def quick(ctx: TaskContext) -> str:
        return await ctx.step("quick", Counting(), "quick")

    async with lab(App(), tmp_path) as harness:
        async with anyio.create_task_group() as group:
            rows: list[dict[str, Any]] = []

            async def blocked() -> None:
                rows.append(await run(harness, turn))

            group.start_soon(blocked)
            await anyio.to_thread.run_sync(inside.wait)
            assert result(await run(harness, quick)) == "quick"
            assert rows == []
            proceed.set()
        assert result(rows[0]) == "went on"


async def test_step_is_recorded_when_the_turn_suspends_before_the_record_is_written(tmp_path):
    """The record stays in the queue of the writer, so the step does not run again when the turn is re-entered."""
    app = App()
    calls: list[int] = []
    ran, inside, proceed = anyio.Event(), threading.Event(), threading.Event()

    async def pay() -> None:
        calls.append(1)
        ran.set()
        await anyio.to_thread.run_sync(inside.wait)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(ctx.step, "pay", pay)
            if ctx.resume == "FIRST":
                await harness.until(lambda: len(harness.engine.writer.queue) == 1)
            await ctx.sleep(0)

    def hold(_tx: Any) -> None:
        inside.set()
        proceed.wait(PATIENCE)

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("order")
        await ran.wait()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.engine.writer.commit, hold)
            await harness.until(lambda: harness.engine.consumer.running[1].turn.wait is not None)  # type: ignore[union-attr]
            await anyio.wait_all_tasks_blocked()
            proceed.set()
        assert (await harness.ended(emitted.id))["status"] == "DONE"
        assert calls == [1]


@pytest.mark.parametrize("end", ["suspended", "timeout"])
async def test_plain_step_that_outlasts_the_turn_is_recorded_on_return(tmp_path, end):
    """The step returns while the turn unwinds, and does not run again when the turn is re-entered."""
    app = App()
    calls: list[int] = []
    inside, proceed = threading.Event(), threading.Event()

    def pay() -> str:
        calls.append(1)
        inside.set()
        proceed.wait(PATIENCE)
        return "paid"

    @app.workflow("order", timeout=PATIENCE)
    async def order(ctx: TaskContext) -> Any:
        if end == "timeout":
            return await ctx.step("pay", pay)
        async with anyio.create_task_group() as group:
            group.start_soon(ctx.step, "pay", pay)
            await anyio.to_thread.run_sync(inside.wait)
            await ctx.sleep(0)

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("order")
        await anyio.to_thread.run_sync(inside.wait)
        [run] = harness.engine.consumer.running.values()
        scope = run._scope
        assert scope is not None
        if end == "timeout":
            harness.end_time()
        await harness.until(lambda: scope.cancel_called or (run.turn is not None and run.turn.wait is not None))
        proceed.set()
        assert (await harness.ended(emitted.id))["status"] == "DONE"
        assert calls == [1]


async def test_step_cancelled_with_the_task_is_not_recorded(tmp_path):
    seen: list[str] = []

    async def hang() -> None:
        seen.append("began")
        try:
            await anyio.sleep_forever()
        finally:
            seen.append("unwound")

    app = App()

    @app.workflow("hangs")
    async def hangs(ctx: TaskContext) -> None:
        await ctx.step("hang", hang)

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("hangs")
        await harness.until(lambda: seen == ["began"])
        await app.cancel_task(emitted.id)
        row = await harness.ended(emitted.id)
        assert (row["status"], seen) == ("CANCELLED", ["began", "unwound"])
        assert not harness.rows("SELECT 1 FROM events WHERE type = 'STEP_COMPLETED'")


# Notes


async def test_note_is_in_the_stream_once_over_all_attempts(tmp_path):
    async def turn(ctx: TaskContext) -> list[Any]:
        await ctx.note("seen", {"city": "rome"})
        await ctx.note("seen", key="again")
        if ctx.attempt < 3:
            raise ValueError("once more")
        return [event.data for event in await ctx.events() if event.type == "NOTE"]

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == [
            {"data": {"city": "rome"}, "key": None, "name": "seen"},
            {"data": None, "key": "again", "name": "seen"},
        ]


@pytest.mark.parametrize(
    ("note", "code", "refusal"),
    [
        (lambda ctx: ctx.note("seen"), "STEP_CONFLICT", "note seen was used before"),
        (lambda ctx: ctx.note("bad", {"a": object()}), "VALIDATION_ERROR", "note bad.a: object is not JSON"),
        (lambda ctx: ctx.note("two words"), "VALIDATION_ERROR", "note name 'two words' must be"),
    ],
)
async def test_note_with_a_used_name_invalid_name_or_invalid_data_is_refused(tmp_path, note, code, refusal):
    async def turn(ctx: TaskContext) -> None:
        await ctx.note("seen")
        await note(ctx)

    async with lab(App(), tmp_path) as harness:
        found, message = failure(await run(harness, turn))
        assert (found, message[: len(refusal)]) == (code, refusal)


async def test_note_larger_than_the_result_limit_fails_the_task(tmp_path):
    app = App()

    @app.workflow("big")
    async def big(ctx: TaskContext) -> None:
        await ctx.note("page", "x" * 1024)

    small = replace(settings(), tasks=replace(settings().tasks, result_max_bytes=1024))
    async with lab(app, tmp_path, small) as harness:
        emitted = await app.emit("big")
        row = await harness.ended(emitted.id)
        assert (row["status"], row["error_code"]) == ("FAILED", "PAYLOAD_TOO_LARGE")


async def test_note_and_step_may_have_the_same_name(tmp_path):
    async def turn(ctx: TaskContext) -> str:
        await ctx.note("fetch")
        return str(await ctx.step("fetch", Counting(), "both"))

    async with lab(App(), tmp_path) as harness:
        assert result(await run(harness, turn)) == "both"
