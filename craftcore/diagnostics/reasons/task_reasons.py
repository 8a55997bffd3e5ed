"""The reasons why a task waits, and what became of it after one of its triggers, each with the query that proves it."""

from __future__ import annotations

from craftcore.diagnostics.finding import Finding, show_query
from craftcore.diagnostics.text.question_text import (
    answer_commands,
    answer_deadline_text,
    answer_text,
    question_text,
)
from craftcore.errors import UnreadableRow
from craftcore.serialization.time_text import clock_time, relative_text
from craftcore.storage.transaction import Reader
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.lineage_store import next_key
from craftcore.tasks.model import (
    CONTINUED,
    MESSAGE,
    QuestionStatus,
    Task,
    TaskStatus,
    Wait,
    WaitKind,
)
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.tasks.wait_store import WaitStore
from craftcore.triggers.model import Trigger, TriggerStatus

TASK = "SELECT status, reason, turn, trigger_id, error_code, error_message FROM tasks WHERE id = :id"
HOLD = "SELECT reason, trigger_id, held_at FROM task_holds WHERE task_id = :id"
WAIT = "SELECT kind, name, event, due_at FROM waits WHERE task_seq = :task AND status = 'WAITING'"
QUESTION = (
    "SELECT id, kind, question, options_json, expires_at FROM questions WHERE task_seq = :task AND status = 'OPEN'"
)
IN_DOUBT = "SELECT status, reason, policy, decision FROM activity_log WHERE idem_key = :key"
MAIL = "SELECT event, status, created_at FROM mailbox WHERE task_seq = :task AND trigger_id = :trigger"
NEXT = """SELECT id, status, reason FROM triggers
 WHERE dedup_key = :key AND dedup_key IS NOT NULL AND dedup_scope = 'ever'"""

SETTLE = "settle:"
"""How the wait begins after which a provider is asked what became of a call."""


def wait_findings(reader: Reader, task: Task, now: float) -> list[Finding]:
    """Return what a task waits for, and how to bring it about; none when it does not wait."""
    if task.status is not TaskStatus.WAITING:
        return []
    waits = WaitStore().list_open(reader, task.seq)
    return [finding for wait in waits for finding in _wait_findings(reader, task, wait, now)]


def _wait_findings(reader: Reader, task: Task, wait: Wait, now: float) -> list[Finding]:
    query = show_query(WAIT, task=task.seq)
    match wait.kind:
        case WaitKind.TIMER:
            does = f"waits before its turn {task.turn}" if wait.name == CONTINUED else "sleeps"
            if wait.name.startswith(SETTLE):
                does = "asks a provider what became of an irreversible action, but not"
            return [Finding(code="timer", text=f"task {task.id} {does}{_end(task, wait, now)}", query=query)]
        case WaitKind.EVENT:
            return [_event(task, wait, now)]
        case WaitKind.CHILD:
            return [_child(reader, task, wait, now)]
        case WaitKind.QUESTION:
            return _question_findings(reader, task, wait, now)


def held_task(reader: Reader, task: Task) -> list[Finding]:
    """Return why the code of the last start does not fit a live task, and what to do. Empty when it fits."""
    if not task.status.is_live or (wrong := HoldStore().get_reason(reader, task.id)) is None:
        return []
    text = (
        f"task {task.id} is held, the code does not fit it: {wrong}. It goes on by itself once a start brings code "
        f"that does. To go on with the code that runs, or to end it"
    )
    remedies = (("craftcore", "task", "retry", task.id), ("craftcore", "task", "cancel", task.id))
    return [Finding(code="held task", text=text, remedies=remedies, query=show_query(HOLD, id=task.id))]


def task_questions(reader: Reader, task: Task, now: float) -> list[Finding]:
    """Return what a person was asked about a task that does not wait for the answer: it runs on, or has ended."""
    questions = [one for one in QuestionStore().list_of_task(reader, task.seq) if one.status is QuestionStatus.OPEN]
    return [
        Finding(
            code=one.kind,
            text=f"a person was asked {relative_text(one.created_at, now)}: {question_text(one)} {answer_text(one)}",
            remedies=answer_commands(one),
            query=show_query(QUESTION, task=task.seq),
        )
        for one in questions
        if one.wait_seq is None or task.status is TaskStatus.RUNNING
    ]


def task_findings(reader: Reader, task: Task, now: float) -> list[Finding]:
    """Return what a task waits for; else where it is now, and what is still asked about it when it has ended."""
    return wait_findings(reader, task, now) or [
        is_now(task),
        *([] if task.status.is_live else task_questions(reader, task, now)),
    ]


def continuation_findings(reader: Reader, trigger: Trigger, task: Task, now: float) -> list[Finding]:
    """Return what became of a task after a settled trigger of it: what it came to there, and where it is now."""
    found: list[Finding] = []
    if trigger.reason == "delivered":
        found.append(_delivery_finding(reader, trigger, task))
    elif (key := next_key(reader, trigger, task)) is not None and (
        after := reader.fetch_one(NEXT, key=key)
    ) is not None:
        goes = "went" if TriggerStatus(after["status"]).is_settled else "goes"
        reason = f" ({after['reason']})" if after["reason"] else ""
        text = f"task {task.id} {goes} on with trigger {after['id']}, which is {after['status']}{reason}"
        found.append(Finding(code="went on", text=text, query=show_query(NEXT, key=key)))
    return [*found, *task_findings(reader, task, now)]


def is_now(task: Task) -> Finding:
    """Return the state of a task that does not wait, and what to do about it."""
    remedies: tuple[tuple[str, ...], ...] = ()
    match task.status:
        case TaskStatus.RUNNING | TaskStatus.WAITING:
            text = f"is at turn {task.turn}, with trigger {task.trigger_id}. See"
            remedies = (("craftcore", "trigger", "why", str(task.trigger_id)),)
        case TaskStatus.DONE:
            text = f"is DONE since {clock_time(task.ended_at)}"
        case TaskStatus.CANCELLED:
            text = f"is CANCELLED since {clock_time(task.ended_at)}: {task.reason}"
        case TaskStatus.FAILED:
            text = f"is FAILED since {clock_time(task.ended_at)} with {task.error_code}: {task.error_message}. "
            text += "To try its last turn again"
            remedies = (("craftcore", "task", "retry", task.id),)
    code, query = f"task {task.status.lower()}", show_query(TASK, id=task.id)
    return Finding(code=code, text=f"task {task.id} {text}", remedies=remedies, query=query)


def _end(task: Task, wait: Wait, now: float) -> str:
    """Return ` until 2026-01-02 03:04:05Z, in 2 h`; nothing for a wait without end."""
    if task.deadline_at is not None and (wait.due_at is None or task.deadline_at < wait.due_at):
        return (
            f" until its deadline at {clock_time(task.deadline_at)}, "
            f"{relative_text(task.deadline_at, now)}, and fails then"
        )
    return "" if wait.due_at is None else f" until {clock_time(wait.due_at)}, {relative_text(wait.due_at, now)}"


def _event(task: Task, wait: Wait, now: float) -> Finding:
    what = f"the event {wait.event}"
    command: tuple[str, ...] = ("craftcore", "task", "signal", task.id, str(wait.event))
    if wait.event == MESSAGE and task.session_id is not None:
        what = f"a message of session {task.session_id}"
        command = ("craftcore", "emit", "--source", "MESSAGE", "--session", task.session_id, "--payload", "JSON")
    text = f"task {task.id} waits for {what}{_end(task, wait, now)}. To send it"
    return Finding(code="event", text=text, remedies=(command,), query=show_query(WAIT, task=task.seq))


def _child(reader: Reader, task: Task, wait: Wait, now: float) -> Finding:
    child = TaskStore().get(reader, wait.event or "")
    state = "which is gone" if child is None else f"which is {child.status}"
    if child is not None and child.reason:
        state += f" ({child.reason})"
    text = f"task {task.id} waits{_end(task, wait, now)} for its child {wait.event}, {state}"
    see = (("craftcore", "task", "show", str(wait.event)),)
    return Finding(code="child", text=f"{text}. See", remedies=see, query=show_query(TASK, id=wait.event))


def _question_findings(reader: Reader, task: Task, wait: Wait, now: float) -> list[Finding]:
    question = QuestionStore().find_of_wait(reader, task.seq, wait.seq)
    if question is None:
        raise UnreadableRow(f"the wait {wait.id} is for an answer, and its question is not there")
    text = (
        f"task {task.id} waits for an answer to {question_text(question)} {answer_deadline_text(question, task, now)}. "
        f"{answer_text(question)}"
    )
    answer = answer_commands(question)
    if (key := question.activity_key) is not None:
        remedies = (*answer, ("craftcore", "activity", "show", key))
        return [Finding(code=question.kind, text=text, remedies=remedies, query=show_query(IN_DOUBT, key=key))]
    return [Finding(code="question", text=text, remedies=answer, query=show_query(QUESTION, task=task.seq))]


def _delivery_finding(reader: Reader, trigger: Trigger, task: Task) -> Finding:
    query = show_query(MAIL, task=task.seq, trigger=trigger.id)
    mail = reader.fetch_one(MAIL, task=task.seq, trigger=trigger.id)
    became = {
        "UNREAD": "it has not read it yet",
        "READ": "it has read it",
        "EMITTED": "it ended before it read it, and the message was emitted again",
        "LEFT": "it ended before it read it",
    }
    read = "the mail is gone" if mail is None else became[mail["status"]]
    return Finding(code="delivered", text=f"delivered to task {task.id}; {read}", query=query)
