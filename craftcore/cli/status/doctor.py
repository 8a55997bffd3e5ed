"""`craftcore doctor`: everything that can be looked at, one line each, and what to do about what is not well.

The facts are read once. Each rule is pure: see `doctor_place`, `doctor_file`, `doctor_daemon`, `doctor_work` and
`doctor_unit`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.doctor_daemon import DaemonState, daemon_findings, find_daemon
from craftcore.cli.doctor_file import (
    chain,
    chain_state_of,
    identity,
    identity_of,
    integrity_findings,
    integrity_of,
    schema_findings,
    schema_of,
)
from craftcore.cli.doctor_place import place_findings, place_of
from craftcore.cli.doctor_unit import unit_findings, unit_of
from craftcore.cli.doctor_work import work_findings, work_of
from craftcore.cli.exit_codes import PROBLEM
from craftcore.cli.finding import RUN, Finding, Level, fail, guard_check, make_passed, warn
from craftcore.cli.output import Output, paste
from craftcore.cli.progress import Progress
from craftcore.cli.session import Session
from craftcore.config import Config
from craftcore.diagnostics.live_counts import BOOTED_AT, is_booting
from craftcore.engine.live_state import live_state
from craftcore.errors import ConfigInvalid
from craftcore.retention.service import Retention
from craftcore.services import Services
from craftcore.storage.daemon_files import lost_text, name_lost_by_daemon

STYLES = {Level.OK: "good", Level.WARN: "warn", Level.FAIL: "bad"}


@click.command(
    cls=Command,
    exits={PROBLEM: "there is a FAIL"},
    examples=("craftcore doctor", "craftcore doctor --full"),
    see=("craftcore status", "craftcore check", "craftcore db check", "docs/how-to/monitor.md"),
)
@click.option("--full", is_flag=True, help="Read every page and compare it with its indexes and keys.")
@click.pass_obj
def doctor(session: Session, /, full: bool) -> int:
    """Look at everything, and say what to do.

    The directory and its files, the disk, the database, the daemon, its work, schedules and clock, and the systemd
    unit. Each line is ok, warn (a person should look) or FAIL (it does not work, or will not hold), with a command to
    paste where one helps.
    """
    found = list(Doctor(session, full=full).findings())
    failed = sum(finding.level is Level.FAIL for finding in found)
    warned = sum(finding.level is Level.WARN for finding in found)
    if session.json:
        told = [_finding_document(finding, session.path) for finding in found]
        document = {"ok": not failed, "database": str(session.path.absolute()), "failed": failed, "warned": warned}
        session.out.document({**document, "checks": told})
    else:
        _say(session.out, found, session.path)
        counted = f"{failed:,} FAIL, {warned:,} warn" if failed or warned else "all is well"
        session.out.line(counted, style="bad" if failed else "warn" if warned else "good")
    return 1 if failed else 0


class Doctor:
    """One look at one database."""

    def __init__(self, session: Session, *, full: bool) -> None:
        self._session = session
        self._full = full
        self._config = Config()
        self._running: DaemonState | None = None

    def findings(self) -> Iterator[Finding]:
        """Run each check by itself: one that fails does not stop the others."""
        path = self._session.path.absolute()
        yield from guard_check("settings", self._settings)
        try:
            place = place_of(path, self._session.config_path)
        except (FileNotFoundError, NotADirectoryError):
            if (name := name_lost_by_daemon(path)) is not None:
                yield fail(
                    "open files", f"{lost_text(name)}, which ends: put back what was there before you start another"
                )
                return
            yield fail("database", f"there is none at {path}. The daemon makes it", *RUN)
            return
        except OSError as error:
            yield fail("database", f"{error.filename}: {error.strerror}. Ask as the user it belongs to")
            return
        yield from place_findings(place)
        self._core = Services(path, self._config, read_only=self._session.is_read_only)
        yield from guard_check("lock file", self._look_at_the_lock)
        schema = guard_check("database", self._schema)
        yield from schema
        if any(finding.level is Level.FAIL and finding.check in ("database", "schema") for finding in schema):
            yield warn("work", "is not looked at: the database cannot be read as this program's")
        else:
            yield from guard_check("integrity", self._integrity)
            yield from guard_check("records", self._records)
            yield from guard_check("daemon", self._daemon)
            yield from guard_check("work", self._work)
        holder = None if self._running is None else self._running.pid
        yield from guard_check("unit", lambda: unit_findings(unit_of(os.environ), str(path), holder))

    def _settings(self) -> Iterator[Finding]:
        try:
            self._config = self._session.load_config()
        except ConfigInvalid as error:
            for mistake in error.message.splitlines():
                yield fail("settings", mistake)
            return
        if self._config.storage.synchronous != "full":
            text = "storage.synchronous is normal: what was accepted last is lost with the power. Set it to full"
            yield warn("durability", text)
        else:
            yield make_passed("durability", "every commit is flushed")

    def _look_at_the_lock(self) -> Iterable[Finding]:
        self._running = find_daemon(self._core.database.path)
        return ()

    def _schema(self) -> list[Finding]:
        with self._core.database.reading() as reader:
            return list(schema_findings(schema_of(reader, self._core.database.path)))

    def _integrity(self) -> list[Finding]:
        progress = Progress("reading the file", quiet=self._session.json)
        try:
            with self._core.database.reading(with_checks=self._full) as reader:
                return list(integrity_findings(integrity_of(reader, progress, full=self._full), full=self._full))
        finally:
            progress.finish()

    def _records(self) -> list[Finding]:
        with self._core.database.reading() as reader:
            known = identity_of(reader, None if self._running is None else self._running.note)
            return [chain(chain_state_of(reader)), identity(known)]

    def _daemon(self) -> list[Finding]:
        if self._running is None:
            return []
        with self._core.database.reading() as reader:
            booted_at = reader.fetch_value(BOOTED_AT)
            live = live_state(reader)
        return list(daemon_findings(self._running, booted_at, live))

    def _work(self) -> list[Finding]:
        note, runs = (None, False) if self._running is None else (self._running.note, self._running.held)
        lease = self._config.triggers.lease_seconds
        with self._core.database.reading() as reader:
            now, retention = self._core.clock.now(), Retention(self._config.retention)
            booting = is_booting(reader, note, held=runs)
            work = work_of(reader, now, daemon_runs=runs, lease_seconds=lease, retention=retention, booting=booting)
            return list(work_findings(work))


def _say(out: Output, found: list[Finding], path: Path) -> None:
    width = max(len(finding.check) for finding in found)
    for finding in found:
        out.line(f"{finding.level:<4}  {finding.check:<{width}}  {finding.text}", style=STYLES[finding.level])
        if finding.do:
            out.line(f"      {_paste(finding, path)}")


def _finding_document(finding: Finding, path: Path) -> dict[str, Any]:
    return {**asdict(finding), "do": _paste(finding, path) if finding.do else None}


def _paste(finding: Finding, path: Path) -> str:
    """Return the command as it is pasted, on this very database."""
    program, *words = finding.do
    return paste(program, *(("--db", str(path.absolute())) if program == "craftcore" else ()), *words)
