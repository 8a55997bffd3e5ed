"""The counts of workers for Prometheus: of what a workflow takes in, whatever worker did it.

A replay counts nothing again. A workflow task that the cluster repeats does: its worker died or froze, or a signal came
meanwhile. So rates and ratios are right, and exact sums are not.
"""

from __future__ import annotations

from dataclasses import replace

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from craftcore.activities.model import Activity, ActivityStatus
    from craftcore.error_codes import ErrorCode
    from craftcore.executions.model import EventType
    from craftcore.temporal.workflow.messages import HANDED_BACK, LIMITED, ROLLOVER, EntryEnd
    from craftcore.triggers.settlement import outcome_label

OTHER = "other"
CRASHED, CANCELLED = "crashed", "cancelled"
"""The outcomes of an entry that has no end of its own: its worker died, or it was cancelled."""

STEPS: dict[str, str] = {EventType.STEP_COMPLETED: "done", EventType.STEP_FAILED: "retried"}


def count_entry(name: str, end: EntryEnd) -> None:
    """Count an entry of a turn, unless it was left to others. A name that no app declares is counted as `other`, so
    that an emit cannot add a label."""
    if end.move in (LIMITED, HANDED_BACK):
        return
    if end.wait is not None and end.wait.name.startswith(ROLLOVER):
        end = replace(end, gives_back=True)
    is_undeclared = end.error_code == ErrorCode.CAPABILITY_NOT_FOUND and not end.is_task
    count_attempt(OTHER if is_undeclared else name, outcome_label(end))


def count_attempt(name: str, outcome: str) -> None:
    """Count an attempt of a workflow by its outcome."""
    _add(
        "craftcore_attempts", "Entries of turns that ended, by their outcome.", workflow=name or OTHER, outcome=outcome
    )


def count_event(name: str, event_type: str) -> None:
    """Count a step that was done, or a try of it that failed and is repeated. Other events are not counted."""
    if (outcome := STEPS.get(event_type)) is not None:
        _add("craftcore_steps", "Steps that were recorded.", workflow=name or OTHER, outcome=outcome)


def count_settled(before: Activity | None, after: Activity | None) -> None:
    """Count a call that has ended now. One that was counted as unknown when its entry was left is not counted again."""
    was_called = before is not None and before.status is ActivityStatus.INTENT
    if was_called and after is not None and after.status is not ActivityStatus.INTENT:
        count_call(after.action, after.status)


def count_call(action: str, status: ActivityStatus) -> None:
    """Count a call of an irreversible action by its outcome: done, failed or unknown."""
    _add("craftcore_calls", "Calls of irreversible actions that ended.", action=action, outcome=status.value.lower())


def _add(metric: str, meaning: str, **labels: str) -> None:
    workflow.metric_meter().create_counter(metric, meaning).add(1, labels)
