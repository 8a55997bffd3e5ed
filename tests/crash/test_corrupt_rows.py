"""Corrupt rows of triggers: they end as dead letters with a reason, and the others run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import apsw
import pytest

from craftcore import App, Producer, TaskContext, TriggerSpec
from craftcore.config import Config, DaemonSettings, RetrySettings
from tests.support.damage import NO_TEXT, damage
from tests.support.processes import APP, PATIENCE, craftcore

CONFIG = Config(
    daemon=DaemonSettings(poll_seconds=0.1, shutdown_grace=PATIENCE),
    retry=RetrySettings(max_attempts=2, base_seconds=0, cap_seconds=0),
)


def an_app(ran: list[int]) -> App:
    app = App("test")

    @app.workflow("note", sources=("MESSAGE",))
    async def note(ctx: TaskContext, n: int) -> int:
        ran.append(n)
        return n

    return app


def emit_nine(path: Path) -> list[str]:
    with Producer(path) as producer:
        return [producer.emit("note", {"n": n}, session_id=f"session-{n}").id for n in range(9)]


def rows(path: Path) -> dict[str, dict[str, Any]]:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    found = connection.execute("SELECT id, status, reason, error_message FROM triggers").fetchall()
    connection.close()
    return {str(id): {"status": status, "reason": reason, "message": message} for id, status, reason, message in found}


async def run(path: Path, app: App, enough: Callable[[], bool]) -> None:
    with anyio.fail_after(PATIENCE):
        async with app.running(path, config=CONFIG) as engine:
            while not (enough() and engine.is_idle):  # noqa: ASYNC110 - it has no event to wait on
                await anyio.sleep(0.005)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "change",
    [
        "payload_json = 'garbage'",
        "payload_json = ''",
        f"payload_json = {NO_TEXT}",
        f"description = {NO_TEXT}",
        f"workflow = {NO_TEXT}",
        f"source = {NO_TEXT}",
        f"session_id = {NO_TEXT}",
        f"lane = {NO_TEXT}",
        f"status = 'CLAIMED', lease_token = {NO_TEXT}, claimed_epoch = 99",
        "source = 'NONSENSE'",
        "fire_at = -1e300, due_at = -1e300",
        "settled_at = 1.0",
        "settled_at = 1.0, reason = 'odd', status = 'CLAIMED', lease_token = 'x', claimed_epoch = 99",
        "starts = 9223372036854775807",
        "attempts = 9223372036854775807",
        "crash_count = 9223372036854775807, status = 'CLAIMED', lease_token = 'x', claimed_epoch = 99, started_at = 1",
    ],
)
async def test_corrupt_row_ends_dead_with_its_reason_and_the_others_run(tmp_path, change):
    path = tmp_path / "agent.db"
    ids = emit_nine(path)
    damage(path, "triggers", change, "id = ?", ids[4])
    ran: list[int] = []

    await run(path, an_app(ran), lambda: {0, 1, 2, 3, 5, 6, 7, 8} <= set(ran))

    found = rows(path)
    assert {found[id]["status"] for id in ids if id != ids[4]} == {"DONE"}
    corrupt = found[ids[4]]
    assert (corrupt["status"], corrupt["reason"]) == ("DEAD", "corrupt row"), corrupt
    assert corrupt["message"]
    assert 4 not in ran


@pytest.mark.anyio
@pytest.mark.parametrize("change", ["lease_token = 'unknown'", "priority = -5", "lease_until = -1.0"])
async def test_irrelevant_corruption_does_not_stop_a_waiting_row(tmp_path, change):
    path = tmp_path / "agent.db"
    ids = emit_nine(path)
    damage(path, "triggers", change, "id = ?", ids[4])
    ran: list[int] = []

    await run(path, an_app(ran), lambda: len(ran) == 9)

    assert {row["status"] for row in rows(path).values()} == {"DONE"}


@pytest.mark.anyio
async def test_reused_start_number_is_quarantined(tmp_path):
    """The record of that start already exists, so no attempt can open it again."""
    path = tmp_path / "agent.db"
    ids = emit_nine(path)
    ran: list[int] = []
    await run(path, an_app(ran), lambda: len(ran) == 9)
    damage(path, "triggers", "status = 'PENDING', starts = 0, started_at = NULL, settled_at = NULL", "id = ?", ids[4])
    with Producer(path) as producer:
        other = producer.emit("note", {"n": 99}).id

    await run(path, an_app(ran), lambda: 99 in ran)

    found = rows(path)
    assert found[other]["status"] == "DONE"
    assert found[ids[4]]["status"] == "DEAD", found[ids[4]]
    assert ran.count(4) == 1


def test_overwritten_page_of_triggers_ends_the_daemon_as_a_corrupt_database(tmp_path):
    """The exit code keeps systemd from a restart, because a person has to restore a backup."""
    (tmp_path / "test_app.py").write_text(APP)
    path = tmp_path / "agent.db"
    with Producer(path) as producer:
        producer.emit_many([TriggerSpec(workflow="greet", payload={"name": str(n)}) for n in range(300)])
    connection = apsw.Connection(str(path))
    connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    page = connection.execute("SELECT max(pageno) FROM dbstat WHERE name = 'triggers' AND pagetype = 'leaf'").get
    connection.close()
    with path.open("r+b") as file:
        file.seek((page - 1) * 4096)
        file.write(b"\xff" * 4096)

    ended = craftcore(tmp_path, "run", "test_app:app", "--until-idle")

    assert ended.code == 65, ended.err
    assert "restore a backup" in ended.err.lower()
