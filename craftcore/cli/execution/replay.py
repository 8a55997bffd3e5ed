"""`craftcore replay`: what an attempt came to, from its record. Nothing is run, and nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import click

from craftcore.cli.base import Command, OnCluster
from craftcore.cli.execution.source import envelope_in, is_file, read_record, record_in
from craftcore.cli.exit_codes import NO_SUCH, NOT_REPLAYABLE
from craftcore.cli.lookup import resolve_execution_id
from craftcore.cli.session import Session
from craftcore.errors import CraftcoreError, RowInvalid
from craftcore.executions import replay as rule
from craftcore.executions.replay import ReplayResult
from craftcore.replay_engine import ReplayEngine


@click.command(
    cls=Command,
    touches="Only reads, also files that were exported, and may run beside a daemon.",
    exits={NO_SUCH: None, NOT_REPLAYABLE: None},
    examples=(
        "craftcore replay exec-01a1fdfa",
        "craftcore replay ./record.json",
        "craftcore replay exec-01a1fdfa --force",
    ),
    see=("craftcore inspect", "craftcore export", "craftcore invalidate", "docs/reference/cli.md#replay"),
    on_cluster=OnCluster(
        help="""Return the recorded result from the history; nothing is run.

        It prints what `craftcore replay` prints. For several it prints a list, and the exit code is the highest of
        theirs.
        """,
        examples=("craftcore replay 01a1fdfa", "craftcore replay 01a1fdfa --force"),
        see=("craftcore inspect", "docs/reference/cli.md#replay"),
    ),
)
@click.argument("those", metavar="ID|FILE...", nargs=-1, required=True)
@click.option("--verify-envelope", "envelope_file", metavar="FILE", help="Only if the record is of this envelope.")
@click.option("--force", is_flag=True, help="Give what there is of one that cannot be replayed, with warnings.")
@click.pass_obj
def replay(session: Session, /, those: tuple[str, ...], envelope_file: str | None, force: bool) -> int:
    """Return the recorded result; nothing is run.

    Prints {"status", "payload", "error", "metadata", "from_replay", "original_execution_id", "original_timestamp",
    "warnings"}; of an attempt that failed, its error. An exported FILE has a / in its name, or ends in .json.

    For several it prints a list. A refused one is {"given", "refused": {"code", "message", …}} in it, and does not stop
    the others. The exit code is the highest of theirs.
    """
    envelope = None if envelope_file is None else envelope_in(envelope_file)
    if len(those) == 1:
        result = _replay(session, those[0], envelope, force)
        session.out.document(_result_document(result))
        _warn(session, result)
        return 0
    results: list[dict[str, Any]] = []
    code = 0
    for given in those:
        try:
            result = _replay(session, given, envelope, force)
            results.append(_result_document(result))
            _warn(session, result)
        except CraftcoreError as error:
            results.append({"given": given, "refused": _refusal(error)})
            code = max(code, error.exit_code)
            session.out.print_note(error.message)
    session.out.document(results)
    return code


def _replay(session: Session, given: str, envelope: Mapping[str, Any] | None, force: bool) -> ReplayResult:
    if is_file(given):
        return rule.replay(record_in(given), envelope, force=force)
    if session.cluster is not None:
        return rule.replay(read_record(session, given), envelope, force=force)
    core = session.core()
    try:
        with core.reading() as reader:
            execution_id = resolve_execution_id(reader, given)
    except UnicodeDecodeError as error:
        raise RowInvalid(f"{given}: a damaged row has an id that is not UTF-8") from error
    return ReplayEngine(core).replay(execution_id, envelope, force=force)


def _result_document(result: ReplayResult) -> dict[str, Any]:
    """Return the result; the text of the response would say the same once more."""
    return {field.name: getattr(result, field.name) for field in fields(result) if field.name != "response_json"}


def _refusal(error: CraftcoreError) -> dict[str, Any]:
    return {**error.details, "code": error.name, "message": error.message, "exit_code": error.exit_code}


def _warn(session: Session, result: ReplayResult) -> None:
    if result.warnings:
        session.out.print_note(f"{result.original_execution_id}: {'. '.join(result.warnings)}")
