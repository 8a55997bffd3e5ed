"""The result of a command on a schedule, in words or as a document: paused, resumed, fired, skipped."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from craftcore.cli.exit_codes import PROBLEM
from craftcore.cli.schedule.view import next_occurrence_text
from craftcore.cli.session import Session, hint
from craftcore.diagnostics.documents import schedule_document
from craftcore.diagnostics.text.schedule_text import format_local_and_utc, local_time_text
from craftcore.schedules.firing import FiringResult
from craftcore.schedules.model import Outcome, Schedule, ScheduleStatus
from craftcore.schedules.occurrence_store import RunningOccurrence
from craftcore.schedules.tick_plan import next_upcoming
from craftcore.serialization.time_text import add_iso_times


def print_paused(session: Session, before: Schedule, after: Schedule, live: RunningOccurrence | None) -> None:
    """Print a schedule that was paused. `live`: its earlier occurrence that goes on."""
    if session.json:
        session.out.document(schedule_document(after))
    elif before.status is ScheduleStatus.PAUSED:
        session.out.line(f"{after.id} was paused already ({after.reason}); nothing was changed")
    else:
        session.out.line(f"{after.id} is paused; nothing of it fires until: {hint('schedule', 'resume', after.id)}")
        if live is not None:
            stop = hint(live.noun, "cancel", live.id)
            session.out.line(f"{live}, which has fired, goes on; to stop it: {stop}")


def print_resumed(session: Session, before: Schedule, after: Schedule, skipped: int | None, now: float) -> None:
    """Print a schedule that was resumed. `skipped`: the occurrences of the pause; None when none came."""
    if session.json:
        session.out.document(schedule_document(after))
        return
    if before.status is ScheduleStatus.ACTIVE:
        session.out.line(f"{after.id} is active already; nothing was changed")
    else:
        if after.status is ScheduleStatus.ACTIVE:
            session.out.line(f"{after.id} is active again")
        if skipped is not None:
            session.out.line(f"skipped: {skipped:,} that came meanwhile")
    session.out.line(next_occurrence_text(after, now))
    if before.status is ScheduleStatus.DISABLED and before.origin.is_declared:
        remark = "unless it is declared again, the next start of the daemon disables it again"
        session.out.line(f"it was disabled: {before.reason}; {remark}", style="warn")


def print_fired(
    session: Session, placed: FiringResult, live: RunningOccurrence | None, obstacles: Iterable[str] = ()
) -> int:
    """Print what became of a run by hand. Return the exit code. `live`: the earlier occurrence that is not over;
    `obstacles`: why it starts later."""
    whole = placed.schedule_id
    waits_for = live.id if live and placed.outcome is Outcome.BUFFERED else None
    if session.json:
        document = {"id": whole, "outcome": placed.outcome, "nominal_at": placed.nominal_at, "reason": placed.reason}
        session.out.document(add_iso_times({**document, "trigger_id": placed.trigger_id, "waits_for": waits_for}))
        return PROBLEM if placed.outcome is Outcome.SKIPPED else 0
    match placed.outcome:
        case Outcome.SKIPPED:
            session.out.line(f"{whole} does not run: {placed.reason}", style="bad")
            return PROBLEM
        case Outcome.BUFFERED:
            session.out.line(f"{whole} starts when {live.is_over if live else 'the running task has ended'}")
        case Outcome.FIRED:
            session.out.line(f"{whole} is due now, as trigger {placed.trigger_id}")
    for obstacle in obstacles:
        session.out.line(obstacle, style="warn")
    return 0


def print_skip(session: Session, after: Schedule, skips_at: float, now: float) -> None:
    """Print which occurrence passes, and which one comes after it."""
    then_at = next_upcoming(after, after=skips_at)
    if session.json:
        session.out.document(add_iso_times({**schedule_document(after), "skips_at": skips_at, "then_at": then_at}))
        return
    then = (
        "nothing comes after it"
        if then_at is None
        else f"the one after: {format_local_and_utc(then_at, after.timezone, now)}"
    )
    session.out.line(f"{after.id} skips {format_local_and_utc(skips_at, after.timezone, now)}")
    session.out.line(then)


def print_backfill(
    session: Session, schedule: Schedule, placed: Sequence[FiringResult], first: float, last: float
) -> None:
    """Print what became of the occurrences between two moments."""
    counts = Counter(one.outcome for one in placed)
    if session.json:
        keys = ("nominal_at", "outcome", "reason", "trigger_id", "due_at")
        rows = [add_iso_times({key: getattr(one, key) for key in keys}) for one in placed]
        document = {outcome.value: counts[outcome] for outcome in Outcome}
        session.out.document({"id": schedule.id, **document, "occurrences": rows})
        return
    if not placed:
        span = f"{local_time_text(first, schedule.timezone)} and {local_time_text(last, schedule.timezone)}"
        session.out.line(f"{schedule.id} has no occurrence between {span}")
        return
    words = {
        Outcome.FIRED: "fired",
        Outcome.BUFFERED: "waiting for an earlier one",
        Outcome.SKIPPED: "skipped",
    }
    told_counts = ", ".join(f"{counts[outcome]:,} {text}" for outcome, text in words.items() if counts[outcome])
    session.out.line(f"{schedule.id}: {told_counts}. See: {hint('schedule', 'history', schedule.id)}")
