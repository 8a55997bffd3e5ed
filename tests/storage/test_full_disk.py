"""Full disks and failing flushes: refused writes, recovery, and the end of the engine."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from craftcore import App, Producer, RetryPolicy, TaskContext, TriggerSpec
from craftcore.clock import SystemClock
from craftcore.config import Config, DaemonSettings, TriggerSettings
from craftcore.engine.engine import Engine
from craftcore.errors import OutcomeUnknown, StorageError, StorageFull
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import Migration
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from craftcore.testing.faulty_disk import FaultyDisk
from tests.support.processes import PATIENCE, environment

TABLES = Migration(name="0001_tables", sql="CREATE TABLE t (x INTEGER PRIMARY KEY, y TEXT) STRICT;")
CONFIG = Config(daemon=DaemonSettings(poll_seconds=0.1, shutdown_grace=PATIENCE))
QUIET = Config(
    daemon=DaemonSettings(poll_seconds=10 * PATIENCE, shutdown_grace=PATIENCE),
    triggers=TriggerSettings(lease_seconds=30 * PATIENCE),
)
"""Settings of an engine that commits nothing while idle, so that the next flush is caused by the test."""


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as disk:
        yield disk


@pytest.fixture
def database(tmp_path: Path, disk: FaultyDisk) -> Iterator[Database]:
    database = Database(tmp_path / "agent.db", SystemClock())
    migrate(database, SystemClock(), [TABLES])
    yield database
    disk.free()
    database.close()


@pytest.fixture(autouse=True)
def quick_disk_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval between two checks of a full disk."""
    monkeypatch.setattr("craftcore.engine.durable_commit.FULL_DISK_SECONDS", 0.02)


def insert(tx: Transaction, x: int, size: int = 10) -> int:
    tx.run("INSERT INTO t (x, y) VALUES (:x, :y)", x=x, y="y" * size)
    return x


def ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query on the real disk, without simulated faults."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


async def until(condition: Any) -> None:
    with anyio.fail_after(PATIENCE):
        while not condition():  # noqa: ASYNC110 - it has no event to wait on
            await anyio.sleep(0.002)


# Transactions, the writer and producers


def test_synchronous_transaction_on_a_full_disk_writes_nothing_and_works_later(database, disk):
    disk.fill()
    with pytest.raises(StorageFull, match="Free some space") as refused:
        with database.transaction() as tx:
            insert(tx, 1)

    disk.free()
    with database.transaction() as tx:
        insert(tx, 2)

    assert refused.value.exit_code == 74
    assert ask(database.path, "SELECT x FROM t") == [(2,)]


@pytest.mark.parametrize(
    ("number", "message"),
    [(errno.EDQUOT, "quota is spent"), (errno.EFBIG, "file-size limit"), (errno.ENOSPC, "is full")],
)
def test_write_without_space_is_a_full_disk_for_every_system_error(database, disk, number, message):
    """SQLite reports each of these errors except ENOSPC as a disk I/O error."""
    disk.refuse_writes(number)
    with pytest.raises(StorageFull, match=f"{message}.*; nothing was written"):
        with database.transaction() as tx:
            insert(tx, 1)
    with pytest.raises(StorageFull, match=message):  # within a statement, which SQLite undoes itself
        with database.transaction() as tx:
            for x in range(20):
                insert(tx, x, 1 << 20)

    disk.free()
    with database.transaction() as tx:
        insert(tx, 2)

    assert ask(database.path, "SELECT x FROM t") == [(2,)]


def test_read_only_file_system_is_reported_and_nothing_was_written(database, disk):
    disk.refuse_writes(errno.EROFS)
    with pytest.raises(StorageError, match="read-only; nothing was written") as refused:
        with database.transaction() as tx:
            insert(tx, 1)

    disk.free()
    assert type(refused.value) is StorageError
    assert refused.value.exit_code == 74
    assert ask(database.path, "SELECT x FROM t") == []


def test_io_error_leaves_the_outcome_unknown(database, disk):
    disk.refuse_writes(errno.EIO)
    with pytest.raises(OutcomeUnknown):
        with database.transaction() as tx:
            insert(tx, 1)


@pytest.mark.parametrize("room", range(0, 30_000, 1_500))
def test_transaction_is_whole_or_absent_wherever_the_space_ends(database, disk, room):
    disk.fill(after_bytes=room)

    try:
        with database.transaction() as tx:
            for x in range(5):
                insert(tx, x, 3_000)
        written = 5
    except StorageFull:
        written = 0

    assert (disk.refused_writes == 0) == (written == 5)
    disk.free()
    with database.transaction() as tx:
        insert(tx, 100)
    assert ask(database.path, "SELECT count(*) FROM t") == [(written + 1,)]
    assert ask(database.path, "PRAGMA integrity_check") == [("ok",)]


def test_transaction_too_large_for_cache_and_disk_is_undone(database, disk):
    """SQLite spills pages into the WAL within a statement, where the space ends."""
    disk.fill(after_bytes=1 << 20)

    with pytest.raises(StorageFull):
        with database.transaction() as tx:
            for x in range(40):
                insert(tx, x, 1 << 20)

    disk.free()
    with database.transaction() as tx:
        insert(tx, 100)
    assert ask(database.path, "SELECT x FROM t") == [(100,)]


@pytest.mark.anyio
@pytest.mark.parametrize("size", [10, 1 << 20], ids=["at the commit", "in the middle of a piece"])
async def test_full_disk_error_reaches_all_callers_of_a_batch_and_the_writer_continues(database, disk, size):
    errors: list[Exception] = []
    fatal: list[StorageError] = []

    async def call(writer: Writer, x: int) -> None:
        try:
            await writer.commit(insert, x, size)
        except Exception as error:
            errors.append(error)

    async with Writer(database, on_fatal=fatal.append) as writer:
        disk.fill(after_bytes=0 if size == 10 else 1 << 20)
        async with anyio.create_task_group() as callers:
            for x in range(40):
                callers.start_soon(call, writer, x)
        full = writer.group_commit.full
        disk.free()
        await writer.commit(insert, 100)
        full_later = writer.group_commit.full

    assert [type(error) for error in errors] == [StorageFull] * 40
    assert (full, full_later) == (True, False)
    assert fatal == []
    assert ask(database.path, "SELECT x FROM t") == [(100,)]


@pytest.mark.anyio
async def test_failed_flush_answers_no_caller_with_success_and_ends_the_writer(database, disk):
    errors: list[Exception] = []
    fatal: list[StorageError] = []

    async def call(writer: Writer, x: int) -> None:
        try:
            await writer.commit(insert, x)
        except Exception as error:
            errors.append(error)

    async with Writer(database, on_fatal=fatal.append) as writer:
        disk.fail_syncs()
        async with anyio.create_task_group() as callers:
            for x in range(10):
                callers.start_soon(call, writer, x)
        disk.free()
        with pytest.raises(StorageError):
            await writer.commit(insert, 100)

    assert OutcomeUnknown in {type(error) for error in errors}
    assert all(isinstance(error, StorageError) for error in errors)
    assert [type(error) for error in fatal] == [OutcomeUnknown]
    assert (100,) not in ask(database.path, "SELECT x FROM t")


# Producers in another process


def test_producer_after_an_unknown_outcome_emits_again_and_gets_a_single_row(tmp_path, disk):
    with Producer(tmp_path / "agent.db") as producer:
        disk.fail_syncs()
        with pytest.raises(OutcomeUnknown) as unknown:
            producer.emit("greet", {"name": "Ada"})
    disk.free()
    spec = unknown.value.spec

    with Producer(tmp_path / "agent.db") as producer:
        first = producer.emit_many([spec])
        again = producer.emit_many([spec])

    assert [first[0].id, again[0].id] == [spec.id] * 2
    assert ask(tmp_path / "agent.db", "SELECT id, payload_json FROM triggers") == [(spec.id, '{"name":"Ada"}')]


def test_producer_on_a_full_disk_is_refused_and_nothing_is_accepted(tmp_path, disk):
    with Producer(tmp_path / "agent.db") as producer:
        disk.fill()
        with pytest.raises(StorageFull):
            producer.emit("greet")
        disk.free()
        producer.emit("greet")

    assert ask(tmp_path / "agent.db", "SELECT count(*) FROM triggers") == [(1,)]


# Engines


def build_app(ran: list[int]) -> App:
    app = App("test")

    @app.workflow("note", retry=RetryPolicy(base=0))
    async def note(n: int) -> int:
        ran.append(n)
        return n

    return app


@pytest.mark.anyio
async def test_engine_on_a_full_disk_pauses_and_resumes_by_itself(tmp_path, disk):
    ran: list[int] = []
    app = build_app(ran)
    async with app.running(tmp_path / "agent.db", config=CONFIG) as engine:
        disk.fill()
        for n in range(3):
            with pytest.raises(StorageFull):
                await app.emit("note", {"n": n})
        disk.free()
        accepted = [(await app.emit("note", {"n": n})).id for n in range(10, 20)]
        await until(lambda: len(ran) == 10 and engine.is_idle)

    assert sorted(ran) == list(range(10, 20))
    assert ask(tmp_path / "agent.db", "SELECT id, status FROM triggers ORDER BY id") == [
        (id, "DONE") for id in sorted(accepted)
    ]


@pytest.mark.anyio
async def test_work_accepted_before_a_full_disk_is_done_afterwards(tmp_path, disk):
    """The engine claims nothing and the running work ends. The results are written once there is space, and no run
    repeats."""
    ran: list[int] = []
    release = anyio.Event()
    app = build_app(ran)

    @app.workflow("wait")
    async def wait(n: int) -> int:
        ran.append(n)
        await release.wait()
        return n

    async with app.running(tmp_path / "agent.db", config=CONFIG) as engine:
        await app.emit_many([TriggerSpec(workflow="wait", payload={"n": n}) for n in range(16)])
        await until(lambda: len(ran) == 16)
        disk.fill()
        before = disk.refused_writes
        with Producer(tmp_path / "agent.db") as producer, pytest.raises(StorageFull):
            producer.emit("note", {"n": 99})
        release.set()
        await until(lambda: disk.refused_writes > before + 3)
        during = ask(tmp_path / "agent.db", "SELECT status, count(*) FROM triggers GROUP BY status")
        disk.free()
        await app.emit("note", {"n": 100})
        await until(lambda: len(ran) == 17 and engine.is_idle)

    assert during == [("CLAIMED", 16)]
    assert sorted(ran) == [*range(16), 100]
    assert ask(tmp_path / "agent.db", "SELECT DISTINCT status FROM triggers") == [("DONE",)]
    assert ask(tmp_path / "agent.db", "SELECT count(*), count(DISTINCT trigger_id) FROM executions") == [(17, 17)]


@pytest.mark.anyio
async def test_quota_spent_during_an_act_leaves_no_doubt(tmp_path, disk):
    """The provider was called, and its result waits for space."""
    called: list[int] = []
    app = App("test")

    @app.action("pay", irreversible=True)
    async def pay(call: Any, amount: int) -> int:
        called.append(amount)
        disk.refuse_writes(errno.EDQUOT)
        return amount

    @app.workflow("buy")
    async def buy(ctx: TaskContext) -> int:
        paid: int = await ctx.act(pay, amount=7)
        return paid

    async with app.running(tmp_path / "agent.db", config=CONFIG) as engine:
        await app.emit("buy")
        await until(lambda: disk.refused_writes > 3)
        during = engine.writer.group_commit.full
        disk.free()
        await until(lambda: engine.counts["DONE"] == 1 and engine.is_idle)
        after = engine.writer.group_commit.full

    assert (during, after) == (True, False)
    assert called == [7]
    assert ask(tmp_path / "agent.db", "SELECT status FROM activity_log") == [("DONE",)]


@pytest.mark.anyio
async def test_file_system_that_turns_read_only_ends_the_engine_with_that_reason(tmp_path, disk):
    app = build_app([])

    with anyio.fail_after(PATIENCE), pytest.raises(StorageError, match="read-only") as ended:
        async with app.running(tmp_path / "agent.db", config=QUIET) as engine:
            await until(lambda: engine.is_idle)
            disk.refuse_writes(errno.EROFS)
            await app.emit("note", {"n": 1})
    disk.free()

    assert ended.value.exit_code == 74
    assert not isinstance(ended.value, OutcomeUnknown)
    assert ask(tmp_path / "agent.db", "SELECT count(*) FROM triggers") == [(0,)]


@pytest.mark.anyio
@pytest.mark.parametrize("seed", range(3))
async def test_intermittent_space_neither_loses_nor_repeats_work(tmp_path, disk, seed):
    ran: list[int] = []
    accepted: list[str] = []
    app = build_app(ran)

    async def emit(n: int) -> None:
        while True:
            try:
                accepted.append((await app.emit("note", {"n": n}, session_id=f"s{n % 3}")).id)
                return
            except StorageFull:
                await anyio.sleep(0.001)

    async with app.running(tmp_path / "agent.db", config=CONFIG) as engine:
        async with anyio.create_task_group() as tasks:
            for n in range(60):
                tasks.start_soon(emit, n)
            for turn in range(40):
                disk.fill(after_bytes=(turn * 7919 + seed * 104_729) % 20_000)
                await anyio.sleep(0.002)
                disk.free()
                await anyio.sleep(0.002)
        await until(lambda: engine.is_idle)

    assert sorted(set(ran)) == list(range(60))
    assert len(ran) == 60, "without a crash no trigger runs twice"
    rows = ask(tmp_path / "agent.db", "SELECT id, status, starts FROM triggers ORDER BY id")
    assert rows == [(id, "DONE", 1) for id in sorted(accepted)]


async def emit_until_it_fails(app: App, engine: Engine, unknown: list[OutcomeUnknown], disk: FaultyDisk) -> None:
    await app.emit("note", {"n": 1})
    await until(lambda: engine.counts["DONE"] == 1 and engine.is_idle)
    disk.fail_syncs()
    try:
        await app.emit("note", {"n": 2})
    except OutcomeUnknown as error:
        unknown.append(error)
    await anyio.sleep_forever()


@pytest.mark.anyio
async def test_failed_flush_ends_the_engine_and_the_spec_can_be_emitted_again(tmp_path, disk):
    ran: list[int] = []
    unknown: list[OutcomeUnknown] = []
    app = build_app(ran)

    with anyio.fail_after(PATIENCE), pytest.raises(OutcomeUnknown) as ended:
        async with app.running(tmp_path / "agent.db", config=QUIET) as engine:
            await emit_until_it_fails(app, engine, unknown, disk)
    disk.free()

    assert ended.value.exit_code == 74
    [error] = unknown
    spec = error.spec
    assert (spec.workflow, spec.payload) == ("note", {"n": 2})
    async with app.running(tmp_path / "agent.db", config=CONFIG) as engine:
        [first] = await app.emit_many([spec])
        [again] = await app.emit_many([spec])
        await until(lambda: 2 in ran and engine.is_idle)
    assert (first.id, again.id, again.created) == (spec.id, spec.id, False)
    assert ask(tmp_path / "agent.db", "SELECT count(*) FROM triggers WHERE status = 'DONE'") == [(2,)]
    assert ran.count(2) == 1


@pytest.mark.anyio
async def test_uncaught_failed_flush_is_a_single_error_and_not_a_group(tmp_path, disk):
    app = build_app([])

    with anyio.fail_after(PATIENCE), pytest.raises(OutcomeUnknown):
        async with app.running(tmp_path / "agent.db", config=QUIET) as engine:
            await until(lambda: engine.is_idle)
            disk.fail_syncs()
            await app.emit("note", {"n": 1})
    disk.free()


@pytest.mark.anyio
async def test_flush_failure_during_the_drain_does_not_wait_for_the_grace(tmp_path, disk):
    app = App("test")
    started = anyio.Event()

    @app.workflow("stuck")
    async def stuck() -> None:
        started.set()
        await anyio.sleep_forever()

    @app.workflow("brief")
    async def brief() -> None:
        await started.wait()
        disk.fail_syncs()

    long_grace = Config(daemon=DaemonSettings(poll_seconds=0.1, shutdown_grace=10 * PATIENCE))
    with anyio.fail_after(PATIENCE), pytest.raises(OutcomeUnknown):
        async with app.running(tmp_path / "agent.db", config=long_grace) as engine:
            await app.emit_many([TriggerSpec(workflow="stuck"), TriggerSpec(workflow="brief")])
            await until(lambda: engine.running == 2)
    disk.free()


# Real full disks


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(place)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"may not mount a small disk: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.anyio
async def test_engine_survives_a_really_full_disk(tmp_path, small_disk):
    ran: list[int] = []
    app = build_app(ran)

    async with app.running(small_disk / "agent.db", config=CONFIG) as engine:
        await app.emit("note", {"n": 0})
        await until(lambda: ran == [0])
        ballast = small_disk / "ballast"
        with ballast.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
            while True:
                file.write(b"\0" * 4096)
        with pytest.raises(StorageFull):
            while True:  # the WAL may have space left in its last page
                await app.emit("note", {"n": 1})
        ballast.unlink()
        done = len(ran)
        await app.emit("note", {"n": 2})
        await until(lambda: 2 in ran and engine.is_idle)

    assert done >= 1
    statuses = ask(small_disk / "agent.db", "SELECT status, count(*) FROM triggers GROUP BY status")
    assert statuses == [("DONE", len(ran))]
    assert ask(small_disk / "agent.db", "PRAGMA integrity_check") == [("ok",)]


LIMITED_PROGRAM = """
import resource, sys
import anyio
from craftcore import App
from craftcore.engine import durable_commit
from craftcore.errors import StorageFull

durable_commit.FULL_DISK_SECONDS = 0.02
app = App()
ran = []

@app.workflow("note")
async def note(n: int, text: str) -> None:
    ran.append(n)

def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

async def main():
    refused = []
    with anyio.fail_after(100):
        async with app.running(sys.argv[1]) as engine:
            limit(300_000)
            for n in range(100):
                try:
                    await app.emit("note", {"n": n, "text": "x" * 50_000})
                except StorageFull as error:
                    refused.append((n, str(error)))
                    break
            limit(resource.RLIM_INFINITY)
            await app.emit("note", {"n": 1000, "text": ""})
            while not (engine.is_idle and 1000 in ran):
                await anyio.sleep(0.01)
    [(n, why)] = refused
    assert sorted(ran) == [*range(n), 1000], (n, ran)
    print(why)

anyio.run(main)
"""


def test_engine_at_a_real_file_size_limit_pauses_and_continues(tmp_path):
    """The kernel refuses the write with EFBIG. Python ignores SIGXFSZ, which would kill the process."""
    command = [sys.executable, "-c", LIMITED_PROGRAM, str(tmp_path / "agent.db")]
    ended = subprocess.run(command, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=False)

    assert ended.returncode == 0, ended.stderr
    assert "file-size limit" in ended.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk read-only")
def test_really_read_only_file_system_is_reported(small_disk):
    with Producer(small_disk / "agent.db") as producer:
        producer.emit("note")
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True)

    with pytest.raises(StorageError, match="mounted read-only") as refused:
        with Producer(small_disk / "agent.db") as producer:
            producer.emit("note")

    assert refused.value.exit_code == 74
