"""`craftcore temporal inbox`: what people are asked by the tasks on a cluster, and their answers."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from craftcore.activities.model import Decision
from craftcore.audit.caller import actor
from craftcore.cli.base import CommandGroup
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.session import Session
from craftcore.cli.task.question_card import print_question
from craftcore.cli.temporal.cluster_calls import call_cluster, call_operations, make_suggest
from craftcore.cli.temporal.cluster_options import ClusterCommand, ClusterWriteCommand
from craftcore.clock import SystemClock
from craftcore.diagnostics.documents import question_document
from craftcore.diagnostics.text.activity_text import decision_result
from craftcore.diagnostics.text.question_text import SAID_MAX
from craftcore.errors import InvalidInput
from craftcore.serialization.display import shorten
from craftcore.serialization.texts import NOTE_MAX
from craftcore.tasks.model import Question, QuestionStatus, Task

if TYPE_CHECKING:
    from craftcore.temporal.records.recorded_task import RecordedTask
    from craftcore.temporal.task_operations import TaskOperations
    from craftcore.temporal.temporal_client import TemporalClient

PAGE = "docs/how-to/run-on-temporal.md"


@click.group(cls=CommandGroup)
def inbox() -> None:
    """Questions of tasks on a cluster to people: list, answer."""


@inbox.command(
    "list",
    cls=ClusterCommand,
    examples=("craftcore temporal inbox list",),
    see=("craftcore temporal inbox answer", "craftcore temporal activity list", PAGE),
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many tasks at most.")
@click.pass_obj
def list_(session: Session, /, limit: int) -> None:
    """List the open questions, oldest first, and how to answer each.

    Each shows its task, its deadline, the default after that, and the command for each answer. It needs no worker, and
    may lag a second.
    """

    async def read(client: TemporalClient) -> list[tuple[Question, Task]]:
        from craftcore.temporal.records.open_matters import list_asking
        from craftcore.temporal.records.task_records import list_questions

        tasks = await list_asking(client.connection, limit)
        return [(question, one.task) for one in tasks for question in list_questions(one)]

    found = sorted(call_cluster(session, read), key=lambda pair: pair[0].created_at)
    if session.json:
        session.out.document([question_document(question) for question, _ in found])
        return
    now, suggest = SystemClock().now(), make_suggest(session)
    for number, (question, task) in enumerate(found):
        if number:
            session.out.line()
        print_question(session, question, task, now, suggest)
    if not found:
        session.out.line("no open questions")


@inbox.command(
    "answer",
    cls=ClusterWriteCommand,
    exits={PROBLEM: "too late: it was answered before, or is not open any more", NO_SUCH: "no such question"},
    examples=(
        "craftcore temporal inbox answer 01a1fdfa.1 send",
        'craftcore temporal inbox answer 01a1fdfa.1 hold --note "after the holidays"',
    ),
    see=("craftcore temporal inbox list", "craftcore temporal activity resolve", PAGE),
)
@click.argument("question_id", metavar="ID")
@click.argument("choice", metavar="CHOICE")
@click.option("--reference", metavar="REF", help="The provider's, for an irreversible action that happened.")
@click.option("--note", metavar="TEXT", help="Why; stored with the answer.")
@click.pass_obj
def answer(session: Session, /, question_id: str, choice: str, reference: str | None, note: str | None) -> None:
    """Answer a question, once.

    CHOICE is one of its options, or any text where it has none. A worker takes the answer; without one the command ends
    with 75 after some seconds. The answer may be applied later then: look before you send it again.
    """
    refuse_bad_text("note", note, NOTE_MAX)
    by = actor().text

    async def send(operations: TaskOperations) -> tuple[Question, RecordedTask]:
        question = await operations.find_question(question_id)
        if question.options is not None and choice not in question.options:
            raise InvalidInput(f"{choice!r:.200} is not one of the options: {', '.join(question.options)}")
        await operations.answer(question.id, choice, by=by, note=note, reference=reference)
        after = replace(
            question,
            status=QuestionStatus.ANSWERED,
            answer=choice,
            note=note,
            answered_by=by,
            closed_at=SystemClock().now(),
        )
        return after, await operations.find(question.task_id)

    answered, found = call_operations(session, send)
    if session.json:
        session.out.document(question_document(answered))
        return
    about = None if answered.activity_key is None or found.state is None else found.state.acts[answered.activity_key]
    if about is not None:
        session.out.line(decision_result(about, Decision(choice), found.task))
        return
    becomes = "goes on" if found.task.status.is_live else f"is {found.task.status}"
    session.out.line(f'answered with "{shorten(choice, SAID_MAX)}"; task {found.id} of {answered.workflow} {becomes}')
