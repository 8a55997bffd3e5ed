"""A call mark is on disk before the calls that it stands for, and one write serves all that wait."""

from __future__ import annotations

import threading

import anyio
import pytest

from craftcore.engine.call_marks import CallMarks
from tests.processes import PATIENCE


class Disk:
    """Writes when it is let, and fails as often as it is told."""

    def __init__(self, *, failures: int = 0) -> None:
        self.writes: list[int] = []
        self.failures = failures
        self.inside, self.go_on = threading.Event(), threading.Event()

    def write(self, mark: int) -> None:
        self.inside.set()
        assert self.go_on.wait(PATIENCE)
        if self.failures:
            self.failures -= 1
            raise OSError("no space")
        self.writes.append(mark)


@pytest.mark.anyio
async def test_all_that_come_during_a_write_share_the_next_one():
    disk = Disk()
    marks = CallMarks(disk.write)
    reached: list[int] = []

    async def wait_for(mark: int) -> None:
        await marks.reached(mark)
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
            disk.go_on.set()

    assert disk.writes == [1, 99]
    assert sorted(reached) == list(range(1, 100))


@pytest.mark.anyio
async def test_a_mark_that_was_passed_needs_no_write():
    disk = Disk()
    disk.go_on.set()
    marks = CallMarks(disk.write)

    for mark in (5, 5, 4, 6):
        await marks.reached(mark)

    assert disk.writes == [5, 6]


@pytest.mark.anyio
async def test_whoever_waited_for_a_write_that_failed_tries_it_again():
    disk = Disk(failures=1)
    marks = CallMarks(disk.write)
    came: list[str] = []

    async def wait_for(mark: int) -> None:
        try:
            await marks.reached(mark)
            came.append(f"{mark} written")
        except OSError:
            came.append(f"{mark} refused")

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait_for, 1)
            await anyio.to_thread.run_sync(disk.inside.wait)
            tasks.start_soon(wait_for, 2)
            await anyio.wait_all_tasks_blocked()
            disk.go_on.set()

    assert sorted(came) == ["1 refused", "2 written"]
    assert disk.writes == [2]


@pytest.mark.anyio
async def test_whoever_is_cancelled_over_a_write_leaves_the_others_in_no_doubt():
    disk = Disk()
    marks = CallMarks(disk.write)
    reached: list[int] = []

    async def wait_for(mark: int) -> None:
        await marks.reached(mark)
        reached.append(mark)

    with anyio.fail_after(PATIENCE):
        async with anyio.create_task_group() as tasks:
            async with anyio.create_task_group() as cancelled:
                cancelled.start_soon(wait_for, 1)
                await anyio.to_thread.run_sync(disk.inside.wait)
                tasks.start_soon(wait_for, 2)
                cancelled.cancel_scope.cancel()
                disk.go_on.set()

    assert disk.writes[-1] == 2
    assert 2 in reached
