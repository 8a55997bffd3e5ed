"""The place of the database: what an environment says, and the option that names another one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from craftcore.errors import InvalidInput

DATABASE = "craftcore.db"
VARIABLE = "CRAFTCORE_DB"


def find_database(environ: Mapping[str, str]) -> Path:
    """Return the value of CRAFTCORE_DB, else `craftcore.db` in the state directory of the service or user."""
    named = environ.get(VARIABLE)
    return Path(named) if named else state_directory(environ) / DATABASE


def state_directory(environ: Mapping[str, str]) -> Path:
    """Return the default folder of a database: the first of $STATE_DIRECTORY, else the state directory of the user.

    Raises InvalidInput for a user without a home directory.
    """
    if given := environ.get("STATE_DIRECTORY"):
        return Path(given.split(":")[0])
    state = environ.get("XDG_STATE_HOME")
    if state and state.startswith("/"):
        return Path(state) / "craftcore"
    return find_home("name the database with --db or CRAFTCORE_DB") / ".local" / "state" / "craftcore"


def find_home(advice: str) -> Path:
    """Return the home directory of this user. Raises InvalidInput for a user without one."""
    try:
        return Path.home()
    except RuntimeError:
        raise InvalidInput(
            f"user id {os.getuid()} has no home directory (no entry in passwd, and HOME is not set): {advice}"
        ) from None


def database_option(path: str | None, environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return `--db PATH` for a command to paste; nothing for None, or where a shell finds that database by itself.

    The state directory of a service does not count, because a shell has none. `environ` None: of this process.
    """
    if not path:
        return ()
    here: Mapping[str, str] = os.environ if environ is None else environ
    of_shell = {name: here.get(name, "") for name in (VARIABLE, "XDG_STATE_HOME")}
    try:
        found = os.path.abspath(find_database(of_shell))
    except InvalidInput:  # this user has no home directory
        return ("--db", path)
    return () if found == os.path.abspath(path) else ("--db", path)
