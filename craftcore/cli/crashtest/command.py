"""`craftcore crashtest`: kill an app at each point of a workflow, and see whether it keeps its promises."""

from __future__ import annotations

import click

from craftcore.cli.base import WriteCommand
from craftcore.cli.exit_codes import PROBLEM, SETTINGS
from craftcore.cli.payload import read_payload
from craftcore.cli.progress import Progress
from craftcore.cli.session import Session
from craftcore.serialization.time_text import parse_duration
from craftcore.triggers.model import TriggerSpec


@click.command(
    cls=WriteCommand,
    touches="Works in a temporary directory that it removes; it never touches your databases, and calls no provider of "
    "an irreversible action. Steps run for real.",
    exits={PROBLEM: "a promise was broken", SETTINGS: "the app cannot be imported"},
    examples=(
        "craftcore crashtest app:app --emit renew --advance 14d --answer Renew=yes",
        "craftcore crashtest app:app --emit order --provider pay:resets_after=1",
        "craftcore crashtest app:app --emit chat --until-waiting",
    ),
    see=("craftcore demo", "docs/how-to/test-workflows.md"),
)
@click.argument("app", metavar="MODULE:APP")
@click.option("--emit", "workflow", metavar="WORKFLOW", required=True, help="The workflow that is run and killed.")
@click.option("--payload", metavar="JSON|@FILE|-", default="{}", help="Its keyword arguments, as a JSON object.")
@click.option("--advance", metavar="DURATION", help="Let virtual time pass before questions are answered.")
@click.option(
    "--answer", "answers", metavar="TEXT=CHOICE", multiple=True, help="Answer the question that contains TEXT."
)
@click.option(
    "--provider",
    "providers",
    metavar="ACTION[:OPTION=JSON]",
    multiple=True,
    help="A stand-in for an action, with returns, dedupes, delay, fails_before, resets_before, resets_after or "
    "acts_late. An irreversible action has one anyway.",
)
@click.option(
    "--until-waiting",
    is_flag=True,
    help="Each run ends when the task waits for an event, a message or an answer, and not with its result.",
)
@click.option("--pairs", is_flag=True, help="Try a second crash after each first one.")
@click.option("--at", metavar="POINTS", help="Only this crash, as the report names it: one point for each life.")
@click.pass_obj
def crashtest(
    session: Session,
    /,
    app: str,
    workflow: str,
    payload: str,
    advance: str | None,
    answers: tuple[str, ...],
    providers: tuple[str, ...],
    until_waiting: bool,
    pairs: bool,
    at: str | None,
) -> int:
    """Kill a workflow at each of its points, and check it.

    It runs once without a crash, which finds the points: both edges of each commit, step and provider call. Then it
    runs once for each point. SIGKILL ends its process there, and a new process goes on. The work must end as without a
    crash, no irreversible action may have its effect twice, and the ledger must be right.

    Doubts of irreversible actions are answered truthfully. A step whose function runs again is listed, because its
    author must know that it bears this.
    """
    from craftcore.cli.crashtest.scenario import make_scenario, read_answer, read_provider
    from craftcore.daemon.app_loader import import_app
    from craftcore.testing.crash_life import Story
    from craftcore.testing.crash_point import parse_points
    from craftcore.testing.matrix import require_app, run_crash_matrix

    given = read_payload(payload)
    choices = [read_answer(text) for text in answers]
    stand_ins = [read_provider(text) for text in providers]
    points = None if at is None else parse_points(at)
    spec = session.core().triggers.accept(TriggerSpec(workflow=workflow, payload=given))
    seconds = None if advance is None else parse_duration(advance)
    found = import_app(app)
    found.check(spec)
    scenario = make_scenario(found, workflow, given, seconds, choices, stand_ins, until_waiting=until_waiting)
    progress = Progress("killing", quiet=session.json)
    report = run_crash_matrix(
        Story(app=require_app(found), scenario=scenario),
        pairs=pairs,
        at=points,
        progress=lambda done, known: progress(f"{done} of {known}"),
    )
    progress.finish()
    if session.json:
        session.out.document(report.document())
        return PROBLEM if report.broken else 0
    session.out.table(
        ("crash at", "where", "pairs", "promises"),
        [(row.point, row.where or None, row.pairs or None, row.verdict) for row in report.rows()],
    )
    session.out.line()
    for line in report.failures():
        session.out.line(line)
    if report.repeated_steps:
        names = ", ".join(report.repeated_steps)
        session.out.line(f"Steps that ran again after a crash: {names}. Use an action for what must not happen twice.")
    session.out.line(report.summary(), style="bad" if report.broken else "good")
    return PROBLEM if report.broken else 0
