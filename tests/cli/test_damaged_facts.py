"""Damaged facts: daemons and commands treat a damaged fact as missing."""

from __future__ import annotations

import pytest

from craftcore import App
from craftcore.daemon.lifespan import running
from craftcore.schedules.clock_guard import ClockTrust
from craftcore.storage.facts import get_fact, number, set_fact
from craftcore.triggers.model import TriggerStatus
from tests.support.cells import cells
from tests.support.damage import NO_TEXT, damage
from tests.support.engine_harness import settings
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.schedule_steps import start_daemon
from tests.support.trigger_steps import emit

NUMBERS = ("clock_held", "clock_seen_at", "clock_trusted_at", "released_epoch")
DAMAGED = ("", "x", "inf", "nan", "-1", "1e300", "[]", "9" * 400, "[" * 5_000)


@pytest.fixture
def core(database):
    core = VirtualCore(database, VirtualClock(now=1_700_000_000.0))
    yield core
    core.close()


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_number_fact_reads_as_none(core, text):
    core.do(set_fact, "clock_held", text)

    assert core.do(number, "clock_held") is None


@pytest.mark.anyio
@pytest.mark.parametrize("text", ["x", "[]", "inf"])
async def test_daemon_starts_and_schedules_with_damaged_facts(tmp_path, text):
    path = tmp_path / "agent.db"
    with VirtualCore(path, VirtualClock()).transaction() as tx:
        for name in (*NUMBERS, "restart", "reload", "live_state", "engine", "retention_failed"):
            set_fact(tx, name, text)
    app = App("test")
    app.workflow("greet")(_greet)

    async with running(app, path, settings()) as engine:
        await app.emit("greet")
        while not (engine.counts[TriggerStatus.DONE] and engine.scheduler.polls):
            await engine.round_trip()

    assert engine.failure is None


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["database_id", "engine", "held", "live_state", "restart", "safe_mode"])
async def test_daemon_starts_with_a_fact_that_is_not_utf8_and_is_still_held(tmp_path, name):
    path = tmp_path / "agent.db"
    core = VirtualCore(path, VirtualClock())
    start_daemon(core)
    core.do(set_fact, name, "x")
    core.close()
    damage(path, "facts", f"value = {NO_TEXT}", "name = ?", name)
    damage(path, "epochs", f"machine_boot_id = {NO_TEXT}", "epoch = 1")
    app = App("test")
    app.workflow("greet")(_greet)

    async with running(app, path, settings()) as engine:
        await app.emit("greet")
        while not (engine.counts[TriggerStatus.DONE] or name == "held") or not engine.scheduler.polls:
            await engine.round_trip()

    assert (engine.failure, engine.counts[TriggerStatus.DONE]) == (None, name != "held")


async def _greet() -> None:
    return None


@pytest.mark.parametrize(
    ("name", "text"),
    cells(
        [(name, text) for name in [*NUMBERS, "restart"] for text in DAMAGED],
        ids=[f"{name}-{text[:10]}" for name in [*NUMBERS, "restart"] for text in DAMAGED],
    ),
)
def test_commands_succeed_with_a_damaged_fact(cli, core, name, text):
    trigger = emit(core)
    cli("schedule", "add", "tick", "every 1h", "--workflow", "greet")
    core.do(set_fact, name, text)

    for command in (("status",), ("status", "--json"), ("schedule", "why", "tick"), ("trigger", "why", trigger.id)):
        assert cli(*command).code == 0, command
    assert cli("doctor").code in (0, 1)
    assert cli("schedule", "trust-clock").code == 0
    if name == "clock_held":
        assert core.do(get_fact, name) is None, "trust-clock did not remove the damaged fact"


def test_damaged_clock_hold_does_not_prevent_a_new_hold(core):
    core.do(set_fact, "clock_held", "x")
    core.do(ClockTrust().hold_if_behind, 1, core.clock.now() + 86_400)

    assert core.do(ClockTrust().is_held, 1)
