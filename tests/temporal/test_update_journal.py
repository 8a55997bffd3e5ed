"""The journal of an entry on a cluster: the intents that it finds, and the suspension of a turn for the next run.

A fake client answers by the rules of the ledger, without a server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore.activities.model import NewIntent, OnUnknown, StartedCall
from craftcore.tasks.activity_events import NewAct
from craftcore.tasks.turn_event_store import NewEvent
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.update_journal import TemporalJournal
from craftcore.temporal.workflow.journal_messages import JournalAnswer, Written, read_batch, write_answers
from craftcore.temporal.workflow.messages import TaskStart, TaskState
from craftcore.temporal.workflow.task_ledger import begin_call
from tests.temporal.test_task_ledger import TASK

pytestmark = pytest.mark.anyio


class OneWorkflow:
    """A fake client with a single workflow. `rolls_over`: the run is at its limit."""

    def __init__(self) -> None:
        self.state = TaskState(task=TASK, resume="FIRST")
        self.rolls_over = False

    def get_workflow_handle(self, workflow_id: str, *, run_id: str | None = None) -> OneWorkflow:
        return self

    async def query(self, name: str, *, args: list[Any], **options: Any) -> Any:
        assert name == "act"
        return self.state.acts.get(args[0])

    async def execute_update(self, name: str, sent: Written, **options: Any) -> list[Written]:
        batch = read_batch(sent)
        answers = [
            JournalAnswer() if call.intent is None else begin_call(self.state, batch.token, call.intent, 1.0)
            for call in batch.calls
        ]
        return write_answers([replace(answer, rolls_over=self.rolls_over) for answer in answers])


def journal_of(client: Any, token: int, rollovers: list[int] | None = None) -> TemporalJournal:
    """Return the journal of an entry; a request to suspend the turn is added to `rollovers`."""
    entry = OpenEntry(client=client, workflow_id=TASK.id, task_id=TASK.id, token=token)
    start = TaskStart(workflow="pay", payload_json="{}", source="IMMEDIATE", due_at=0.0)
    return TemporalJournal(entry, start, lambda: None if rollovers is None else rollovers.append(token))


def an_act(token: int) -> NewAct:
    intent = NewIntent(f"activity:{TASK.id}:1.1", TASK.id, 1, 1, "pay", OnUnknown.ASK, "hash", "{}", token, 0)
    return NewAct(intent, an_event(token), ends_at=60.0)


def an_event(token: int) -> NewEvent:
    return NewEvent(1, "1-1", token, 1, 1, "NOTE", "{}", None)


async def test_intent_of_another_entry_is_not_found():
    """An entry that is cancelled at the start of an act settles its own intent, and not the call of another entry."""
    client = OneWorkflow()
    begun = await journal_of(client, 1).begin(an_act(1))
    assert isinstance(begun, StartedCall)

    assert await journal_of(client, 1).find_intent(an_act(1).intent) == begun
    assert await journal_of(client, 2).find_intent(an_act(2).intent) is None


async def test_run_at_its_limit_lets_an_act_that_has_begun_be_called():
    client, rollovers = OneWorkflow(), list[int]()
    client.rolls_over = True
    journal = journal_of(client, 1, rollovers)

    assert isinstance(await journal.begin(an_act(1)), StartedCall)
    assert rollovers == []

    await journal.record(an_event(1))
    assert rollovers == [1]
