"""What the global options come to: which database, which settings, and how to speak. One per invocation."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from craftcore.cli.output import Output, pasted
from craftcore.cli.root import ByHand, name_of
from craftcore.config import Config
from craftcore.errors import ConfigInvalid, NotFound, PermissionRefused
from craftcore.serialization.plurals import counted

if TYPE_CHECKING:
    from craftcore.cli.audited import Did
    from craftcore.services import Core
    from craftcore.storage.transaction import Transaction

DATABASE = "craftcore.db"


class Session:
    """The global options, wherever on the line they stood; the later one counts."""

    def __init__(self, environ: Mapping[str, str] | None = None) -> None:
        self._environ = os.environ if environ is None else environ
        self.db: str | None = None
        self.config_file: str | None = None
        self.json = False
        self.read_only = False
        self._settings: Config | None = None

    @property
    def out(self) -> Output:
        return Output(as_json=self.json)

    @property
    def path(self) -> Path:
        """`--db`, else CRAFTCORE_DB, else `craftcore.db` in the service's or the user's state directory.

        Raises NotFound where it is looked for in a directory that is gone.
        """
        given = self._given_path
        path = Path(given) if given else state_directory(self._environ) / DATABASE
        _require_somewhere(path)
        return path

    @property
    def _given_path(self) -> str | None:
        return self.db or self._environ.get("CRAFTCORE_DB")

    @property
    def config_path(self) -> Path | None:
        """`--config`, else CRAFTCORE_CONFIG, else none."""
        given = self.config_file or self._environ.get("CRAFTCORE_CONFIG")
        return Path(given) if given else None

    def load_config(self) -> Config:
        """Raises ConfigInvalid."""
        return Config.load(self.config_path)

    def settings(self) -> Config:
        """The settings; the defaults, and a warning on stderr, where the file cannot be used. For commands that must
        work beside a mistake in it: emitting, reading, deciding, backup and restore."""
        if self._settings is None:
            try:
                self._settings = self.load_config()
            except ConfigInvalid as error:
                self._settings = Config()
                first, *others = error.message.splitlines()
                more = f" (and {counted(len(others), 'more mistake')})" if others else ""
                self.out.complaint(f"{first}{more}. Going on with the default settings. All mistakes: craftcore check")
        return self._settings

    def core(self, *, needs_settings: bool = False) -> Core:
        """The database and its services; nothing is opened yet. `needs_settings`: another setting than the one meant
        would do harm, so ConfigInvalid is raised where the file cannot be used."""
        from craftcore.services import Core

        config = self.load_config() if needs_settings else self.settings()
        return Core(self.path, config, read_only=self.is_read_only)

    @property
    def is_read_only(self) -> bool:
        """`--read-only`, or CRAFTCORE_READ_ONLY set to anything but 0."""
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
    def changing(self, core: Core) -> Iterator[tuple[Transaction, Did]]:
        """One transaction on a database that must exist, and a ring at the daemon's bell after it.

        Only for a command that is ByHand. It calls `did` for each thing it did something to, which is written to
        `audit_log` in this transaction, under the command's name. Changing a row and saying nothing rolls back.
        """
        from craftcore.cli.audited import Did
        from craftcore.storage.doorbell_client import EVERYTHING, ring

        context = click.get_current_context()
        assert isinstance(context.command, ByHand), context.command_path
        with core.reading():
            pass  # the door makes a missing file, and this is no command that makes one
        try:
            with core.transaction() as tx:
                did = Did(tx, name_of(context))
                yield tx, did
                did.require_said()
        finally:
            core.close()
        ring(core.database.path, EVERYTHING)

    def suggest(self, *words: str) -> None:
        """Print a command to paste, which goes to the database that this one went to."""
        self.out.command(*self.words(*words))

    def words(self, *words: str) -> tuple[str, ...]:
        """A command of ours, word by word, which goes to the database that this one went to, also where it is pasted
        into a shell with another environment."""
        where = ("--db", self._given_path) if self._given_path else ()
        return ("craftcore", *where, *words)

    def say_without_daemon(self, core: Core) -> None:
        """Say what is in the way of what was just asked for, where nobody is there to do it."""
        from craftcore.daemon.lock import read_note

        if not read_note(core.database.path)[1]:
            start = pasted(*self.words("run", "MODULE:APP"))
            self.out.line(f"no daemon runs; it goes on with the next one: {start}", style="warn")


def _require_somewhere(path: Path) -> None:
    try:
        path.absolute()
    except FileNotFoundError:
        raise NotFound(f"{path}: the current directory was removed, so it is nowhere. Go to another one") from None


def state_directory(environ: Mapping[str, str]) -> Path:
    """Where a database lives when nobody says: systemd's $STATE_DIRECTORY (the first), else the user's own."""
    if given := environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    home = environ.get("XDG_STATE_HOME")
    return (Path(home) if home and home.startswith("/") else Path.home() / ".local" / "state") / "craftcore"
