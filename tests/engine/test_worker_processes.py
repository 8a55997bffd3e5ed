"""Functions in worker processes: a process that dies or hangs fails one call, and the pool goes on."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from benchmarks.processes import longest_delay
from craftcore import App, ConfigInvalid, Fail, InvalidInput, RetryPolicy, TaskContext, WorkerDied
from craftcore.engine.workers import answer
from tests.support import process_functions as functions
from tests.support.engine_harness import Lab, lab, settings
from tests.support.loops import ON_ASYNCIO
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

ONCE = RetryPolicy(max_attempts=1)
AT_ONCE = RetryPolicy(max_attempts=3, base=0, cap=0)

Body = Callable[[TaskContext], Any]


@asynccontextmanager
async def running_turn(folder: Path, body: Body, **daemon: Any) -> AsyncIterator[Any]:
    """Run a workflow with this body and yield the lab and the settled trigger."""
    app = App()

    @app.workflow("w", max_attempts=1)
    async def w(ctx: TaskContext) -> Any:
        return await body(ctx)

    async with lab(app, folder, settings(**daemon)) as harness:
        yield harness, await harness.settled((await app.emit("w")).id)


async def result_of(folder: Path, body: Body, **daemon: Any) -> Any:
    async with running_turn(folder, body, **daemon) as (harness, row):
        assert row["status"] == "DONE", row
        return harness.response(row["id"])["payload"]


async def error_of(folder: Path, body: Body) -> dict[str, Any]:
    async with running_turn(folder, body) as (harness, row):
        assert row["status"] in ("DEAD", "FAILED"), row
        error: dict[str, Any] = harness.response(row["id"])["error"]
        return error


def read_pids(file: Path) -> list[int]:
    """Return the pids that worker processes have written to the file."""
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


async def test_step_in_a_process_returns_its_typed_result_and_reuses_the_process(tmp_path):
    async def body(ctx: TaskContext) -> list[int]:
        first = await ctx.step("first", functions.add, 1, 2, executor="process")
        second = await ctx.step("second", functools.partial(functions.add, 3), 4, executor="process")
        assert (type(first), first.total, second.total) == (functions.Sum, 3, 7)
        return [first.pid, second.pid]

    first, second = await result_of(tmp_path, body)

    assert first == second != os.getpid()


@ON_ASYNCIO
@pytest.mark.parametrize(
    ("fn", "args", "prefix"),
    [
        (functions.die, (), "the worker process of step s was killed by SIGKILL. See the kernel log"),
        (functions.leave, (3,), "the worker process of step s ended with exit code 3"),
    ],
)
async def test_step_whose_process_dies_raises_clearly_and_the_pool_goes_on(tmp_path, fn, args, prefix):
    """The process ends more often than the pool has slots, so a lost slot or a delay of the loop is noticed."""
    delays: list[float] = []

    async def body(ctx: TaskContext) -> int:
        await ctx.step("import", functions.add, executor="process")
        for number in range(3):

            async def break_one(number: int = number) -> None:
                with pytest.raises(WorkerDied) as raised:
                    await ctx.step("s", fn, *args, key=f"{number}", executor="process")
                assert str(raised.value).startswith(prefix)

            delays.append(await longest_delay(break_one))
        total: int = (await ctx.step("after", functions.add, 1, 2, executor="process")).total
        return total

    assert await result_of(tmp_path, body, worker_processes=1) == 3
    assert min(delays) < 0.1, delays  # of several: a new process may be slow to start


FAILURES = [
    (functions.make_lock, InvalidInput, "the result of step s: lock is not JSON"),
    (functions.raise_holder, Exception, "it holds a lock (Holder cannot be carried to the daemon: "),
    (functions.raise_two_part, Exception, "this and that (TwoPart cannot be carried to the daemon: "),
    (functions.raise_changing, Exception, "no page (Changing cannot be carried to the daemon: it co"),
    (functions.raise_homesick, Exception, "far away (Homesick cannot be carried to the daemon: System"),
    (functions.raise_exit, Exception, "enough (SystemExit cannot be carried to the daemon: it is not"),
    (functions.raise_interrupt, Exception, "KeyboardInterrupt (KeyboardInterrupt cannot be carried to"),
    (functions.raise_no_page, Fail, "page seven is gone"),
    (functions.raise_key, KeyError, "'a'"),
    (functions.fail, Fail, "it is gone"),
]


@ON_ASYNCIO
async def test_step_that_fails_in_a_process_raises_clearly_and_the_process_goes_on(tmp_path):
    """Each function fails more often than the pool has slots, so a lost slot or a delay of the loop is noticed."""
    delays: dict[str, list[float]] = {}

    async def body(ctx: TaskContext) -> list[int]:
        first = await ctx.step("import", functions.add, executor="process")
        for fn, kind, prefix in FAILURES:
            for number in range(3):

                async def break_one(fn: Any = fn, kind: Any = kind, prefix: str = prefix, number: int = number) -> None:
                    with pytest.raises(kind) as raised:
                        await ctx.step("s", fn, key=f"{fn.__name__}-{number}", executor="process")
                    assert str(raised.value).startswith(prefix), fn.__name__

                delays.setdefault(fn.__name__, []).append(await longest_delay(break_one))
        after = await ctx.step("after", functions.add, 1, 2, executor="process")
        return [first.pid, after.pid, after.total]

    first, after, total = await result_of(tmp_path, body, worker_processes=2)

    assert (first, total) == (after, 3)
    assert max(map(min, delays.values())) < 0.1, delays  # of several: a new process may be slow to start


@ON_ASYNCIO
async def test_hanging_step_in_a_process_times_out_and_its_process_group_is_killed(tmp_path):
    pids = tmp_path / "pids"
    delays: list[float] = []

    async def body(ctx: TaskContext) -> int:
        await ctx.step("import", functions.add, executor="process")
        for number in range(3):

            async def hang(number: int = number) -> None:
                with pytest.raises(TimeoutError, match="step s did not end within 1 seconds"):
                    await ctx.step(
                        "s", functions.hang_with_child, str(pids), key=f"{number}", executor="process", timeout=1
                    )

            delays.append(await longest_delay(hang))
        total: int = (await ctx.step("after", functions.add, 1, 2, executor="process")).total
        return total

    async with running_turn(tmp_path, body, worker_processes=1) as (harness, row):
        assert row["status"] == "DONE", row
        begun = read_pids(pids)
        await harness.until(lambda: not any(map(functions.is_alive, begun)))

    assert begun
    assert min(delays) < 0.1, delays


@ON_ASYNCIO
async def test_exception_whose_unpickling_hangs_in_the_daemon_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(answer, "UNPICKLE_SECONDS", 0.2)

    async def body(ctx: TaskContext) -> None:
        await ctx.step("s", functions.raise_sleepy, executor="process")

    error = await error_of(tmp_path, body)

    message = "tired (Sleepy cannot be carried to the daemon: it did not come back within 0.2 seconds)"
    assert (error["message"], error["details"]["exception_type"]) == (message, "Sleepy")


@pytest.mark.parametrize("end", ["cancel", "deadline"])
async def test_step_in_a_process_is_killed_with_its_task(tmp_path, end):
    app, pids = App(), tmp_path / "pids"

    @app.workflow("w", max_attempts=1, deadline=3 if end == "deadline" else None)
    async def w(ctx: TaskContext) -> None:
        await ctx.step("s", functions.hang, str(pids), executor="process")

    async with lab(app, tmp_path) as harness:
        task = (await app.emit("w")).id
        if end == "cancel":
            await harness.until(pids.exists)
            await app.cancel_task(task)
        row = await harness.ended(task)
        assert not any(map(functions.is_alive, read_pids(pids)))

    expected = ("CANCELLED", "WORKFLOW_ABORTED") if end == "cancel" else ("FAILED", "AGENT_TIMEOUT")
    assert (row["status"], row["error_code"]) == expected


@ON_ASYNCIO
async def test_duration_of_a_step_in_a_process_is_on_record(tmp_path):
    begun, go = tmp_path / "begun", tmp_path / "go"

    async def body(ctx: TaskContext) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(functools.partial(ctx.step, "s", functions.wait_for, begun, go, executor="process"))
            while not begun.exists():  # noqa: ASYNC110 - another process writes it
                await anyio.sleep(0.01)
            await anyio.sleep(0.2)
            go.touch()

    async with running_turn(tmp_path, body) as (harness, row):
        assert row["status"] == "DONE", row
        [done] = harness.rows("SELECT payload_json FROM events WHERE type = 'STEP_COMPLETED'")

    assert json.loads(done["payload_json"])["latency_ms"] >= 200


@ON_ASYNCIO
async def test_step_in_a_process_that_dies_is_retried_by_its_policy(tmp_path):
    async def body(ctx: TaskContext) -> Any:
        return await ctx.step("s", functions.die_once, str(tmp_path / "died"), executor="process", retry=AT_ONCE)

    async with running_turn(tmp_path, body) as (harness, row):
        assert harness.response(row["id"])["payload"] == "alive"
        [failed] = harness.rows("SELECT payload_json FROM events WHERE type = 'STEP_FAILED'")

    assert json.loads(failed["payload_json"])["error"].startswith("the worker process of step s was killed by SIGKILL")


@ON_ASYNCIO
async def test_step_in_a_process_that_is_retried_after_a_retry_returns(tmp_path):
    async def body(ctx: TaskContext) -> Any:
        return await ctx.step("s", functions.retry_once, str(tmp_path / "busy"), executor="process", retry=AT_ONCE)

    assert await result_of(tmp_path, body) == "free"


@ON_ASYNCIO
async def test_failure_in_a_process_has_its_type_and_place_on_record(tmp_path):
    app = App()

    @app.workflow("w", max_attempts=1)
    async def w(ctx: TaskContext, name: str) -> None:
        await ctx.step("s", getattr(functions, name), executor="process")

    async with lab(app, tmp_path, settings(worker_processes=1)) as harness:
        for name, kind in (("raise_key", "KeyError"), ("raise_holder", "Holder")):
            row = await harness.settled((await app.emit("w", {"name": name})).id)
            error = harness.response(row["id"])["error"]
            assert (error["code"], error["details"]["exception_type"]) == ("INTERNAL_AGENT_ERROR", kind)
            assert any("process_functions.py" in place for place in error["details"]["where"]), error


@ON_ASYNCIO
async def test_result_over_the_limit_is_refused_in_the_process(tmp_path):
    async def body(ctx: TaskContext) -> None:
        await ctx.step("s", functions.make_text, 9 << 20, executor="process")

    error = await error_of(tmp_path, body)

    assert (error["code"], "tasks.result_max_bytes" in error["message"]) == ("PAYLOAD_TOO_LARGE", True)


@ON_ASYNCIO
@pytest.mark.parametrize(
    ("arguments", "expected"), [((lambda: 1,), "can be pickled"), (("x" * (17 << 20),), "file and")]
)
async def test_arguments_that_cannot_be_sent_are_refused(tmp_path, arguments, expected):
    async def body(ctx: TaskContext) -> None:
        await ctx.step("s", functions.add, *arguments, executor="process")

    error = await error_of(tmp_path, body)

    assert (error["code"], expected in error["message"]) == ("VALIDATION_ERROR", True), error


async def test_waiting_for_a_free_process_does_not_count_as_the_time_of_a_step(tmp_path):
    """The only process runs another step until the waiting step has waited for longer than its own timeout."""
    begun, go = tmp_path / "begun", tmp_path / "go"

    async def body(ctx: TaskContext) -> Any:
        async with anyio.create_task_group() as group:
            group.start_soon(
                functools.partial(ctx.step, "long", functions.wait_for, str(begun), str(go), executor="process")
            )
            with anyio.fail_after(PATIENCE):
                while not begun.exists():  # noqa: ASYNC110 - another process writes it
                    await anyio.sleep(0.01)

            async def add() -> None:
                await ctx.step("short", functions.add, executor="process", timeout=0.5)

            group.start_soon(add)
            await anyio.sleep(0.7)
            go.touch()
        return "both"

    assert await result_of(tmp_path, body, worker_processes=1) == "both"


@ON_ASYNCIO
async def test_process_that_died_while_free_is_replaced_without_a_failure(tmp_path):
    async def body(ctx: TaskContext) -> Any:
        first = (await ctx.step("first", functions.add, executor="process")).pid
        os.kill(first, 9)
        while functions.is_alive(first):  # noqa: ASYNC110 - no event reports the end of a process
            await anyio.sleep(0.005)
        return first != (await ctx.step("second", functions.add, executor="process")).pid

    assert await result_of(tmp_path, body) is True


@ON_ASYNCIO
async def test_forked_child_that_returns_from_a_process_function_ends(tmp_path):
    async def body(ctx: TaskContext) -> Any:
        return await ctx.step("s", functions.fork_and_return, "x", executor="process")

    assert await result_of(tmp_path, body) == 70


@ON_ASYNCIO
async def test_worker_process_does_not_have_the_database_open(tmp_path):
    async def body(ctx: TaskContext) -> Any:
        return await ctx.step("s", functions.has_open, str(tmp_path / "agent.db"), executor="process")

    assert await result_of(tmp_path, body) is False
    assert functions.has_open(str(Path(__file__))) is False


async def test_worker_processes_end_with_the_engine(tmp_path):
    async def body(ctx: TaskContext) -> Any:
        return (await ctx.step("s", functions.add, executor="process")).pid

    pid = await result_of(tmp_path, body)

    assert not functions.is_alive(pid)


# Workflows


@asynccontextmanager
async def running_workflow(
    folder: Path, fn: Callable[..., Any], payload: dict[str, Any], **options: Any
) -> AsyncIterator[tuple[Lab, str]]:
    """Run a workflow in a process and yield the lab and the id of the trigger."""
    app = App()
    app.workflow("w", executor="process", **options)(fn)
    async with lab(app, folder) as harness:
        yield harness, (await app.emit("w", payload, session_id="house")).id


async def settled(folder: Path, fn: Callable[..., Any], payload: dict[str, Any], **options: Any) -> Any:
    async with running_workflow(folder, fn, payload, **options) as (harness, trigger):
        row = await harness.settled(trigger)
        return row, harness.response(trigger)


@ON_ASYNCIO
async def test_workflow_in_a_process_receives_its_payload_and_trigger(tmp_path):
    row, response = await settled(tmp_path, functions.describe, {"path": "a"})

    assert (row["status"], response["payload"]["path"], response["payload"]["session"]) == ("DONE", "a", "house")
    assert response["payload"]["pid"] != os.getpid()


@ON_ASYNCIO
async def test_workflow_in_a_process_that_is_killed_is_retried(tmp_path):
    row, response = await settled(tmp_path, functions.die_once, {"file": str(tmp_path / "died")}, retry=AT_ONCE)

    assert (row["status"], row["attempts"], response["payload"]) == ("DONE", 2, "alive")


@ON_ASYNCIO
async def test_workflow_in_a_process_that_is_always_killed_is_dead_with_the_code(tmp_path):
    row, response = await settled(tmp_path, functions.die, {}, retry=ONCE)

    assert (row["status"], row["error_code"], row["crash_count"]) == ("DEAD", "WORKER_DIED", 0)
    assert response["error"]["message"].startswith("the worker process of w was killed by SIGKILL")


async def test_hanging_workflow_in_a_process_times_out_and_is_killed(tmp_path):
    pids = tmp_path / "pids"
    async with running_workflow(tmp_path, functions.hang, {"file": str(pids)}, retry=ONCE, timeout=3) as (
        harness,
        trigger,
    ):
        row = await harness.settled(trigger)
        assert not any(map(functions.is_alive, read_pids(pids)))

    assert (row["status"], row["error_code"]) == ("DEAD", "AGENT_TIMEOUT")
    assert row["error_message"] == "w did not end within 3.0 s"


async def test_cancelled_workflow_in_a_process_is_killed(tmp_path):
    pids = tmp_path / "pids"
    async with running_workflow(tmp_path, functions.hang, {"file": str(pids)}) as (harness, trigger):
        await harness.until(pids.exists)
        await harness.app.cancel(trigger)
        row = await harness.settled(trigger)
        assert not any(map(functions.is_alive, read_pids(pids)))

    assert (row["status"], row["reason"]) == ("DONE", "cancelled")


@ON_ASYNCIO
async def test_workflow_in_a_process_keeps_the_meaning_of_its_end(tmp_path):
    """The executor changes nothing about results that cannot be stored, Fail, Snooze and Continue."""
    app = App()
    cases: list[tuple[Callable[..., Any], dict[str, str], tuple[Any, ...]]] = [
        (functions.make_lock, {}, ("DONE", None, 1)),
        (functions.fail, {}, ("FAILED", "NO_SUCH_PAGE", 1)),
        (functions.raise_no_page, {}, ("FAILED", "NO_PAGE", 1)),
        (functions.snooze_once, {"file": str(tmp_path / "snoozed")}, ("DONE", None, 1)),
        (functions.go_on, {}, ("FAILED", "VALIDATION_ERROR", 1)),
    ]
    for fn, _, _ in cases:
        app.workflow(fn.__name__, executor="process")(fn)
    responses: dict[str, Any] = {}

    async with lab(app, tmp_path, settings(worker_processes=1)) as harness:
        for fn, payload, expected in cases:
            row = await harness.settled((await app.emit(fn.__name__, payload)).id)
            assert (row["status"], row["error_code"], row["attempts"]) == expected, (fn, row)
            responses[fn.__name__] = harness.response(row["id"])

    assert responses["make_lock"]["payload"] == {"result_unstored": "result: lock is not JSON"}
    assert responses["raise_no_page"]["error"]["details"] == {"number": 7}


# Refusals


async def coroutine_function() -> None: ...


def wrap(fn: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(fn)
    def wrapper(*args: Any) -> Any:
        return fn(*args)

    return wrapper


def from_main() -> None: ...


from_main.__module__ = "__main__"

REFUSED = [
    (coroutine_function, "process", 'executor="process" needs a plain function: declare it with def'),
    (lambda: 1, "process", "a worker process cannot import <lambda>: define it with def at the top level of a module"),
    (from_main, "process", "a worker process cannot import from_main of the main program: move it to another module"),
    (functions.describe, "thread pool", "executor 'thread pool' must be one of thread, inline, process"),
]


@pytest.mark.parametrize(("fn", "executor", "expected"), REFUSED)
async def test_workflow_that_a_process_cannot_import_is_refused(fn, executor, expected):
    with pytest.raises(ConfigInvalid, match=r"^workflow w: ") as refused:
        App().workflow("w", executor=executor)(fn)

    assert expected in refused.value.message


@ON_ASYNCIO
@pytest.mark.parametrize(("fn", "executor", "expected"), REFUSED)
async def test_step_that_a_process_cannot_import_is_refused(tmp_path, fn, executor, expected):
    async def body(ctx: TaskContext) -> None:
        await ctx.step("s", fn, executor=executor)

    error = await error_of(tmp_path, body)

    assert (error["code"], expected in error["message"]) == ("VALIDATION_ERROR", True), error


async def test_local_function_is_refused_as_a_workflow_in_a_process():
    def local() -> None: ...

    with pytest.raises(ConfigInvalid, match="define it with def at the top level of a module, not as a lambda or insi"):
        App().workflow("w", executor="process")(local)


def replaced() -> None: ...


DECLARED = replaced
replaced = wrap(replaced)


@ON_ASYNCIO
async def test_workflow_whose_name_is_another_function_is_refused_at_the_start(tmp_path):
    app = App()
    app.workflow("w", executor="process")(DECLARED)

    with pytest.raises(ConfigInvalid, match=r"w: a worker process cannot import its function .* above all other dec"):
        async with lab(app, tmp_path):
            pass
