"""Operator actions on questions, activities, tasks, triggers and records."""

from __future__ import annotations

from typing import Literal

from craftcore.activities.model import Decision
from craftcore.daemon.lock import read_note
from craftcore.errors import InvalidInput
from craftcore.operations import activities, executions, tasks, triggers
from craftcore.operations.audit_scope import AuditScope
from craftcore.serialization.plurals import format_count
from craftcore.serialization.texts import NOTE_MAX
from craftcore.services import Services
from craftcore.storage.transaction import Reader, Transaction
from craftcore.web.actions.form_fields import read_form
from craftcore.web.actions.model import REASON, REQUIRED_REASON, Form, FormField, OperatorAction, text_of
from craftcore.web.actions.subjects import (
    find_activity,
    find_dead_letter,
    find_question,
    find_record,
    find_task,
    find_trigger,
)

NOTE = FormField(name="note", label="Note", max_chars=NOTE_MAX)
REFERENCE = FormField(name="reference", label="Reference", max_chars=NOTE_MAX)
DECISIONS = (
    (str(Decision.HAPPENED), "It happened: the task continues with it and never calls again"),
    (str(Decision.RESEND), "It did not: send it again. If it did happen, it happens twice"),
    (str(Decision.GIVE_UP), "It cannot be known: give up. The task fails; nothing is sent"),
)


def find_choice(options: tuple[str, ...] | None, form: Form) -> str:
    """Return the answer of a form: the option with that number, or the text. Raises InvalidInput.

    A form names an option by its number, so that no text from the database is a value of a form.
    """
    if options is None:
        if (text := text_of(form, "text")) is None:
            raise InvalidInput("the answer is empty: write one")
        return text
    number = form.get("option", "")
    if not (number.isascii() and number.isdigit() and len(number) < 6 and int(number) < len(options)):
        raise InvalidInput("choose one of the options")
    return options[int(number)]


def answer(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    question = find_question(tx, id)
    choice = find_choice(question.options, form) if question.form_json is None else read_form(question.form_json, form)
    note, reference = text_of(form, "note"), text_of(form, "reference")
    _, task, _ = tasks.answer(tx, scope, services, id, choice, note=note, reference=reference)
    return f"answered; task {task.id} " + ("goes on" if task.status.is_live else f"is {task.status}")


def resolve(tx: Transaction, scope: AuditScope, services: Services, key: str, form: Form) -> str:
    """Decide about an activity."""
    try:
        decision = Decision(form.get("decision", ""))
    except ValueError:
        raise InvalidInput("choose what is known: it happened, it did not, or it cannot be known") from None
    seen, note, reference = find_activity(tx, key), text_of(form, "note"), text_of(form, "reference")
    if decision is not Decision.HAPPENED:
        reference = None
    activities.resolve(tx, scope, services, seen, decision, reference=reference, note=note)
    return f"{seen.action}: {decision}"


def cancel_task(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    tasks.cancel(tx, scope, services, id, text_of(form, "reason"))
    return "the task is cancelled"


def retry_task(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    tasks.retry(tx, scope, services, id)
    return "the task goes on"


def signal_task(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    """Signal a task. The payload is text."""
    event = text_of(form, "event")
    if event is None:
        raise InvalidInput("name the event")
    _, waited = tasks.signal(tx, scope, services, id, event, text_of(form, "payload"))
    return f"{event} is signalled" + ("" if waited else "; the task does not wait for it yet")


def cancel_trigger(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    triggers.cancel(tx, scope, services, [id], text_of(form, "reason"))
    return "the trigger is cancelled"


def requeue(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    triggers.requeue(tx, scope, services, [id])
    return "the trigger is queued again"


def discard(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    triggers.discard(tx, scope, services, [id])
    return "the dead letter is discarded"


def retry_execution(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    return _decide(tx, scope, services, id, form, "retry")


def skip_execution(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    return _decide(tx, scope, services, id, form, "skip")


def _decide(
    tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form, decision: Literal["retry", "skip"]
) -> str:
    _, daemon_runs = read_note(services.database.path)
    record, reason = find_record(tx, id), require_reason(form)
    trigger = executions.decide(tx, scope, services, decision, record, reason, daemon_runs=daemon_runs)
    return f"trigger {trigger.id} is {trigger.status}"


def invalidate(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    done = executions.invalidate(tx, scope, [id], require_reason(form))
    return f"{format_count(len(done), 'record')} invalidated: not replayed any more"


def require_reason(form: Form) -> str:
    """Return the reason of a form. Raises InvalidInput when there is none."""
    if (reason := text_of(form, "reason")) is None:
        raise InvalidInput("give a reason: it is stored in the audit log")
    return reason


def is_about_doubt(reader: Reader, id: str) -> bool:
    """Return whether a question is about an activity in doubt."""
    return find_question(reader, id).activity_key is not None


def find_addressee(reader: Reader, id: str) -> str | None:
    """Return the person or group that a question is asked of; None: everybody."""
    return find_question(reader, id).addressee


def is_about_activity(_reader: Reader, _key: str) -> bool:
    return True


ACTIONS = (
    OperatorAction(
        name="inbox answer", path="/q/{id}/answer", back="/q/{id}", button="answer",
        says="Answer the question, once. The task goes on with the answer.",
        run=answer, find=find_question, has_page=False, fields=(NOTE, REFERENCE), decides_doubt=is_about_doubt,
        asks_of=find_addressee,
    ),
    OperatorAction(
        name="activity resolve", path="/activities/{id}/resolve", back="/activities/{id}", button="decide",
        says="Decide about an irreversible action whose outcome is unknown.",
        run=resolve, find=find_activity,
        fields=(FormField(name="decision", label="Decision", required=True, choices=DECISIONS), REFERENCE, NOTE),
        final_choices=frozenset({Decision.RESEND, Decision.GIVE_UP}), decides_doubt=is_about_activity,
        asks_of=lambda _reader, _key: None,
    ),
    OperatorAction(
        name="task cancel", path="/tasks/{id}/cancel", back="/tasks/{id}", button="cancel",
        says="Cancel the task. Its effects stay; its open questions are withdrawn.",
        run=cancel_task, find=find_task, fields=(REASON,), is_final=True,
    ),
    OperatorAction(
        name="task retry", path="/tasks/{id}/retry", back="/tasks/{id}", button="retry",
        says="Let a failed task try its turn again, or a held one go on.",
        run=retry_task, find=find_task,
    ),
    OperatorAction(
        name="task signal", path="/tasks/{id}/signal", back="/tasks/{id}", button="signal",
        says="Tell the task that an event has happened.",
        run=signal_task, find=find_task,
        fields=(
            FormField(name="event", label="Event", required=True, max_chars=200),
            FormField(name="payload", label="Text", max_chars=10_000),
        ),
    ),
    OperatorAction(
        name="trigger cancel", path="/triggers/{id}/cancel", back="/triggers/{id}", button="cancel",
        says="Cancel the trigger, so that it does not run.",
        run=cancel_trigger, find=find_trigger, fields=(REASON,), is_final=True,
    ),
    OperatorAction(
        name="dead requeue", path="/triggers/{id}/requeue", back="/triggers/{id}", button="requeue",
        says="Give the trigger all its attempts again, now.",
        run=requeue, find=find_trigger,
    ),
    OperatorAction(
        name="dead discard", path="/triggers/{id}/discard", back="/dead", button="discard",
        says="Take the trigger off the list of dead letters. It stays readable as FAILED.",
        run=discard, find=find_dead_letter, is_final=True,
    ),
    OperatorAction(
        name="execution retry", path="/records/{id}/retry", back="/records/{id}", button="retry",
        says="Let the trigger of this attempt run again, now.",
        run=retry_execution, find=find_record, fields=(REQUIRED_REASON,),
    ),
    OperatorAction(
        name="execution skip", path="/records/{id}/skip", back="/records/{id}", button="skip",
        says="Let the trigger of this attempt run no more. Its task ends.",
        run=skip_execution, find=find_record, fields=(REQUIRED_REASON,), is_final=True,
    ),
    OperatorAction(
        name="invalidate", path="/records/{id}/invalidate", back="/records/{id}", button="invalidate",
        says="Refuse replays of this record. The record stays as it is.",
        run=invalidate, find=find_record, fields=(REQUIRED_REASON,), is_final=True,
    ),
)  # fmt: skip
