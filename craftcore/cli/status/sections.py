"""The lines of `craftcore status` below the verdict: tasks, irreversible actions in doubt, schedules and the clock."""

from __future__ import annotations

from typing import Any

from craftcore.cli.output import Output
from craftcore.cli.session import hint
from craftcore.diagnostics.status import SCHEDULE_STATUSES
from craftcore.diagnostics.text.clock_text import clock_event_text
from craftcore.diagnostics.work import EVENT_WORTH_SAYING
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time, relative_text


def print_tasks(out: Output, found: dict[str, Any]) -> None:
    """Print how many tasks there are, and what the last start did with them. Print nothing where there are none."""
    counts, restart = found["tasks"], found["restart"]
    if any(counts.values()):
        text = f"running {counts['running']:,}, waiting {counts['waiting']:,}, questions {counts['questions']:,}"
        see = f" (see: {hint('inbox', 'list')})" if counts["questions"] else ""
        out.line(f"tasks     {text}{see}")
    if counts["held"]:
        see = hint("task", "list", "--held")
        out.line(
            f"held      {format_count(counts['held'], 'task')} that the code does not fit (see: {see})", style="warn"
        )
    if restart is not None:
        text = f"restart   resumed {restart['resumed']:,}"
        if restart["stale"]:
            text += f"; stale {restart['stale']:,}, which were interrupted too long ago to go on unasked"
            out.line(f"{text} (see: {hint('inbox', 'list')})", style="warn")
        else:
            out.line(text)


def print_doubt(out: Output, found: dict[str, Any]) -> None:
    """Print how many irreversible actions are undecided, and whether a restore can put more in doubt."""
    if found["restored_at"] is not None:
        when, see = relative_text(found["restored_at"], found["now"]), hint("release", "--help")
        out.line(f"restored  {when}; irreversible actions of earlier work may have been done before (see: {see})")
    count, oldest = found["in_doubt"]["count"], found["in_doubt"]["oldest"]
    if oldest is None:
        return
    if "damaged" in oldest:
        text, see = "the oldest is damaged", hint("activity", "list")
    else:
        text = f"the oldest {oldest['action']}, called {relative_text(oldest['first_call_at'], found['now'])}"
        see = hint("activity", "show", oldest["key"])
    out.line(f"in doubt  {count:,} irreversible, undecided; {text} (see: {see})", style="warn")


def print_schedules(out: Output, found: dict[str, Any]) -> None:
    """Print how many schedules there are, the next of them, and the last step of the clock."""
    schedules, now = found["schedules"], found["now"]
    counted = [f"{schedules[name]:,} {name}" for name in map(str.lower, SCHEDULE_STATUSES) if schedules[name]]
    if counted:
        text = ", ".join(counted)
        if schedules["next_at"] is not None:
            text += f"; next {schedules['next_id']} at {clock_time(schedules['next_at'])}"
            text += f", {relative_text(schedules['next_at'], now)}"
        out.line(f"schedules {text}", style="warn" if schedules["disabled"] else "")
    event = found["clock"]["last_event"]
    if event is not None and event["at"] > now - EVENT_WORTH_SAYING:
        what = clock_event_text(event["kind"], event["seconds"])
        out.line(f"clock     {clock_time(event['at'])}: {what}")
