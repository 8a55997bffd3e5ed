"""Group commits of the writer: one flush for many callers, and a separate answer for each."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import anyio
import apsw
import pytest

from craftcore.errors import StorageError
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import Migration
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from tests.support.batches import Answers, Gate, commit_together, held, wait_for_calls
from tests.support.log_capture import capture_logs
from tests.support.processes import PATIENCE, open_files
from tests.support.statements import record_statements

pytestmark = pytest.mark.anyio

TABLES = Migration(name="0001_tables", sql="CREATE TABLE t (x INTEGER PRIMARY KEY) STRICT;")


@pytest.fixture
def database(tmp_path, clock) -> Database:
    database = Database(tmp_path / "agent.db", clock)
    migrate(database, clock, [TABLES])
    return database


def insert(tx: Transaction, x: int) -> int:
    tx.run("INSERT INTO t (x) VALUES (:x)", x=x)
    return x


def insert_then_raise(tx: Transaction, x: int) -> None:
    insert(tx, x)
    raise LookupError(x)


def insert_each(tx: Transaction, items: list[int]) -> list[int | Exception]:
    """Insert the items, with an error for odd numbers from 100. Raise for the whole group at 13."""
    answers: list[int | Exception] = []
    for x in items:
        if x == 13:
            raise LookupError(x)
        answers.append(ValueError(x) if x >= 100 and x % 2 else insert(tx, x))
    return answers


def rows(database: Database) -> list[int]:
    connection = apsw.Connection(str(database.path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return [x for (x,) in connection.execute("SELECT x FROM t ORDER BY x")]
    finally:
        connection.close()


# Shared flushes


async def test_hundred_callers_share_a_single_flush(database):
    async with Writer(database) as writer:
        answers = await commit_together(writer, [(writer.commit, insert, x) for x in range(100)])
        commits, items = writer.group_commit.commits, writer.group_commit.items

    assert answers == {x: x for x in range(100)}
    assert rows(database) == list(range(100))
    assert (commits, items) == (2, 101)  # the commits of the gate and of the batch


async def test_writer_without_a_thread_keeps_no_file_open(database):
    threading.stack_size(1 << 46)  # more than the address space, so no thread can start
    try:
        with pytest.raises(RuntimeError, match="can't start new thread"):
            await Writer(database).__aenter__()
    finally:
        threading.stack_size(0)
    assert open_files(os.getpid(), database.path) == []


async def test_answered_commit_is_readable_by_others(database):
    async with Writer(database) as writer:
        for x in range(20):
            await writer.commit(insert, x)

            assert x in rows(database)


async def test_items_run_in_order_of_arrival(database):
    order: list[int] = []

    def note(tx: Transaction, number: int) -> None:
        order.append(number)

    async with Writer(database) as writer:
        await commit_together(writer, [(writer.commit, note, number) for number in range(50)])

    assert order == list(range(50))


async def test_keyword_arguments_reach_the_piece(database):
    async with Writer(database) as writer:
        assert await writer.commit(insert, x=7) == 7


async def test_on_flushed_is_called_after_each_commit_and_its_error_is_harmless(database):
    counts: list[int] = []

    def count(items: int, seconds: float) -> None:
        counts.append(items)
        assert seconds >= 0
        raise LookupError("a bug of the callback")

    async with Writer(database, on_flushed=count) as writer:
        await commit_together(writer, [(writer.commit, insert, x) for x in range(10)])
        with pytest.raises(LookupError):
            await writer.commit(insert_then_raise, 11)
        answer = await writer.commit(insert, 12)

        assert (sum(counts), len(counts), writer.failed) == (
            writer.group_commit.items,
            writer.group_commit.commits,
            None,
        )
    assert answer == 12


# Faulty items


async def test_item_that_raises_is_undone_alone(database):
    calls = [(None, insert_then_raise if x == 50 else insert, x) for x in range(100)]

    async with Writer(database) as writer:
        answers = await commit_together(writer, [(writer.commit, work, x) for _, work, x in calls])

    assert isinstance(answers.pop(50), LookupError)
    assert answers == {x: x for x in range(100) if x != 50}
    assert rows(database) == [x for x in range(100) if x != 50]


async def test_faulty_item_does_not_affect_the_rest_of_its_group(database):
    async with Writer(database) as writer:
        answers = await commit_together(writer, [(writer.commit_batched, insert_each, x) for x in range(100)])

    assert isinstance(answers.pop(13), LookupError)
    assert answers == {x: x for x in range(100) if x != 13}
    assert rows(database) == [x for x in range(100) if x != 13]


async def test_exception_answer_is_raised_to_its_own_caller(database):
    async with Writer(database) as writer:
        answers = await commit_together(writer, [(writer.commit_batched, insert_each, x) for x in range(100, 200)])

    assert [type(answers[x - 100]) for x in range(100, 200)] == [int, ValueError] * 50
    assert rows(database) == list(range(100, 200, 2))


async def test_constraint_error_is_raised_to_its_own_caller_only(database):
    async with Writer(database) as writer:
        answers = await commit_together(writer, [(writer.commit, insert, x) for x in (1, 2, 1, 3)])

    assert isinstance(answers[2], StorageError)
    assert rows(database) == [1, 2, 3]


async def test_transaction_ended_by_sqlite_during_an_item_runs_the_others_again(database):
    def rollback(tx: Transaction, x: int) -> None:
        tx.run("INSERT OR ROLLBACK INTO t (x) VALUES (1)")

    runs: list[int] = []

    def count_and_insert(tx: Transaction, x: int) -> int:
        runs.append(x)
        return insert(tx, x)

    async with Writer(database) as writer:
        await writer.commit(insert, 1)
        works = [count_and_insert, count_and_insert, rollback, count_and_insert]
        answers = await commit_together(writer, [(writer.commit, work, 10 + x) for x, work in enumerate(works)])
        failed = writer.failed

    assert isinstance(answers.pop(2), StorageError)
    assert answers == {0: 10, 1: 11, 3: 13}
    assert rows(database) == [1, 10, 11, 13]
    assert runs == [10, 11, 10, 11, 13]
    assert failed is None


async def test_transaction_ended_by_sqlite_during_a_single_item_keeps_the_writer_alive(database):
    def rollback(tx: Transaction) -> None:
        tx.run("INSERT OR ROLLBACK INTO t (x) VALUES (1)")

    async with Writer(database) as writer:
        await writer.commit(insert, 1)

        with pytest.raises(StorageError):
            await writer.commit(rollback)

        assert await writer.commit(insert, 2) == 2
    assert rows(database) == [1, 2]


@pytest.mark.parametrize("others", [0, 1], ids=["alone", "with another"])
async def test_work_that_hides_the_end_of_its_transaction_ends_the_writer(database, others):
    runs: list[int] = []

    def hide(tx: Transaction, x: int) -> None:
        runs.append(x)
        with suppress(apsw.Error):
            tx.run("INSERT OR ROLLBACK INTO t (x) VALUES (1)")
        assert len(runs) < 10, "the item runs without end"

    async with Writer(database) as writer:
        await writer.commit(insert, 1)
        works = [insert] * others + [hide]
        answers = await commit_together(writer, [(writer.commit, work, 10 + x) for x, work in enumerate(works)])
        failed = writer.failed

    assert isinstance(failed, StorageError)
    assert all(isinstance(answer, StorageError) for answer in answers.values())
    assert rows(database) == [1]
    assert runs == [10 + others]


async def test_group_during_which_sqlite_ends_the_transaction_fails_only_the_faulty_item(database):
    def each_or_rollback(tx: Transaction, items: list[int]) -> list[int | Exception]:
        for x in items:
            tx.run("INSERT OR ROLLBACK INTO t (x) VALUES (:x)", x=x)
        return list(items)

    async with Writer(database) as writer:
        await writer.commit(insert, 5)
        answers = await commit_together(writer, [(writer.commit_batched, each_or_rollback, x) for x in range(10)])
        failed = writer.failed

    assert isinstance(answers.pop(5), StorageError)
    assert answers == {x: x for x in range(10) if x != 5}
    assert rows(database) == list(range(10))
    assert failed is None


async def test_statements_of_a_lone_item_are_its_own_and_those_of_the_commit(database):
    """A single item is undone with its transaction and needs no savepoint."""
    with record_statements() as statements:
        async with Writer(database) as writer:
            statements.clear()
            await writer.commit(insert, 1)
            lone = list(statements)
            statements.clear()
            await commit_together(writer, [(writer.commit, insert, x) for x in (2, 3)])

    assert [sql.split()[0] for sql in lone] == ["BEGIN", "INSERT", "COMMIT"]
    assert [sql.split()[0] for sql in statements].count("SAVEPOINT") == 2


async def test_lone_item_that_raises_is_undone_and_commits_nothing(database):
    async with Writer(database) as writer:
        with pytest.raises(LookupError):
            await writer.commit(insert_then_raise, 1)
        commits = writer.group_commit.commits
        await writer.commit(insert, 2)

    assert commits == 0
    assert rows(database) == [2]


async def test_group_alone_in_its_transaction_affects_only_its_faulty_item(database):
    async with Writer(database) as writer:
        answers = await commit_together(writer, [(writer.commit_batched, insert_each, x) for x in (12, 13, 14)])

    assert isinstance(answers.pop(1), LookupError)
    assert answers == {0: 12, 2: 14}
    assert rows(database) == [12, 14]


# Cancelled callers


async def test_caller_cancelled_before_its_item_begins_withdraws_the_item(database):
    async with Writer(database) as writer:
        async with held(writer):
            async with anyio.create_task_group() as callers:
                callers.start_soon(writer.commit, insert, 1)
                await wait_for_calls(writer, 1)
                callers.cancel_scope.cancel()
            waiting = len(writer.queue)
        await writer.commit(insert, 2)

    assert waiting == 0
    assert rows(database) == [2]


async def test_caller_cancelled_after_its_item_began_waits_and_stays_cancelled(database):
    gate = Gate()
    outcomes: list[str] = []

    def slow_insert(tx: Transaction) -> None:
        gate.pass_through(tx)
        insert(tx, 1)

    async def caller() -> None:
        try:
            await writer.commit(slow_insert)
            outcomes.append("answered")
        finally:
            outcomes.append("unwound")

    async with Writer(database) as writer:
        async with anyio.create_task_group() as callers:
            callers.start_soon(caller)
            await gate.is_held()
            callers.cancel_scope.cancel()
            with anyio.CancelScope(shield=True):
                for _ in range(10):
                    await anyio.lowlevel.checkpoint()
                early = list(outcomes)
                gate.open.set()
        on_disk = rows(database)

    assert early == []
    assert outcomes == ["unwound"]
    assert on_disk == [1]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_native_cancellation_waits_for_the_end_of_the_item(database):
    gate = Gate()

    def slow_insert(tx: Transaction) -> None:
        gate.pass_through(tx)
        insert(tx, 1)

    async with Writer(database) as writer:
        caller = asyncio.ensure_future(writer.commit(slow_insert))
        await gate.is_held()
        caller.cancel()
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        early = caller.done()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await caller

        assert not early
        assert rows(database) == [1]


# Times and callbacks


async def test_commit_time_is_a_single_instant_of_the_clock(database, clock):
    def read_now(tx: Transaction) -> tuple[float, float]:
        first = tx.now
        clock.advance(seconds=1)
        return first, tx.now

    began = clock.now()
    async with Writer(database) as writer:
        assert await writer.commit(read_now) == (began, began)
        assert await writer.commit(read_now) == (began + 1, began + 1)


async def test_after_commit_runs_on_the_loop_once_on_disk(database):
    seen: list[Any] = []

    def work(tx: Transaction) -> None:
        insert(tx, 1)
        tx.after_commit(lambda: seen.append((threading.current_thread(), rows(database))))

    async with Writer(database) as writer:
        await writer.commit(work)
        await writer.commit(insert, 2)

    assert seen == [(threading.main_thread(), [1])]


async def test_before_answers_runs_once_per_commit_on_the_writer_thread_before_answers(database):
    """The callback may write a file that an answer depends on, so the callers wait for it."""
    seen: list[Any] = []
    answered: list[int] = []

    def note(last: int) -> None:
        seen.append((last, threading.current_thread().name, rows(database), list(answered)))

    def work(tx: Transaction, x: int) -> int:
        tx.before_answers(note, x)
        return insert(tx, x)

    async def caller(x: int) -> None:
        answered.append(await writer.commit(work, x))

    async with Writer(database) as writer:
        async with anyio.create_task_group() as tasks:
            async with held(writer):
                for x in (1, 2, 3):
                    tasks.start_soon(caller, x)
                    await wait_for_calls(writer, x)

    assert seen == [(3, "craftcore-writer", [1, 2, 3], [])]
    assert sorted(answered) == [1, 2, 3]


async def test_before_answers_is_skipped_for_a_failed_item_and_its_error_is_harmless(database):
    seen: list[int] = []

    def raises(tx: Transaction) -> None:
        tx.before_answers(seen.append, 1)
        raise LookupError

    def breaks(tx: Transaction) -> int:
        tx.before_answers(seen.index, 7)
        return insert(tx, 2)

    with capture_logs() as logs:
        async with Writer(database) as writer:
            with pytest.raises(LookupError):
                await writer.commit(raises)
            assert await writer.commit(breaks) == 2
            assert await writer.commit(insert, 3) == 3

    assert seen == []
    assert [line["event"] for line in logs] == ["before_answers.failed"]


async def test_after_commit_is_skipped_for_a_failed_item(database):
    seen: list[int] = []

    def work(tx: Transaction) -> None:
        tx.after_commit(seen.append, 1)
        raise LookupError

    async with Writer(database) as writer:
        with pytest.raises(LookupError):
            await writer.commit(work)
        await writer.commit(insert, 2)

    assert seen == []


async def test_after_commit_is_called_once_by_an_item_that_ran_twice(database):
    seen: list[int] = []

    def work(tx: Transaction, x: int) -> int:
        tx.after_commit(seen.append, x)
        return insert(tx, x)

    def rollback(tx: Transaction, x: int) -> None:
        tx.run("INSERT OR ROLLBACK INTO t (x) VALUES (1)")

    async with Writer(database) as writer:
        await writer.commit(insert, 1)
        await commit_together(
            writer, [(writer.commit, work, 10), (writer.commit, rollback, 11), (writer.commit, work, 12)]
        )

    assert seen == [10, 12]


async def test_error_in_after_commit_of_the_writer_is_logged_and_not_raised(database):
    def work(tx: Transaction) -> int:
        tx.after_commit([].index, "missing")
        return insert(tx, 1)

    with capture_logs() as logs:
        async with Writer(database) as writer:
            assert await writer.commit(work) == 1
            await writer.commit(insert, 2)

    assert [line["event"] for line in logs] == ["after_commit.failed"]


# The end of the writer


async def test_writer_close_answers_every_waiting_caller(database):
    answers = Answers()
    writer = Writer(database)
    gate = Gate()

    async with anyio.create_task_group() as tasks:
        await writer.__aenter__()
        tasks.start_soon(writer.commit, gate.pass_through)
        await gate.is_held()
        for x in range(10):
            tasks.start_soon(answers.of, x, writer.commit, insert, x)
        await wait_for_calls(writer, 10)
        tasks.start_soon(writer.__aexit__, None, None, None)
        with anyio.fail_after(PATIENCE):
            while not writer.queue.is_closing:
                await anyio.lowlevel.checkpoint()
        gate.open.set()

    assert answers == {x: x for x in range(10)}
    assert rows(database) == list(range(10))


async def test_commit_after_the_close_is_refused(database):
    async with Writer(database) as writer:
        pass

    with pytest.raises(StorageError, match="closed; nothing was written"):
        await writer.commit(insert, 1)
    assert rows(database) == []


async def test_file_is_whole_without_its_wal_after_the_writer_closed(database):
    async with Writer(database) as writer:
        await writer.commit(insert, 1)

    assert not database.path.with_name("agent.db-wal").exists()
    assert rows(database) == [1]


async def test_bug_in_the_writer_answers_every_caller_and_is_logged(database, monkeypatch):
    """An internal error between two items must not leave a caller waiting."""
    fatal: list[StorageError] = []

    def broken(*_: object) -> Iterator[None]:
        raise RuntimeError("an internal bug")

    async with Writer(database, on_fatal=fatal.append) as writer:
        monkeypatch.setattr("craftcore.storage.group_commit.run_groups", broken)
        answers = Answers()
        async with anyio.create_task_group() as tasks:
            for x in (1, 2):
                tasks.start_soon(answers.of, x, writer.commit, insert, x)
        with pytest.raises(StorageError):
            await writer.commit(insert, 3)
        with database.transaction() as tx:  # the write lock is free
            insert(tx, 4)
        database.close()

    assert len(answers) == 2
    assert all(isinstance(answer, RuntimeError | StorageError) for answer in answers.values()), answers
    assert [type(error) for error in fatal] == [StorageError]
    assert rows(database) == [4]


async def test_event_loop_is_not_blocked_by_a_checkpoint(database, monkeypatch):
    """The checkpoint of an idle writer may take long. Meanwhile the loop queues work without waiting for a lock."""
    monkeypatch.setattr("craftcore.storage.checkpoints.IDLE_SECONDS", 0.01)
    entered, release = threading.Event(), threading.Event()

    class SlowCheckpoint(Writer):
        def _checkpoint(self, *, truncates: bool = False) -> None:
            entered.set()
            assert release.wait(PATIENCE)
            super()._checkpoint(truncates=truncates)

    async with SlowCheckpoint(database) as writer:
        async with anyio.create_task_group() as tasks:
            await writer.commit(insert, 1)
            with anyio.fail_after(PATIENCE):
                while not entered.is_set():
                    await anyio.lowlevel.checkpoint()
            rescue = threading.Timer(PATIENCE / 2, release.set)  # frees a blocked loop
            rescue.start()
            tasks.start_soon(writer.commit, insert, 2)
            await wait_for_calls(writer, 1)
            was_blocked = release.is_set()
            release.set()
            rescue.cancel()

    assert not was_blocked
    assert rows(database) == [1, 2]


async def test_full_batch_is_bounded(database):
    async with Writer(database) as writer:
        calls = [(writer.commit, insert, x) for x in range(1500)]
        await commit_together(writer, calls)
        commits = writer.group_commit.commits

    assert commits == 3
    assert len(rows(database)) == 1500
