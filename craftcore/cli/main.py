"""The entry: one invocation from its arguments to its exit code. Every error ends as one line here.

stderr   craftcore: what is wrong, and what to do
stdout   with --json also {"error": {"code": "NOT_FOUND", "message", "exit_code", …}}: there is always one document
"""

from __future__ import annotations

import atexit
import errno
import io
import os
import sys
import threading
from collections.abc import Sequence
from typing import TextIO

import click

from craftcore.cli.root import root
from craftcore.cli.session import Session, hint
from craftcore.errors import CraftcoreError, RowInvalid, UnreadableRow

DAMAGE_SECONDS = 5.0
"""How long it is looked for damage that could explain a failure."""

USAGE, BUG, OUTPUT_FAILED, INTERRUPTED, PIPE_CLOSED = 64, 70, 74, 130, 141


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. Without arguments those of the process, which ends with this."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    session = Session()
    sys.stdout, sys.stderr = (
        sys.stdout or _null_stream(),
        sys.stderr or _null_stream(),
    )  # None when a parent closed them
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that lacks a character is no reason to fail
    asked = os.environ.get("_CRAFTCORE_COMPLETE", "") if not given else ""
    try:
        code = _complete(session, asked) if asked else _invoke(session, given)
        sys.stdout.flush()
    except OSError as error:
        if not _is_lost_output(error):
            raise
        # Python would complain once more while it closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = PIPE_CLOSED  # whoever read this has seen enough
        if not isinstance(error, BrokenPipeError):
            print(f"craftcore: the answer cannot be written: {error.strerror}", file=sys.stderr)
            code = OUTPUT_FAILED
    if arguments is None:
        _leave_threads_behind(code)
    return code


def _invoke(session: Session, arguments: list[str]) -> int:
    try:
        # Not `root.main`: it has exit codes of its own for what is told apart below.
        with root.make_context("craftcore", arguments, obj=session) as context:
            answer = root.invoke(context)
        return answer if isinstance(answer, int) else 0
    except click.exceptions.Exit as end:
        return end.exit_code
    except CraftcoreError as error:
        details = {name: value for name, value in error.details.items() if isinstance(value, str | int | float)}
        return _refuse(session, error.name, error.message, error.exit_code, **details)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.ctx.get_help(), err=True)
        return USAGE
    except click.ClickException as error:
        session.json = session.json or "--json" in arguments  # it may be wrong before that option was read
        where = getattr(error, "ctx", None)
        see = f" (see {where.command_path} --help)" if where is not None else ""
        return _refuse(session, "USAGE", error.format_message() + see, USAGE)
    except (click.Abort, KeyboardInterrupt) as end:
        if str(end) or session.json:  # whoever pressed Ctrl-C knows it, and needs no line that says only that
            return _refuse(session, "INTERRUPTED", str(end), INTERRUPTED)
        return INTERRUPTED
    except UnreadableRow as error:
        text = f"{session.path}: a damaged row cannot be shown: {error}. A daemon that meets it sets it aside"
        return _refuse(session, "ROW_INVALID", text, RowInvalid.exit_code)
    except Exception as error:
        if _is_lost_output(error) or os.environ.get("CRAFTCORE_TRACEBACK"):
            raise
        if (wrong := _damage(session, error)) is not None:
            text = f"{session.path}: a damaged row cannot be shown: {wrong}. All that is wrong: {hint('db', 'check')}"
            return _refuse(session, "ROW_INVALID", text, RowInvalid.exit_code)
        if isinstance(error, UnicodeDecodeError):
            text = f"{session.path}: a text is not UTF-8: {error.object!r:.200}. Is it in a row? {hint('db', 'check')}"
            return _refuse(session, "ROW_INVALID", text, RowInvalid.exit_code)
        message = " ".join(str(error).split())
        text = f"a bug in craftcore: {type(error).__name__}: {message} (CRAFTCORE_TRACEBACK=1 shows where)"
        return _refuse(session, "BUG", text, BUG)


def _damage(session: Session, error: Exception) -> str | None:
    """Return the damage of the database that explains a failure; None: there is none."""
    from craftcore.config import Config
    from craftcore.diagnostics.damage import find_damage
    from craftcore.services import Services

    try:
        database = Services(session.path, Config(), read_only=True).database
    except Exception:
        return None
    return find_damage(database, error, DAMAGE_SECONDS)


def _complete(session: Session, instruction: str) -> int:
    from craftcore.cli.completion.candidates import complete  # its models are not needed by any other command

    return complete(root, session, instruction)


def _refuse(session: Session, code: str, message: str, exit_code: int, **details: object) -> int:
    for line in message.splitlines() or [code]:
        session.out.print_problem(line)
    if session.json:
        session.out.document({"error": {**details, "code": code, "message": message, "exit_code": exit_code}})
    return exit_code


def _is_lost_output(error: Exception) -> bool:
    """Return whether the output is lost: its reader has gone, or the disk is full. Errors of storage have other types
    here."""
    full = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}
    return isinstance(error, BrokenPipeError) or (isinstance(error, OSError) and error.errno in full)


def _null_stream() -> TextIO:
    return open(os.devnull, "w", encoding="utf-8")


def _leave_threads_behind(code: int) -> None:
    """Exit without waiting for threads: a plain function of a workflow may still run in one. All else is closed.

    The library of Temporal has threads that Python does not know. They may call it while it ends, and then it hangs or
    aborts, so it is left without its end.
    """
    if "temporalio" in sys.modules:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join(timeout=0.2)
            if thread.is_alive():
                sys.stderr.flush()
                os._exit(code)
