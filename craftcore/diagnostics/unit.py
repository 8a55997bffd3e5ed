"""Checks of `craftcore doctor` on the systemd units: they are craftcore's, for this database, and enabled.

Read from the files; systemd itself is only asked how the unit does, where it runs.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from craftcore.config.database_path import find_home
from craftcore.diagnostics.finding import Finding, fail, make_passed, warn
from craftcore.errors import InvalidInput
from craftcore.files import open_regular

UNIT, PAGE_UNIT = "craftcore.service", "craftcore-web.service"
VERBS = {UNIT: "run", PAGE_UNIT: "web"}
"""The command of each unit."""

SYSTEM_FOLDERS = (
    "/etc/systemd/system",
    "/run/systemd/system",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
)
ASK_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """The installed unit. `database` None: it does not say which; `state` and `pid`: as systemd tells, None where it
    does not."""

    name: str
    path: str
    of_user: bool
    is_ours: bool
    database: str | None
    is_enabled: bool
    state: str | None
    pid: int | None


def unit_of(environ: Mapping[str, str], name: str = UNIT, *, beside: Unit | None = None) -> Unit | None:
    """Return the user's unit of this name, else the system's; None when neither is installed.

    With `beside`, only a unit in the scope of that one is looked for: the system may serve another database.
    """
    user = _find_home()
    config = Path(environ.get("XDG_CONFIG_HOME") or user / ".config")
    state = Path(environ.get("XDG_STATE_HOME") or user / ".local" / "state")
    for of_user, folders, home in (
        (True, [config / "systemd/user", Path("/etc/systemd/user"), Path("/usr/lib/systemd/user")], state),
        (False, [Path(folder) for folder in SYSTEM_FOLDERS], Path("/var/lib")),
    ):
        if beside is not None and beside.of_user != of_user:
            continue
        for folder in folders:
            if os.path.isfile(path := folder / name):  # False where this user may not look
                return _read(path, folders, home, of_user=of_user)
    return None


def _read(path: Path, folders: list[Path], home: Path, *, of_user: bool) -> Unit:
    dropped = [more for folder in folders for more in sorted((folder / f"{path.name}.d").glob("*.conf"))]
    lines = [line for file in (path, *dropped) for line in file.read_text(errors="replace").splitlines()]
    properties = _ask_systemd(path.name, of_user=of_user)
    pid = properties.get("MainPID", "0")
    verb = VERBS[path.name]
    return Unit(
        name=path.name,
        path=str(path),
        of_user=of_user,
        is_ours=any("craftcore" in value and f" {verb}" in value for value in values(lines, "ExecStart")),
        database=database_in(lines, home, of_user=of_user),
        is_enabled=any(True for folder in folders for _ in folder.glob(f"*.wants/{path.name}")),
        state=properties.get("ActiveState"),
        pid=int(pid) if pid.isdigit() and pid != "0" else None,
    )


def values(lines: Iterable[str], key: str) -> list[str]:
    """Return each value of `key=`."""
    return [line.partition("=")[2].strip() for line in lines if line.partition("=")[0].strip() == key]


def database_in(lines: list[str], home: Path, *, of_user: bool) -> str | None:
    """Return the database that a unit of these lines runs on; None when it does not say."""
    for command in values(lines, "ExecStart"):
        words = _words(command)
        for word, following in zip(words, [*words[1:], ""], strict=True):
            if word == "--db" or word.startswith("--db="):
                return _expand(following if word == "--db" else word.removeprefix("--db="), home)
    variables = [word for value in values(lines, "Environment") for word in _words(value)]
    for file in values(lines, "EnvironmentFile"):
        try:
            with open_regular(_expand(file.removeprefix("-"), home)) as opened:
                variables += [line.strip() for line in opened.read().decode().splitlines()]
        except (OSError, ValueError):
            continue
    for variable in reversed(variables):
        name, _, value = variable.partition("=")
        if name == "CRAFTCORE_DB" and value:
            return _expand(value.strip("\"'"), home)
    state = [word for value in values(lines, "StateDirectory") for word in value.split()]
    if of_user and not state:
        state = ["craftcore"]  # where the command line looks for a person's own
    return str(home / state[0] / "craftcore.db") if state else None


def unit_findings(unit: Unit | None, database: str, holder: int | None) -> Iterator[Finding]:
    """Check the unit of the daemon. `holder`: the pid of the daemon that runs on the database; None: none does."""
    if unit is None:
        yield make_passed("unit", "none is installed: you start the daemon yourself")
    elif mistake := _find_mistake(unit, database):
        yield warn("unit", mistake)
    elif unit.state == "active" and holder is not None and unit.pid not in (None, holder):
        text = f"{unit.path} is active as pid {unit.pid}, and pid {holder} runs this database: end that one"
        yield fail("unit", text)
    else:
        yield _state_finding("unit", unit)


def page_unit_findings(unit: Unit | None, database: str) -> Iterator[Finding]:
    """Check the unit of the page. None is installed: nothing is said, for not everyone wants a page."""
    if unit is None:
        return
    if mistake := _find_mistake(unit, database):
        yield warn("page unit", mistake)
    else:
        yield _state_finding("page unit", unit)


def _find_mistake(unit: Unit, database: str) -> str | None:
    """Return why the unit is not that of this database; None: it is."""
    if not unit.is_ours:
        return f"{unit.path} does not run craftcore: it belongs to another program"
    if unit.database is None or os.path.realpath(unit.database) != os.path.realpath(database):
        return f"{unit.path} runs on {unit.database or 'a database it does not name'}, not on this one"
    return None


def _state_finding(code: str, unit: Unit) -> Finding:
    """Return the state that a unit of this database has."""
    scope = ("--user",) if unit.of_user else ()
    name = unit.name.removesuffix(".service")
    if unit.state == "failed":
        return fail(code, f"{unit.path}: systemd gave up on it. Its log", "journalctl", *scope, "-eu", name)
    if not unit.is_enabled:
        text = f"{unit.path} is not enabled: it does not start at boot"
        return warn(code, text, "systemctl", *scope, "enable", "--now", name)
    return make_passed(code, f"{unit.path} is ours, for this database, and enabled")


def _ask_systemd(name: str, *, of_user: bool) -> dict[str, str]:
    """Return what systemd says of the unit; nothing where it does not run."""
    systemctl = shutil.which("systemctl")
    if systemctl is None:
        return {}
    scope = ["--user"] if of_user else []
    command = [systemctl, *scope, "show", "--property=ActiveState,MainPID", name]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=ASK_SECONDS)
    except (OSError, subprocess.SubprocessError):
        return {}
    if answer.returncode != 0:
        return {}
    return dict(line.split("=", 1) for line in answer.stdout.splitlines() if "=" in line)


def _expand(path: str, home: Path) -> str:
    return path.replace("%S", str(home)).replace("%h", str(_find_home()))


def _find_home() -> Path:
    """Return the home directory of this user; for a user without one, a path at which nothing is."""
    try:
        return find_home("")
    except InvalidInput:
        return Path("/nonexistent")


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
