"""`craftcore temporal schedule pause`, `resume`, `run-now`, `skip-next`, `backfill`: what a person does by hand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from craftcore.audit.caller import actor
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.schedule.outcome_text import print_backfill, print_fired, print_paused, print_resumed, print_skip
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import ClusterWriteCommand
from craftcore.cli.temporal.cluster_schedule_view import SeenSchedule, find_schedule, see
from craftcore.serialization.time_text import parse_moment
from craftcore.triggers.validation import moment

if TYPE_CHECKING:
    from craftcore.temporal.temporal_client import TemporalClient
    from craftcore.temporal.workflow.schedule_messages import ScheduleAnswer

PAGE = "docs/how-to/run-on-temporal.md"


@click.command(
    "pause",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "it is finished or disabled", NO_SUCH: "no such schedule"},
    examples=('craftcore temporal schedule pause nightly --reason "the holidays"',),
    see=("craftcore temporal schedule resume", "craftcore temporal schedule show", PAGE),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--reason", metavar="TEXT", default="paused", help="Why; stored in the schedule and the history.")
@click.pass_obj
def pause(session: Session, /, schedule_id: str, reason: str) -> None:
    """Pause a schedule until it is resumed.

    Fired work goes on; the command that stops it is printed. Occurrences meanwhile are recorded as skipped.
    """
    refuse_bad_text("reason", reason)
    before, after, _ = _apply(session, schedule_id, "pause", reason=reason, note=reason)
    print_paused(session, before.require(), after.require(), before.running)


@click.command(
    "resume",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "it is finished", NO_SUCH: "no such schedule"},
    examples=("craftcore temporal schedule resume nightly",),
    see=("craftcore temporal schedule pause", "craftcore temporal schedule backfill", PAGE),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def resume(session: Session, /, schedule_id: str) -> None:
    """Resume a paused or disabled schedule from now.

    Missed occurrences are not made up for; the history has them as skipped. A one-time schedule whose moment came fires
    now.
    """
    before, after, answer = _apply(session, schedule_id, "resume")
    skipped = [line["count"] for line in answer.lines if line["outcome"] == "skipped"]
    print_resumed(session, before.require(), after.require(), skipped[-1] if skipped else None, after.now)


@click.command(
    "run-now",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "its overlap policy says no", NO_SUCH: "no such schedule"},
    examples=("craftcore temporal schedule run-now nightly",),
    see=("craftcore temporal schedule backfill", "craftcore temporal schedule history", PAGE),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def run_now(session: Session, /, schedule_id: str) -> int:
    """Fire a schedule once more, now, whatever its status.

    Its own occurrences stay as they are. While the task of an earlier one has not ended, its overlap policy counts: it
    waits for that, or does not run.
    """
    from craftcore.temporal.schedules.schedule_client import list_placed

    before, _, answer = _apply(session, schedule_id, "run-now")
    [placed] = list_placed(answer)
    return print_fired(session, placed, before.running)


@click.command(
    "skip-next",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "it has no occurrence left to skip", NO_SUCH: "no such schedule"},
    examples=("craftcore temporal schedule skip-next nightly",),
    see=("craftcore temporal schedule show", "craftcore temporal schedule pause", PAGE),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def skip_next(session: Session, /, schedule_id: str) -> None:
    """Let the next occurrence pass; said again, also the one after.

    Prints which one passes, and which comes after it.
    """
    _, after, answer = _apply(session, schedule_id, "skip-next")
    assert answer.moment is not None, schedule_id
    print_skip(session, after.require(), answer.moment, after.now)


@click.command(
    "backfill",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "it does not recur", NO_SUCH: "no such schedule"},
    examples=("craftcore temporal schedule backfill day --from 20261119T00Z --to 20261121T00Z",),
    see=("craftcore temporal schedule history", "craftcore temporal schedule run-now", PAGE),
)
@click.argument("schedule_id", metavar="ID")
@click.option("--from", "since", metavar="TIME", required=True, help="The first moment of the span.")
@click.option("--to", "until", metavar="TIME", required=True, help="The last; both are included.")
@click.pass_obj
def backfill(session: Session, /, schedule_id: str, since: str, until: str) -> None:
    """Fire the occurrences of a past span, 1,000 at most.

    Occurrences that have fired do not fire again. They are due in order, as far apart as the catch-up spacing of the
    schedule says; its overlap policy counts.
    """
    from craftcore.temporal.schedules.schedule_client import list_placed

    first, last = moment("from", parse_moment(since)), moment("to", parse_moment(until))
    _, after, answer = _apply(session, schedule_id, "backfill", since=first, until=last)
    print_backfill(session, after.require(), list_placed(answer), first, last)


def _apply(
    session: Session, given: str, kind: str, *, note: str = "", **given_values: Any
) -> tuple[SeenSchedule, SeenSchedule, ScheduleAnswer]:
    """Do something with a schedule. Return it before and after, and the answer. Raises as `find_schedule`, and what the
    rules refuse."""

    async def send(client: TemporalClient) -> tuple[SeenSchedule, SeenSchedule, ScheduleAnswer]:
        from craftcore.temporal.schedules.schedule_client import ScheduleClient
        from craftcore.temporal.workflow.schedule_messages import ScheduleCall

        calls = ScheduleClient(client.connection)
        before = await find_schedule(calls, given)
        before.require()
        call = ScheduleCall(kind=kind, by=actor().text, note=note or f"schedule {kind}", **given_values)
        answer = await calls.apply_call(before.id, call)
        return before, see(before.id, answer.book), answer

    return call_cluster(session, send)
