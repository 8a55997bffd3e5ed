"""The view of an activity: its JSON document, its row in a table, its status, and the effect of a decision."""

from __future__ import annotations

from craftcore.activities.model import Activity, Decision
from craftcore.serialization.time_text import clock_time

LIST_COLUMNS = ("key", "called", "action", "status", "reference", "reason")

FLAGS = {Decision.HAPPENED: "--happened", Decision.RESEND: "--resend", Decision.GIVE_UP: "--give-up"}
"""The options of `activity resolve`, one for each decision."""


def activity_row(activity: Activity) -> tuple[object, ...]:
    """Return its row under LIST_COLUMNS."""
    # Of one that was decided, the reason says who did, and the error is that of the call before.
    error = f": {activity.error_message}" if activity.error_message and activity.decision is None else ""
    return (
        activity.key,
        clock_time(activity.last_call_at),
        activity.action,
        activity.status,
        activity.provider_ref,
        activity.reason + error,
    )
