"""Occurrences dropped by disabled and paused schedules: each is accounted for."""

from __future__ import annotations

from dataclasses import replace

import pytest

from craftcore.app import App
from craftcore.config import Config, TriggerSettings
from craftcore.daemon.lifespan import running
from craftcore.schedules.model import Overlap, ScheduleStatus
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.schedule_steps import account, put, run_all, stored, tick, triggers

TOO_LARGE = {"text": "x" * 5000}
SMALLER_LIMIT = replace(Config(), triggers=TriggerSettings(payload_max_bytes=1024))


def open_with_smaller_limit(core: VirtualCore, clock: VirtualClock) -> VirtualCore:
    return VirtualCore(core.database.path, clock, SMALLER_LIMIT)


def test_slots_of_a_disabled_schedule_are_accounted_for_once_at_resume(core, clock):
    put(core, payload=TOO_LARGE)
    clock.advance(hours=3)
    lower = open_with_smaller_limit(core, clock)
    tick(lower)
    assert stored(core).status is ScheduleStatus.DISABLED

    lower.do(lower.schedules.resume, "job")

    assert sum(line[2] for line in account(core)) == 3


def test_buffered_occurrence_that_cannot_fire_disables_only_that_schedule(core, clock):
    put(core, id="large", payload=TOO_LARGE)
    put(core, id="sound", overlap=Overlap.ALLOW)
    for _ in range(2):
        clock.advance(hours=1)
        tick(core)
    run_all(core)
    clock.advance(hours=1)

    ticked = tick(open_with_smaller_limit(core, clock))

    assert [placed.schedule_id for placed in ticked.placed if placed.trigger_id] == ["sound"]
    assert stored(core, "large").status is ScheduleStatus.DISABLED


@pytest.mark.anyio
async def test_startup_schedule_that_cannot_fire_is_disabled_and_the_daemon_starts(tmp_path):
    clock = VirtualClock()
    core = VirtualCore(tmp_path / "agent.db", clock)
    put(core, when="on startup", payload=TOO_LARGE)
    core.close()

    async with running(App("test"), tmp_path / "agent.db", SMALLER_LIMIT, clock):
        pass

    assert stored(core).status is ScheduleStatus.DISABLED


def test_buffered_occurrence_dropped_by_a_pause_does_not_count_as_a_run(core, clock):
    put(core, max_runs=3)
    for _ in range(2):
        clock.advance(hours=1)
        tick(core)
    core.do(core.schedules.pause, "job")
    run_all(core)
    core.do(core.schedules.resume, "job")

    for _ in range(5):
        clock.advance(hours=1)
        tick(core)
        run_all(core)

    assert len(triggers(core)) == 3
