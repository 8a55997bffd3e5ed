"""`craftcore inspect`: what was seen of an attempt, of many, and what to do about one that did not end well."""

from __future__ import annotations

import re
from typing import Any

import click

from craftcore.cli.base import Command, OnCluster
from craftcore.cli.damaged_list import RowList, print_list, say_damaged
from craftcore.cli.execution.source import read_record
from craftcore.cli.execution.view import (
    LIST_COLUMNS,
    record_row,
    say_statistics,
    statistics_document,
    summary_document,
)
from craftcore.cli.exit_codes import BAD_FILTER, OF_A_LIST
from craftcore.cli.lookup import parse_choice, parse_time_bound, require_text
from craftcore.cli.program_output import print_output, split_output
from craftcore.cli.session import Session, finding_text
from craftcore.cli.short_ids import count_digits
from craftcore.diagnostics.records.record_advice import read_advice
from craftcore.diagnostics.records.record_documents import envelope_document, event_document, record_document
from craftcore.diagnostics.text.command_text import paste
from craftcore.errors import ErrorCode, FilterInvalid
from craftcore.executions.listing_store import ExecutionListStore, RecordFilter
from craftcore.executions.model import Status
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.statistics import statistics
from craftcore.serialization.display import json_or_text
from craftcore.storage.damaged_rows import list_damaged, omit_damaged
from craftcore.storage.transaction import Reader
from craftcore.triggers.workflow_names import bare_name

LIMIT_MAX = 100_000
HASH = re.compile(r"sha256:[0-9a-f]{64}")
FILTERS = ("status", "error_code", "workflow", "since", "until", "envelope_hash")
LISTED, COUNTED = 50, 10_000
"""How many records are listed, and how many counted, by default."""


@click.command(
    "inspect",
    cls=Command,
    exits={**OF_A_LIST, BAD_FILTER: None},
    examples=(
        "craftcore inspect exec-01a1fdfa --events",
        "craftcore inspect --list --status error --since 2026-11-21T00:00Z",
        "craftcore inspect --stats --workflow pay",
    ),
    see=(
        "craftcore replay",
        "craftcore execution retry",
        "craftcore task events",
        "docs/explanation/records-and-integrity.md",
    ),
    on_cluster=OnCluster(
        help="""Show one execution as JSON: an entry of a turn, from the history.

        ID is exec-TASK.NUMBER, as `task show` lists them, or a task for its last one. A history has no hash chain.
        """,
        without=("execution_id", "listed", "counted", "limit", *FILTERS, BAD_FILTER),
        params=(click.Argument(["execution_id"], metavar="ID"),),
        examples=(
            "craftcore inspect 01a1fdfa --events",
            "craftcore inspect exec-01a1fdfa-4600-7008-9f39-0b2018072e8c.1",
        ),
        see=("craftcore replay", "craftcore task events"),
    ),
)
@click.argument("execution_id", metavar="[ID]", required=False)
@click.option("--list", "listed", is_flag=True, help="The newest records, newest first.")
@click.option("--stats", "counted", is_flag=True, help="Counts and latencies of the newest records.")
@click.option("--status", metavar="STATUS", help=f"Only these: {', '.join(Status)}.")
@click.option("--error-code", metavar="CODE", help="Only what failed with it.")
@click.option("--workflow", metavar="NAME", type=bare_name, help="Only of this workflow.")
@click.option("--since", metavar="TIME", help="Begun from then on.")
@click.option("--until", metavar="TIME", help="Begun before then.")
@click.option("--envelope-hash", metavar="HASH", help="Only of exactly this envelope: sha256:….")
@click.option("--limit", type=click.IntRange(1, LIMIT_MAX), help=f"How many at most: {LISTED}, of --stats {COUNTED:,}.")
@click.option("--events", "with_events", is_flag=True, help="With ID: also its events.")
@click.option("--envelope", "with_envelope", is_flag=True, help="With ID: also the envelope of the request.")
@click.option("--output", "only_output", is_flag=True, help="With ID: only the output of its program, as text.")
@click.pass_obj
def inspect(
    session: Session,
    /,
    execution_id: str | None,
    with_events: bool,
    with_envelope: bool,
    only_output: bool,
    listed: bool = False,
    counted: bool = False,
    limit: int | None = None,
    **given: str | None,
) -> int | None:
    """Show one execution as JSON, the newest ones, or their counts.

    An execution is the record of one attempt; give its ID, --list or --stats. For an execution that did not end well,
    the document has a recommendation, with commands to paste.
    """
    if (execution_id is not None) + listed + counted != 1:
        raise click.UsageError("give one of ID, --list and --stats")
    if execution_id is not None:
        if limit is not None or any(value is not None for value in given.values()):
            raise click.UsageError("filters and --limit belong to --list and --stats")
        if only_output:
            _print_output(session, execution_id)
            return None
        _print_record(session, execution_id, with_events=with_events, with_envelope=with_envelope)
        return None
    if with_events or with_envelope or only_output:
        raise click.UsageError("--events, --envelope and --output belong to an ID")
    limit = limit or (LISTED if listed else COUNTED)
    with session.core().reading() as reader:
        found = ExecutionListStore().list_newest(reader, limit, _parse_filter(reader, given))
        digits = count_digits(reader)
    if listed:
        rows = RowList(LIST_COLUMNS, found, document_of=summary_document, cells=record_row, digits=digits)
        return print_list(session, rows)
    many = statistics(omit_damaged(found))
    if session.json:
        session.out.document(statistics_document(many, limit))
    else:
        say_statistics(session.out, many, limit)
    return say_damaged(session, list_damaged(found))


def _print_record(session: Session, given: str, *, with_events: bool, with_envelope: bool) -> None:
    record = read_record(session, given)
    document = record_document(record)
    if session.cluster is None:
        document["recommendation"] = _read_recommendation(session, record)
    if with_events:
        document["events"] = [event_document(event) for event in record.events]
    if with_envelope:
        document["envelope"] = envelope_document(record)
    session.out.document(document)


def _read_recommendation(session: Session, record: ExecutionRecord) -> dict[str, Any]:
    core = session.core()
    with core.reading() as reader:
        weight = core.config.triggers.priority_weight
        advice = read_advice(reader, core.database.path, record, core.clock.now(), weight=weight)
    found = advice.recommendation
    return {
        "state": found.state,
        "text": "; ".join(map(finding_text, advice.reasons)) or found.text,
        "commands": [paste(*session.words(*words)) for words in found.commands],
    }


def _print_output(session: Session, given: str) -> None:
    _, texts = split_output(json_or_text(read_record(session, given).response_json))
    if session.json:
        session.out.document(texts)
    elif texts:
        print_output(session.out, texts)
    else:
        session.out.line("no output of a program is recorded")


def _parse_filter(reader: Reader, given: dict[str, Any]) -> RecordFilter:
    """Return the filters as they are stored. Raises FilterInvalid, naming those there are."""
    for field in ("workflow", "envelope_hash"):
        if given[field] is not None:
            require_text(field.replace("_", " "), given[field])
    return RecordFilter(
        status=parse_choice("status", given["status"], Status),
        error_code=_error_code(reader, given["error_code"]),
        workflow=given["workflow"],
        since=parse_time_bound("since", given["since"]),
        until=parse_time_bound("until", given["until"]),
        envelope_hash=_hash(given["envelope_hash"]),
    )


def _hash(given: str | None) -> str | None:
    if given is None or HASH.fullmatch(given):
        return given
    raise FilterInvalid(
        f"envelope hash {given!r:.80} is not a hash; give sha256: and its 64 digits, as inspect ID shows it"
    )


def _error_code(reader: Reader, code: str | None) -> str | None:
    """Return an error code of craftcore, in any case, or one of a user's workflow."""
    if code is None or code.upper() in list(ErrorCode):
        return None if code is None else code.upper()
    theirs = ExecutionListStore().error_codes(reader) - set(ErrorCode)
    if code in theirs:
        return code
    those = ", ".join([*ErrorCode, *sorted(theirs)])
    raise FilterInvalid(f"error code {code!r:.80} is unknown; it must be one of {those}")
