"""The transaction object of a user function: its lifetime, its thread, its time limit, and forbidden statements."""

from __future__ import annotations

import functools
import threading
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from craftcore.clock import SystemClock
from craftcore.errors import InvalidInput, RowInvalid, StorageError, TransactionTimeout
from craftcore.storage.database import Database
from craftcore.storage.transaction import BulkStatement, Transaction
from craftcore.storage.user_sql import guard
from craftcore.storage.user_sql.guard import APART_SECONDS  # as it is before the tests make it longer
from craftcore.storage.writer import Writer
from tests.support.processes import PATIENCE
from tests.support.user_table import a_database, ask, everything, notes, record, records, write, write_then

pytestmark = pytest.mark.anyio

ENDLESS = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


@pytest.fixture
def database(tmp_path, clock) -> Database:
    return a_database(tmp_path, clock)


@pytest.fixture
def real_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database:
    """Return a database with a real clock, on which a transaction may take 0.1 seconds."""
    monkeypatch.setattr(guard, "APART_SECONDS", 0.1)
    return a_database(tmp_path, SystemClock())


# The function and its tx


async def test_transaction_object_does_nothing_after_its_function(database):
    kept: list[Transaction] = []

    def keep(tx: Transaction) -> int:
        kept.append(tx)
        return write(tx, 2)

    def use_after_return(tx: Transaction, id: int) -> None:
        with pytest.raises(InvalidInput, match="the transaction is over, and this statement did nothing"):
            write(kept[0], 3)

    async with Writer(database) as writer:
        await writer.commit_user_sql(keep, (), use_after_return)
        for use in (
            lambda tx: tx.run("INSERT INTO notes (id) VALUES (4)"),
            lambda tx: tx.one("SELECT 1"),
            lambda tx: tx.all("SELECT 1"),
            lambda tx: tx.value("SELECT 1"),
            lambda tx: tx.tuples("SELECT 1"),
            lambda tx: tx.each("INSERT INTO notes (id) VALUES (4) RETURNING id"),
            lambda tx: tx.fetch_all_as_bytes("INSERT INTO notes (id) VALUES (4) RETURNING id"),
            lambda tx: tx.many(BulkStatement("INSERT INTO notes (id) VALUES {rows}", width=1), [(5,)]),
        ):
            with pytest.raises(InvalidInput, match="the transaction is over"):
                use(kept[0])

    assert notes(database) == [1, 2]


async def test_transaction_object_is_refused_in_another_thread(database):
    refused: list[Exception] = []

    def write_in_thread(tx: Transaction) -> None:
        try:
            write(tx, 3)
        except Exception as error:
            refused.append(error)

    def user(tx: Transaction) -> int:
        thread = threading.Thread(target=write_in_thread, args=(tx,))
        thread.start()
        thread.join()
        return write(tx, 2)

    async with Writer(database) as writer:
        await writer.commit_user_sql(user, (), record)

    assert [type(error) for error in refused] == [InvalidInput]
    assert notes(database) == [1, 2]


async def test_coroutine_function_is_refused_as_a_transaction(database):
    async def user(tx: Transaction, id: int) -> None:
        write(tx, id)

    async with Writer(database) as writer:
        for function in (user, functools.partial(user, id=2)):
            with pytest.raises(InvalidInput, match="is a plain one, not async"):
                await writer.commit_user_sql(function, (2,), record)

        # The writer closes the coroutine, so Python does not warn.
        with pytest.raises(InvalidInput, match="is a plain one, not async"):
            await writer.commit_user_sql(lambda tx: write(tx, 3) and user(tx, 2), (), record)

    assert notes(database) == [1]


async def test_after_commit_is_available_to_the_record_only(database):
    seen: list[Any] = []

    def user(tx: Transaction) -> str:
        with pytest.raises(InvalidInput, match="has no after_commit"):
            tx.after_commit(seen.append, "the user's")
        with pytest.raises(InvalidInput, match="has no before_answers"):
            tx.before_answers(seen.append, "the user's")
        return "recorded"

    async with Writer(database) as writer:
        await writer.commit_user_sql(user, (), lambda tx, result: tx.after_commit(seen.append, result))
        await writer.commit(record, 2)

    assert seen == ["recorded"]


@pytest.mark.parametrize("read", ["one", "all", "tuples", "value", "run"])
async def test_unfinished_select_of_user_sql_blocks_no_transaction(database, read):
    """Text that is not UTF-8 stops a read in the middle, and the function keeps the exception with all its frames."""
    kept: list[Exception] = []
    with database.transaction() as tx:
        tx.run("INSERT INTO notes (id, text) VALUES (2, CAST(x'ff' AS TEXT)), (3, 'third')")
    database.close()

    def user(tx: Transaction, id: int) -> int:
        try:
            getattr(tx, read)("SELECT text FROM notes ORDER BY id = 2 DESC")
        except UnicodeDecodeError as error:
            kept.append(error)
        for (number,) in tx.fetch_tuples("SELECT id FROM notes ORDER BY id"):
            if number == 2:
                return write(tx, id)
        raise AssertionError("there is a second note")

    def fail(tx: Transaction) -> None:
        user(tx, 5)
        for _ in tx.fetch_tuples("SELECT id FROM notes"):
            raise LookupError("in the middle")

    async with Writer(database) as writer:
        await writer.commit_user_sql(user, (4,), record)
        with pytest.raises(LookupError):
            await writer.commit_user_sql(fail, (), record)
        await writer.commit(record, 99)  # a snapshot still held would be outdated from here on
        await writer.commit_user_sql(lambda tx: tx.run("DROP TABLE notes"), (), record)
        with database.transaction() as tx:
            tx.run("DELETE FROM facts WHERE name = 'first'")
        database.close()
        checkpoint = apsw.Connection(str(database.path))
        blocked, in_wal, moved = checkpoint.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0]
        checkpoint.close()

    assert len(kept) == 2
    assert (blocked, in_wal, moved) == (0, 0, 0)


# Transactions ended by SQLite


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT OR ROLLBACK INTO notes (id) VALUES (1)",
        "CREATE TRIGGER never BEFORE DELETE ON notes BEGIN SELECT RAISE(ROLLBACK, 'never'); END; DELETE FROM notes",
    ],
)
async def test_statement_that_ends_the_transaction_undoes_all_even_when_ignored(database, sql):
    recorded: list[Any] = []
    errors: list[Exception] = []

    def ignore(tx: Transaction) -> None:
        write(tx, 2)
        try:
            tx.run(sql)
        except RowInvalid as error:
            errors.append(error)
        try:
            write(tx, 3)  # SQLite alone would commit this write by itself
        except StorageError as error:
            errors.append(error)

    before = everything(database)
    async with Writer(database) as writer:
        with pytest.raises(StorageError, match="a statement ended the transaction; nothing was written"):
            await writer.commit_user_sql(ignore, (), lambda tx, result: recorded.append(result))
        with pytest.raises(RowInvalid):
            await writer.commit_user_sql(write_then(sql), (2,), record)

        assert everything(database) == before
        assert writer.failed is None
    assert (len(errors), recorded) == (2, [])


# Time limits


@pytest.mark.parametrize("caught", [False, True], ids=["raised", "ignored"])
@pytest.mark.parametrize(
    "sql", [f"{ENDLESS} SELECT count(*) FROM n", f"INSERT INTO notes (id) {ENDLESS} SELECT x + 9 FROM n"]
)
async def test_sql_without_an_end_is_interrupted(real_time, monkeypatch, sql, caught):
    before = everything(real_time)

    with anyio.fail_after(PATIENCE):
        async with Writer(real_time) as writer:
            with pytest.raises(TransactionTimeout, match=r"took longer than 0.1 s; nothing was written"):
                await writer.commit_user_sql(write_then(sql, caught=caught), (2,), record)

            assert everything(real_time) == before
            monkeypatch.setattr(guard, "APART_SECONDS", PATIENCE)
            await writer.commit_user_sql(write, (3,), record)

    assert notes(real_time) == [1, 3]


async def test_many_small_statements_without_an_end_are_stopped(real_time):
    def forever(tx: Transaction) -> None:
        while True:
            tx.run("UPDATE notes SET size = 1")

    with anyio.fail_after(PATIENCE):
        async with Writer(real_time) as writer:
            with pytest.raises(TransactionTimeout):
                await writer.commit_user_sql(forever, (), record)

    assert ask(real_time, "SELECT size FROM notes") == [(None,)]


async def test_slow_user_function_is_detected_at_its_return(database, clock, monkeypatch):
    monkeypatch.setattr(guard, "APART_SECONDS", APART_SECONDS)

    def slow(tx: Transaction, seconds: float) -> int:
        write(tx, 2)
        clock.advance(seconds=seconds)
        return 2

    async with Writer(database) as writer:
        with pytest.raises(TransactionTimeout, match="longer than 1 s; nothing was written"):
            await writer.commit_user_sql(slow, (1.001,), record)
        first_result = notes(database), records(database)
        await writer.commit_user_sql(slow, (1.0,), record)

    assert first_result == ([1], [])
    assert (notes(database), records(database)) == ([1, 2], [2])


async def test_record_after_user_sql_is_not_timed(database, clock):
    def slow_record(tx: Transaction, id: int) -> str:
        clock.advance(seconds=60)
        return record(tx, id)

    async with Writer(database) as writer:
        await writer.commit_user_sql(write, (2,), slow_record)

    assert records(database) == [2]
