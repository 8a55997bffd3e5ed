"""Corrupt rows of schedules: disabled with a reason, while other schedules fire."""

from __future__ import annotations

import pytest

from craftcore import App
from craftcore.schedules.model import Origin, ScheduleStatus
from craftcore.schedules.quarantine_store import SCHEDULES
from tests.support.damage import NO_TEXT, damage
from tests.support.engine_harness import lab
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.schedule_steps import HOUR, put, stored

SPOILED = [
    "id = 'two words'",
    f"expression = {NO_TEXT}",
    f"payload_json = {NO_TEXT}",
    f"declared_hash = {NO_TEXT}",
    "payload_json = '{'",
    "catch_up = 'labest'",
    "origin = 'cod\x7f'",
]


@pytest.mark.anyio
@pytest.mark.parametrize("change", SPOILED)
async def test_corrupt_schedule_is_disabled_while_others_fire(tmp_path, change):
    clock, ran = VirtualClock(), list[str]()
    app = App("test")

    @app.workflow("greet")
    async def greet(name: str) -> None:
        ran.append(name)

    core = VirtualCore(tmp_path / "agent.db", clock)
    for schedule_id in ("spoiled", "sound"):
        put(core, id=schedule_id, payload={"name": schedule_id})
    core.close()
    damage(core.database.path, "schedules", change, "id = 'spoiled'")
    clock.advance(hours=1)

    async with lab(app, tmp_path, clock=clock) as host:
        await host.until(lambda: "sound" in ran)

    assert ran == ["sound"]
    id = "two words" if change.startswith("id") else "spoiled"
    assert stored(core, id).status is ScheduleStatus.DISABLED
    assert (stored(core, id).reason or "").startswith(("corrupt row: ", "cannot go on: "))
    assert stored(core, "sound").next_at == NEW_YEAR + 2 * HOUR


def test_corrupt_schedule_declared_in_code_is_active_after_the_next_declaration(core):
    put(core, id="spoiled", origin=Origin.CODE)
    damage(core.database.path, "schedules", SPOILED[1], "id = 'spoiled'")

    assert [one.message.partition(":")[0] for one in core.do(SCHEDULES.repair_all)] == ["schedule spoiled"]
    put(core, id="spoiled", origin=Origin.CODE)

    assert stored(core, "spoiled").status is ScheduleStatus.ACTIVE


def test_sound_schedule_is_not_set_aside(core):
    put(core)
    before = stored(core)

    assert core.do(SCHEDULES.repair_all) == []
    assert stored(core) == before
