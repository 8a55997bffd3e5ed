"""Retention in a running engine: it removes ended work, waits for holds and readers, and stops with the engine."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from craftcore import App
from craftcore.daemon import retention_loop
from craftcore.daemon.retention_loop import RetentionLoop
from craftcore.daemon.status_line import Condition, status_text
from craftcore.storage import checkpoints as writing
from craftcore.storage.facts import set_fact
from craftcore.storage.files.file_size import wal_bytes
from craftcore.storage.transaction import Transaction
from craftcore.testing.faulty_disk import FaultyDisk
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.retention_harness import DAY, assert_sound

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retention_loop, "REST", 0.001)
    monkeypatch.setattr(retention_loop, "LOOK_AGAIN", 0.01)


def build_app() -> App:
    app = App("retained")

    @app.workflow("greet")
    async def greet(name: str = "you") -> str:
        return f"Hello {name}"

    return app


@asynccontextmanager
async def one_day_later(
    folder: Path,
    clock: VirtualClock,
    prepare: Callable[[Transaction], Any] | None = None,
    *,
    before: Callable[[], object] = lambda: None,
) -> Any:
    """Run three triggers, the last of which remains for its sequence number, advance a day, and start retention."""
    core = VirtualCore(folder / "agent.db", clock)
    async with lab(build_app(), folder, clock=clock) as harness:
        for name in ("Ada", "Grace", "Hedy"):
            await harness.settled((await harness.app.emit("greet", {"name": name})).id)
        await harness.idle()
        if prepare is not None:
            core.do(prepare)
            await harness.idle_window()
        clock.advance(DAY)
        before()
        async with anyio.create_task_group() as tasks:
            loop = RetentionLoop(core, harness.engine, first_after=0.0, every=0.01)
            tasks.start_soon(loop.run)
            yield harness, loop
            tasks.cancel_scope.cancel()
    core.close()


def triggers(harness: Lab) -> int:
    return len(harness.rows("SELECT 1 FROM triggers"))


@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_retention_removes_finished_work_while_the_engine_runs(tmp_path, clock):
    async with one_day_later(tmp_path, clock) as (harness, loop):
        await harness.until(lambda: triggers(harness) == 1)
        fresh = await harness.app.emit("greet", {"name": "Joan"})
        await harness.settled(fresh.id)
        passes = loop.passes
        await harness.until(lambda: loop.passes > passes + 1)
        assert harness.trigger(fresh.id)["payload_json"] == '{"name":"Joan"}'

    core = VirtualCore(tmp_path / "agent.db", clock)
    assert_sound(core)
    core.close()


async def test_retention_waits_while_the_engine_is_held(tmp_path, clock):
    def hold(tx: Transaction) -> None:
        set_fact(tx, "held", "it was restored")

    async with one_day_later(tmp_path, clock, hold) as (harness, loop):
        assert harness.engine.is_held
        await anyio.sleep(0.2)
        assert (triggers(harness), loop.passes) == (3, 0)

        core = VirtualCore(tmp_path / "agent.db", clock)
        core.do(lambda tx: tx.run("DELETE FROM facts WHERE name = 'held'"))
        core.close()
        harness.engine.ring(schedules=True)

        await harness.until(lambda: triggers(harness) == 1)


async def test_retention_waits_while_a_reader_keeps_a_long_wal(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(retention_loop, "WAL_LONG", 64 << 10)
    monkeypatch.setattr(writing, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(writing, "TRUNCATE_SECONDS", 0.02)
    monkeypatch.setattr(writing, "WAL_KEPT", 0)
    core = VirtualCore(tmp_path / "agent.db", clock)

    def fill(tx: Transaction) -> None:
        tx.run("CREATE TABLE other AS SELECT zeroblob(300000) AS body")

    with ExitStack() as reads:

        def begin_to_read() -> None:
            reader = reads.enter_context(core.reading())
            assert reader.fetch_value("SELECT count(*) FROM triggers") == 3
            core.do(fill)

        async with one_day_later(tmp_path, clock, before=begin_to_read) as (harness, loop):
            await harness.until(lambda: loop.pinned)
            await anyio.sleep(0.2)
            assert (triggers(harness), loop.passes) == (3, 0)
            await harness.settled((await harness.app.emit("greet")).id)  # the engine waits for no reader

            reads.close()

            await harness.until(lambda: triggers(harness) == 1)
            assert not loop.pinned
    core.close()


async def test_long_but_mostly_unused_wal_does_not_delay_retention(tmp_path, clock, monkeypatch):
    """Litestream restarts the WAL without truncating it after a burst of writes."""
    monkeypatch.setattr(retention_loop, "WAL_LONG", 200 << 10)
    litestream = apsw.Connection(str(tmp_path / "agent.db"))

    def burst() -> None:
        litestream.execute("CREATE TABLE other AS SELECT zeroblob(1000000) AS body")
        litestream.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        litestream.execute("BEGIN; INSERT INTO other VALUES (1); COMMIT; BEGIN; SELECT * FROM other")

    async with one_day_later(tmp_path, clock, before=burst) as (harness, loop):
        assert wal_bytes(tmp_path / "agent.db") > 1_000_000

        await harness.until(lambda: triggers(harness) == 1)

        assert not loop.pinned
        assert wal_bytes(tmp_path / "agent.db") > 1_000_000
        litestream.close()


async def test_clock_set_forward_by_a_year_does_not_age_work(tmp_path, clock):
    async with one_day_later(tmp_path, clock) as (harness, loop):
        await harness.until(lambda: triggers(harness) == 1)
        clock.set_back(-365 * DAY)
        passes = loop.passes
        await harness.until(lambda: loop.passes > passes + 2)
        assert harness.rows("SELECT 1 FROM executions WHERE stripped_at IS NOT NULL") == []

        clock.advance(6 * DAY)  # seven days have passed since their end

        await harness.until(lambda: len(harness.rows("SELECT 1 FROM executions WHERE stripped_at IS NOT NULL")) == 3)


async def test_retention_retries_on_a_full_disk_until_space_is_free(tmp_path, clock):
    with FaultyDisk() as disk:
        async with one_day_later(tmp_path, clock, before=disk.fill) as (harness, loop):
            await harness.until(lambda: disk.refused_writes > 5)
            assert (triggers(harness), loop.passes) == (3, 0)

            disk.free()

            await harness.until(lambda: triggers(harness) == 1)


async def test_unreadable_row_stops_a_single_kind_of_retention(tmp_path, clock):
    def damage(tx: Transaction) -> None:
        tx.run("UPDATE triggers SET task_id = CAST(x'ff' AS TEXT) WHERE seq = 1")

    async with one_day_later(tmp_path, clock, damage) as (harness, loop):
        await harness.until(lambda: loop.passes > 1)
        clock.advance(7 * DAY)
        await harness.until(lambda: len(harness.rows("SELECT 1 FROM executions WHERE stripped_at IS NULL")) == 0)


async def test_retention_stops_with_the_engine(tmp_path, clock):
    async with one_day_later(tmp_path, clock) as (harness, loop):
        await harness.until(lambda: loop.passes > 0)
        harness.engine.stop()
        passes = loop.passes
        await anyio.sleep(0.1)
        assert loop.passes <= passes + 1


async def test_retention_runs_in_every_engine_after_the_boot(tmp_path, clock, monkeypatch):
    began = anyio.Event()

    async def note(self: RetentionLoop) -> None:
        assert self._first_after == retention_loop.FIRST_AFTER >= 60
        began.set()

    monkeypatch.setattr(RetentionLoop, "run", note)
    async with lab(build_app(), tmp_path, clock=clock) as harness:
        await harness.until(began.is_set)


def test_long_wal_is_a_problem_in_the_status_line():
    text = status_text(Condition(running=0, due=None, settled={}, wal_in_use=80 << 20))

    assert text == "80 MiB in the WAL: a reader keeps an old snapshot open; running 0"
