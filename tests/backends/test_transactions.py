"""A program writes its own tables in the file of the engine: the same rules for each kind of caller."""

from __future__ import annotations

import asyncio
from typing import Any

import anyio.to_thread
import pytest

from craftcore import App, AsyncProducer, Fail, Producer, TaskContext
from craftcore.client.backend import Capability
from craftcore.errors import InvalidInput, RowInvalid, StorageError, TransactionTimeout, WorkFailed
from craftcore.storage.user_sql import guard
from tests.backends.conftest import FILE
from tests.support.engine_harness import lab
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

TABLE = "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT, data BLOB) STRICT"


@pytest.fixture(params=FILE)
def kind(request: pytest.FixtureRequest) -> str:
    """Return a kind of caller that has tables."""
    return str(request.param)


def note(tx: Any, text: str, data: bytes | None = None) -> int:
    tx.run(TABLE)
    tx.run("INSERT INTO notes (text, data) VALUES (:text, :data)", text=text, data=data)
    count: int = tx.value("SELECT count(*) FROM notes")
    return count


def list_notes(tx: Any) -> list[Any]:
    tx.run(TABLE)
    return [tuple(row.values()) for row in tx.all("SELECT text, data FROM notes ORDER BY id")]


async def test_rows_and_blobs_are_on_disk_when_the_call_returns(caller):
    assert await caller.make("transaction", note, "first") == 1
    assert await caller.make("transaction", note, "second", b"\x00\xff") == 2

    assert await caller.make("transaction", list_notes) == [("first", None), ("second", b"\x00\xff")]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("DELETE FROM triggers", "craftcore's own"),
        ("DROP TABLE facts", "craftcore's own"),
        ("COMMIT", "begins and ends with its function"),
        ("PRAGMA user_version = 7", "no PRAGMA"),
        ("ATTACH 'other.db' AS other", "ATTACH"),
        ("CREATE TEMP TABLE t (x)", "temporary tables"),
        ("nonsense", "SQLite refused"),
    ],
)
async def test_statements_of_others_are_refused_and_nothing_is_written(caller, statement, reason):
    def write(tx: Any) -> None:
        note(tx, "lost")
        tx.run(statement)

    await caller.make("transaction", note, "kept")
    with pytest.raises(InvalidInput, match=reason):
        await caller.make("transaction", write)

    assert await caller.make("transaction", list_notes) == [("kept", None)]


async def test_error_of_the_function_is_raised_and_nothing_is_written(caller):
    def fail(tx: Any) -> None:
        note(tx, "lost")
        raise Fail("SOLD_OUT", "none is left")

    def break_constraint(tx: Any) -> None:
        note(tx, "lost")
        tx.run("INSERT INTO notes (id) VALUES (1)")

    def end_early(tx: Any) -> None:
        note(tx, "lost")
        try:
            tx.run("INSERT OR ROLLBACK INTO notes (id) VALUES (1)")
        except RowInvalid:
            pass

    async def wait(tx: Any) -> None: ...

    await caller.make("transaction", note, "kept")
    for function, error in ((fail, Fail), (break_constraint, RowInvalid), (end_early, StorageError)):
        with pytest.raises(error):
            await caller.make("transaction", function)
    for unplain in (wait, lambda tx: wait(tx)):
        with pytest.raises(InvalidInput, match="plain one, not async"):
            await caller.make("transaction", unplain)

    assert await caller.make("transaction", list_notes) == [("kept", None)]


async def test_slow_function_is_ended_and_nothing_is_written(caller, monkeypatch):
    monkeypatch.setattr(guard, "APART_SECONDS", 0.05)
    endless = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n"

    def write(tx: Any) -> None:
        note(tx, "lost")
        tx.value(endless)

    with pytest.raises(TransactionTimeout, match=r"longer than 0\.05 s"):
        await caller.make("transaction", write)

    assert await caller.make("transaction", list_notes) == []


async def test_statement_outside_of_its_function_does_nothing(caller):
    kept: list[Any] = []

    await caller.make("transaction", lambda tx: kept.append(tx))
    with pytest.raises(InvalidInput, match="the transaction is over"):
        note(kept[0], "late")

    assert await caller.make("transaction", list_notes) == []


# Nested use, turns and other loops


async def test_call_of_a_producer_within_the_function_is_refused(tmp_path):
    async with lab(App("host"), tmp_path) as harness:
        with Producer(harness.path) as producer:

            def nest(tx: Any) -> None:
                note(tx, "lost")
                producer.transaction(note, "inner")

            def emit(tx: Any) -> None:
                note(tx, "lost")
                producer.emit("none", {})

            for function in (nest, emit):
                with pytest.raises(InvalidInput, match="writes by its tx only"):
                    await anyio.to_thread.run_sync(producer.transaction, function)
                with pytest.raises(InvalidInput, match="writes by its tx only"):
                    await harness.app.transaction(function)

            assert producer.transaction(list_notes) == []


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_call_of_the_app_within_the_function_is_refused(tmp_path):
    app = App("host")
    loop = asyncio.get_running_loop()

    def nest(tx: Any) -> None:
        asyncio.run_coroutine_threadsafe(app.transaction(note, "inner"), loop).result(PATIENCE)

    async with lab(app, tmp_path):
        with pytest.raises(InvalidInput, match="writes by its tx only"):
            await app.transaction(nest)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_call_from_another_event_loop_is_refused(tmp_path):
    app = App("host")

    async with lab(app, tmp_path):
        with pytest.raises(InvalidInput, match="loop"):
            await anyio.to_thread.run_sync(lambda: asyncio.run(app.transaction(note, "elsewhere")))

        assert await app.transaction(list_notes) == []


async def test_call_in_a_turn_is_refused_and_names_the_recorded_call(tmp_path):
    app = App("host")

    @app.workflow("save", max_attempts=1)
    async def save(ctx: TaskContext) -> int:
        return await app.transaction(note, "twice")

    async with lab(app, tmp_path):
        with pytest.raises(WorkFailed, match=r"ctx\.transaction"):
            await (await app.emit("save")).result(timeout=PATIENCE)

        assert await app.transaction(list_notes) == []


async def test_app_that_does_not_run_has_no_tables():
    with pytest.raises(InvalidInput, match="not running"):
        await App("host").transaction(note, "nowhere")


# Beside the engine


async def test_producer_and_turn_write_the_same_table(tmp_path):
    app = App("host")

    @app.workflow("save")
    async def save(ctx: TaskContext) -> int:
        return await ctx.transaction("note", note, "of the turn", b"\x01")

    async with lab(app, tmp_path) as harness:
        async with AsyncProducer(harness.path) as producer:
            await producer.transaction(note, "of the host")
            assert await (await app.emit("save")).result(timeout=PATIENCE) == 2
            assert await app.transaction(note, "of the app") == 3

            listed = await producer.transaction(list_notes)

    assert listed == [("of the host", None), ("of the turn", b"\x01"), ("of the app", None)]


def test_cluster_lacks_tables():
    from craftcore.temporal.cluster_lacks import LACKS

    assert "database of your own" in LACKS[Capability.TRANSACTION]
