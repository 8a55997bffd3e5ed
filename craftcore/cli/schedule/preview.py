"""`craftcore schedule preview`: when an expression comes, on the wall and in UTC."""

from __future__ import annotations

import math
from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.output import Output
from craftcore.cli.schedule.id_lookup import find_schedule
from craftcore.cli.schedule.view import next_occurrence_text
from craftcore.cli.session import Session, hint
from craftcore.diagnostics.text.schedule_text import (
    expression_text,
    local_time_text,
    moment_note,
    moment_row,
    upcoming_rows,
)
from craftcore.errors import RowInvalid, ScheduleInvalid
from craftcore.schedules.model import ScheduleStatus
from craftcore.schedules.recurrence.expression import parse
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.schedules.recurrence.occurrences import list_moments, next_occurrence
from craftcore.schedules.recurrence.timing import Once, Startup
from craftcore.serialization.time_text import clock_time


@click.command(
    "preview",
    cls=Command,
    examples=(
        "craftcore schedule preview nightly --count 3",
        'craftcore schedule preview --expr "0 3 * * 1-5" --timezone Europe/Berlin',
    ),
    see=("craftcore schedule show", "craftcore schedule add", "docs/how-to/schedule-work.md"),
)
@click.argument("schedule_id", metavar="[ID]", required=False)
@click.option("--expr", "expression", metavar="EXPR", help="One that is not added yet; needs no database.")
@click.option("--timezone", metavar="ZONE", help="The zone of --expr; by default the machine's.")
@click.option("--count", type=click.IntRange(1, 1000), default=10, show_default=True, help="How many.")
@click.option("--from", "since", metavar="TIME", help="From then on; else from now.")
@click.pass_obj
def preview(
    session: Session,
    /,
    schedule_id: str | None,
    expression: str | None,
    timezone: str | None,
    count: int,
    since: str | None,
) -> None:
    """List the next occurrences of a schedule, locally and in UTC.

    Or those of any EXPR, without a database. A note shows where a change of the clock skips or repeats an hour.
    """
    if (schedule_id is None) == (expression is None):
        raise click.UsageError("give the ID of a schedule, or --expr; not both")
    if schedule_id is not None and " " in schedule_id:
        raise click.UsageError(f'an ID has no spaces; to preview an expression: --expr "{schedule_id:.80}"')
    if timezone is not None and expression is None:
        raise click.UsageError("--timezone belongs to --expr; a schedule has its own")
    core = session.core()
    now = core.clock.now()
    first = None if since is None else read_moment("from", since, now, timezone or core.clock.zone()).at
    if schedule_id is not None:
        with core.reading() as reader:
            schedule = find_schedule(reader, schedule_id)
        zone, timing = schedule.timezone, schedule.timing
        try:
            head = [expression_text(schedule.expression, timing, zone)]
            if schedule.status is not ScheduleStatus.ACTIVE or isinstance(timing, Startup):
                head.append(next_occurrence_text(schedule, now))
            rows = upcoming_rows(schedule, now, count, since=first)
        except ScheduleInvalid as error:  # nothing that was given is at fault
            message = f"schedule {schedule.id} cannot be read as it is stored: {error.message}"
            raise RowInvalid(f"{message}. Put it right: {hint('schedule', 'edit', schedule.id)}") from error
    else:
        assert expression is not None
        known = core.clock.zone() if timezone is None else timezone
        parsed = parse(expression, now=now, timezone=known, zone_given=timezone is not None)
        zone = known or "UTC"
        timing, head = parsed.timing, [expression_text(parsed.text, parsed.timing, zone)]
        after = now if first is None else _moment_before(first)
        if first is None and isinstance(timing, Once):
            after = timing.at - 1  # `immediate` is now, which is not after now
        rows = [
            moment_row(timing, zone, at)
            for at in list_moments(lambda instant: next_occurrence(timing, instant), after, count)
        ]
    if session.json:
        session.out.document(rows)
        return
    for line in head:
        session.out.line(line)
    print_moments(session.out, rows, zone)


def print_moments(out: Output, rows: list[dict[str, Any]], zone: str) -> None:
    """Print a table, with a note where the clock is changed."""
    if not rows:
        out.line("no occurrence comes")
        return
    cells = []
    for row in rows:
        shown = local_time_text(row["nominal_at"], zone), clock_time(row["nominal_at"])
        cells.append((*shown, moment_note(row)))
    out.table((zone, "UTC", "note"), cells)


def _moment_before(first: float) -> float:
    """Return the latest moment that is before `first`, as occurrences go: they are whole seconds."""
    return math.ceil(first) - 1
