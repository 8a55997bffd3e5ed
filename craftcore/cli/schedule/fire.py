"""`craftcore schedule run-now`, `skip-next`, `backfill`, `trust-clock`, `reanchor`: what a person does by hand."""

from __future__ import annotations

from collections import Counter

import click

from craftcore.cli.base import OnCluster, OperatorCommand
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.schedule.calls_on_schedules import open_schedules
from craftcore.cli.schedule.id_lookup import resolve_schedule_id
from craftcore.cli.schedule.view import next_occurrence_text
from craftcore.cli.session import Session, hint
from craftcore.diagnostics.documents import schedule_document
from craftcore.diagnostics.text.schedule_text import format_local_and_utc, local_time_text
from craftcore.operations import schedules
from craftcore.schedules.model import Outcome
from craftcore.schedules.tick_plan import next_upcoming
from craftcore.serialization.time_text import add_iso_times, clock_time, parse_moment
from craftcore.triggers.validation import moment


@click.command(
    "run-now",
    cls=OperatorCommand,
    exits={PROBLEM: "its overlap policy says no", NO_SUCH: None},
    examples=("craftcore schedule run-now nightly",),
    see=("craftcore schedule backfill", "craftcore schedule history", "docs/how-to/schedule-work.md"),
    on_cluster=OnCluster(),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def run_now(session: Session, /, schedule_id: str) -> int:
    """Fire a schedule once more, now, whatever its status.

    Its own occurrences stay as they are. While the task of an earlier one has not ended, its overlap policy counts: it
    waits for that, or does not run.
    """
    placed, live, obstacles = open_schedules(session).run_now(schedule_id)
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


@click.command(
    "skip-next",
    cls=OperatorCommand,
    exits={PROBLEM: "it has no occurrence left to skip", NO_SUCH: None},
    examples=("craftcore schedule skip-next nightly",),
    see=("craftcore schedule preview", "craftcore schedule pause", "docs/how-to/schedule-work.md"),
    on_cluster=OnCluster(see=("craftcore schedule show", "craftcore schedule pause")),
)
@click.argument("schedule_id", metavar="ID")
@click.pass_obj
def skip_next(session: Session, /, schedule_id: str) -> None:
    """Let the next occurrence pass; said again, also the one after.

    Prints which one passes, and which comes after it.
    """
    after, skips_at, now = open_schedules(session).skip_next(schedule_id)
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


@click.command(
    "backfill",
    cls=OperatorCommand,
    exits={PROBLEM: "it does not recur", NO_SUCH: None},
    examples=("craftcore schedule backfill nightly --from 2026-11-19T00Z --to 2026-11-21T00Z",),
    see=("craftcore schedule preview", "craftcore schedule history", "docs/how-to/schedule-work.md"),
    on_cluster=OnCluster(
        examples=("craftcore schedule backfill day --from 20261119T00Z --to 20261121T00Z",),
        see=("craftcore schedule history", "craftcore schedule run-now"),
    ),
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
    first, last = moment("from", parse_moment(since)), moment("to", parse_moment(until))
    schedule, placed = open_schedules(session).backfill(schedule_id, first, last)
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
    counted = ", ".join(f"{counts[outcome]:,} {text}" for outcome, text in words.items() if counts[outcome])
    session.out.line(f"{schedule.id}: {counted}. See: {hint('schedule', 'history', schedule.id)}")


@click.command(
    "trust-clock",
    cls=OperatorCommand,
    examples=("craftcore schedule trust-clock",),
    see=("craftcore schedule reanchor", "craftcore status", "docs/how-to/schedule-work.md"),
)
@click.pass_obj
def trust_clock(session: Session, /) -> None:
    """Say that the clock is right, so that held schedules go on.

    They are held while the clock shows more than 3 h less than it did before. Look at `date` first.

    Work that waits for a time that was set while the clock was ahead is then due by its own delay.
    """
    core = session.core()
    with session.write(core) as (tx, scope):
        held_until, ahead = schedules.trust_clock(tx, scope)
        now = tx.now
    if session.json:
        session.out.document(
            add_iso_times({"released": held_until is not None, "held_until": held_until, "ahead": ahead})
        )
        return
    if held_until is None:
        session.out.line(f"schedules did not wait for the clock; it shows {clock_time(now)}")
    else:
        session.out.line(f"schedules go on at {clock_time(now)}; they waited for {clock_time(held_until)}")
    if ahead:
        waiting = "waits" if len(ahead) == 1 else "wait"
        session.out.line(f"{', '.join(ahead)} {waiting} anyway: accounted for beyond now", style="warn")
        session.out.line(f"to let them go on from now: {hint('schedule', 'reanchor')}", style="warn")


@click.command(
    "reanchor",
    cls=OperatorCommand,
    exits={PROBLEM: "one that is given is not ahead of the clock; nothing was changed", NO_SUCH: None},
    examples=("craftcore schedule reanchor", "craftcore schedule reanchor ahead"),
    see=("craftcore schedule trust-clock", "craftcore schedule why", "docs/how-to/schedule-work.md"),
)
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.pass_obj
def reanchor(session: Session, /, ids: tuple[str, ...]) -> None:
    """Let schedules that are ahead of the clock go on from now.

    A wrong clock has been here and took them beyond now; they would wait until it is that late again. All such, unless
    IDs are given.
    """
    core = session.core()
    with session.write(core) as (tx, scope):
        done = schedules.reanchor(tx, scope, core, [resolve_schedule_id(tx, given) for given in ids])
        now = tx.now
    if session.json:
        session.out.document([schedule_document(schedule) for schedule in done])
        return
    for schedule in done:
        session.out.line(f"{schedule.id} goes on from now. {next_occurrence_text(schedule, now)}")
    if not done:
        session.out.line("no schedule is ahead of the clock; nothing was changed")
