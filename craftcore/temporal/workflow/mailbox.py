"""The waits of one task in its workflow, and the signals and questions that end them."""

from __future__ import annotations

from dataclasses import replace

from craftcore.errors import PayloadTooLarge
from craftcore.tasks.model import NewQuestion, NewWait, ResolvedBy, Wait, WaitKind
from craftcore.tasks.wait_rules import end_by_mail, end_by_time, find_first_due, may_answer, resume_after
from craftcore.temporal.workflow.messages import Mail, OpenQuestion, TaskState
from craftcore.triggers.model import TriggerSource

MAILBOX_MAX_BYTES = 1_000_000
"""Bytes of the signals that a task keeps unread. More fail it: they could not be carried to its next run."""

MAIL_BYTES = 50
"""Bytes of a signal beside its payload."""


def begin_wait(state: TaskState, wait: NewWait, now: float) -> None:
    """Begin a wait with its alternatives, and end it at once by what is there already."""
    for one in (wait, *wait.others):
        state.waits_made += 1
        row = Wait(
            seq=state.waits_made,
            id=f"{state.task.id}.{state.waits_made}",
            task_seq=state.task.seq,
            turn=state.task.turn,
            name=one.name,
            kind=one.kind,
            event=one.event,
            due_at=one.due_at,
            status="OPEN",
            resolved_by=None,
            value_json=None,
            created_at=now,
            resolved_at=None,
            at_given=int(one.at_given),
            any_of=one.any_of,
        )
        state.open_waits.append(row)
        if one.question is not None:
            state.asked[one.name] = replace(one, others=())
    for row in list(state.open_waits):
        if row in state.open_waits:
            _end_by_what_is_there(state, row, now)


def _end_by_what_is_there(state: TaskState, wait: Wait, now: float) -> None:
    key = activity_of(state, wait)
    if key is not None and not state.acts[key].is_open:  # decided while the turn was on its way here
        end_wait(state, wait, ResolvedBy.ANSWER, "null", now)
    elif wait.kind is WaitKind.CHILD and wait.event in state.child_ends:
        end_wait(state, wait, ResolvedBy.CHILD, state.child_ends[wait.event], now)
    else:
        for mail in list(state.mails):
            if _end_by_mail(state, wait, mail, now):
                state.mails.remove(mail)
                state.mail_bytes -= size_of(mail)
                return


def deliver(state: TaskState, mail: Mail, now: float) -> None:
    """End the first wait that the signal is for, or keep it, as long as its mailbox is not full."""
    for wait in state.open_waits:
        if _end_by_mail(state, wait, mail, now):
            return
    if is_full(state):
        return
    state.mail_bytes += size_of(mail)
    if not is_full(state):
        state.mails.append(mail)


def is_full(state: TaskState) -> bool:
    """Return whether more was sent to the task than it keeps."""
    return state.mail_bytes > MAILBOX_MAX_BYTES


def make_refusal(state: TaskState) -> PayloadTooLarge:
    """Return the failure of a task whose mailbox is full."""
    return PayloadTooLarge(
        f"its unread signals have {state.mail_bytes:,} bytes; the limit is {MAILBOX_MAX_BYTES:,}: send less, or "
        "wait for them sooner"
    )


def size_of(mail: Mail) -> int:
    """Return the bytes that a signal counts."""
    return len(mail.payload_json.encode()) + MAIL_BYTES


def _end_by_mail(state: TaskState, wait: Wait, mail: Mail, now: float) -> bool:
    is_of_person = mail.start is None or mail.start.source == TriggerSource.MESSAGE
    question = question_of(state, wait) if is_of_person and may_answer(wait, mail.event) else None
    end = end_by_mail(wait, mail.event, mail.payload_json, question)
    if end is not None:
        end_wait(state, wait, end.cause, end.value_json, now)
    return end is not None


def end_wait(state: TaskState, wait: Wait, by: ResolvedBy, value_json: str, now: float) -> None:
    """End a wait, and with it its alternatives."""
    over = replace(wait, status="RESOLVED", resolved_by=by, value_json=value_json, resolved_at=now)
    state.kept_waits.append(over)
    state.resume = resume_after(over)
    state.open_waits.clear()
    state.asked.clear()


def end_wait_for_child(state: TaskState, child: str, end_text: str, now: float) -> None:
    """End the wait for this child, if one is open."""
    wait = next((wait for wait in state.open_waits if wait.event == child and wait.kind is WaitKind.CHILD), None)
    if wait is not None:
        end_wait(state, wait, ResolvedBy.CHILD, end_text, now)


def end_due_wait(state: TaskState, now: float) -> None:
    """End the first wait whose time has come, if there is one."""
    first = find_first_due(state.open_waits)
    if first is not None and first.due_at is not None and first.due_at <= now:
        end = end_by_time(question_of(state, first))
        end_wait(state, first, end.cause, end.value_json, now)


def next_due(state: TaskState) -> float | None:
    """Return when the first open wait ends by itself; None: none does."""
    first = find_first_due(state.open_waits)
    return None if first is None else first.due_at


def question_of(state: TaskState, wait: Wait) -> NewQuestion | None:
    """Return the question of an open wait; None: it asks nothing."""
    asked = state.asked.get(wait.name)
    return None if asked is None else asked.question


def activity_of(state: TaskState, wait: Wait) -> str | None:
    """Return the key of the activity that a question is about; None: it is about none."""
    question = question_of(state, wait)
    seq = None if question is None else question.activity_seq
    return next((key for key, one in state.acts.items() if one.seq == seq), None)


def list_questions(state: TaskState) -> list[OpenQuestion]:
    return [
        OpenQuestion(
            id=wait.id,
            kind=question.kind,
            question=question.question,
            options=None if question.options is None else list(question.options),
            activity_key=activity_of(state, wait),
            workflow=state.task.workflow,
            default_json=question.default_json,
            by_message=bool(question.by_message),
            created_at=wait.created_at,
            expires_at=wait.due_at,
            form_json=question.form_json,
            addressee=question.addressee,
        )
        for wait in state.open_waits
        if (question := question_of(state, wait)) is not None
    ]
