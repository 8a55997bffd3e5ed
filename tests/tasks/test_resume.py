"""Resumption at boot of the tasks of an earlier daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

from craftcore.engine.boot import Boot
from craftcore.storage.facts import get_fact
from craftcore.tasks.model import TaskStatus
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.settlement import Released, Snoozed
from tests.support.fakes import VirtualCore
from tests.support.schedule_steps import DAY, HOUR, start_daemon, stop_daemon
from tests.support.task_steps import (
    Running,
    a_question,
    a_sleep,
    begin,
    complete,
    end_turn,
    enter,
    enter_next,
    fail,
    finish,
    for_event,
    go_on,
    look,
    rows,
    suspend,
    the_question,
)
from tests.support.trigger_steps import BROKEN, claim_all


def begin_in_daemon(core: VirtualCore, **trigger: Any) -> tuple[Boot, Running]:
    """Start a daemon that runs a task."""
    boot = start_daemon(core)
    return boot, begin(core, epoch=boot.epoch, **trigger)


def enter_after(core: VirtualCore, boot: Boot) -> Running:
    return enter_next(core, epoch=boot.epoch)


def live_triggers(core: VirtualCore) -> list[dict[str, Any]]:
    return core.rows("SELECT * FROM triggers WHERE status IN ('PENDING', 'CLAIMED')")


def settle_triggers(core: VirtualCore) -> None:
    with core.transaction() as tx:
        tx.run(
            """
            UPDATE triggers
               SET status = 'DONE', reason = 'lost', settled_at = 1, claimed_epoch = NULL, lease_token = NULL
             WHERE status IN ('PENDING', 'CLAIMED')
            """
        )


# Resumed tasks


@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
def test_ended_task_is_never_resumed(core, how):
    _, running = begin_in_daemon(core)
    if how == "done":
        finish(core, running)
    elif how == "failed":
        fail(core, running)
    else:
        core.do(core.tasks.cancel, running.task.id)
        stop_daemon(core, 1)
    before = rows(core, "tasks")

    boot = start_daemon(core)

    assert not boot.resumed.is_anything
    assert live_triggers(core) == []
    assert [row["status"] for row in before] == [row["status"] for row in rows(core, "tasks")]


def test_waiting_task_and_its_timer_are_unchanged_by_a_boot(core, clock):
    _, with_question = begin_in_daemon(core)
    suspend(core, with_question, a_question())
    asleep = begin(core)
    suspend(core, asleep, a_sleep(clock.now() + 40 * DAY))
    after = begin(core)
    go_on(core, after, {"n": 1}, a_sleep(clock.now() + 50 * DAY))
    before = {table: rows(core, table) for table in ("tasks", "waits", "questions", "triggers")}
    clock.advance(30 * DAY)

    for _ in range(2):
        assert not start_daemon(core).resumed.is_anything

    assert {table: rows(core, table) for table in before} == before


def test_running_task_continues_with_its_trigger(core):
    _, running = begin_in_daemon(core)
    complete(core, running)

    boot = start_daemon(core)

    assert (boot.resumed.reclaimed, boot.resumed.resumed, boot.resumed.stale) == ((running.task.id,), (), ())
    again = enter_after(core, boot)
    assert (again.claim.id, again.entry.resume) == (running.claim.id, "CRASH")
    assert list(again.entry.memo) == ["step:fetch"]


def test_released_task_continues_because_of_the_restart(core):
    boot, running = begin_in_daemon(core)
    end_turn(core, running, Released(reason="shutdown"))
    stop_daemon(core, boot.epoch)

    boot = start_daemon(core)

    assert boot.resumed.reclaimed == (running.task.id,)
    again = enter_after(core, boot)
    assert (again.entry.resume, again.claim.attempts) == ("RESUME", 1)


def test_task_without_a_trigger_gets_a_single_resume_over_several_boots(core):
    _, running = begin_in_daemon(core)
    settle_triggers(core)

    boot = start_daemon(core)
    assert boot.resumed.resumed == (running.task.id,)
    for _ in range(2):
        boot = start_daemon(core)
        assert not boot.resumed.is_anything

    [resume] = live_triggers(core)
    assert (resume["source"], resume["dedup_key"]) == ("RESUME", f"resume:{running.task.id}")
    again = enter_after(core, boot)
    assert again.entry.creator is not None
    assert (again.entry.resume, again.entry.creator.payload_json) == ("RESUME", "{}")
    finish(core, again)
    assert look(core, running.task.id).status is TaskStatus.DONE


def test_crashed_resume_continues_and_a_later_loss_gets_another_resume(core):
    _, running = begin_in_daemon(core)
    settle_triggers(core)
    first = enter_after(core, start_daemon(core))

    boot = start_daemon(core)
    again = enter_after(core, boot)
    assert (again.claim.id, again.entry.resume, boot.resumed.reclaimed) == (
        first.claim.id,
        "CRASH",
        (running.task.id,),
    )

    settle_triggers(core)
    boot = start_daemon(core)
    assert boot.resumed.resumed == (running.task.id,)
    assert enter_after(core, boot).claim.id != first.claim.id


def test_unclaimed_next_turn_waits_for_its_turn_after_a_boot(core):
    _, running = begin_in_daemon(core)
    go_on(core, running, 1)

    boot = start_daemon(core)

    assert not boot.resumed.is_anything
    assert enter_after(core, boot).task.turn == 2


def test_tasks_that_wait_are_not_visited(core):
    with core.reading() as reader:
        plan = [
            row[3] for row in reader.fetch_tuples("EXPLAIN QUERY PLAN SELECT seq FROM tasks WHERE status = 'RUNNING'")
        ]

    assert plan == ["SCAN tasks USING COVERING INDEX tasks_running"]


# Stale tasks


def begin_interrupted(core: VirtualCore, hours: float, **trigger: Any) -> Running:
    """Begin a task in a daemon that was killed this many hours ago."""
    _, running = begin_in_daemon(core, **trigger)
    core.clock.advance(hours=hours)  # type: ignore[attr-defined]
    return running


def test_stale_task_waits_for_a_person_and_its_trigger_is_settled(core):
    running = begin_interrupted(core, 25)

    boot = start_daemon(core)

    assert (boot.resumed.stale, boot.resumed.reclaimed) == ((running.task.id,), ())
    task = look(core, running.task.id)
    assert (task.status, task.reason, task.trigger_id) == (TaskStatus.WAITING, "stale: waits for an answer", None)
    [trigger] = rows(core, "triggers")
    assert (trigger["status"], trigger["reason"]) == ("DONE", f"parked: task {task.id} is stale")
    question = the_question(core)
    assert (question["kind"], json.loads(question["options_json"])) == ("stale", ["continue", "cancel"])
    assert question["question"] == f"Task {task.id} (greet) was interrupted 25 hours ago. Go on with it?"
    assert not start_daemon(core).resumed.is_anything, "the question is asked once"


def test_stale_task_that_may_continue_resumes_in_place(core):
    running = begin_interrupted(core, 0)
    complete(core, running)
    core.clock.advance(hours=25)
    boot = start_daemon(core)

    core.do(core.tasks.answer, the_question(core)["id"], "continue", answered_by="ada")

    again = enter_after(core, boot)
    assert (again.task.turn, again.entry.resume, list(again.entry.memo)) == (1, "RESUME", ["step:fetch"])


def test_stale_task_that_may_not_continue_is_cancelled(core):
    running = begin_interrupted(core, 25)
    start_daemon(core)

    core.do(core.tasks.answer, the_question(core)["id"], "cancel", answered_by="ada")

    task = look(core, running.task.id)
    assert (task.status, task.reason) == (TaskStatus.CANCELLED, "cancelled: stale")
    assert live_triggers(core) == []


def test_task_that_becomes_stale_again_is_asked_about_again(core):
    begin_interrupted(core, 25)
    boot = start_daemon(core)
    core.do(core.tasks.answer, the_question(core)["id"], "continue", answered_by="ada")
    enter_after(core, boot)
    core.clock.advance(hours=25)

    assert len(start_daemon(core).resumed.stale) == 1
    assert len(rows(core, "questions")) == 2


def test_stale_task_without_a_trigger_is_asked_about_too(core):
    running = begin_interrupted(core, 25)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")

    assert start_daemon(core).resumed.stale == (running.task.id,)
    assert live_triggers(core) == []


def test_interruption_of_a_day_is_not_stale(core):
    running = begin_interrupted(core, 24)

    assert start_daemon(core).resumed.reclaimed == (running.task.id,)


def test_last_completed_part_of_a_turn_is_the_time_of_interruption(core):
    running = begin_interrupted(core, 23)
    complete(core, running)
    core.clock.advance(hours=23)

    assert start_daemon(core).resumed.reclaimed == (running.task.id,)


def test_task_released_in_order_too_long_ago_is_asked_about(core):
    boot, running = begin_in_daemon(core)
    stop_daemon(core, boot.epoch)
    core.clock.advance(hours=25)

    assert start_daemon(core).resumed.stale == (running.task.id,)


def test_deadline_outlives_the_stale_question(core):
    boot = start_daemon(core)
    begin(core, epoch=boot.epoch, deadline=48 * HOUR)
    core.clock.advance(hours=25)
    start_daemon(core)

    [timer] = live_triggers(core)

    assert timer["due_at"] == core.clock.now() + 23 * HOUR


# Tasks that are not stale


@pytest.mark.parametrize("how", ["backoff", "snooze"])
def test_backoff_in_progress_is_not_stale(core, clock, how):
    _, running = begin_in_daemon(core)
    wait_three_days(core, running, how)
    clock.advance(2 * DAY)

    assert not start_daemon(core).resumed.is_anything
    assert look(core, running.task.id).status is TaskStatus.RUNNING


def wait_three_days(core: VirtualCore, running: Running, how: str) -> None:
    if how == "backoff":
        fail(core, running, BROKEN, policy=RetryPolicy(base=6 * DAY, cap=6 * DAY))
    else:
        end_turn(core, running, Snoozed(until=core.clock.now() + 3 * DAY))


@pytest.mark.parametrize("how", ["backoff", "snooze"])
@pytest.mark.parametrize("is_started", [True, False], ids=["started", "claimed"])
def test_crash_at_the_end_of_a_long_backoff_is_not_stale(core, clock, how, is_started):
    _, running = begin_in_daemon(core)
    wait_three_days(core, running, how)
    clock.advance(6 * DAY)
    boot = start_daemon(core)
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET due_at = :at, not_before = :at WHERE status = 'PENDING'", at=tx.now - 60)
    [claim] = claim_all(core, epoch=boot.epoch)
    if is_started:
        enter(core, claim, epoch=boot.epoch)

    assert start_daemon(core).resumed.reclaimed == (running.task.id,)


def test_long_wait_that_has_just_ended_is_not_stale(core, clock):
    _, running = begin_in_daemon(core)
    suspend(core, running, a_sleep(clock.now() + 30 * DAY))
    clock.advance(30 * DAY)
    boot = start_daemon(core)
    enter_after(core, boot)

    assert start_daemon(core).resumed.reclaimed == (running.task.id,)


def test_answer_after_a_month_is_not_stale(core, clock):
    _, running = begin_in_daemon(core)
    suspend(core, running, for_event("paid"))
    clock.advance(30 * DAY)
    core.do(core.tasks.signal, running.task.id, "paid")
    claim_all(core)

    assert start_daemon(core).resumed.reclaimed == (running.task.id,)


# The notice


def test_restart_notice_counts_resumed_tasks_and_names_a_few(core, clock):
    boot = start_daemon(core)
    stale = [begin(core, epoch=boot.epoch).task.id for _ in range(2)]
    clock.advance(hours=25)
    continued = [begin(core, epoch=boot.epoch).task.id for _ in range(30)]

    boot = start_daemon(core)

    notice = boot.resumed.notice()
    assert (notice["kind"], notice["resumed"], notice["stale"]) == ("restart", 30, 2)
    assert notice["tasks"] == continued[:20]
    assert set(stale) == set(boot.resumed.stale)
    with core.reading() as reader:
        remembered = json.loads(get_fact(reader, "restart") or "")
    assert remembered == {**notice, "at": clock.now(), "epoch": boot.epoch}


def test_boot_without_interrupted_tasks_writes_no_notice(core):
    boot = start_daemon(core)

    assert not boot.resumed.is_anything
    with core.reading() as reader:
        assert get_fact(reader, "restart") is None
