"""The rows that operator actions are done to, by their ids."""

from __future__ import annotations

from craftcore.activities.model import Activity
from craftcore.activities.store import ActivityStore
from craftcore.errors import NotFound
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import RecordStore
from craftcore.schedules.clock_guard import HeldClock, read_held_clock
from craftcore.schedules.model import Schedule
from craftcore.schedules.store import ScheduleStore
from craftcore.storage.damaged_rows import Damaged
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Question, Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.triggers.damaged_store import DamagedTriggerStore
from craftcore.triggers.model import Trigger
from craftcore.triggers.start_holds import StartHolds, read_holds
from craftcore.triggers.store import TriggerStore


def find_task(reader: Reader, id: str) -> Task:
    if (task := TaskStore().get(reader, id)) is None:
        raise NotFound(f"no task has the id {id!r:.80}")
    return task


def find_trigger(reader: Reader, id: str) -> Trigger:
    """Return the trigger. Raises NotFound."""
    if (trigger := TriggerStore().get(reader, id)) is None:
        raise NotFound(f"no trigger has the id {id!r:.80}: perhaps retention deleted it; its record may still be there")
    return trigger


def find_dead_letter(reader: Reader, id: str) -> Trigger | Damaged:
    """Return the trigger, or what is wrong with its row. Raises NotFound."""
    damaged = DamagedTriggerStore().find(reader, id)
    return find_trigger(reader, id) if damaged is None else damaged.row


def find_question(reader: Reader, id: str) -> Question:
    """Return the question, open or not. Raises NotFound."""
    if (question := QuestionStore().get(reader, id)) is None:
        raise NotFound(f"no question has the id {id!r:.80}")
    return question


def find_activity(reader: Reader, key: str) -> Activity:
    """Return the activity with this whole key. Raises NotFound."""
    if (activity := ActivityStore().get(reader, key)) is None:
        raise NotFound(f"no irreversible action has the key {key!r:.300}")
    return activity


def find_schedule(reader: Reader, id: str) -> Schedule:
    if (schedule := ScheduleStore().get(reader, id)) is None:
        raise NotFound(f"no schedule has the id {id!r:.80}")
    return schedule


def find_holds(reader: Reader, _id: str) -> StartHolds:
    return read_holds(reader)


def find_held_clock(reader: Reader, _id: str) -> HeldClock:
    """Return whether schedules wait for the clock."""
    return read_held_clock(reader)


def find_record(reader: Reader, id: str) -> ExecutionRecord:
    if (record := RecordStore().get(reader, id)) is None:
        raise NotFound(f"no execution has the id {id!r:.80}")
    return record
