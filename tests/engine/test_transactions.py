"""Transactions of steps on the user's own tables: rows and step record in one commit."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore import App, TaskContext
from tests.support.engine_harness import Lab, lab

pytestmark = pytest.mark.anyio


async def wait_for_end(harness: Lab, task_id: str) -> dict[str, Any]:
    await harness.until(
        lambda: bool(harness.rows("SELECT 1 FROM tasks WHERE id = :id AND ended_at IS NOT NULL", id=task_id))
    )
    [row] = harness.rows("SELECT * FROM tasks WHERE id = :id", id=task_id)
    return row


def book(tx: Any, amount: int) -> int:
    tx.run("CREATE TABLE IF NOT EXISTS bookings (id INTEGER PRIMARY KEY, amount INTEGER CHECK (amount > 0)) STRICT")
    tx.run("INSERT INTO bookings (amount) VALUES (:amount)", amount=amount)
    total: int = tx.value("SELECT sum(amount) FROM bookings")
    return total


async def test_transaction_writes_rows_once_over_all_attempts(tmp_path):
    app = App()

    @app.workflow("shop")
    async def shop(ctx: TaskContext) -> int:
        total = await ctx.transaction("book", book, 5)
        total = await ctx.transaction("book", book, total, key="again")
        if ctx.attempt < 3:
            raise ValueError("not yet")
        return total

    async with lab(app, tmp_path) as harness:
        row = await wait_for_end(harness, (await app.emit("shop")).id)
        assert (row["status"], row["result_json"]) == ("DONE", "10")
        assert harness.rows("SELECT amount FROM bookings") == [{"amount": 5}, {"amount": 5}]
        steps = harness.rows("SELECT memo FROM events WHERE type = 'STEP_COMPLETED' ORDER BY execution_seq, seq")
        assert [step["memo"] for step in steps] == ["step:book", "step:book/again"]


async def test_transaction_that_raises_writes_nothing_and_is_retried_with_the_turn(tmp_path):
    app = App()
    asked: list[int] = []

    def stumbling(tx: Any, amount: int) -> int:
        total = book(tx, amount)
        asked.append(total)
        if len(asked) == 1:
            raise ValueError("after the write")
        return total

    @app.workflow("shop")
    async def shop(ctx: TaskContext) -> int:
        return await ctx.transaction("book", stumbling, 7)

    async with lab(app, tmp_path) as harness:
        row = await wait_for_end(harness, (await app.emit("shop")).id)
        assert (row["result_json"], asked) == ("7", [7, 7])
        assert harness.rows("SELECT amount FROM bookings") == [{"amount": 7}]


async def test_transaction_with_an_unstorable_result_is_rolled_back(tmp_path):
    app = App()

    def odd(tx: Any) -> object:
        book(tx, 1)
        return object()

    @app.workflow("shop")
    async def shop(ctx: TaskContext) -> None:
        await ctx.transaction("keep", book, 2)
        await ctx.transaction("odd", odd)

    async with lab(app, tmp_path) as harness:
        row = await wait_for_end(harness, (await app.emit("shop")).id)
        assert (row["status"], row["error_code"]) == ("FAILED", "VALIDATION_ERROR")
        assert "the result of step odd" in row["error_message"]
        assert harness.rows("SELECT amount FROM bookings") == [{"amount": 2}]


FORBIDDEN = [
    "UPDATE triggers SET status = 'DONE'",
    "DELETE FROM tasks",
    "DROP TABLE events",
    "COMMIT",
    "PRAGMA user_version = 3",
]


async def test_transaction_with_forbidden_sql_fails_the_task_and_changes_nothing(tmp_path):
    app = App()

    @app.workflow("shop")
    async def shop(ctx: TaskContext, sql: str) -> None:
        def reaches_too_far(tx: Any) -> None:
            book(tx, 1)
            tx.run(sql)

        await ctx.transaction("book", reaches_too_far)

    async with lab(app, tmp_path) as harness:
        for sql in FORBIDDEN:
            row = await wait_for_end(harness, (await app.emit("shop", {"sql": sql})).id)
            assert (row["status"], row["error_code"]) == ("FAILED", "VALIDATION_ERROR"), sql
            assert harness.rows("SELECT count(*) AS n FROM sqlite_schema WHERE name = 'bookings'") == [{"n": 0}], sql


async def test_transaction_with_an_async_function_is_refused(tmp_path):
    app = App()

    async def not_plain(tx: Any) -> None: ...

    @app.workflow("shop")
    async def shop(ctx: TaskContext) -> None:
        await ctx.transaction("book", not_plain)  # type: ignore[unused-coroutine]  # the coroutine is intended

    async with lab(app, tmp_path) as harness:
        row = await wait_for_end(harness, (await app.emit("shop")).id)
        assert (row["status"], row["error_code"]) == ("FAILED", "VALIDATION_ERROR")
