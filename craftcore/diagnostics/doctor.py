"""The checks of `craftcore doctor`, in their order. The facts are read once; each rule over them is pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.config.web_settings import WebSettings
from craftcore.diagnostics.conditions import RUN
from craftcore.diagnostics.daemon import DaemonState, daemon_findings, find_daemon
from craftcore.diagnostics.environment import place_findings, place_of, zone_finding
from craftcore.diagnostics.file import (
    chain,
    chain_state_of,
    identity,
    identity_of,
    integrity_findings,
    integrity_of,
    schema_findings,
    schema_of,
)
from craftcore.diagnostics.finding import Finding, Level, fail, guard_check, make_passed, warn
from craftcore.diagnostics.invariants import invariant_findings
from craftcore.diagnostics.large_states import find_large_states, state_finding
from craftcore.diagnostics.live_counts import BOOTED_AT, is_booting
from craftcore.diagnostics.unit import PAGE_UNIT, page_unit_findings, unit_findings, unit_of
from craftcore.diagnostics.web_access import address_findings, find_libraries, login_findings
from craftcore.diagnostics.work import work_findings, work_of
from craftcore.engine.live_state import live_state
from craftcore.errors import ConfigInvalid, InvalidInput
from craftcore.retention.service import Retention
from craftcore.services import Services
from craftcore.storage.connection import require_utf8
from craftcore.storage.files.daemon_files import lost_text, name_lost_by_daemon


class Doctor:
    """All checks of one database.

    `environ` tells where the units of this user are. With `full` every page is compared with its indexes and keys. With
    `invariants` all rows are compared with each other.
    `progress` is entered while the file is read; the function that it yields is called again and again meanwhile.
    """

    def __init__(
        self,
        path: Path,
        config_path: Path | None,
        *,
        environ: Mapping[str, str],
        read_only: bool,
        full: bool,
        invariants: bool,
        progress: Callable[[], AbstractContextManager[Callable[[], object]]],
    ) -> None:
        self._path = path
        self._config_path = config_path
        self._environ = environ
        self._read_only = read_only
        self._full = full
        self._invariants = invariants
        self._progress = progress
        self._config = Config()
        self._running: DaemonState | None = None

    def findings(self) -> Iterator[Finding]:
        """Run each check by itself: one that fails does not stop the others."""
        yield from guard_check("settings", self._check_settings)
        yield zone_finding(SystemClock().machine_zone())
        try:
            require_utf8(self._path.absolute())
            place = place_of(self._path, self._config_path)
        except InvalidInput as error:
            yield fail("database", error.message)
            return
        except (FileNotFoundError, NotADirectoryError):
            yield self._missing_finding()
            return
        except OSError as error:
            yield fail("database", f"{error.filename}: {error.strerror}. Ask as the user it belongs to")
            return
        yield from place_findings(place)
        self._core = Services(self._path, self._config, read_only=self._read_only)
        yield from guard_check("lock file", self._find_daemon)
        schema = guard_check("database", self._check_schema)
        yield from schema
        if any(finding.level is Level.FAIL and finding.code in ("database", "schema") for finding in schema):
            yield warn("work", "is not looked at: the database cannot be read as this program's")
        else:
            yield from guard_check("integrity", self._check_integrity)
            yield from guard_check("records", self._check_records)
            yield from guard_check("daemon", self._check_daemon)
            yield from guard_check("work", self._check_work)
            if self._invariants:
                yield from guard_check("invariants", self._check_invariants)
        yield from guard_check("unit", self._check_unit)
        yield from guard_check("page unit", self._check_page_unit)
        yield from guard_check("web", self._check_web)

    def _check_settings(self) -> Iterator[Finding]:
        try:
            self._config = Config.load(self._config_path)
        except ConfigInvalid as error:
            for mistake in error.message.splitlines():
                yield fail("settings", mistake)
            return
        if self._config.storage.synchronous != "full":
            text = "storage.synchronous is normal: what was accepted last is lost with the power. Set it to full"
            yield warn("durability", text)
        else:
            yield make_passed("durability", "every commit is flushed")

    def _check_unit(self) -> Iterable[Finding]:
        holder = None if self._running is None else self._running.pid
        return unit_findings(unit_of(self._environ), str(self._path), holder)

    def _check_page_unit(self) -> Iterable[Finding]:
        unit = unit_of(self._environ, PAGE_UNIT, beside=unit_of(self._environ))
        return page_unit_findings(unit, str(self._path))

    def _check_web(self) -> Iterator[Finding]:
        settings = self._config.web
        if settings != WebSettings():
            yield from find_libraries()
            yield from login_findings(settings, self._environ)
            yield from address_findings(settings, self._path)

    def _missing_finding(self) -> Finding:
        if (name := name_lost_by_daemon(self._path)) is None:
            return fail("database", f"there is none at {self._path}. The daemon makes it", *RUN)
        text = f"{lost_text(name)}, which ends: put back what was there before you start another"
        return fail("open files", text)

    def _find_daemon(self) -> Iterable[Finding]:
        self._running = find_daemon(self._core.database.path)
        return ()

    def _check_schema(self) -> list[Finding]:
        with self._core.database.reading() as reader:
            return list(schema_findings(schema_of(reader, self._core.database.path)))

    def _check_integrity(self) -> list[Finding]:
        with self._progress() as beat, self._core.database.reading(with_checks=self._full) as reader:
            return list(integrity_findings(integrity_of(reader, beat, full=self._full), full=self._full))

    def _check_records(self) -> list[Finding]:
        with self._core.database.reading() as reader:
            known = identity_of(reader, None if self._running is None else self._running.note)
            return [chain(chain_state_of(reader)), identity(known)]

    def _check_daemon(self) -> list[Finding]:
        if self._running is None:
            return []
        with self._core.database.reading() as reader:
            booted_at = reader.fetch_value(BOOTED_AT)
            live = live_state(reader)
        return list(daemon_findings(self._running, booted_at, live))

    def _check_work(self) -> list[Finding]:
        note, runs = (None, False) if self._running is None else (self._running.note, self._running.held)
        lease = self._config.triggers.lease_seconds
        with self._core.database.reading() as reader:
            now, retention = self._core.clock.now(), Retention(self._config.retention)
            booting = is_booting(reader, note, held=runs)
            work = work_of(reader, now, daemon_runs=runs, lease_seconds=lease, retention=retention, booting=booting)
            states = find_large_states(reader, self._config.tasks.state_max_bytes)
            return [*work_findings(work), state_finding(states)]

    def _check_invariants(self) -> list[Finding]:
        with self._progress() as beat, self._core.database.reading() as reader, reader.with_progress(beat):
            return list(invariant_findings(reader))
