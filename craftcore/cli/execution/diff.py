"""`craftcore diff`: what two records say differently."""

from __future__ import annotations

from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.execution.source import is_file, load_record
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.session import Session
from craftcore.diagnostics.text.printable import Verbatim, show_json
from craftcore.executions.document.diff import ABSENT, Difference, differences
from craftcore.executions.record import ExecutionRecord, faults
from craftcore.executions.replay import refusal
from craftcore.serialization.plurals import format_count as of_events
from craftcore.serialization.time_text import add_iso_times, clock_time

SHOWN = 40
"""Differences that are shown to people; --json has all of them."""

TEXT_MAX = 48
BEFORE = 16
"""Characters of a long text that are shown, and of those how many before the first that differs."""


@click.command(
    cls=Command,
    touches="Only reads, also files that were exported, and may run beside a daemon.",
    exits={PROBLEM: "they differ", NO_SUCH: "no such id, or no such database"},
    examples=("craftcore diff exec-01a1fdfa exec-01a1fdfb", "craftcore diff exec-01a1fdfa ./record.json"),
    see=("craftcore inspect", "craftcore export", "docs/reference/cli.md#executions"),
)
@click.argument("left", metavar="A")
@click.argument("right", metavar="B")
@click.pass_obj
def diff(session: Session, /, left: str, right: str) -> int:
    """Compare two records.

    A and B are ids, which may be shortened, or exported files (with a / in the name, or ending in .json). Compared are
    status, error, workflow, routing, response, envelope, and the events one by one. Ids, times, latencies and the
    number of the attempt always differ and are not shown; --json lists them as "own".
    """
    records = load_record(session, left), load_record(session, right)
    found = differences(*records)
    counted = [one for one in found if not one.is_own]
    if session.json:
        document = {
            "same": not counted,
            "a": _difference_documents(left, records[0]),
            "b": _difference_documents(right, records[1]),
        }
        session.out.document({**document, "differences": [_difference_document(one) for one in found]})
    else:
        _print(session, records, counted, len(found) - len(counted))
    return 1 if counted else 0


def _print(
    session: Session, records: tuple[ExecutionRecord, ExecutionRecord], counted: list[Difference], own: int
) -> None:
    out = session.out
    for letter, record in zip("AB", records, strict=True):
        came_to = f"{record.status} {record.error_code}" if record.error_code else record.status
        out.line(f"{letter}  {record.id}  {clock_time(record.created_at)}  {came_to}", style="bold")
        for fault in faults(record):
            out.line(f"   {fault}", style="bad")
    out.line()
    if not counted:
        how_many = of_events(len(records[0].events), "event")
        out.line(f"they say the same: status, response, envelope, routing and {how_many}", style="good")
    else:
        out.table(("what", "A", "B"), [_cells(one) for one in counted[:SHOWN]])
    if len(counted) > SHOWN:
        out.line(f"and {len(counted) - SHOWN:,} more; --json has all of them")
    elif own:
        out.line()
        out.line("beside what every record has of its own: ids, times, latencies; --json has those, too", style="dim")


def _cells(one: Difference) -> tuple[str, str, str]:
    left, right = _show_value(one.left), _show_value(one.right)
    same = next(
        (place for place, pair in enumerate(zip(left, right, strict=False)) if pair[0] != pair[1]),
        min(len(left), len(right)),
    )
    return one.path, _excerpt(left, same), _excerpt(right, same)


def _excerpt(text: str, place: int) -> str:
    """Return the part of a text around `place`."""
    start = 0 if len(text) <= TEXT_MAX or place <= BEFORE else place - BEFORE
    part = f"{'…' if start else ''}{text[start : start + TEXT_MAX]}{'…' if start + TEXT_MAX < len(text) else ''}"
    return Verbatim(part) if isinstance(text, Verbatim) else part


def _show_value(value: Any) -> str:
    if value is ABSENT:
        return "(not there)"
    return value if isinstance(value, str) and value else show_json(value, compact=True)


def _difference_documents(given: str, record: ExecutionRecord) -> dict[str, Any]:
    reason = refusal(record)
    return add_iso_times(
        {
            "execution_id": record.id,
            "file": given if is_file(given) else None,
            "created_at": record.created_at,
            "status": str(record.status),
            "replayable": reason is None,
            "replayable_reason": None if reason is None else str(reason),
            "faults": faults(record),
        }
    )


def _difference_document(one: Difference) -> dict[str, Any]:
    """Return a difference without `a` or `b` when that value is missing."""
    sides = {side: value for side, value in (("a", one.left), ("b", one.right)) if value is not ABSENT}
    return {"path": one.path, **sides, "own": one.is_own}
