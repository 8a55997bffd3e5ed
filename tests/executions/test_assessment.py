"""Recommended commands for an attempt that failed, derived from its record alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore.executions.model import Status
from craftcore.executions.recovery import Act, AttemptFacts, State, assess
from craftcore.triggers.model import TriggerStatus
from tests.support.fakes import NEW_YEAR

RUN = ("run", "MODULE:APP")
RETRY = ("execution", "retry", "exec-t.1", "--reason", "TEXT")
SKIP = ("execution", "skip", "exec-t.1", "--reason", "TEXT")

DOUBT = Act(key="activity:t:1.1", action="email.send", has_intent=False)
INTENT = Act(key="activity:t:1.1", action="email.send", has_intent=True)


def facts(**changes: Any) -> AttemptFacts:
    """Return the facts of a plain trigger's only attempt, killed with its process and reclaimed by a new daemon."""
    known: dict[str, Any] = {
        "id": "exec-t.1",
        "status": Status.INCOMPLETE,
        "ended_at": None,
        "error_code": None,
        "newest_id": "exec-t.1",
        "trigger_id": "t",
        "task_id": None,
        "trigger_status": TriggerStatus.PENDING,
        "trigger_reason": "interrupted by a crash",
        "cancel_asked": False,
        "due_at": NEW_YEAR,
        "now": NEW_YEAR,
        "daemon_runs": True,
    }
    return AttemptFacts(**{**known, **changes})


@pytest.mark.parametrize(
    ("changes", "state", "commands"),
    [
        ({}, State.PENDING, (RETRY, SKIP)),
        ({"status": Status.ERROR, "error_code": "AGENT_ERROR"}, State.PENDING, (RETRY, SKIP)),
        ({"trigger_status": TriggerStatus.CLAIMED}, State.RUNNING, (("trigger", "why", "t"),)),
        ({"trigger_status": TriggerStatus.CLAIMED, "daemon_runs": False}, State.INTERRUPTED, (RUN, SKIP)),
        ({"trigger_status": TriggerStatus.DEAD}, State.DEAD, (RETRY, SKIP)),
        ({"trigger_status": TriggerStatus.FAILED}, State.FAILED, (RETRY,)),
        ({"trigger_status": TriggerStatus.DONE}, State.OVER, (("trigger", "why", "t"),)),
        ({"trigger_status": TriggerStatus.DONE, "task_id": "t"}, State.OVER, (("task", "show", "t"),)),
        ({"trigger_status": None}, State.GONE, ()),
        ({"trigger_status": None, "task_id": "t"}, State.GONE, (("task", "show", "t"),)),
        ({"newest_id": "exec-t.2"}, State.TRIED_AGAIN, (("inspect", "exec-t.2"),)),
        ({"status": Status.SUCCESS}, State.COMPLETE, (("replay", "exec-t.1"),)),
        ({"status": Status.SUSPENDED, "task_id": "t"}, State.WAITS, (("task", "show", "t"),)),
        ({"status": Status.SUSPENDED}, State.WAITS, (("trigger", "why", "t"),)),
        (
            {"status": Status.SUSPENDED, "task_id": "t", "task_is_over": True, "trigger_status": TriggerStatus.DONE},
            State.OVER,
            (("task", "show", "t"),),
        ),
        ({"trigger_status": TriggerStatus.CLAIMED, "cancel_asked": True}, State.CANCELLING, (("trigger", "why", "t"),)),
    ],
)
def test_attempt_state_determines_the_recommended_commands(changes, state, commands):
    found = assess(facts(**changes))

    assert (found.state, found.commands) == (state, commands)
    assert found.text


@pytest.mark.parametrize("status", list(TriggerStatus))
def test_doubt_is_reported_first_in_any_trigger_state(status):
    found = assess(facts(trigger_status=status, daemon_runs=False, task_id="t", acts=(DOUBT,)))

    resolve = ("activity", "resolve", "activity:t:1.1")
    assert found.state is State.IN_DOUBT
    assert found.text.startswith("unknown whether email.send happened")
    assert found.commands == tuple((*resolve, how) for how in ("--happened", "--resend", "--give-up"))


def test_doubt_of_an_ended_task_is_reported_too():
    waited = facts(status=Status.SUSPENDED, task_id="t", trigger_status=TriggerStatus.DONE, acts=(DOUBT,))

    assert assess(waited).state is State.WAITS
    assert assess(replace(waited, task_is_over=True)).state is State.IN_DOUBT


@pytest.mark.parametrize(
    ("reason", "command"),
    [
        ("recording_failure", ("replay", "exec-t.1", "--force")),
        ("manually_invalidated", ("replay", "exec-t.1", "--force")),
        ("body_stripped", ("replay", "exec-t.1", "--force")),
        ("record_corrupted", ("verify", "exec-t.1")),
    ],
)
def test_replay_is_not_recommended_for_a_success_that_cannot_be_replayed(reason, command):
    found = assess(facts(status=Status.SUCCESS, not_replayable=reason))

    assert (found.state, found.commands) == (State.COMPLETE, (command,))
    assert found.text.startswith("it succeeded, and nothing has to run again")


def test_running_attempt_is_not_in_doubt():
    found = assess(facts(trigger_status=TriggerStatus.CLAIMED, task_id="t", acts=(INTENT,)))

    assert found.state is State.RUNNING


@pytest.mark.parametrize(
    ("daemon_runs", "expected", "first"),
    [
        (False, "has no end on record: a daemon that starts puts it in doubt", RUN),
        (True, "is being called", ("activity", "show", "activity:t:1.1")),
    ],
)
def test_call_without_an_end_is_put_in_doubt_only_by_a_daemon(daemon_runs, expected, first):
    found = assess(facts(daemon_runs=daemon_runs, task_id="t", acts=(INTENT,)))

    assert found.state is State.IN_DOUBT
    assert expected in found.text
    assert found.commands[0] == first
    assert not any("resolve" in words for words in found.commands)


def test_several_doubts_are_counted():
    assert "email.send (and 2 more) happened" in assess(facts(acts=(DOUBT, DOUBT, DOUBT))).text


def test_rerun_is_safe_when_no_irreversible_action_began():
    assert assess(facts()).text == (
        "its process died in it; its trigger is due and runs it again by itself. "
        "Nothing that is declared irreversible began in it: it is safe to run again"
    )


def test_completed_action_is_not_done_again():
    text = assess(facts(irreversible=2)).text

    assert "Its irreversible actions have their outcome on record, and are not repeated" in text
    assert "safe" not in text


def test_backoff_recommendation_has_the_end_of_the_backoff():
    found = assess(facts(status=Status.ERROR, error_code="AGENT_TIMEOUT", due_at=NEW_YEAR + 60))

    assert found.text.startswith("it failed with AGENT_TIMEOUT; its trigger is due at 2026-01-01 00:01:00Z")


def test_released_attempt_does_not_count_as_a_crash():
    assert assess(facts(ended_at=NEW_YEAR)).text.startswith("it was handed back before its end; ")
