"""`craftcore inbox`: what people are asked, and their answers."""

from __future__ import annotations

import click

from craftcore.activities.model import Decision
from craftcore.cli.activity.calls_on_doubts import open_doubts
from craftcore.cli.activity.resolve import say_decided
from craftcore.cli.base import CommandGroup, OnCluster, OperatorCommand
from craftcore.cli.damaged_list import say_damaged
from craftcore.cli.exit_codes import NO_SUCH, OF_A_LIST, PROBLEM
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.session import Session
from craftcore.cli.task.question_card import print_question
from craftcore.diagnostics.documents import question_document
from craftcore.diagnostics.text.question_text import SAID_MAX
from craftcore.serialization.display import shorten
from craftcore.serialization.texts import NOTE_MAX
from craftcore.storage.damaged_rows import Damaged, list_damaged, row_document


@click.group(cls=CommandGroup, on_cluster="Questions of tasks on a cluster to people: list, answer.")
def inbox() -> None:
    """Questions of tasks to people: list, answer."""


@inbox.command(
    "list",
    exits=OF_A_LIST,
    examples=("craftcore inbox list",),
    see=("craftcore inbox answer", "craftcore activity list", "docs/reference/cli.md#tasks-and-the-inbox"),
    on_cluster=OnCluster(remark="It needs no worker, and may lag a second."),
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, limit: int) -> int:
    """List the open questions, oldest first, and how to answer each.

    Each shows its task, its deadline, the default after that, and the command for each answer.
    """
    found, has_more, now = open_doubts(session).list_questions(limit)
    if has_more:
        session.out.print_note(f"these are the first {limit:,}, and there are more: --limit")
    damaged = list_damaged(one if isinstance(one, Damaged) else one.task for one in found)
    if session.json:
        session.out.document([row_document(one, lambda asked: question_document(asked.question)) for one in found])
        return say_damaged(session, damaged)
    for number, one in enumerate(found):
        if number:
            session.out.line()
        if isinstance(one, Damaged):
            session.out.line(f"question {one.id} is damaged: {one.wrong}", style="bold")
        else:
            print_question(session, one.question, one.task, now)
    if not found:
        session.out.line("no open questions")
    return say_damaged(session, damaged)


@inbox.command(
    "answer",
    cls=OperatorCommand,
    exits={PROBLEM: "too late: it was answered before, or it has expired", NO_SUCH: None},
    examples=(
        "craftcore inbox answer 01a1fdfa send",
        'craftcore inbox answer 01a1fdfa hold --note "after the holidays"',
    ),
    see=("craftcore inbox list", "craftcore activity resolve", "docs/reference/cli.md#tasks-and-the-inbox"),
    on_cluster=OnCluster(
        help="""Answer a question, once.

        CHOICE is one of its options, or any text where it has none. A worker takes the answer; without one the command
        ends with 75 after some seconds. The answer may be applied later then: look before you send it again.
        """,
        exits={PROBLEM: "too late: it was answered before, or is not open any more"},
        examples=(
            "craftcore inbox answer 01a1fdfa.1 send",
            'craftcore inbox answer 01a1fdfa.1 hold --note "after the holidays"',
        ),
    ),
)
@click.argument("question_id", metavar="ID")
@click.argument("choice", metavar="CHOICE")
@click.option("--reference", metavar="REF", help="The provider's, for an irreversible action that happened.")
@click.option("--note", metavar="TEXT", help="Why; stored with the answer.")
@click.pass_obj
def answer(session: Session, /, question_id: str, choice: str, reference: str | None, note: str | None) -> None:
    """Answer a question, once.

    CHOICE is one of its options, or any text where it has none. The row keeps who answered, and the task goes on with
    the answer.
    """
    if note is not None and not note.strip():
        refuse_bad_text("note", note, NOTE_MAX)
    answered, task, about = open_doubts(session).answer(question_id, choice, note=note, reference=reference)
    if session.json:
        session.out.document(question_document(answered))
        return
    if about is not None:
        say_decided(session, about, Decision(choice), task)
    else:
        becomes = "goes on" if task.status.is_live else f"is {task.status}"
        session.out.line(f'answered with "{shorten(choice, SAID_MAX)}"; task {task.id} of {task.workflow} {becomes}')
    if task.status.is_live:
        session.say_without_daemon()
