"""The meaning of typed arguments: ids that may be shortened, filters, texts to store."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from craftcore.activities.model import Activity
from craftcore.activities.store import ActivityStore
from craftcore.cli.session import hint
from craftcore.diagnostics.audit_subjects import KEY_BEGINS
from craftcore.errors import FilterInvalid, InvalidInput, NotFound, RowInvalid
from craftcore.executions.listing_store import ExecutionListStore
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import RecordStore
from craftcore.serialization.time_text import parse_moment
from craftcore.storage.transaction import Reader, keys_ending, keys_like
from craftcore.tasks.lineage_store import task_of
from craftcore.tasks.model import Question, Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.triggers.store import TriggerStore
from craftcore.triggers.validation import is_name, moment

Choice = TypeVar("Choice", bound=StrEnum)

SUFFIX_MIN = 4
"""Characters from which the end of an id is looked for, too."""

CANDIDATES_MAX = 10
"""Ids that the refusal of an ambiguous one names."""

REASON_MAX = 500
RECORDS_NAMED = 10

RECORD_BEGINS = "exec-"

KEY = re.compile(r"[A-Za-z0-9._:@+-]{1,450}")
"""As much of an activity's key as holds the longest id and the longest key of its own."""


def single_match(found: Sequence[str], given: str, nobody: str) -> str:
    """Return the id that `given` is, or a part of, out of the first ids that fit it, as long as that is unambiguous.

    Raises NotFound, with the text `nobody` where there is none.
    """
    if not found:
        raise NotFound(nobody)
    if len(found) > 1 and found[0] != given:
        more = " and more" if len(found) > CANDIDATES_MAX else ""
        raise NotFound(f"{given} fits several ids: {', '.join(found[:CANDIDATES_MAX])}{more}; give more of it")
    return found[0]


def find_matching_keys(reader: Reader, table: str, prefix: str, suffix: str, *, key: str = "id") -> list[str]:
    """Return the first keys that begin or end so; only the one that is the whole `prefix`, where there is one."""
    found = keys_like(reader, table, prefix, key=key)
    if found[:1] == [prefix]:
        return found[:1]
    if len(suffix) < SUFFIX_MIN:
        return found
    return list(dict.fromkeys([*found, *keys_ending(reader, table, suffix, key=key)]))


def resolve_id(reader: Reader, given: str) -> str:
    """Return the id of the trigger that is meant. Raises NotFound."""
    found = _ids_like(reader, "triggers", given)
    return single_match(found, given, f"no trigger has the id {given!r:.80}; see: {hint('trigger', 'list')}")


def find_task(reader: Reader, given: str) -> Task:
    """Return the task that is meant. Raises NotFound, which says so when the id is that of a trigger without a task."""
    store = TaskStore()
    found = _ids_like(reader, "tasks", given)
    task = store.get(reader, single_match(found, given, "" if found else _missing_task_text(reader, given)))
    assert task is not None, given
    return task


def find_question(reader: Reader, given: str) -> Question:
    """Return the question that is meant, be it open or not. Raises NotFound."""
    store = QuestionStore()
    found = _ids_like(reader, "questions", given)
    whole = single_match(found, given, f"no question has the id {given!r:.80}; see: {hint('inbox', 'list')}")
    question = store.get(reader, whole)
    assert question is not None, given
    return question


def find_activity(reader: Reader, given: str) -> Activity:
    """Return the activity whose key is meant: its end, or a beginning with or without `activity:`. Raises NotFound."""
    store = ActivityStore()
    typed = given.removesuffix("…")  # as a table shows a key that is too long for it
    key = typed if typed.startswith(KEY_BEGINS) else KEY_BEGINS + typed
    found = []
    if typed and KEY.fullmatch(key):
        found = find_matching_keys(reader, "activity_log", key, typed, key="idem_key")
    whole = single_match(found, key, f"no activity has the key {given!r:.300}; see: {hint('activity', 'list')}")
    activity = store.get(reader, whole)
    assert activity is not None, given
    return activity


def resolve_execution_id(reader: Reader, given: str) -> str:
    """Return the id of the execution record that is meant. Raises NotFound; where the id is a trigger's, it names that
    one's records."""
    typed = given.removesuffix("…")
    found = find_matching_keys(reader, "executions", typed, typed) if KEY.fullmatch(typed) else []
    return single_match(found, typed, "" if found else _missing_record_text(reader, given))


def find_record(reader: Reader, given: str) -> ExecutionRecord:
    """Return the execution record that is meant. Raises NotFound as `resolve_execution_id` does; RowInvalid when a bad
    disk left it unreadable."""
    whole = resolve_execution_id(reader, given)
    try:
        record = RecordStore().get(reader, whole)
    except ValueError as error:  # text that is not UTF-8, a status that is none
        raise RowInvalid(f"{whole}: a damaged row cannot be read: {error}") from error
    assert record is not None, given
    return record


def parse_choice(field: str, value: str | None, those: type[Choice]) -> Choice | None:
    """Return the filter as it is stored, in any case. Raises FilterInvalid, naming those there are."""
    if value is None:
        return None
    for one in those:
        if one.casefold() == value.casefold():
            return one
    raise FilterInvalid(f"{field} {value!r:.80} is unknown; it must be one of {', '.join(those)}")


def parse_time_bound(field: str, given: str | None) -> float | None:
    """Return the moment at which a filter begins or ends; None: there is no such bound. Raises FilterInvalid."""
    try:
        return None if given is None else moment(field, parse_moment(given))
    except InvalidInput as error:
        raise FilterInvalid(error.message) from None


def require_text(field: str, given: str) -> None:
    """Raise FilterInvalid for what nothing can be found by."""
    if not given.strip() or any("\ud800" <= char <= "\udfff" for char in given):
        raise FilterInvalid(f"{field} {given!r:.80} is not a text to look for")


def refuse_bad_text(field: str, text: str | None, max_chars: int = REASON_MAX) -> None:
    """Raise InvalidInput for a reason, or a note, that cannot be read or stored. None is valid."""
    if text is None:
        return
    if not text.strip() or len(text) > max_chars or any("\ud800" <= char <= "\udfff" for char in text):
        raise InvalidInput(f"the {field} must be 1 to {max_chars:,} characters of text")


def refuse_database(database: Path, output: str) -> None:
    """Raise InvalidInput for a file to write to whose name a database has, or one of the files beside it."""
    real, target = os.path.realpath(database), os.path.realpath(output)
    beside = (f"{real}-wal", f"{real}-shm", f"{real}-journal", f"{real}.lock")
    if not output or target == real or target in beside:
        raise InvalidInput(f"{output!r:.200} is not a file to write to: give another name")


def _ids_like(reader: Reader, table: str, given: str) -> list[str]:
    """Return the first ids of a table that begin or end with it; none for a text that no id can have."""
    return find_matching_keys(reader, table, given, given) if is_name(given) else []


def _missing_record_text(reader: Reader, given: str) -> str:
    """Return why there is no such record, and what there is instead."""
    found = _ids_like(reader, "triggers", given)
    if len(found) != 1 and found[:1] != [given]:
        return f"no execution has the id {given!r:.80}; see: {hint('inspect', '--list')}"
    records = ExecutionListStore().ids_of(reader, found[0], RECORDS_NAMED)
    if not records:
        return (
            f"trigger {found[0]} has no execution: it was never started, and nothing of it happened. "
            f"See: {hint('trigger', 'why', found[0])}"
        )
    return f"{found[0]} is a trigger; its executions are, the newest first: {', '.join(records)}"


def _missing_task_text(reader: Reader, given: str) -> str:
    """Return why there is no such task, and what there is instead."""
    found = _ids_like(reader, "triggers", given)
    trigger = TriggerStore().get(reader, found[0]) if len(found) == 1 or found[:1] == [given] else None
    if trigger is None:
        return f"no task has the id {given!r:.80}; see: {hint('task', 'list')}"
    if (task := task_of(reader, trigger)) is not None:
        return f"{trigger.id} is a trigger of task {task.id}; see: {hint('task', 'show', task.id)}"
    if trigger.starts:
        why = f"its workflow {trigger.workflow} takes no ctx" if trigger.workflow else "no workflow with ctx took it"
    else:
        why = f"it is {trigger.status} and has never been started"
    return f"trigger {trigger.id} is not a task: {why}. See: {hint('trigger', 'show', trigger.id)}"
