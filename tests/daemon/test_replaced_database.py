"""Databases replaced by an older copy: the engine detects the copy before it repeats an action."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from craftcore import App, Call, Producer, TaskContext
from craftcore.daemon.lock import read_note
from craftcore.daemon.lock_file import lock_path
from tests.support.acts import Provider, ledger, questions, statuses
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.older_copies import copy, held, put_back, release


def build_app(provider: Callable[..., Any]) -> App:
    """Build an app whose workflow waits for `go` and pays."""
    app = App("payer")

    async def pay(call: Call, *, to: str) -> Any:
        return await provider(call, to=to)

    app.action("pay", irreversible=True)(pay)

    @app.workflow("pay")
    async def workflow(ctx: TaskContext) -> Any:
        await ctx.wait_for("go")
        return await ctx.act("pay", to="ada")

    return app


@pytest.mark.anyio
async def test_copy_from_before_a_payment_is_held_and_the_payment_is_asked_about(tmp_path):
    provider = Provider()
    async with lab(build_app(provider), tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        await harness.waiting(task_id)
        copied = copy(harness.path)
        await harness.app.signal(task_id, "go")
        await harness.ended(task_id)
    assert len(provider.calls) == 1

    put_back(copied, harness.path)
    async with lab(build_app(provider), tmp_path) as harness:
        assert held(harness) == (
            "the database is older than its lock file (call mark 1, and the database has 0): it was restored"
        )
        release(harness)
        await harness.app.signal(task_id, "go")
        await harness.question("activity")
        assert statuses(harness) == ["UNKNOWN"]
    assert len(provider.calls) == 1


@pytest.mark.anyio
async def test_copy_restored_a_second_time_is_detected_again(tmp_path):
    provider = Provider()
    async with lab(build_app(provider), tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        await harness.waiting(task_id)
        copied = copy(harness.path)
        await harness.app.signal(task_id, "go")
        await harness.ended(task_id)

    for _ in range(2):
        put_back(copied, harness.path)
        async with lab(build_app(provider), tmp_path) as harness:
            assert held(harness) is not None
            release(harness)
            await harness.until(lambda: harness.engine.feeder.holds.everything is None)
        async with lab(build_app(provider), tmp_path) as harness:
            assert held(harness) is None, "a release by a person is permanent"


@pytest.mark.anyio
async def test_copy_that_knows_every_payment_is_not_held(tmp_path):
    provider = Provider()
    async with lab(build_app(provider), tmp_path) as harness:
        task_id = (await harness.app.emit("pay")).id
        await harness.app.signal(await wait_until_waiting(harness, task_id), "go")
        await harness.ended(task_id)
        copied = copy(harness.path)

    put_back(copied, harness.path)
    async with lab(build_app(provider), tmp_path) as harness:
        assert held(harness) is None
        await harness.idle()
    assert len(provider.calls) == 1


async def wait_until_waiting(harness: Lab, task_id: str) -> str:
    await harness.waiting(task_id)
    return task_id


@pytest.mark.anyio
async def test_copy_from_before_the_first_daemon_is_detected(tmp_path):
    """The copy was made before a daemon gave the file an epoch."""
    with Producer(tmp_path / "agent.db") as producer:
        producer.emit("pay")
    copied = copy(tmp_path / "agent.db")
    async with lab(build_app(Provider()), tmp_path) as harness:
        await harness.idle()

    put_back(copied, tmp_path / "agent.db")
    async with lab(build_app(Provider()), tmp_path) as harness:
        assert held(harness) == "the database is older than its lock file (epoch 1): it was restored"


@pytest.mark.anyio
async def test_crash_between_intent_and_mark_is_not_taken_for_a_restore(tmp_path):
    """The mark is in the database and not in the lock file, which proves that the call was not made."""
    async with lab(build_app(Provider()), tmp_path) as harness:
        await harness.idle()
    core = VirtualCore(harness.path, VirtualClock())
    with core.transaction() as tx:
        tx.run("INSERT INTO facts (name, value) VALUES ('call_mark', '1')")
    core.close()

    async with lab(build_app(Provider()), tmp_path) as harness:
        assert held(harness) is None
        note, _ = read_note(harness.path)
        assert note is not None
        assert note.call_mark == 1


@pytest.mark.anyio
async def test_call_mark_is_in_the_lock_file_before_the_provider_is_called(tmp_path):
    noted: list[int | None] = []

    async def provider(call: Call, *, to: str) -> str:
        note, is_held = read_note(tmp_path / "agent.db")
        noted.append(note.call_mark if note is not None and is_held else None)
        return "ref"

    async with lab(build_app(provider), tmp_path) as harness:
        for _ in range(2):
            task_id = (await harness.app.emit("pay")).id
            await harness.waiting(task_id)
            Path(lock_path(harness.path)).unlink()
            await harness.app.signal(task_id, "go")
            await harness.ended(task_id)

    assert noted == [1, 2]


@pytest.mark.anyio
async def test_calls_wait_while_the_mark_cannot_be_written(tmp_path):
    provider = Provider()
    async with lab(build_app(provider), tmp_path) as harness:
        task_id = (await harness.app.emit("pay", max_attempts=1_000)).id
        await harness.waiting(task_id)
        lock = Path(lock_path(harness.path))
        lock.unlink()
        lock.mkdir()
        await harness.app.signal(task_id, "go")
        await harness.until(lambda: statuses(harness) == ["FAILED"])
        assert provider.calls == []
        [row] = ledger(harness)
        assert row["reason"] == "nothing was called: its mark could not be written beside the file"
        assert "cannot create the lock file" in row["error_message"]

        lock.rmdir()

        await harness.ended(task_id)
    assert len(provider.calls) == 1
    assert questions(harness) == []
