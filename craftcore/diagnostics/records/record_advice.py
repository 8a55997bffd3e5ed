"""The advice about a recorded attempt, with the reasons of one that waits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from craftcore.daemon.lock import read_note
from craftcore.diagnostics.finding import Finding
from craftcore.diagnostics.live_counts import is_booting
from craftcore.diagnostics.reasons.trigger_reasons import list_reasons, task_reasons
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.recovery import Recommendation, State, assess
from craftcore.storage.transaction import Reader
from craftcore.tasks.attempt_service import facts_of
from craftcore.tasks.store import TaskStore
from craftcore.triggers.store import TriggerStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """The recommendation about an attempt. `reasons`: of one that waits, what for; they replace the text when there
    are any."""

    recommendation: Recommendation
    reasons: tuple[Finding, ...] = ()


def read_advice(
    reader: Reader,
    database: Path,
    record: ExecutionRecord,
    now: float,
    *,
    weight: float,
    known_faults: list[str] | None = None,
) -> Advice:
    """Return what to do about an attempt. `weight`: of the priority, as the settings of triggers have it.
    `known_faults`: of the record, as `facts_of` takes them."""
    note, daemon_runs = read_note(database)
    booting = is_booting(reader, note, held=daemon_runs)
    runs = daemon_runs and not booting
    found = assess(facts_of(reader, record, now, daemon_runs=runs, known_faults=known_faults))
    if found.state is not State.WAITS:
        return Advice(recommendation=found)
    task = None if record.task_id is None else TaskStore().get(reader, record.task_id)
    trigger = TriggerStore().get(reader, record.trigger_id)
    why: list[Finding] = []
    if task is not None:
        why = task_reasons(reader, task, now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting)
    elif trigger is not None:
        why = list_reasons(reader, trigger, now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting)
    return Advice(recommendation=found, reasons=tuple(why))
