"""The search attributes and the memo of a task's workflow, by which the cluster lists tasks, questions and doubts.

They follow the state of the task, with an event for each change. The server limits a value to 2 KB, so an attribute may
leave out entries. The memo has all of them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from temporalio import workflow
from temporalio.common import SearchAttributeKey, SearchAttributePair, TypedSearchAttributes

from craftcore.tasks.model import TaskStatus
from craftcore.temporal.workflow.mailbox import list_questions
from craftcore.temporal.workflow.messages import TaskState

WORKFLOW_KEY = SearchAttributeKey.for_keyword("CraftcoreWorkflow")
STATUS_KEY = SearchAttributeKey.for_keyword("CraftcoreStatus")
SESSION_KEY = SearchAttributeKey.for_keyword("CraftcoreSession")
ASKS_KEY = SearchAttributeKey.for_keyword_list("CraftcoreAsks")
DOUBTS_KEY = SearchAttributeKey.for_keyword_list("CraftcoreDoubts")

ATTRIBUTES = {
    **dict.fromkeys((WORKFLOW_KEY.name, STATUS_KEY.name, SESSION_KEY.name), "Keyword"),
    **dict.fromkeys((ASKS_KEY.name, DOUBTS_KEY.name), "KeywordList"),
}
"""Their names, with their types on the cluster."""

QUESTIONS_MEMO, DOUBTS_MEMO, LATE_MEMO = "questions", "doubts", "done_late"
"""The memo of open questions, with the fields of OpenQuestion; and of actions in doubt, with `key` and `action`. The
last is of actions that were done after a decision, with the fields of LateDone."""

KEYWORD_MAX, VALUE_MAX = 255, 1_800
"""Characters of a keyword, and of all keywords of a list."""


def make_first_attributes(workflow_name: str, session_id: str | None = None) -> TypedSearchAttributes:
    """Return the attributes that a task is started with."""
    pairs: list[SearchAttributePair[Any]] = [
        SearchAttributePair(WORKFLOW_KEY, workflow_name[:KEYWORD_MAX]),
        SearchAttributePair(STATUS_KEY, TaskStatus.RUNNING.value),
    ]
    if session_id is not None:
        pairs.append(SearchAttributePair(SESSION_KEY, session_id[:KEYWORD_MAX]))
    return TypedSearchAttributes(pairs)


def publish(state: TaskState) -> None:
    """Let the cluster know the state of the task, if it has changed."""
    task = state.task
    questions = [asdict(question) for question in list_questions(state)]
    doubts = [{"key": key, "action": one.action} for key, one in state.acts.items() if one.is_open]
    late = [asdict(one) for one in state.late]
    wanted: list[tuple[SearchAttributeKey[Any], str | list[str] | None]] = [
        (WORKFLOW_KEY, task.workflow[:KEYWORD_MAX] or None),
        (STATUS_KEY, str(task.status)),
        (SESSION_KEY, None if task.session_id is None else task.session_id[:KEYWORD_MAX]),
        (ASKS_KEY, _fit(str(question["id"]) for question in questions)),
        (DOUBTS_KEY, _fit(doubt["key"] for doubt in doubts)),
    ]
    known = workflow.info().typed_search_attributes
    changes = [
        key.value_unset() if value is None else key.value_set(value)
        for key, value in wanted
        if (known.get(key) or None) != value
    ]
    if changes:
        workflow.upsert_search_attributes(changes)
    memo = {
        name: entries or None
        for name, entries in ((QUESTIONS_MEMO, questions), (DOUBTS_MEMO, doubts), (LATE_MEMO, late))
        if (workflow.memo_value(name, None) or []) != entries
    }
    if memo:
        workflow.upsert_memo(memo)


def _fit(keywords: Iterable[str]) -> list[str] | None:
    """Return as many keywords as a value may have. None: there are none."""
    fitting, left = [], VALUE_MAX
    for keyword in keywords:
        left -= len(keyword[:KEYWORD_MAX].encode())
        if left < 0:
            break
        fitting.append(keyword[:KEYWORD_MAX])
    return fitting or None
