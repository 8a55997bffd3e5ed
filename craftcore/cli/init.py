"""`craftcore init`: an app and settings that run at once, with comments for later changes."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import click

from craftcore.cli.base import WriteCommand
from craftcore.cli.exit_codes import CANNOT_CREATE
from craftcore.cli.session import Session
from craftcore.errors import CannotCreate

HERE = Path(__file__).resolve()
STARTER = HERE.with_name("starter_app.py")
SETTINGS = (HERE.parents[1] / "_shipped" / "config", HERE.parents[2] / "config")
"""Inside the package in a wheel, at the top of the repository in a checkout."""


@click.command(
    cls=WriteCommand,
    touches="Touches no database.",
    exits={CANNOT_CREATE: "one of the files is there already: nothing was written"},
    examples=("craftcore init", "craftcore init agent"),
    see=("craftcore check", "craftcore run", "README.md"),
)
@click.argument("directory", metavar="[DIR]", default=".")
@click.pass_obj
def init(session: Session, /, directory: str) -> None:
    """Write an app.py and a craftcore.toml to begin with.

    It writes into DIR, which is created when it is missing, else into the current directory. Nothing is overwritten. It
    prints what to type next; the settings file has every setting with its default.
    """
    folder = Path(directory)
    settings = next(place for place in SETTINGS if place.is_dir()) / "craftcore.toml"
    texts = {"app.py": STARTER.read_text("utf-8"), "craftcore.toml": settings.read_text("utf-8")}
    try:
        for missing in [place for place in (*reversed(folder.parents), folder) if not place.exists()]:
            missing.mkdir(mode=0o755)  # whatever the umask: who can write here decides what the daemon runs
        if standing := [name for name in texts if (folder / name).exists()]:
            raise CannotCreate(f"{folder / standing[0]} exists and is not overwritten; nothing was written")
        for name, text in texts.items():
            with open(folder / name, "x", encoding="utf-8", opener=_readable_mode) as file:
                file.write(text)
    except OSError as error:
        raise CannotCreate(f"{error.filename or folder}: cannot be written: {error.strerror}") from error
    _say(session, folder)


def _readable_mode(path: str, flags: int) -> int:
    return os.open(path, flags, 0o644)


def _say(session: Session, folder: Path) -> None:
    if session.json:
        session.out.document({"written": [str(folder / name) for name in ("app.py", "craftcore.toml")]})
        return
    out = session.out
    out.line(f"wrote {folder / 'app.py'} and {folder / 'craftcore.toml'}")
    out.line("in each terminal:")
    if folder.resolve() != Path.cwd():
        out.line(f"    cd {shlex.quote(str(folder))}")
    out.line("    export CRAFTCORE_DB=$PWD/agent.db CRAFTCORE_CONFIG=$PWD/craftcore.toml")
    out.line("the daemon:")
    out.line("    craftcore run app:app")
    out.line("and in another one:")
    out.line('    craftcore emit greet --payload \'{"name": "Ada"}\' --wait')
    out.line("    craftcore status")
