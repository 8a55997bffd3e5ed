"""Acts on a failing disk or writer: no call without a recorded intent, and no lost result after a call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import apsw
import pytest

from craftcore import App, RetryPolicy, TaskContext
from craftcore.daemon.lock import read_note
from craftcore.errors import LeaseLost, StorageError
from craftcore.testing.faulty_disk import FaultyDisk
from tests.support.acts import Gate, Provider, ledger, questions, statuses
from tests.support.engine_harness import lab, look, settings
from tests.support.loops import ON_ASYNCIO
from tests.support.processes import PATIENCE
from tests.support.turns import begin, result, run

pytestmark = pytest.mark.anyio


@pytest.fixture
def disk() -> Iterator[FaultyDisk]:
    with FaultyDisk() as disk:
        yield disk


@pytest.fixture(autouse=True)
def quick_disk_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the interval between two checks of a full disk."""
    monkeypatch.setattr("craftcore.engine.durable_commit.FULL_DISK_SECONDS", 0.01)


# Before the call


async def test_act_is_not_called_when_the_flush_of_the_intent_fails(tmp_path, disk):
    """The intent may or may not be on disk. The provider is not called before or after the failure."""
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)
    raised: list[type[BaseException]] = []

    @app.workflow("turn")
    async def turn(ctx: TaskContext) -> Any:
        if not raised:
            disk.fail_syncs()
            try:
                await ctx.act(send)
            except BaseException as error:
                raised.append(type(error))
                raise
        return await ctx.act(send)

    with pytest.raises((StorageError, apsw.IOError)):
        async with lab(app, tmp_path) as harness:
            task = (await app.emit("turn")).id
            await harness.until(lambda: harness.engine.failure is not None)
            await anyio.sleep_forever()
    disk.free()
    assert issubclass(raised[0], StorageError)
    assert provider.calls == []

    async with lab(app, tmp_path) as harness:
        await harness.until(lambda: harness.task(task)["status"] in ("WAITING", "DONE"))
        asked = harness.task(task)["status"] == "WAITING"  # the task waits if the intent reached the disk
        assert provider.attempts == ([] if asked else [1])
        assert questions(harness) == ([("activity", "OPEN")] if asked else [])


async def test_act_is_not_called_when_the_writer_has_failed(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)
    refused: list[str] = []

    async def turn(ctx: TaskContext) -> Any:
        writer = harness.engine.writer
        writer.queue.failed = StorageError("the file system is read-only")
        try:
            await ctx.act(send)
        except StorageError as error:
            refused.append(error.message)
            raise
        finally:
            writer.queue.failed = None

    async with lab(app, tmp_path) as harness:
        await run(harness, turn, max_attempts=1)
        assert refused == ["the file system is read-only"]
        assert (provider.calls, ledger(harness)) == ([], [])


async def test_act_is_not_called_after_the_turn_lost_the_lease(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)
    refused: list[str] = []

    async def turn(ctx: TaskContext) -> Any:
        connection = apsw.Connection(str(harness.path))
        connection.set_busy_timeout(60_000)
        connection.execute("UPDATE triggers SET lease_token = 'another-engine' WHERE status = 'CLAIMED'")
        connection.close()
        try:
            await ctx.act(send)
        except LeaseLost as error:
            refused.append(error.message)
            raise

    async with lab(app, tmp_path) as harness:
        await begin(harness, turn)
        await harness.until(lambda: bool(refused))
        await harness.until(lambda: not harness.engine.running)
        assert set(refused) == {"the turn is over; nothing was written, and nothing was called"}  # each act is refused
        assert (provider.calls, ledger(harness)) == ([], [])


# After the call


async def test_act_result_is_written_once_a_full_disk_has_space_again(tmp_path, disk):
    app, gate = App(), Gate("ref")
    provider = Provider(gate)
    send = app.action("send", irreversible=True)(provider)

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    async with lab(app, tmp_path) as harness:
        task = await begin(harness, turn)
        await gate.inside.wait()
        disk.fill()
        before = disk.refused_writes
        gate.go.set()
        await harness.until(lambda: disk.refused_writes > before + 3)
        disk.free()

        assert result(await harness.ended(task)) == "ref"
        assert (provider.attempts, statuses(harness)) == ([1], ["DONE"])


async def test_engine_stops_in_order_when_an_act_ends_on_a_full_disk(tmp_path, monkeypatch):
    """The full database takes neither the result nor the end of the epoch. The lock note records the ordered end, and
    the next start writes it to the epoch."""
    monkeypatch.setattr("craftcore.engine.engine.DRAIN_SECONDS", 0.0)
    app, gate = App(), Gate()
    send = app.action("send", irreversible=True)(Provider(gate))

    async def turn(ctx: TaskContext) -> Any:
        return await ctx.act(send)

    with FaultyDisk() as disk:
        with anyio.fail_after(PATIENCE):
            async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as harness:
                await begin(harness, turn)
                await gate.inside.wait()
                disk.fill()
        note, is_held = read_note(tmp_path / "agent.db")
        assert note is not None
        assert (note.epoch, note.ended_at is not None, is_held) == (1, True, False)
        disk.free()
        assert look(tmp_path / "agent.db", "SELECT epoch, ended_at FROM epochs") == [{"epoch": 1, "ended_at": None}]

        async with lab(app, tmp_path) as harness:
            assert statuses(harness) == ["UNKNOWN"]
            assert harness.rows("SELECT ended_at FROM epochs WHERE epoch = 1") == [{"ended_at": note.ended_at}]
            assert harness.rows("SELECT crash_count FROM triggers WHERE crash_count > 0") == []


REFERENCES: list[tuple[Any, str | None]] = [
    ("msg-7", "msg-7"),
    ({"provider_ref": "msg-7", "cost": 3}, "msg-7"),
    ({"provider_ref": 7}, None),
    ({"id": 7}, None),
    ("", None),
    (None, None),
    ("é\ud800", "é?"),
    ("x" * 5000, "x" * 997 + "…"),
]


@ON_ASYNCIO
async def test_provider_reference_is_the_returned_text_or_the_provider_ref_field(tmp_path):
    app, sends = App(), []
    for number, (returned, _) in enumerate(REFERENCES):
        sends.append(app.action(f"send-{number}", irreversible=True)(Provider(returned)))

    async with lab(app, tmp_path) as harness:
        for send in sends:
            await run(harness, lambda ctx, send=send: ctx.act(send))  # type: ignore[misc]
        assert [row["status"] for row in ledger(harness)] == ["DONE"] * len(sends)
        assert [row["provider_ref"] for row in ledger(harness)] == [reference for _, reference in REFERENCES]


@ON_ASYNCIO
async def test_act_arguments_too_large_to_store_are_still_compared(tmp_path):
    app, provider = App(), Provider()
    send = app.action("send", irreversible=True)(provider)
    text = "x" * 100_000

    async def turn(ctx: TaskContext) -> Any:
        await ctx.act(send, key="k", to=text)
        await ctx.act(send, key="k", to=text if ctx.attempt == 1 else text + "!")
        raise ValueError("not yet")

    async with lab(app, tmp_path) as harness:
        row = await run(harness, turn, retry=RetryPolicy(max_attempts=2, base=0))
        assert row["error_code"] == "IDEMPOTENCY_CONFLICT"
        assert [(kept["request_json"], kept["calls"]) for kept in ledger(harness)] == [(None, 1)]
