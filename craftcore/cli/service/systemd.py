"""`craftcore systemd`: the shipped units, printed or put where systemd looks for them. It never talks to systemd."""

from __future__ import annotations

import difflib
import os
from pathlib import Path
from typing import Any

import click

from craftcore.cli.base import CommandGroup, WriteCommand
from craftcore.cli.exit_codes import CANNOT_CREATE, NOT_PERMITTED
from craftcore.cli.service.units import (
    PAGE,
    SYSTEM,
    Scope,
    environment_texts,
    find_program,
    hidden_directory,
    list_units,
    render,
    user_scope,
)
from craftcore.cli.session import Session
from craftcore.config.database_path import find_home
from craftcore.errors import CannotCreate, InvalidInput, PermissionRefused
from craftcore.files import NoRegularFile, open_regular
from craftcore.storage.files.whole_file import write_whole
from craftcore.storage.sqlite_errors import translate_os

UNIT_MODE, SECRET_MODE = 0o644, 0o600
UNIT_MAX_BYTES = 1 << 20
SET_HOME = "set HOME to the directory of the units"

user_option = click.option("--user", is_flag=True, help="A daemon of one's own, in ~/.config/systemd/user.")
backup_option = click.option("--backup", is_flag=True, help="With the timer of the regular backup.")
web_option = click.option("--web", is_flag=True, help="With the page of `craftcore web`.")
program_option = click.option("--program", metavar="PATH", help="The craftcore to start; else the one that runs now.")


@click.group(cls=CommandGroup)
def systemd() -> None:
    """The systemd units: print, install."""


@systemd.command(
    "print",
    touches="Touches no database, and writes nothing.",
    exits={},
    examples=("craftcore systemd print", "craftcore systemd print --user --backup"),
    see=("craftcore systemd install", "docs/how-to/deploy-with-systemd.md"),
)
@user_option
@backup_option
@web_option
@program_option
@click.pass_obj
def print_(session: Session, /, user: bool, backup: bool, web: bool, program: str | None) -> None:
    """Print the units as `systemd install` would write them.

    The shipped ones, with the path of this craftcore.
    """
    scope = user_scope(find_home(SET_HOME)) if user else SYSTEM
    program = program or find_program()
    texts = {name: render(text, program) for name, text in list_units(scope, backup=backup, web=web).items()}
    if session.json:
        units = [{"name": name, "path": str(scope.units / name), "text": text} for name, text in texts.items()]
        session.out.document({"units": units, "environment_file": str(scope.environment), "program": program})
        return
    if not user and (where := hidden_directory(program)) is not None:
        session.out.print_note(f"this unit will not find it: {where}, which a system unit cannot see")
    for name, text in texts.items():
        session.out.line(f"# {scope.units / name}")
        for line in text.splitlines():
            session.out.line(line)


@systemd.command(
    "install",
    cls=WriteCommand,
    touches="Touches no database, and never talks to systemd. Below /etc it takes root.",
    exits={
        CANNOT_CREATE: "a unit exists with another text; the difference is shown, nothing was written",
        NOT_PERMITTED: "without the right to write there",
    },
    examples=(
        "craftcore systemd install --program /opt/craftcore/bin/craftcore",
        "craftcore systemd install --user --backup --web",
        "craftcore systemd install --root image --program /opt/craftcore/bin/craftcore",
    ),
    see=("craftcore systemd print", "craftcore run", "docs/how-to/deploy-with-systemd.md"),
)
@user_option
@backup_option
@web_option
@program_option
@click.option("--root", metavar="DIR", help="Install below DIR, as for an image of a system.")
@click.option("--yes", is_flag=True, help="Also over a unit that says something else; nothing is asked.")
@click.pass_obj
def install(
    session: Session, /, user: bool, backup: bool, web: bool, program: str | None, root: str | None, yes: bool
) -> None:
    """Write the units where systemd looks for them.

    It writes to /etc/systemd/system, and an environment file /etc/craftcore/environment where there is none; with
    --web also web-environment, for the page gets no secret of the daemon; with --user below ~/.config. It prints the
    systemctl commands, and leaves them to you.
    """
    if user and root is not None:
        raise click.UsageError("--root is for the system units, not for --user")
    scope = _own_scope() if user else SYSTEM
    program = program or find_program()
    if not user and root is None and (where := hidden_directory(program)) is not None:
        raise InvalidInput(
            f"{where}, which a system unit cannot see: install craftcore elsewhere, say in /opt/craftcore, "
            "or the unit of your own with --user"
        )
    texts = {name: render(text, program) for name, text in list_units(scope, backup=backup, web=web).items()}
    standing = {name: _installed_text(_unit_directory(root, scope.units / name)) for name in texts}
    if not yes:
        _refuse_to_replace(session, scope, {name: (text, standing[name]) for name, text in texts.items()}, root)
    written = []
    for name, text in texts.items():
        if standing[name] != text:
            written.append(_write(_unit_directory(root, scope.units / name), text, UNIT_MODE, user))
    for file, text in environment_texts(scope, texts).items():
        if not os.path.lexists(environment := _unit_directory(root, file)):
            written.append(_write(environment, text, SECRET_MODE, user))
    _say(session, scope, list(texts), written, _unit_directory(root, scope.environment), program)


def _own_scope() -> Scope:
    """Raise PermissionRefused where it would belong to another user, as in a sudo that keeps $HOME."""
    home = find_home(SET_HOME)
    try:
        owner = home.stat().st_uid
    except OSError as error:
        raise translate_os(error, home) from error
    if owner != os.geteuid():
        raise PermissionRefused(f"{home} is not yours: run it as whom it belongs to, without sudo")
    return user_scope(home)


def _unit_directory(root: str | None, path: Path) -> Path:
    return path if root is None else Path(root) / path.relative_to("/")


def _installed_text(path: Path) -> str | None:
    """Return what the file says; None when there is none."""
    try:
        with open_regular(path) as file:
            return file.read(UNIT_MAX_BYTES).decode(errors="backslashreplace")
    except FileNotFoundError:
        return None
    except NoRegularFile as error:
        raise CannotCreate(f"{path}: there is something else than a regular file, which is left as it is") from error
    except OSError as error:
        raise translate_os(error, path) from error


def _refuse_to_replace(
    session: Session, scope: Scope, units: dict[str, tuple[str, str | None]], root: str | None
) -> None:
    """Raise CannotCreate, and show the difference, when the file has another text."""
    for name, (text, standing) in units.items():
        if standing is None or standing == text:
            continue
        path = _unit_directory(root, scope.units / name)
        differs = list(difflib.unified_diff(standing.splitlines(), text.splitlines(), "as it is", "new", lineterm=""))
        if not session.json:
            for line in differs:
                session.out.line(line)
        raise CannotCreate(
            f"{path} says something else, and nothing was written. Changes of your own belong into a drop-in "
            f"({' '.join(scope.systemctl)} edit {name}); to replace it, add --yes",
            path=str(path),
            diff="\n".join(differs),
        )


def _write(path: Path, text: str, mode: int, user: bool) -> Path:
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        for folder in reversed(missing):
            _make_folder(folder, 0o700 if user else 0o755)
        write_whole(path, text.encode(), mode=mode)
    except (OSError, PermissionRefused) as error:
        refusal = translate_os(error, path) if isinstance(error, OSError) else error
        if isinstance(refusal, PermissionRefused) and not user and os.geteuid() != 0:
            refusal = PermissionRefused(f"{refusal.message}. It takes root (sudo), or --user for a unit of your own")
        raise refusal from error
    return path


def _make_folder(folder: Path, mode: int) -> None:
    """Create a folder with that mode whatever the umask, and never change the mode of a file that another user put
    there."""
    os.mkdir(folder, mode)
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if os.fstat(descriptor).st_uid == os.geteuid():
            os.fchmod(descriptor, mode)
    finally:
        os.close(descriptor)


def _say(
    session: Session, scope: Scope, names: list[str], written: list[Path], environment: Path, program: str
) -> None:
    more = (name for name in names if name == PAGE or name.endswith(".timer"))
    enable = ["craftcore", *(name.removesuffix(".service") for name in more)]
    commands: list[tuple[str, ...]] = [
        (*scope.systemctl, "daemon-reload"),
        (*scope.systemctl, "enable", "--now", *enable),
    ]
    if session.json:
        document: dict[str, Any] = {
            "written": [str(path) for path in written],
            "environment_file": str(environment),
            "program": program,
            "next": [list(command) for command in commands],
        }
        session.out.document(document)
        return
    out = session.out
    for path in written:
        out.line(f"wrote {path}")
    if not any(path.name in names for path in written):
        out.line("the units are as they should be")
    people = ", and people of the page in [web]" if PAGE in names else ""
    out.line(f"they start {program}; name your app in {environment}{people}, then:")
    out.line(f"  {' && '.join(' '.join(command) for command in commands)}")
