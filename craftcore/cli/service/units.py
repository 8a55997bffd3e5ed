"""The shipped systemd units: which there are, where each belongs, and their text with the path of the program. Pure,
but for reading them."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from craftcore.errors import InvalidInput, NotFound

HERE = Path(__file__).resolve()
SHIPPED = (HERE.parents[2] / "_shipped" / "systemd", HERE.parents[3] / "systemd")
"""Inside the package in a wheel, at the top of the repository in a checkout."""

DAEMON, PAGE = "craftcore.service", "craftcore-web.service"

HIDDEN = ("/home", "/root", "/run/user", "/tmp", "/var/tmp")
"""Directories that the system unit cannot see: ProtectHome=yes, PrivateTmp=yes."""

PLAIN_PATH = re.compile(r"/[\w/.+@:~, -]+")
"""A path that systemd and `env` read as it is, within quotation marks: no `%`, `$`, `=`, quote or line break."""

PROGRAM = re.compile(r"^(Exec\w+=/usr/bin/env )craftcore ", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """Where units and their environment file belong, and how one speaks to the systemd that reads them."""

    folder: str
    units: Path
    environment: Path
    systemctl: tuple[str, ...]


SYSTEM = Scope(
    folder=".",
    units=Path("/etc/systemd/system"),
    environment=Path("/etc/craftcore/environment"),
    systemctl=("systemctl",),
)


def user_scope(home: Path) -> Scope:
    """Return the scope of the user whose home that is."""
    config = home / ".config"
    return Scope(
        folder="user",
        units=config / "systemd" / "user",
        environment=config / "craftcore" / "environment",
        systemctl=("systemctl", "--user"),
    )


def list_units(
    scope: Scope, *, backup: bool = False, web: bool = False, places: tuple[Path, ...] = SHIPPED
) -> dict[str, str]:
    """Return the units of a scope, name -> text as shipped; with `backup` those of the regular backup, with `web` that
    of the page, too."""
    folder = next(place for place in places if place.is_dir()) / scope.folder
    names = [DAEMON]
    if web:
        names.append(PAGE)
    if backup:
        found = sorted(path.name for path in folder.glob("craftcore-backup.*"))
        if not found:
            raise NotFound(f"this craftcore ships no units of a backup: {folder} has none")
        names += found
    return {name: (folder / name).read_text(encoding="utf-8") for name in names}


def render(text: str, program: str) -> str:
    """Return the unit with the program that it starts. Raises InvalidInput for a path that systemd would read as
    another."""
    if not PLAIN_PATH.fullmatch(program):
        raise InvalidInput(
            f"{program!r:.200} cannot stand in a unit: give an absolute path of letters, digits, spaces and /.+@:~,_-"
        )
    word = f'"{program}"' if re.search(r"[ ,~]", program) else program
    return PROGRAM.sub(lambda found: f"{found[1]}{word} ", text)


def find_program() -> str:
    """Return the `craftcore` that belongs to this Python: of its virtual environment, if it is in one.

    Raises InvalidInput when there is none, as in a checkout that is not installed.
    """
    beside = Path(sys.executable).with_name("craftcore")
    if not os.access(beside, os.X_OK):
        raise InvalidInput(f"there is no {beside}: install craftcore there, or name its program with --program")
    return str(beside)


def hidden_directory(program: str) -> str | None:
    """Return which directory keeps the system unit from seeing the program, or the Python that it is run by; None:
    none."""
    paths = {program, os.path.realpath(program), os.path.realpath(Path(program).with_name("python"))}
    for path in sorted(paths):
        for folder in HIDDEN:
            if Path(path).is_relative_to(folder):
                return f"{path} is in {folder}"
    return None


def environment_texts(scope: Scope, units: Collection[str]) -> dict[Path, str]:
    """Return what new environment files of these units say, by their path: nothing yet, and how to say it.

    The page has a file of its own: it listens, so it is given no secret of the daemon.
    """
    config = f"#CRAFTCORE_CONFIG={scope.environment.with_name('craftcore.toml')}\n"
    texts = {
        scope.environment: f"# Variables of {DAEMON}, one NAME=value a line. The settings refer to secrets here as "
        f"env:NAME.\n#CRAFTCORE_APP=package.module:app\n{config}"
    }
    if PAGE in units:
        texts[scope.environment.with_name("web-environment")] = (
            f"# Variables of {PAGE}, one NAME=value a line: the same settings, and tokens of [[web.person]].\n{config}"
        )
    return texts
