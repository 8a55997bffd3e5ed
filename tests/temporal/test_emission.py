"""Triggers of a session, on a cluster: which of them are messages, and which answer a question."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.tasks.model import NewQuestion, NewWait, QuestionKind, WaitKind
from craftcore.temporal.emission import start_of
from craftcore.temporal.workflow.mailbox import begin_wait, deliver
from craftcore.temporal.workflow.messages import Mail, TaskStart, TaskState
from craftcore.triggers.model import TriggerSource, TriggerSpec
from tests.support.fakes import VirtualCore
from tests.temporal.test_task_ledger import TASK


def begin(core: VirtualCore, **options: Any) -> TaskStart:
    return start_of(core.triggers.accept(TriggerSpec(**options)), 10.0)


@pytest.mark.parametrize("source", list(TriggerSource))
def test_trigger_of_each_source_with_a_session_and_no_workflow_is_a_message(core, source):
    assert begin(core, source=source, session_id="ada").is_message
    assert not begin(core, source=source, session_id="ada", workflow="chat").is_message


@pytest.mark.parametrize(("source", "waits"), [("MESSAGE", 0), ("SCHEDULED", 1)])
def test_message_answers_a_question_and_a_schedule_does_not(core, source, waits):
    state = TaskState(task=TASK, resume="FIRST")
    question = NewQuestion(kind=QuestionKind.ASK, question="Your address?", by_message=True)
    begin_wait(state, NewWait(name="ask#1", kind=WaitKind.QUESTION, question=question), 0.0)
    start = begin(core, source=source, session_id="ada", payload={"text": "a walk"})

    deliver(state, Mail(event="message", payload_json=start.payload_json, sent_by=None, start=start), 1.0)

    assert (len(state.open_waits), len(state.mails)) == (waits, waits)
