"""`craftcore inbox`: what people are asked, and their answers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import click

from craftcore.activities.model import Decision
from craftcore.cli.activity.calls_on_doubts import open_doubts
from craftcore.cli.activity.resolve import print_decision
from craftcore.cli.base import CommandGroup, OnCluster, OperatorCommand
from craftcore.cli.damaged_list import RowList, print_list, say_damaged
from craftcore.cli.exit_codes import NO_SUCH, OF_A_LIST, PROBLEM
from craftcore.cli.lookup import refuse_bad_text
from craftcore.cli.session import Session
from craftcore.diagnostics.documents import question_document
from craftcore.diagnostics.text.printable import Verbatim
from craftcore.diagnostics.text.question_text import SAID_MAX, answer_deadline_text
from craftcore.errors import InvalidInput
from craftcore.serialization.display import shorten
from craftcore.serialization.texts import NOTE_MAX
from craftcore.serialization.time_text import relative_text
from craftcore.storage.damaged_rows import Damaged, list_damaged, map_rows, omit_damaged
from craftcore.tasks.answer_form import describe_field, describe_form, read_fields
from craftcore.tasks.model import Question, QuestionKind, Task

OPTIONS_SHOWN = 10
"""Up to this many options have a command each, if all of them are short."""


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
    tasks = [one.task for one in omit_damaged(found)]
    if session.json:
        rows = RowList(
            (), found, document_of=lambda one: question_document(one.question), cells=lambda one: (), beside=tasks
        )
        return print_list(session, rows)
    damaged = list_damaged(tasks)
    for number, one in enumerate(found):
        if number:
            session.out.line()
        for wrong in list_damaged(map_rows([one], lambda one: _print_question(session, one.question, one.task, now))):
            session.out.line(f"question {wrong.id} is damaged: {wrong.wrong}", style="bold")
            damaged.append(wrong)
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

        CHOICE is one of its options, or any text where it has none. For a form it is JSON, or each field is given with
        --field. A worker takes the answer; without one the command
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
@click.argument("choice", metavar="[CHOICE]", required=False)
@click.option("--field", "fields", metavar="NAME=VALUE", multiple=True, help="A field of its form; once for each.")
@click.option("--reference", metavar="REF", help="The provider's, for an irreversible action that happened.")
@click.option("--note", metavar="TEXT", help="Why; stored with the answer.")
@click.pass_obj
def answer(
    session: Session,
    /,
    question_id: str,
    choice: str | None,
    fields: tuple[str, ...],
    reference: str | None,
    note: str | None,
) -> None:
    """Answer a question, once.

    CHOICE is one of its options, or any text where it has none. For a form it is JSON, or each field is given with
    --field. The row keeps who answered, and the task goes on with the answer.
    """
    if note is not None and not note.strip():
        refuse_bad_text("note", note, NOTE_MAX)
    choose = partial(_choose, choice, fields)
    answered, task, about = open_doubts(session).answer(question_id, choose, note=note, reference=reference)
    if session.json:
        session.out.document(question_document(answered))
        return
    if about is not None:
        print_decision(session, about, Decision(choice or ""), task)
    else:
        becomes = "goes on" if task.status.is_live else f"is {task.status}"
        said = shorten(answered.answer or "", SAID_MAX)
        session.out.line(f'answered with "{said}"; task {task.id} of {task.workflow} {becomes}')
    if task.status.is_live:
        session.say_without_daemon()


def _choose(choice: str | None, fields: Sequence[str], question: Question) -> str:
    """Return the answer to a question. Raises InvalidInput when it is not given once."""
    form = question.form_json
    if fields and (choice is not None or form is None):
        refused = "give CHOICE or --field, not both" if form else f"question {question.id} takes no --field"
        raise InvalidInput(f"{refused}: {fields[0]!r:.80}")
    if fields:
        return read_fields(form or "", fields)
    if choice is not None:
        return choice
    if form is None:
        raise InvalidInput(f"the answer is missing: craftcore inbox answer {question.id} CHOICE")
    raise InvalidInput(f"give --field NAME=VALUE for each field of the form: {describe_form(json.loads(form))}")


def _print_question(session: Session, question: Question, task: Task | Damaged | None, now: float) -> None:
    """Print a question, and the command for each answer."""
    link = session.settings().web.link_question(question.id) if session.cluster is None else None
    out = session.out
    asks = "task" if question.kind is QuestionKind.ASK else "craftcore, about task"
    to = "" if question.addressee is None else f" {question.addressee}"
    asked = f"{asks} {question.task_id} of {question.workflow} asked{to} {relative_text(question.created_at, now)}:"
    out.line(asked, style="bold")
    out.quote(question.question)
    if not isinstance(task, Task):
        out.line("  its task is damaged; an answer is possible after a daemon has quarantined it")
        return
    if link is not None:
        out.line("  ", Verbatim(link))
    takes = " (happened takes --reference REF, the provider's)" if question.activity_key is not None else ""
    out.line(f"  {answer_deadline_text(question, task, now)}. To answer{takes}:")
    if question.form_json is not None:
        _suggest_fields(session, question.id, json.loads(question.form_json))
        return
    options = question.options or ("TEXT",)
    if len(options) > OPTIONS_SHOWN or max(map(len, options)) > SAID_MAX:
        for option in options:
            out.quote(option)
        options = ("CHOICE",)
    for option in options:
        escape = ("--",) if option.startswith("-") else ()
        session.suggest("inbox", "answer", question.id, *escape, option)
    if question.activity_key is not None:
        out.line("  All that is known of it:")
        session.suggest("activity", "show", question.activity_key)
    elif question.kind is QuestionKind.CONFLICT:
        out.line("  Its irreversible actions so far:")
        session.suggest("activity", "list", "--task", task.id)


def _suggest_fields(session: Session, question_id: str, form: Mapping[str, Any]) -> None:
    """Print each field of a form, and the command that gives them."""
    words = []
    for name, field in form["properties"].items():
        is_required = name in form["required"]
        session.out.quote(f"{name}: {describe_field(field)}{'' if is_required else ', may be left out'}")
        words += ["--field", f"{name}=VALUE"] if is_required or not form["required"] else []
    session.suggest("inbox", "answer", question_id, *words)
