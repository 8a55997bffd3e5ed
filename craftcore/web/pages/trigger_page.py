"""`/triggers/{id}`: the row of a trigger, why it is as it is, and its attempts."""

from __future__ import annotations

from typing import Any

from craftcore.daemon.lock import read_note
from craftcore.diagnostics.documents import trigger_document
from craftcore.diagnostics.live_counts import explain_claim, is_booting
from craftcore.diagnostics.reasons.trigger_reasons import list_reasons
from craftcore.diagnostics.text.trigger_text import name_work, read_task, task_status_text
from craftcore.errors import NotFound
from craftcore.executions.listing_store import ExecutionListStore
from craftcore.storage.damaged_rows import try_read
from craftcore.tasks.model import Task
from craftcore.triggers.damaged_store import DamagedTriggerStore
from craftcore.triggers.model import Trigger, TriggerStatus
from craftcore.triggers.store import TriggerStore
from craftcore.web.page import Page
from craftcore.web.visit import Visit

ATTEMPTS_SHOWN = 50
HIDDEN = ("id", "payload", "lease_token")


def show_trigger(visit: Visit) -> Page:
    """Return the page of a trigger; of one that retention deleted, its records. Raises NotFound."""
    id, services = visit.path["id"], visit.services
    note, daemon_runs = read_note(services.database.path)
    with visit.reading() as reader:
        trigger = try_read(id, lambda: TriggerStore().get(reader, id))
        headers = ExecutionListStore().headers_of(reader, id, ATTEMPTS_SHOWN + 1)
        facts: dict[str, Any] = {
            "id": id,
            "attempts": headers[:ATTEMPTS_SHOWN],
            "has_more": len(headers) > ATTEMPTS_SHOWN,
            "shown": ATTEMPTS_SHOWN,
        }
        if trigger is None and not headers:
            raise NotFound(f"no trigger has the id {id!r:.80}")
        if not isinstance(trigger, Trigger):
            status = 404 if trigger is None else 200
            found = None if trigger is None else DamagedTriggerStore().find(reader, id)
            facts |= {"row": trigger, "is_dead": found is not None and found.status == TriggerStatus.DEAD}
            return Page(template="trigger_gone.html", title=f"Trigger {id}", facts=facts, status=status)
        task = read_task(reader, trigger)
        booting = is_booting(reader, note, held=daemon_runs)
        weight = services.config.triggers.priority_weight
        facts["reasons"] = try_read(
            "its reasons",
            lambda: list_reasons(
                reader, trigger, visit.now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting
            ),
        )
    document = trigger_document(trigger)
    return Page(
        template="trigger.html",
        title=f"{name_work(trigger.workflow, trigger.schedule_id) or trigger.source} {trigger.status}",
        facts={
            **facts,
            "trigger": trigger,
            "payload": document["payload"],
            "details": {
                name: value for name, value in document.items() if name not in HIDDEN and not name.endswith("_iso")
            },
            "moments": {name.removesuffix("_iso") for name in document if name.endswith("_iso")},
            "task": task,
            "task_status": task_status_text(trigger, task) if isinstance(task, Task) else None,
            "claim": explain_claim(trigger, claims_live=daemon_runs and not booting),
            "actions": list_actions(trigger),
        },
    )


def list_actions(trigger: Trigger) -> list[str]:
    """Return the names of the operator actions that fit the state of a trigger."""
    match trigger.status:
        case TriggerStatus.PENDING | TriggerStatus.CLAIMED:
            return [] if trigger.cancel_requested_at is not None else ["trigger cancel"]
        case TriggerStatus.DEAD:
            return ["dead discard"] if trigger.reason == "corrupt row" else ["dead requeue", "dead discard"]
        case TriggerStatus.FAILED if trigger.stripped_at is None:
            is_reported = trigger.reason == trigger.error_code
            return ["dead requeue", "dead discard"] if is_reported else ["dead requeue"]
        case _:
            return []
