"""`craftcore activity resolve`: the decision of an operator about an unknown outcome."""

from __future__ import annotations

import click

from craftcore.activities.model import Activity, Decision
from craftcore.cli.activity.calls_on_doubts import open_doubts
from craftcore.cli.base import OnCluster, OperatorCommand
from craftcore.cli.confirm import confirm_by_person
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.session import Session
from craftcore.diagnostics.activity_details import task_summary
from craftcore.diagnostics.documents import activity_document
from craftcore.diagnostics.text.activity_text import confirmation_text, decision_result, retry_command
from craftcore.log_format import escape_control
from craftcore.serialization.texts import NOTE_MAX
from craftcore.tasks.model import Task

NO_REFERENCE = "\0"
"""The value of `--happened` without a reference. No argument of a process can contain this character."""


@click.command(
    "resolve",
    cls=OperatorCommand,
    exits={PROBLEM: "it is not in doubt, or has moved on meanwhile", NO_SUCH: None},
    examples=(
        'craftcore activity resolve 01a1fdfa --happened ref-9 --note "seen in the bank"',
        "craftcore activity resolve 01a1fdfa --resend",
        "craftcore activity resolve 01a1fdfa --give-up",
    ),
    see=("craftcore activity show", "craftcore inbox answer", "docs/how-to/resolve-unknown-activities.md"),
    on_cluster=OnCluster(
        help="""Decide about an action whose outcome is unknown.

        The open question about it is answered, and a waiting task goes on. A worker takes the decision; without one the
        command ends with 75 after some seconds, and the decision may be applied later. Give one of the three.
        """,
        examples=(
            'craftcore activity resolve KEY --happened ref-9 --note "seen"',
            "craftcore activity resolve KEY --resend",
            "craftcore activity resolve KEY --give-up",
        ),
    ),
)
@click.argument("key", metavar="KEY")
@click.option(
    "--happened", metavar="[REF]", is_flag=False, flag_value=NO_REFERENCE, help="It did; the provider's reference."
)
@click.option("--resend", is_flag=True, help="It did not, or a second call does no harm: call it again.")
@click.option("--give-up", is_flag=True, help="The outcome stays unknown: leave it, and let its task fail.")
@click.option("--note", metavar="TEXT", help="Why; stored with the decision.")
@click.option("--yes", is_flag=True, help="Do not ask; without a terminal nothing is asked.")
@click.pass_obj
def resolve(
    session: Session, /, key: str, happened: str | None, resend: bool, give_up: bool, note: str | None, yes: bool
) -> None:
    """Decide about an action whose outcome is unknown.

    An UNKNOWN action can be resolved in each of the three ways. A FAILED action, which certainly did not happen, can be
    sent again. The open question about it is answered, and a waiting task goes on. Give one of the three.
    """
    options = {Decision.HAPPENED: happened is not None, Decision.RESEND: resend, Decision.GIVE_UP: give_up}
    chosen = [decision for decision, is_chosen in options.items() if is_chosen]
    if len(chosen) != 1:
        raise click.UsageError("give one of --happened, --resend and --give-up")
    [decision] = chosen
    reference = None if happened == NO_REFERENCE else happened
    refuse_bad_text("note", note, NOTE_MAX)
    doubts = open_doubts(session)
    seen = doubts.find_activity(key)
    confirm_by_person(yes, escape_control(confirmation_text(seen, decision)))
    after, task = doubts.decide(seen, decision, note=note, reference=reference)
    if session.json:
        session.out.document({**activity_document(after), "task": task_summary(task)})
    else:
        print_decision(session, after, decision, task)
        if task.status.is_live:
            session.say_without_daemon()


def print_decision(session: Session, after: Activity, decision: Decision, task: Task) -> None:
    """Print the effect of a decision, and the command that runs a failed task again, up to its action."""
    session.out.line(decision_result(after, decision, task))
    if again := retry_command(decision, task):
        session.suggest(*again)
