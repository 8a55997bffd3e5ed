"""The note a late trigger carries. Computed at its start from when it was due, so two restarts never add it twice."""

from __future__ import annotations

from datetime import UTC, datetime

from craftcore.triggers.model import Claim


def moment_due(claim: Claim) -> float:
    """Return when a trigger was due: that of a schedule by its occurrence, however it was paced or retried; others by
    `due_at`, which a backoff moves on."""
    return claim.due_at if claim.nominal_at is None else claim.fire_at


def overdue_seconds(due_at: float, now: float, overdue_after: float) -> float | None:
    """Return how late a trigger is that starts now; None while that is not worth a word."""
    late = now - due_at
    return late if late > overdue_after else None


def overdue_note(due_at: float, late: float) -> str:
    """Return `This was due at 2026-01-01T00:00:00Z and starts 10 minutes late. …`"""
    due = datetime.fromtimestamp(due_at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return (
        f"This was due at {due} and starts {format_duration(late)} late. "
        "Use judgement: do it now, adapt it to the present, or leave it if it no longer makes sense."
    )


def format_duration(seconds: float) -> str:
    """Return `10 minutes` for 600; the largest unit of which there are at least two, or the smallest."""
    for name, length in (("days", 86_400), ("hours", 3_600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {name}"
    return f"{int(seconds)} seconds"
