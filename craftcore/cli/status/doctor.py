"""`craftcore doctor`: every check, one line each, and what to do about what is not well."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.exit_codes import PROBLEM
from craftcore.cli.progress import Progress
from craftcore.cli.session import Session
from craftcore.diagnostics.doctor import Doctor
from craftcore.diagnostics.finding import Finding, Level
from craftcore.diagnostics.text.command_text import add_database, paste
from craftcore.diagnostics.text.printable import Verbatim

STYLES = {Level.OK: "good", Level.WARN: "warn", Level.FAIL: "bad"}


@click.command(
    cls=Command,
    exits={PROBLEM: "there is a FAIL"},
    examples=("craftcore doctor", "craftcore doctor --full", "craftcore doctor --invariants"),
    see=("craftcore status", "craftcore check", "craftcore db check", "docs/how-to/monitor.md"),
)
@click.option("--full", is_flag=True, help="Read every page and compare it with its indexes and keys.")
@click.option("--invariants", is_flag=True, help="Compare all rows with each other: what must hold between them.")
@click.pass_obj
def doctor(session: Session, /, full: bool, invariants: bool) -> int:
    """Look at everything, and say what to do.

    The directory and its files, the disk, the database, the daemon, its work, schedules and clock, and the systemd
    unit. Each line is ok, warn (a person should look) or FAIL (it does not work, or will not hold), with a command to
    paste where one helps.
    """
    path = session.path.absolute()

    @contextmanager
    def progress() -> Iterator[Progress]:
        shown = Progress("reading the file", quiet=session.json)
        try:
            yield shown
        finally:
            shown.finish()

    read_only = session.is_read_only
    checks = Doctor(
        path,
        session.config_path,
        environ=os.environ,
        read_only=read_only,
        full=full,
        invariants=invariants,
        progress=progress,
    )
    found = list(checks.findings())
    failed = sum(finding.level is Level.FAIL for finding in found)
    warned = sum(finding.level is Level.WARN for finding in found)
    if session.json:
        documents = [_check_document(finding, session) for finding in found]
        document = {"ok": not failed, "database": str(path), "failed": failed, "warned": warned}
        session.out.document({**document, "checks": documents})
    else:
        _print(session, found)
        counted = f"{failed:,} FAIL, {warned:,} warn" if failed or warned else "all is well"
        session.out.line(counted, style="bad" if failed else "warn" if warned else "good")
    return 1 if failed else 0


def _print(session: Session, found: list[Finding]) -> None:
    out = session.out
    width = max(len(finding.code) for finding in found)
    for finding in found:
        out.line(f"{finding.level:<4}  {finding.code:<{width}}  {finding.text}", style=STYLES[finding.level])
        for remedy in finding.remedies:
            out.line("      ", Verbatim(_paste(remedy, session)))


def _check_document(finding: Finding, session: Session) -> dict[str, Any]:
    commands = [_paste(remedy, session) for remedy in finding.remedies]
    return {"check": finding.code, "level": finding.level, "text": finding.text, "do": "; ".join(commands) or None}


def _paste(remedy: tuple[str, ...], session: Session) -> str:
    """Return the command as it is pasted, on this very database."""
    return paste(*add_database(remedy, session.database_option(str(session.path.absolute()))))
