"""A disk that is full, or that cannot flush, at each place of a story: each written byte and each flush is a place.

The story emits tasks, each with a step, an irreversible action and a second turn. A run on a healthy disk counts the
places. Then each story meets the fault at one place, and continues on a healthy disk until all work is done. The story
counts the effects of the action outside of the database.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import anyio
import apsw

from craftcore import App, Call, Continue, TaskContext
from craftcore.config import Config, DaemonSettings
from craftcore.engine import durable_commit
from craftcore.errors import CraftcoreError, StorageFull
from craftcore.storage.transaction import Reader
from craftcore.testing.faulty_disk import FaultyDisk
from tests.crash.task_never import broken_invariants
from tests.evidence.model import Findings

CONFIG = Config(daemon=DaemonSettings(poll_seconds=0.05, concurrency=1))
TASKS = 3
PATIENCE = 60.0
UNLIMITED = 1 << 40
"""A number of bytes or flushes that no story reaches.

SQLite ignores an error of the checkpoint when it closes a file, but apsw raises the errors of this disk.
"""

UNSETTLED = "SELECT count(*) FROM triggers WHERE status IN ('PENDING', 'CLAIMED')"
OPEN = "SELECT task_seq FROM questions WHERE status = 'OPEN'"
TRIGGERS = "SELECT id FROM triggers"
TASK_ROWS = """
SELECT payload_json ->> '$.n', tasks.seq, tasks.status
  FROM tasks
  JOIN triggers ON triggers.id = tasks.id
"""


class Story(NamedTuple):
    """An app, the effects of its actions by task, and the ids that were accepted."""

    app: App
    effects: Counter[int]
    accepted: dict[int, str]


def a_story() -> Story:
    """Return a new story."""
    story = Story(App("disk"), Counter(), {})

    @story.app.action("send", irreversible=True)
    async def send(call: Call, *, n: int) -> str:
        story.effects[n] += 1
        return f"sent {n}"

    @story.app.workflow("work")
    async def work(ctx: TaskContext, n: int) -> object:
        if ctx.turn == 1:
            await ctx.step("prepare", abs, n)
            return Continue(await ctx.act(send, n=n))
        return ctx.state

    return story


async def live(story: Story, path: Path, disk: FaultyDisk, *, free: bool) -> None:
    """Emit the tasks that are not accepted yet, and run until all work is done.

    `free`: the disk gets space again after it has refused a write.
    """
    async with anyio.create_task_group() as tasks, story.app.running(path, config=CONFIG) as engine:
        if free:
            tasks.start_soon(_free_soon, disk)
        for n in range(TASKS):
            while n not in story.accepted:
                try:
                    handle = await story.app.emit("work", {"n": n}, dedup_key=f"{n}", dedup_scope="ever")
                    story.accepted[n] = handle.id
                except StorageFull:
                    await anyio.sleep(0.002)
        with anyio.fail_after(PATIENCE):
            while _unsettled(path) or not engine.is_idle:  # noqa: ASYNC110 - a file has no event to wait on
                await anyio.sleep(0.002)
        tasks.cancel_scope.cancel()


async def _free_soon(disk: FaultyDisk) -> None:
    while not disk.refused_writes:  # noqa: ASYNC110 - the disk has no event to wait on
        await anyio.sleep(0.001)
    await anyio.sleep(0.01)
    disk.free()


def _unsettled(path: Path) -> int:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return int(connection.execute(UNSETTLED).get)
    finally:
        connection.close()


def judge(story: Story, path: Path, place: str, found: Findings) -> None:
    """Compare the database with the effects. Call it when all work is done."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        present = {id for (id,) in connection.execute(TRIGGERS)}
        asked = {seq for (seq,) in connection.execute(OPEN)}
        tasks = {n: (seq, status) for n, seq, status in connection.execute(TASK_ROWS)}
        found.wrong += [f"{place}: {text}" for text in broken_invariants(Reader(connection))]
    finally:
        connection.close()
    for n, id in story.accepted.items():
        seq, status = tasks.get(n, (0, "gone"))
        if id not in present or (status == "DONE" and not story.effects[n]) or (status != "DONE" and seq not in asked):
            found.lost += 1
            found.wrong.append(f"{place}: task {n} is {status}, with {story.effects[n]} effects")
        if story.effects[n] > 1:
            found.repeated += 1
            found.wrong.append(f"{place}: task {n} had its effect {story.effects[n]} times")


def failed_flushes(places: int, seed: int, folder: Path) -> Findings:
    """Fail the flushes of a story from each place on, one story for each place."""
    return _run_each_place(
        folder, places, "flush", lambda disk: disk.fail_syncs(after=UNLIMITED), _flushes, _fail_flush
    )


def full_disks(places: int, seed: int, folder: Path) -> Findings:
    """Fill the disk at places that are spread over all bytes of the story."""
    return _run_each_place(folder, places, "byte", lambda disk: disk.fill(after_bytes=UNLIMITED), _bytes, _fill)


def _flushes(disk: FaultyDisk) -> int:
    return UNLIMITED - int(disk.syncs_left)


def _bytes(disk: FaultyDisk) -> int:
    return UNLIMITED - int(disk.space_left)


def _fail_flush(story: Story, path: Path, disk: FaultyDisk, place: int) -> None:
    disk.fail_syncs(after=place)
    try:
        anyio.run(lambda: live(story, path, disk, free=False))
    except* (CraftcoreError, apsw.IOError):
        pass
    disk.free()
    anyio.run(lambda: live(story, path, disk, free=False))


def _fill(story: Story, path: Path, disk: FaultyDisk, place: int) -> None:
    disk.fill(after_bytes=place)
    try:
        anyio.run(lambda: live(story, path, disk, free=True))
    except* (StorageFull, apsw.FullError):  # the disk was full before the engine ran; a daemon would start again
        disk.free()
        anyio.run(lambda: live(story, path, disk, free=False))


def _run_each_place(
    folder: Path,
    most: int,
    unit: str,
    limit: Callable[[FaultyDisk], object],
    used: Callable[[FaultyDisk], int],
    fault: Callable[[Story, Path, FaultyDisk, int], object],
) -> Findings:
    """Count the places of a healthy story, and run a story with the fault at each, or at about `most` of them."""
    found, before = Findings(), durable_commit.FULL_DISK_SECONDS
    durable_commit.FULL_DISK_SECONDS = 0.01
    try:
        with FaultyDisk() as disk:
            limit(disk)
            anyio.run(lambda: live(a_story(), folder / "healthy.db", disk, free=False))
            present = used(disk)
        for place in range(0, present, max(1, math.ceil(present / most))):
            story, path = a_story(), folder / f"{place}.db"
            with FaultyDisk() as disk:
                fault(story, path, disk, place)
            judge(story, path, f"{unit} {place}", found)
            found.count += 1
            for file in folder.glob(f"{place}.db*"):
                file.unlink()
    finally:
        durable_commit.FULL_DISK_SECONDS = before
    found.more = f"of {present:,} {unit}s that the story writes" if unit == "byte" else f"of {present:,} flushes"
    return found
