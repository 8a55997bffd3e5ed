"""Calls left open by a killed or stopped daemon, and their state after the next boot."""

from __future__ import annotations

import json

from craftcore.activities.model import Activity, CallOutcome, Decision, StartedCall
from craftcore.executions.model import EventType
from craftcore.tasks.activity_events import ActEnd, NewAct
from tests.support.activity_steps import DONE, UNKNOWN, an_intent, decide, look
from tests.support.fakes import VirtualCore
from tests.support.schedule_steps import start_daemon, stop_daemon
from tests.support.task_steps import Running, begin, enter_next, event_of, rows, the_question
from tests.support.trigger_steps import claim_all


def begin_act(core: VirtualCore, running: Running, place: str = "1.1", end: CallOutcome | None = None) -> StartedCall:
    """Write an activity of a running turn as the engine does; without an end, it is being called."""
    event = event_of(running, None)._replace(type=EventType.ACTIVITY_INTENT)
    [begun] = core.do(core.acts.begin_all, [NewAct(an_intent(running, place), event)])
    assert isinstance(begun, StartedCall), begun
    if end is not None:
        event = event._replace(type=f"ACTIVITY_{end.status}", activity_seq=begun.seq)
        core.do(core.acts.settle_all, [ActEnd(begun, end, event)])
    return begun


def events(core: VirtualCore, record_seq: int) -> list[str]:
    return [
        row["type"]
        for row in core.rows("SELECT type FROM events WHERE execution_seq = :seq ORDER BY seq", seq=record_seq)
    ]


def test_killed_daemon_leaves_its_calls_in_doubt_and_marks_their_records(core):
    boot = start_daemon(core)
    running = begin(core, epoch=boot.epoch)
    begin_act(core, running, "1.1", DONE)
    begin_act(core, running, "1.2")
    begin_act(core, running, "1.3")

    boot = start_daemon(core)

    assert boot.in_doubt == 2
    assert [row["status"] for row in rows(core, "activity_log")] == ["DONE", "UNKNOWN", "UNKNOWN"]
    assert {row["reason"] for row in rows(core, "activity_log")[1:]} == {"the process ended before it knew"}
    types = events(core, running.record.seq)
    assert types.count("ACTIVITY_UNKNOWN") == 2
    [first, second] = [
        json.loads(row["payload_json"])
        for row in core.rows("SELECT * FROM events WHERE type = 'ACTIVITY_UNKNOWN' ORDER BY execution_seq, seq")
    ]
    assert (first["key"][-3:], second["key"][-3:]) == ("1.2", "1.3")
    assert rows(core, "questions") == []  # the turn calls the actions again


def test_repeated_boot_after_a_crash_reports_doubt_once(core):
    boot = start_daemon(core)
    running = begin(core, epoch=boot.epoch)
    begin_act(core, running)

    assert [start_daemon(core).in_doubt for _ in range(3)] == [1, 0, 0]
    assert events(core, running.record.seq).count("ACTIVITY_UNKNOWN") == 1


def test_earlier_doubts_and_decisions_are_unchanged_by_a_boot(core):
    boot = start_daemon(core)
    running = begin(core, epoch=boot.epoch)
    for n, decision in enumerate([None, *Decision], 1):
        begun = begin_act(core, running, f"1.{n}", UNKNOWN)
        if decision is not None:
            decide(core, look(core, begun.seq), decision)
    before = rows(core, "activity_log")

    start_daemon(core)

    assert rows(core, "activity_log") == before


def test_clean_shutdown_with_a_stuck_call_leaves_doubt_and_closes_the_record_later(core):
    boot = start_daemon(core)
    running = begin(core, epoch=boot.epoch)
    begin_act(core, running)

    stop_daemon(core, boot.epoch)

    assert [row["status"] for row in rows(core, "activity_log")] == ["UNKNOWN"]
    types = events(core, running.record.seq)
    assert types[-2:] == ["ACTIVITY_UNKNOWN", "ATTEMPT_RELEASED"]
    assert start_daemon(core).in_doubt == 0


def test_poisoned_task_is_asked_about_the_action_in_progress(core):
    """Each attempt kills the daemon during the call, so no attempt follows."""
    boot = start_daemon(core)
    running = begin(core, epoch=boot.epoch)
    begin_act(core, running)
    for n in range(2, 4):
        boot = start_daemon(core)
        [claim] = claim_all(core, epoch=boot.epoch)
        core.do(core.claims.start_all, [claim], alone=n == 3)

    start_daemon(core)

    [task] = rows(core, "tasks")
    assert (task["status"], task["error_code"]) == ("FAILED", "POISON")
    assert the_question(core)["activity_seq"] == 1
    assert "look before you answer" in the_question(core)["question"]


def test_reentered_turn_finds_the_act_in_doubt_and_does_not_begin_another_call(core):
    boot = start_daemon(core)
    begin_act(core, begin(core, epoch=boot.epoch))
    boot = start_daemon(core)

    again = enter_next(core, epoch=boot.epoch)
    [found] = core.do(
        core.acts.begin_all, [NewAct(an_intent(again), event_of(again, None)._replace(type=EventType.ACTIVITY_INTENT))]
    )

    assert isinstance(found, Activity)
    assert (found.status, found.calls, found.execution_seq) == ("UNKNOWN", 1, 1)
    assert again.record.seq != found.execution_seq  # the doubt is of an earlier attempt
