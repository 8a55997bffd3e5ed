"""Absence of payload, result and argument text from all files after its retention time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import anyio
import apsw
import pytest

from craftcore import App, Call, Producer, TaskContext
from craftcore.services import Services
from tests.support.backups import take_backup
from tests.support.engine_harness import lab
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import APP, craftcore
from tests.support.retention_harness import DAY, assert_sound, dump, give_all_back, only, sweep

CANARY = "canary-7f3a91c2"
LARGE = f"{CANARY} " * 2_000


def build_app() -> App:
    app = App("secrets")

    @app.action("bank.pay", irreversible=True)
    async def pay(call: Call, *, to: str) -> str:
        return "ref-1"  # also the provider's reference, which is kept

    @app.workflow("plain")
    async def plain(text: str) -> str:
        return text

    @app.workflow("breaks", max_attempts=1)
    async def breaks(text: str) -> str:
        raise RuntimeError(text)

    @app.workflow("whole", max_attempts=1)
    async def whole(ctx: TaskContext, text: str) -> str:
        await ctx.step("say", str.upper, text)
        await ctx.step("large", str, LARGE)
        await ctx.stream().write(text)
        await ctx.act(pay, to=text)
        answer = await ctx.ask(text, options=["send", "hold"])
        note = await ctx.wait_for("note")
        return f"{answer} {note}"

    return app


async def write_database(folder: Path, clock: VirtualClock) -> None:
    app = build_app()
    async with lab(app, folder, clock=clock) as host:
        await host.settled(
            (await app.emit("plain", {"text": CANARY}, description=CANARY, dedup_key="a", dedup_scope="ever")).id
        )
        await host.settled((await app.emit("plain", {"text": LARGE})).id)
        await host.settled((await app.emit("breaks", {"text": CANARY})).id)
        whole = await app.emit("whole", {"text": CANARY})
        question = await host.question()
        await host.engine.client.answer(question["id"], "send", note=CANARY, reference=None, answered_by="ada")
        await host.until(lambda: bool(host.rows("SELECT 1 FROM waits WHERE kind = 'event'")))
        await host.engine.client.signal(whole.id, "note", CANARY)
        await host.ended(whole.id)
        await host.idle()


def files(path: Path) -> bytes:
    """Return the bytes of the database and its WAL, including free pages."""
    return b"".join(part.read_bytes() for part in path.parent.iterdir() if part.name.startswith(path.name))


@pytest.fixture
def core(tmp_path: Path, clock: VirtualClock) -> Iterator[VirtualCore]:
    anyio.run(write_database, tmp_path, clock)
    core = VirtualCore(tmp_path / "agent.db", clock)
    yield core
    core.close()


def is_hidden(core: Services) -> bool:
    core.close()  # moves the WAL into the file
    return CANARY.encode() not in files(core.database.path) and CANARY.upper().encode() not in files(core.database.path)


def test_canary_is_found_in_the_files_before_retention(core):
    assert not is_hidden(core)
    assert CANARY in str(dump(core)["triggers"])


def test_payload_text_is_gone_from_triggers_records_and_activities_after_a_sweep(core, clock):
    clock.advance(31 * DAY)  # the failed task can be retried until then

    sweep(core)

    tables = dump(core)
    for table in ("triggers", "executions", "event_rows", "blobs", "activity_log"):
        assert CANARY not in str(tables[table]).lower(), table


def test_done_activity_loses_the_body_and_keeps_key_hash_and_reference(core, clock):
    [before] = dump(core)["activity_log"]
    assert (before["status"], before["request_json"]) == ("DONE", f'{{"to":"{CANARY}"}}')
    clock.advance(31 * DAY)

    sweep(core)

    [after] = dump(core)["activity_log"]
    kept = ("idem_key", "args_hash", "provider_ref", "status", "action")
    assert {name: after[name] for name in kept} == {name: before[name] for name in kept}
    assert after["provider_ref"] == "ref-1"
    assert after["request_json"] is None


def test_payload_text_is_nowhere_in_the_files_after_ninety_days(core, clock):
    clock.advance(91 * DAY)

    sweep(core)
    assert_sound(core)

    assert CANARY not in str(dump(core)).lower()
    assert is_hidden(core)
    give_all_back(core)
    assert is_hidden(core)


def test_backup_made_after_the_sweep_holds_no_payload_text(core, clock, tmp_path):
    take_backup(core.database, tmp_path / "before.db")
    clock.advance(91 * DAY)
    sweep(core)
    take_backup(core.database, tmp_path / "after.db")

    assert CANARY.encode() in files(tmp_path / "before.db")
    assert CANARY.encode() not in files(tmp_path / "after.db")


def test_log_lines_of_any_level_hold_no_payload_or_result_text(tmp_path):
    (tmp_path / "test_app.py").write_text(APP)
    (tmp_path / "craftcore.toml").write_text('[log]\nlevel = "debug"\n')
    with Producer(tmp_path / "agent.db") as producer:
        producer.emit("greet", {"name": CANARY}, description=CANARY)
        failed = producer.emit("fails", {"name": CANARY}).id  # the workflow has no such parameter

    ended = craftcore(tmp_path, "--config", "craftcore.toml", "run", "test_app:app", "--until-idle")

    assert (tmp_path / "trace").read_text() == f"greet {CANARY}\n"
    assert failed in ended.err
    assert '"level":"debug"' in ended.err
    assert CANARY not in ended.err + ended.out


def test_wal_holds_no_payload_text_after_a_truncating_checkpoint(core, clock):
    """The WAL contains old pages until a checkpoint truncates it. The daemon does that when it is idle."""
    clock.advance(91 * DAY)
    sweep(core)

    connection = core.database.connect()
    try:
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        assert CANARY.encode() not in files(core.database.path)
        assert os.path.getsize(f"{core.database.path}-wal") == 0
    finally:
        connection.close()


def test_retention_without_limits_keeps_payload_text(core, clock):
    clock.advance(91 * DAY)

    assert sweep(core, only()).rows == 0
    assert not is_hidden(core)
