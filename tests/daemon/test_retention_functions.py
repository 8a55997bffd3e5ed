"""Functions of an app that retention calls: in its commit, and never in its way."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest

from craftcore import App, Removed, TaskContext
from craftcore.clock import SystemClock
from craftcore.daemon import retention_loop
from craftcore.daemon.retention_loop import RetentionLoop
from craftcore.errors import ConfigInvalid
from craftcore.retention.failed_functions import read_failure
from craftcore.storage.database import Database
from craftcore.storage.user_sql import guard
from craftcore.temporal.app_check import list_changes
from tests.support.command_calls import call_command
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.retention_harness import DAY, assert_sound

pytestmark = pytest.mark.anyio

NAMES = ("Ada", "Grace", "Hedy")


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_loop, "REST", 0.001)
    monkeypatch.setattr(retention_loop, "LOOK_AGAIN", 0.01)


def build_app() -> App:
    app = App("letters")

    @app.workflow("write")
    async def write(ctx: TaskContext, name: str) -> None:
        await ctx.transaction("save", save, ctx.task_id, name)

    return app


def save(tx: Any, task_id: str, name: str) -> None:
    tx.run("CREATE TABLE IF NOT EXISTS letters (task_id TEXT, name TEXT) STRICT")
    tx.run("INSERT INTO letters VALUES (:task_id, :name)", task_id=task_id, name=name)


@asynccontextmanager
async def a_year_later(app: App, folder: Path, clock: VirtualClock) -> AsyncIterator[tuple[Lab, RetentionLoop]]:
    """Run three tasks, advance a year, and start retention with the functions of the app."""
    core = VirtualCore(folder / "agent.db", clock)
    async with lab(app, folder, clock=clock) as harness:
        for name in NAMES:
            await (await app.emit("write", {"name": name})).result()
        await harness.idle()
        clock.advance(365 * DAY)
        async with anyio.create_task_group() as tasks:
            loop = RetentionLoop(core, harness.engine, functions=app.retention_functions, first_after=0.0, every=0.01)
            tasks.start_soon(loop.run)
            yield harness, loop
            tasks.cancel_scope.cancel()
    assert_sound(core)
    core.close()


async def after_passes(harness: Lab, loop: RetentionLoop, number: int = 2) -> None:
    """Wait until so many more passes are over."""
    passes = loop.passes + number
    await harness.until(lambda: loop.passes >= passes)


def letters(harness: Lab) -> list[str]:
    return [row["name"] for row in harness.rows("SELECT name FROM letters")]


def tasks(harness: Lab) -> list[str]:
    return [row["id"] for row in harness.rows("SELECT id FROM tasks ORDER BY seq")]


async def test_function_removes_rows_in_the_commit_of_their_task(tmp_path, clock):
    app = build_app()
    calls: list[tuple[Removed, int]] = []

    @app.on_retention
    def remove(tx: Any, removed: Removed) -> None:
        calls.append((removed, tx.value("SELECT count(*) FROM tasks")))
        for task_id in removed.tasks:
            tx.run("DELETE FROM letters WHERE task_id = :id", id=task_id)

    async with a_year_later(app, tmp_path, clock) as (harness, loop):
        ids = tasks(harness)
        await after_passes(harness, loop)
        assert (letters(harness), tasks(harness)) == ([], ids[2:])

    removed = [(removed.tasks, count) for removed, count in calls if removed.tasks]
    assert removed == [(tuple(ids), 1)]  # the newest row stays for its number, without its content
    assert {id for removed, _ in calls for id in removed.triggers} == set(ids)
    assert (Removed(), 1) in calls


async def test_end_of_a_pass_removes_rows_of_removed_tasks(tmp_path, clock):
    app = build_app()

    @app.on_retention
    def sweep(tx: Any, removed: Removed) -> None:
        if not removed.tasks and not removed.triggers:
            tx.run("DELETE FROM letters WHERE task_id NOT IN (SELECT id FROM tasks)")

    async with a_year_later(app, tmp_path, clock) as (harness, loop):
        await after_passes(harness, loop)
        assert letters(harness) == ["Hedy"]


def fail(tx: Any, removed: Removed) -> None:
    tx.run("DELETE FROM letters")
    raise LookupError("no such letter")


def end_transaction(tx: Any, removed: Removed) -> None:
    tx.run("CREATE TABLE IF NOT EXISTS once (id INTEGER PRIMARY KEY) STRICT")
    tx.run("INSERT INTO once VALUES (1)")
    tx.run("DELETE FROM letters")
    try:
        tx.run("INSERT OR ROLLBACK INTO once VALUES (1)")
    except Exception:
        return


def leave(tx: Any, removed: Removed) -> None:
    tx.run("DELETE FROM letters")
    raise SystemExit(3)


def change_tasks(tx: Any, removed: Removed) -> None:
    tx.run("DELETE FROM letters")
    tx.run("DELETE FROM tasks")


def return_coroutine(tx: Any, removed: Removed) -> Any:
    async def later() -> None: ...

    tx.run("DELETE FROM letters")
    return later()


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (fail, "no such letter"),
        (end_transaction, "ended the transaction"),
        (leave, "3"),
        (change_tasks, "craftcore's own"),
        (return_coroutine, "not async"),
    ],
)
async def test_failing_function_writes_nothing_and_stops_nothing(tmp_path, clock, function, why):
    app = build_app()
    app.on_retention(function)

    async with a_year_later(app, tmp_path, clock) as (harness, loop):
        await after_passes(harness, loop)
        assert harness.engine.failure is None
        assert letters(harness) == list(NAMES)
        assert len(tasks(harness)) == 1
        with Database(harness.path, SystemClock()).reading() as reader:
            failure = read_failure(reader)

    assert failure is not None
    assert failure.function == function.__name__
    assert why in failure.error


async def test_slow_function_is_ended_and_stops_nothing(tmp_path, clock):
    app = build_app()

    @app.on_retention
    def take_long(tx: Any, removed: Removed) -> None:
        tx.run("DELETE FROM letters")
        clock.advance(2 * guard.APART_SECONDS)
        tx.value("WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT count(*) FROM n")

    async with a_year_later(app, tmp_path, clock) as (harness, loop):
        await after_passes(harness, loop)
        assert (letters(harness), len(tasks(harness))) == (list(NAMES), 1)
        with Database(harness.path, SystemClock()).reading() as reader:
            failure = read_failure(reader)

    assert failure is not None
    assert "took longer" in failure.error


async def test_failure_is_in_status_and_doctor_until_a_clean_pass(tmp_path, clock):
    app = build_app()
    fails = True

    @app.on_retention
    def remove(tx: Any, removed: Removed) -> None:
        if fails:
            raise LookupError("no such letter")

    async with a_year_later(app, tmp_path, clock) as (harness, loop):
        await after_passes(harness, loop)
        status = await anyio.to_thread.run_sync(call_command, tmp_path, "--json", "status")
        doctor = await anyio.to_thread.run_sync(call_command, tmp_path, "doctor")
        fails = False
        await after_passes(harness, loop)
        with Database(harness.path, SystemClock()).reading() as reader:
            assert read_failure(reader) is None

    assert "no such letter" in status.json["retention_failed"]["error"]
    assert "without the function" in str(status.json["reasons"])
    assert "retention functions" in doctor.out


async def test_failure_is_forgotten_when_the_app_has_no_function(tmp_path, clock):
    core = VirtualCore(tmp_path / "agent.db", clock)
    core.do(
        lambda tx: tx.run(
            "INSERT INTO facts (name, value) VALUES ('retention_failed', :text)",
            text='{"at":1.0,"error":"gone","function":"remove"}',
        )
    )
    core.close()

    async with a_year_later(build_app(), tmp_path, clock) as (harness, loop):
        await after_passes(harness, loop)
        assert harness.rows("SELECT 1 FROM facts WHERE name = 'retention_failed'") == []


async def remove_later(tx: Any, removed: Removed) -> None: ...


@pytest.mark.parametrize("function", [remove_later, "text", lambda: None, lambda tx, removed, more: None])
def test_unusable_function_is_refused_at_declaration(function):
    with pytest.raises(ConfigInvalid, match="on_retention"):
        App().on_retention(function)


def test_check_for_a_cluster_names_the_uncalled_function():
    app = App()
    app.on_retention(fail)

    assert "on_retention" in "\n".join(list_changes(app))
