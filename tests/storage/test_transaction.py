"""Synchronous transactions: atomicity, a single time, and callbacks after the commit."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from craftcore.errors import StorageError
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import Migration
from tests.support.fakes import VirtualClock

TABLES = Migration(
    name="0001_tables",
    sql="""
    CREATE TABLE t (x INTEGER PRIMARY KEY, y TEXT CHECK (y <> 'no')) STRICT;
    CREATE TABLE child (x INTEGER REFERENCES t) STRICT;
    """,
)


@pytest.fixture
def database(tmp_path: Path, clock: VirtualClock) -> Iterator[Database]:
    database = Database(tmp_path / "agent.db", clock)
    migrate(database, clock, [TABLES])
    yield database
    database.close()


def rows(database: Database) -> list[int]:
    with database.reading() as reader:
        return [row["x"] for row in reader.fetch_all("SELECT x FROM t ORDER BY x")]


def test_leaving_the_block_commits(database):
    with database.transaction() as tx:
        tx.run("INSERT INTO t (x) VALUES (:x)", x=1)

    assert rows(database) == [1]


def test_exception_in_a_transaction_undoes_everything(database):
    with pytest.raises(ZeroDivisionError):
        with database.transaction() as tx:
            tx.run("INSERT INTO t (x) VALUES (1)")
            tx.run("INSERT INTO t (x) VALUES (:x)", x=1 // 0)

    assert rows(database) == []


def test_transaction_after_an_exception_works(database):
    with pytest.raises(KeyboardInterrupt):
        with database.transaction() as tx:
            tx.run("INSERT INTO t (x) VALUES (1)")
            raise KeyboardInterrupt

    with database.transaction() as tx:
        tx.run("INSERT INTO t (x) VALUES (2)")

    assert rows(database) == [2]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO t (x) VALUES (1)",
        "INSERT INTO t (y) VALUES ('no')",
        "INSERT INTO child VALUES (99)",
        "INSERT INTO t (x) VALUES ('text')",
        "no statement at all",
    ],
)
def test_sqlite_error_is_translated_and_undoes_the_transaction(database, statement):
    with database.transaction() as tx:
        tx.run("INSERT INTO t (x) VALUES (1)")

    with pytest.raises(StorageError):
        with database.transaction() as tx:
            tx.run("INSERT INTO t (x) VALUES (2)")
            tx.run(statement)

    assert rows(database) == [1]


def test_fetch_value_returns_the_first_column_of_the_first_row(database):
    with database.transaction() as tx:
        tx.run("INSERT INTO t (x, y) VALUES (3, 'c'), (1, 'a'), (2, 'b')")

        assert tx.fetch_value("SELECT x FROM t ORDER BY x DESC") == 3
        assert tx.fetch_value("SELECT y, x FROM t ORDER BY x") == "a"
        assert tx.fetch_value("SELECT x FROM t WHERE x > :x", x=3) is None


def test_after_commit_is_called_once_on_disk(database):
    seen: list[Any] = []

    with database.transaction() as tx:
        tx.after_commit(lambda: seen.append(rows(database)))
        tx.run("INSERT INTO t (x) VALUES (1)")
        before = list(seen)

    assert before == []
    assert seen == [[1]]


def test_before_answers_is_called_on_disk_with_the_last_value_before_after_commit(database):
    seen: list[Any] = []

    def note(value: int) -> None:
        seen.append((value, rows(database)))

    with database.transaction() as tx:
        tx.after_commit(seen.append, "after")
        for value in (1, 2):
            tx.before_answers(note, value)
        tx.run("INSERT INTO t (x) VALUES (1)")

    assert seen == [(2, [1]), "after"]


def test_after_commit_is_not_called_without_a_commit(database):
    seen: list[Any] = []

    with pytest.raises(ZeroDivisionError):
        with database.transaction() as tx:
            tx.after_commit(seen.append, 1)
            raise ZeroDivisionError

    assert seen == []


def test_error_in_after_commit_is_logged_and_not_raised(database):
    seen: list[Any] = []

    with database.transaction() as tx:
        tx.run("INSERT INTO t (x) VALUES (1)")
        tx.after_commit(seen.index, "missing")
        tx.after_commit(seen.append, "next")

    assert seen == ["next"]
    assert rows(database) == [1]


def test_transaction_time_is_a_single_instant_of_the_clock(database, clock):
    with database.transaction() as tx:
        first = tx.now
        clock.advance(seconds=5)
        second = tx.now

    with database.transaction() as tx:
        assert (first, second, tx.now) == (clock.now() - 5, clock.now() - 5, clock.now())


def test_transaction_binds_now_in_a_writing_statement_unless_given(database, clock):
    with database.transaction() as tx:
        tx.run("INSERT INTO t (x) VALUES (:now)")
        tx.run("INSERT INTO t (x) VALUES (:now)", now=7)

    assert rows(database) == [7, int(clock.now())]


def test_statement_about_a_row_returns_whether_the_row_changed(database):
    with database.transaction() as tx:
        assert tx.run_one("INSERT INTO t (x) VALUES (1)") is True
        assert tx.run_one("DELETE FROM t WHERE x = 2") is False


def test_nested_transaction_is_refused_and_the_outer_continues(database):
    with database.transaction() as tx:
        tx.run("INSERT INTO t (x) VALUES (1)")
        with pytest.raises(StorageError):
            with database.transaction():
                raise AssertionError("the inner block must not run")
        tx.run("INSERT INTO t (x) VALUES (2)")

    assert rows(database) == [1, 2]


def test_threads_take_turns_at_a_database(database):
    def write(numbers: range) -> None:
        for x in numbers:
            with database.transaction() as tx:
                tx.run("INSERT INTO t (x) VALUES (:x)", x=x)

    threads = [threading.Thread(target=write, args=(range(start, start + 25),)) for start in (0, 100, 200, 300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(rows(database)) == 100
