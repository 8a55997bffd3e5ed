"""Lists and `top` show the schedule of a run beside its workflow."""

from __future__ import annotations

from craftcore.schedules.model import Origin, ScheduleSpec
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.task_steps import enter_next
from tests.support.trigger_steps import HOPELESS, ack, claim_one, emit, start


def test_lists_and_top_show_the_schedule_beside_the_workflow(cli, database):
    clock = VirtualClock()
    core = VirtualCore(database, clock)
    for id in ("nightly", "command.run"):
        spec = ScheduleSpec(id=id, when="every 1h", workflow="command.run", payload={"argv": ["true"]}, max_attempts=1)
        core.do(core.schedules.put, spec, Origin.OPERATOR)
    clock.advance(hours=1)
    core.do(core.ticks.tick)
    core.do(lambda tx: tx.run("DELETE FROM triggers WHERE schedule_id = 'command.run'"))
    emit(core)
    assert "command.run (nightly)" in cli("trigger", "list").out
    assert "greet (" not in cli("trigger", "list").out

    core.do(lambda tx: tx.run("DELETE FROM triggers WHERE schedule_id IS NULL"))
    running = enter_next(core)
    assert "command.run (nightly)" in cli("task", "list").out
    assert core.rows("SELECT schedule_id FROM tasks") == [{"schedule_id": "nightly"}]
    [row] = cli("--json", "top").json["cut_off"]  # no daemon runs
    assert row["schedule_id"] == "nightly"
    assert running.claim.schedule_id == "nightly"
    core.close()


def test_dead_letter_shows_its_schedule(cli, database):
    clock = VirtualClock()
    core = VirtualCore(database, clock)
    spec = ScheduleSpec(id="nightly", when="every 1h", workflow="greet", max_attempts=1)
    core.do(core.schedules.put, spec, Origin.OPERATOR)
    clock.advance(hours=1)
    core.do(core.ticks.tick)
    ack(core, start(core, claim_one(core)), HOPELESS)
    core.do(lambda tx: tx.run("UPDATE triggers SET status = 'DEAD'"))
    assert "greet (nightly)" in cli("dead", "list").out
    core.close()
