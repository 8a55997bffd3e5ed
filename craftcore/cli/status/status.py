"""`craftcore status`: is it alive, does it move, and does it wait for a person?"""

from __future__ import annotations

from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.session import Session, finding_text, hint
from craftcore.cli.status.sections import print_doubt, print_schedules, print_tasks
from craftcore.diagnostics.health import verdict
from craftcore.diagnostics.status import Status, read_status
from craftcore.serialization.time_text import clock_time, format_span, relative_text
from craftcore.triggers.listing_store import LATELY


@click.command(
    cls=Command,
    examples=("craftcore status", "craftcore --db agent.db status --json"),
    exits={PROBLEM: "with --check: degraded or down", NO_SUCH: None},
    see=("craftcore doctor", "craftcore top", "craftcore trigger why", "docs/how-to/monitor.md"),
)
@click.option("--check", is_flag=True, help="Exit with 1 unless the verdict is healthy.")
@click.pass_obj
def status(session: Session, /, check: bool) -> int:
    """Show the health: healthy, degraded and why, or down.

    The first line is the verdict. Then what is due, running, cut off, dead or held; tasks; irreversible actions in
    doubt; schedules and the clock. The exit code is 0 whatever the verdict, but for --check. A program
    reads "health" of --json.
    """
    found = status_document(session)
    if session.json:
        session.out.document(found)
    else:
        _print(session, found)
    return PROBLEM if check and not found["ok"] else 0


def _print(session: Session, found: dict[str, Any]) -> None:
    now, counts, daemon = found["now"], found["counts"], found["daemon"]
    out = session.out
    out.line(found["verdict"], style="good" if found["ok"] else "bad")
    for reason in found["reasons"][1:]:
        out.line(f"also      {reason['text']}", style="bad")
    if "pid" in daemon:
        out.line(f"daemon    pid {daemon['pid']} on {daemon['host']}, since {clock_time(daemon['started_at'])}")
    if found["epoch"]:
        ended = "" if daemon["running"] else f", {'ended in order' if found['ended_in_order'] else 'died'}"
        out.line(f"epoch     {found['epoch']}, started {relative_text(found['epoch_started_at'], now)}{ended}")
    out.line(f"database  {found['database']} ({found['bytes']:,} bytes, WAL {found['wal_bytes']:,})")
    kinds = ["due", "later", "claimed", "running"][: 4 if daemon["running"] else 2]  # without one nothing is
    out.line("triggers  " + ", ".join(f"{name} {counts[name]:,}" for name in kinds))
    if counts["limited"]:
        out.line(f"limited   {counts['limited']:,} due, and their keys are at a limit of their workflow (limit_by)")
    if counts["cut_off"]:
        see = hint("inspect", "--list", "--status", "incomplete")
        what = f"{counts['cut_off']:,} of those due ran when the daemon ended"
        out.line(f"cut off   {what} (see: {see})", style="warn")
    if found["oldest_due_at"] is not None:
        out.line(f"oldest    due since {format_span(now - found['oldest_due_at'])}")
    print_tasks(out, found)
    print_doubt(out, found)
    print_schedules(out, found)
    if found["failed_lately"]["count"]:
        see = hint("trigger", "list", "--status", "FAILED")
        out.line(
            f"failed    {found['failed_lately']['count']:,} within {format_span(LATELY)} (see: {see})", style="warn"
        )
    if counts["dead"]:
        out.line(f"dead      {counts['dead']} (see: {hint('dead', 'list')})", style="warn")


def status_document(session: Session) -> dict[str, Any]:
    """Return the JSON document of `status`. Raises NotFound when there is no database."""
    return with_verdict(read_status(session.core()))


def with_verdict(found: Status) -> dict[str, Any]:
    """Return the document with the verdict and the reasons in words."""
    reasons = [{"code": finding.code, "text": finding_text(finding)} for finding in found.findings]
    first = reasons[0]["text"] if reasons else None
    return {**found.document, "verdict": verdict(found.health, first, found.document), "reasons": reasons}
