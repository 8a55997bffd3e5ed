"""Call marks: written to disk before the calls, and one write for all waiting acts."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from craftcore import App, Call, TaskContext
from craftcore.daemon.lock import DaemonLock, read_note
from craftcore.engine.turn.sqlite_journal import CallMarks
from craftcore.errors import StorageError
from craftcore.tasks.activity_events import ActivityEvents
from tests.support.engine_harness import lab, settings
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

NO_EVENTS = cast(ActivityEvents, None)
"""A placeholder for tests that write marks and begin no acts."""


class Disk:
    """A disk that writes when released, after the given number of failures."""

    def __init__(self, *, failures: int = 0) -> None:
        self.writes: list[int] = []
        self.failures = failures
        self.inside, self.proceed = threading.Event(), threading.Event()

    def write(self, mark: int) -> None:
        self.inside.set()
        assert self.proceed.wait(PATIENCE)
        if self.failures:
            self.failures -= 1
            raise OSError("no space")
        self.writes.append(mark)


async def test_call_marks_requested_during_a_write_share_the_next_write():
    disk = Disk()
    marks = CallMarks(NO_EVENTS, disk.write)
    reached: list[int] = []

    async def wait_for(mark: int) -> None:
        await marks.wait_for(mark)
        assert disk.writes[-1] >= mark
        reached.append(mark)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for, 1)
            await anyio.to_thread.run_sync(disk.inside.wait)
            for mark in range(2, 100):
                tasks.start_soon(wait_for, mark)
            await anyio.wait_all_tasks_blocked()
            assert reached == []
            disk.proceed.set()

    assert disk.writes == [1, 99]
    assert sorted(reached) == list(range(1, 100))


async def test_call_mark_at_or_below_the_written_mark_needs_no_write():
    disk = Disk()
    disk.proceed.set()
    marks = CallMarks(NO_EVENTS, disk.write)

    for mark in (5, 5, 4, 6):
        await marks.wait_for(mark)

    assert disk.writes == [5, 6]


async def test_call_mark_waiting_on_a_failed_write_is_written_again():
    disk = Disk(failures=1)
    marks = CallMarks(NO_EVENTS, disk.write)
    outcomes: list[str] = []

    async def wait_for(mark: int) -> None:
        try:
            await marks.wait_for(mark)
            outcomes.append(f"{mark} written")
        except OSError:
            outcomes.append(f"{mark} refused")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for, 1)
            await anyio.to_thread.run_sync(disk.inside.wait)
            tasks.start_soon(wait_for, 2)
            await anyio.wait_all_tasks_blocked()
            disk.proceed.set()

    assert sorted(outcomes) == ["1 refused", "2 written"]
    assert disk.writes == [2]


async def test_call_mark_write_with_a_cancelled_waiter_still_serves_other_waiters():
    disk = Disk()
    marks = CallMarks(NO_EVENTS, disk.write)
    reached: list[int] = []

    async def wait_for(mark: int) -> None:
        await marks.wait_for(mark)
        reached.append(mark)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as cancelled:
                cancelled.start_soon(wait_for, 1)
                await anyio.to_thread.run_sync(disk.inside.wait)
                tasks.start_soon(wait_for, 2)
                cancelled.cancel_scope.cancel()
                disk.proceed.set()

    assert disk.writes[-1] == 2
    assert 2 in reached


# In a running engine

TASKS = 20


def build_app(provider: Any, *, together: int = 1) -> App:
    """Build an app whose tasks pay together once the given number of tasks has begun."""
    app, begun, gate = App(), list[int](), anyio.Event()
    app.action("pay", irreversible=True)(provider)

    @app.workflow("pays")
    async def pays(ctx: TaskContext, n: int) -> Any:
        begun.append(n)
        if len(begun) >= together:
            gate.set()
        await gate.wait()
        return await ctx.act("pay", n=n)

    return app


async def test_acts_of_the_same_commit_share_a_single_call_mark_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The writer thread has written the mark before the first of the calls."""
    marked: list[tuple[int, str]] = []
    seen: list[int | None] = []
    mark = DaemonLock.mark

    def counted(self: DaemonLock, call_mark: int) -> None:
        mark(self, call_mark)
        marked.append((call_mark, threading.current_thread().name))

    monkeypatch.setattr(DaemonLock, "mark", counted)

    async def provider(call: Call, *, n: int) -> int:
        note, _ = read_note(tmp_path / "agent.db")
        seen.append(None if note is None else note.call_mark)
        return n

    async with lab(build_app(provider, together=TASKS), tmp_path, settings(concurrency=TASKS)) as harness:
        for n in range(TASKS):
            await harness.app.emit("pays", {"n": n})
        await harness.until(lambda: len(harness.rows("SELECT 1 FROM tasks WHERE ended_at IS NOT NULL")) == TASKS)
        [row] = harness.rows("SELECT value FROM facts WHERE name = 'call_mark'")

    assert len(seen) == TASKS
    assert None not in seen
    marks = [number for number, _ in marked]
    assert marks == list(range(1, int(row["value"]) + 1)), "one write for each commit that began acts"
    assert len(marks) < TASKS // 2
    assert {name for _, name in marked} == {"craftcore-writer"}


@pytest.mark.parametrize("failures", [1, 2])
async def test_call_mark_failed_in_the_writer_is_retried_once_by_the_call(tmp_path, monkeypatch, failures):
    mark = DaemonLock.mark
    threads: list[str] = []
    calls: list[int] = []

    def fails(self: DaemonLock, call_mark: int) -> None:
        threads.append(threading.current_thread().name)
        if len(threads) <= failures:
            raise StorageError("cannot write the lock file")
        mark(self, call_mark)

    monkeypatch.setattr(DaemonLock, "mark", fails)

    async def provider(call: Call, *, n: int) -> int:
        calls.append(call.attempt)
        return n

    async with lab(build_app(provider), tmp_path) as harness:
        await harness.ended((await harness.app.emit("pays", {"n": 1})).id)
        rows = harness.rows("SELECT type FROM events WHERE type LIKE 'ACTIVITY%' ORDER BY seq")

    first, second = threads[:2]
    assert (first, second != first) == ("craftcore-writer", True)
    assert calls == [failures], "a call whose mark could not be written was not made"
    refused = ["ACTIVITY_INTENT", "ACTIVITY_FAILED"] * (failures - 1)
    assert [row["type"] for row in rows] == [*refused, "ACTIVITY_INTENT", "ACTIVITY_DONE"]
