"""An activity in words: its status, the decisions that are possible, and the effect of one."""

from __future__ import annotations

from craftcore.activities.model import Activity, ActivityStatus, Decision
from craftcore.tasks.model import Question, Task, TaskStatus


def describe_status(activity: Activity, task: Task, question: Question | None, *, claims_live: bool) -> str | None:
    """Return what its status means for who wants to know whether it happened; None where the status says it all."""
    match activity.status:
        case ActivityStatus.DONE:
            return None
        case ActivityStatus.INTENT if claims_live:
            return "it is being called now"
        case ActivityStatus.INTENT:
            return "its process has died: a daemon that starts puts it in doubt, as its policy says"
        case ActivityStatus.FAILED if activity.may_retry:
            return f"nothing happened, that is certain; it is called again {_time_text(task)}"
        case ActivityStatus.FAILED:
            return "nothing happened, that is certain: it was refused, and it is not called again"
        case _ if activity.decision is Decision.RESEND:
            return f"decided: it is called again {_time_text(task)}"
        case _ if activity.decision is Decision.GIVE_UP:
            return "given up: whether it happened is unknown"
        case _ if question is not None:
            return f"its outcome is unknown; a person is asked with question {question.id}"
        case _:
            return f"its outcome is unknown; policy {activity.policy} is applied {_time_text(task)}"


def decisions_for(activity: Activity) -> tuple[Decision, ...]:
    """Return the decisions that are possible in its present status."""
    match activity.status:
        case ActivityStatus.UNKNOWN:
            return tuple(Decision)
        case ActivityStatus.FAILED if not activity.may_retry:
            return (Decision.RESEND,)
        case _:
            return ()


def decision_result(activity: Activity, decision: Decision, task: Task) -> str:
    """Return what a decision comes to, after it was taken."""
    what = f"{activity.action} ({activity.key})"
    match decision:
        case Decision.HAPPENED:
            reference = f", reference {activity.provider_ref}" if activity.provider_ref else ""
            return f"{what} happened{reference}: it is not called again; {_follow_up_text(task, 'goes on with that')}"
        case Decision.GIVE_UP:
            return f"{what} is given up: its outcome is unknown; {_follow_up_text(task, 'fails when it comes to it')}"
        case Decision.RESEND if task.status in (TaskStatus.DONE, TaskStatus.CANCELLED):
            return f"{what} may be called again, but nothing does: task {task.id} is {task.status}"
        case Decision.RESEND:
            return f"{what} is called again with the same key, {_time_text(task)}"


def retry_command(decision: Decision, task: Task) -> tuple[str, ...]:
    """Return the command that lets a task that has failed come to its act again, where that is of use."""
    return ("task", "retry", task.id) if task.status is TaskStatus.FAILED and decision is not Decision.GIVE_UP else ()


def confirmation_text(activity: Activity, decision: Decision) -> str:
    """Return what a person at a terminal is asked to confirm: `This will …. Go on?`"""
    what = f"{activity.action} ({activity.key})"
    match decision:
        case Decision.HAPPENED:
            return f"record that {what} happened, so that it is never called again"
        case Decision.RESEND:
            return f"let {what} be called again with the same key: twice, if it did happen and the provider forgot"
        case Decision.GIVE_UP:
            return f"give up {what}: its task fails with that when it comes to it"


def _time_text(task: Task) -> str:
    if task.status.is_live:
        return f"when task {task.id} comes to it"
    if task.status is TaskStatus.FAILED:
        return f"once task {task.id}, which is FAILED, is retried and comes to it"
    return f"never: task {task.id} is {task.status}"


def _follow_up_text(task: Task, does: str) -> str:
    return f"task {task.id} {does}" if task.status.is_live else f"task {task.id} is {task.status}"
