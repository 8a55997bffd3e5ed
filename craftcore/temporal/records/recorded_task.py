"""A whole task as its history has it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from craftcore.tasks.model import NewTask, Task, TaskStatus, make_task
from craftcore.temporal.ids import task_id_of
from craftcore.temporal.records.history import Runs
from craftcore.temporal.records.history_events import TaskHistory
from craftcore.temporal.workflow.messages import TaskState


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedTask:
    """A task as its history has it. `state` None: no worker has taken its last run yet."""

    workflow_id: str
    runs: Runs
    history: TaskHistory
    state: TaskState | None

    @property
    def id(self) -> str:
        if self.state is not None:
            return self.state.task.id
        started = self.runs.histories[0].events[0].workflow_execution_started_event_attributes
        return task_id_of(self.workflow_id, started.first_execution_run_id)

    @property
    def task(self) -> Task:
        """The row of the task, as it is at the end of the history."""
        task = self._make_waiting() if self.state is None else self.state.task
        end = self.history.end
        if end is None:
            return task if task.status.is_live or self._is_kept_open else self._make_ending(task)
        return replace(
            task,
            status=TaskStatus(end["status"]),
            reason=end.get("reason"),
            result_json=end.get("result_json"),
            error_code=end.get("error_code"),
            error_message=end.get("error_message"),
            updated_at=self.history.ended_at or task.updated_at,
            ended_at=self.history.ended_at,
        )

    @property
    def _is_kept_open(self) -> bool:
        """True when the task is over and waits for a decision about an action in doubt."""
        return self.state is not None and any(act.is_open for act in self.state.acts.values())

    def _make_ending(self, task: Task) -> Task:
        """Return the row of a task whose end a worker has seen, and has not recorded yet."""
        return replace(task, status=TaskStatus.RUNNING, reason="running")

    def _make_waiting(self) -> Task:
        """Return the row of a task that no worker has taken."""
        start, at = self.history.start, self.history.started_at
        turn = self.history.attempts[-1].turn if self.history.attempts else 1
        row = NewTask(
            id=self.id,
            workflow=start["workflow"],
            session_id=start.get("session_id"),
            schedule_id=start.get("schedule_id"),
            parent_id=start.get("parent"),
            trigger_id=None,
            max_attempts=start.get("max_attempts"),
        )
        return replace(make_task(row, 1, at), reason="waits for a worker", turn=turn)
