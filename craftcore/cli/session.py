"""The global options of one invocation: its database, its settings, and its form of output."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from craftcore.cli.base import OperatorCommand, name_of
from craftcore.cli.output import Output
from craftcore.config import Config
from craftcore.config.database_path import database_option, find_database
from craftcore.diagnostics.finding import Finding
from craftcore.diagnostics.text.command_text import PROGRAM, add_database, paste
from craftcore.errors import ConfigInvalid, NotFound, PermissionRefused
from craftcore.serialization.plurals import format_count

if TYPE_CHECKING:
    from craftcore.operations.audit_scope import AuditScope
    from craftcore.services import Services
    from craftcore.storage.transaction import Transaction


class Session:
    """The global options, before the command or after it; the later one counts."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self.db: str | None = None
        self.config_file: str | None = None
        self.json = False
        self.read_only = False
        self.cluster: Sequence[str] | None = None
        """The options that name the cluster of this invocation; None: it uses a database."""
        self._settings: Config | None = None

    @property
    def out(self) -> Output:
        return Output(as_json=self.json)

    @property
    def path(self) -> Path:
        """The value of --db, else of CRAFTCORE_DB, else `craftcore.db` in the state directory of the service or user.

        Raises NotFound for a relative path when the current directory was removed.
        """
        path = Path(self.db) if self.db else find_database(self._environ)
        _require_somewhere(path)
        return path

    @property
    def config_path(self) -> Path | None:
        """The value of --config, else of CRAFTCORE_CONFIG, else None."""
        given = self.config_file or self._environ.get("CRAFTCORE_CONFIG")
        return Path(given) if given else None

    def load_config(self) -> Config:
        """Read the settings. Raises ConfigInvalid."""
        return Config.load(self.config_path)

    def settings(self) -> Config:
        """Return the settings, or the defaults after a warning on stderr when the file has a mistake.

        For commands that must work in spite of a mistake: to emit, to read, to decide, to back up and to restore.
        """
        if self._settings is None:
            try:
                self._settings = self.load_config()
            except ConfigInvalid as error:
                self._settings = Config()
                first, *others = error.message.splitlines()
                more = f" (and {format_count(len(others), 'more mistake')})" if others else ""
                self.out.print_problem(
                    f"{first}{more}. Going on with the default settings. All mistakes: craftcore check"
                )
        return self._settings

    def core(self, *, needs_settings: bool = False) -> Services:
        """Return the database and its services, not yet opened.

        With `needs_settings` a mistake in the settings raises ConfigInvalid, because a default would do harm.
        """
        from craftcore.services import Services

        config = self.load_config() if needs_settings else self.settings()
        return Services(self.path, config, read_only=self.is_read_only)

    @property
    def is_read_only(self) -> bool:
        """True with --read-only, or when CRAFTCORE_READ_ONLY is set to anything but 0."""
        return self.read_only or self._read_only_by_environment

    @property
    def _read_only_by_environment(self) -> bool:
        return self._environ.get("CRAFTCORE_READ_ONLY", "") not in ("", "0")

    def require_writing(self, command: str) -> None:
        """Raise PermissionRefused where only reading is allowed."""
        ways = ["leave out --read-only"] if self.read_only else []
        if self._read_only_by_environment:
            ways.append("unset CRAFTCORE_READ_ONLY")
        if ways:
            lift = " and ".join(ways)
            raise PermissionRefused(f"{command} writes, and this is read only: nothing was done. To do it, {lift}")

    @contextmanager
    def write(self, core: Services) -> Iterator[tuple[Transaction, AuditScope]]:
        """Open one transaction on a database that must exist, and wake the daemon after it.

        Only an OperatorCommand may. Each operation adds rows to `audit_log` in the same transaction. A change without
        a row rolls back.
        """
        from craftcore.audit.caller import actor
        from craftcore.operations.audit_scope import operator_transaction

        context = click.get_current_context()
        assert isinstance(context.command, OperatorCommand), context.command_path
        with operator_transaction(core, actor(), name_of(context)) as entered:
            yield entered

    def suggest(self, *words: str) -> None:
        """Print a command to paste, for the same database."""
        self.out.command(*self.words(*words))

    def words(self, *words: str) -> tuple[str, ...]:
        """Return the words of a command for the same database, or the same cluster."""
        if self.cluster is not None:
            return ("craftcore", "temporal", *words[:2], *self.cluster, *words[2:])
        return add_database((PROGRAM, *words), self.database_option(self.db))

    def database_option(self, path: str | None) -> tuple[str, ...]:
        """Return `--db PATH`; nothing for None, or where a shell finds that database by itself."""
        return database_option(path, self._environ)

    def say_without_daemon(self) -> None:
        """Print a warning, with the command to start a daemon, unless one runs. A cluster needs none."""
        from craftcore.daemon.lock import read_note

        if self.cluster is None and not read_note(self.path)[1]:
            start = paste(*self.words("run", "MODULE:APP"))
            self.out.line(f"no daemon runs; it goes on with the next one: {start}", style="warn")


def _require_somewhere(path: Path) -> None:
    try:
        path.absolute()
    except FileNotFoundError:
        raise NotFound(f"{path}: the current directory was removed, so it is nowhere. Go to another one") from None


def hint(*words: str) -> str:
    """Return a command to paste: `craftcore task show ID`, with `--db PATH` where this invocation has it."""
    context = click.get_current_context(silent=True)
    session = None if context is None else context.find_object(Session)
    return paste(*((PROGRAM, *words) if session is None else session.words(*words)))


def finding_text(finding: Finding) -> str:
    """Return a finding in one sentence, with the commands that help at its end."""
    commands = [hint(*words) if program == PROGRAM else paste(program, *words) for program, *words in finding.remedies]
    return f"{finding.text}: {', '.join(commands)}" if commands else finding.text


def print_reasons(session: Session, headline: str, reasons: Sequence[Finding]) -> None:
    """Print the answer of a `why`: each reason, and the query that proves it."""
    session.out.line(headline, style="bold")
    for one in reasons:
        session.out.line(f"  {finding_text(one)}")
        session.out.line(f"    {one.query};", style="dim")


def finding_document(finding: Finding) -> dict[str, Any]:
    """Return a reason as its JSON document."""
    return {"code": finding.code, "text": finding_text(finding), "query": finding.query}
