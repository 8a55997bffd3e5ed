"""`command.run`: a program as a workflow, without writing Python.

At-least-once. A program that the daemon did not see end well is run again: after a crash, a timeout, a failure.
One that must not run twice keeps its own proof of having run.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from signal import Signals
from subprocess import DEVNULL, PIPE
from typing import Any

import anyio
from anyio.abc import ByteSendStream, Process

from craftcore.actions.capture import Capture
from craftcore.actions.process_group import GRACE_SECONDS, stop_group
from craftcore.errors import CraftcoreError, ErrorCode, Fail

COMMAND = "command.run"
"""The name under which the daemon declares it."""

EOF_SECONDS = 1.0
"""How long after a program's end its output is still read: something it left behind may hold the pipe for ever."""

LAST_WORDS_CHARACTERS = 1000
TIMEOUT_MAX_SECONDS = 366 * 86400

_ENVIRONMENT_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

_HOPELESS = frozenset(
    {
        errno.ENOENT,
        errno.EACCES,
        errno.EPERM,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.ENOEXEC,
        errno.E2BIG,
        errno.ENAMETOOLONG,
        errno.ELOOP,
    }
)
"""Errors of starting a program that the next attempt would meet again. Others (no memory, no process) may pass."""


class CommandFailed(CraftcoreError):
    """The program ran and failed. Another attempt may succeed."""

    code = ErrorCode.AGENT_ERROR


def command_workflow(
    *,
    timeout: float,
    output_max_bytes: int,
    environment: Sequence[str],
    environ: Mapping[str, str],
    grace: float = GRACE_SECONDS,
) -> Callable[..., Coroutine[Any, Any, dict[str, object]]]:
    """The workflow, bound to settings.

    `timeout` (seconds) holds where the caller gives none; of each output at most `output_max_bytes` are kept; of
    `environ` a program sees the names in `environment` and nothing else. `grace` (seconds) is what one that is being
    stopped has between SIGTERM and SIGKILL.
    """
    settings_timeout = timeout
    allowed = {name: environ[name] for name in environment if name in environ}

    async def run_command(
        argv: list[str],
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout: float | None = None,
        stdin: str | None = None,
    ) -> dict[str, object]:
        """Run a program and return what it wrote. An argument list, never a shell's text.

        Raises Fail when it cannot be started (not found, not executable, no such directory), CommandFailed when
        it exits with another code than 0 or is killed by a signal, TimeoutError when `timeout` seconds were not enough.

        When it ends, is cancelled or out of time, its whole process group goes with it: SIGTERM, the grace, SIGKILL.
        When the daemon itself is killed with SIGKILL, nobody is there to do that: the program lives on, unless the
        service manager ends it, and the next attempt runs it a second time, perhaps beside the first.
        """
        limit = settings_timeout if timeout is None else timeout
        _check(argv, cwd, env or {}, limit, stdin or "")
        program, began = argv[0], anyio.current_time()
        out, err = Capture(output_max_bytes), Capture(output_max_bytes)

        process = await _start(argv, cwd, allowed | (env or {}), stdin=PIPE if stdin else DEVNULL)
        exit_code = await _attend(process, out, err, stdin or "", limit, grace)

        seen: dict[str, object] = {
            "exit_code": exit_code,
            "stdout": out.text(),
            "stderr": err.text(),
            "stdout_bytes": out.total_bytes,
            "stderr_bytes": err.total_bytes,
            "seconds": round(anyio.current_time() - began, 6),
        }
        if exit_code is None:
            raise TimeoutError(f"{program} was stopped: it was not done after {limit:g} seconds{_last_words(err)}")
        if exit_code != 0:
            raise CommandFailed(f"{program} {_ending(exit_code)}{_last_words(err)}", **seen)
        return seen

    return run_command


def _check(argv: Any, cwd: str | None, env: Mapping[str, Any], timeout: float, stdin: str) -> None:
    """Refuse what no attempt could run."""
    if not isinstance(argv, list) or not argv or not all(isinstance(argument, str) for argument in argv) or not argv[0]:
        raise _refused("argv must be a list of texts, the program first")
    if bad := [name for name in env if not _ENVIRONMENT_NAME.fullmatch(name)]:
        raise _refused(f"not a name for an environment variable: {bad[0]!r}")
    if not all(isinstance(value, str) for value in env.values()):
        raise _refused("the values of env must be texts")
    for text in (*argv, cwd or "", *env.values()):
        if "\0" in text:
            raise _refused(f"argv, cwd and env must not contain NUL characters: {text[:40]!r}")
    try:
        "".join((*argv, cwd or "", *env.values(), stdin)).encode()
    except UnicodeEncodeError as error:
        raise _refused("argv, cwd, env and stdin must be valid Unicode") from error
    if isinstance(timeout, bool) or not 0 < timeout <= TIMEOUT_MAX_SECONDS:
        raise _refused("timeout must be a positive number of seconds, at most a year")


async def _start(argv: list[str], cwd: str | None, env: Mapping[str, str], *, stdin: int) -> Process:
    try:
        # Shielded: a program that was started and then lost to a cancellation could not be stopped.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                argv, stdin=stdin, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
            )
    except OSError as error:
        if error.errno not in _HOPELESS:
            raise
        where = f" in {cwd[:200]!r}" if cwd is not None and error.filename == cwd else ""
        raise _refused(f"cannot start {argv[0][:200]!r}{where}: {error.strerror}") from error
    return process


async def _attend(process: Process, out: Capture, err: Capture, stdin: str, timeout: float, grace: float) -> int | None:
    """Feed it, hear it, wait for it, and leave nothing of it behind. None when it was not done in time."""
    assert process.stdout is not None
    assert process.stderr is not None
    feeding = anyio.CancelScope()
    async with anyio.create_task_group() as beside:
        try:
            beside.start_soon(out.read, process.stdout)
            beside.start_soon(err.read, process.stderr)
            if process.stdin:
                beside.start_soon(_feed, process.stdin, stdin, feeding)
            with anyio.move_on_after(timeout):
                await process.wait()
            exit_code = process.returncode
            if exit_code is not None:
                await _heard(out, err)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await stop_group(process, grace=grace)
                    await _heard(out, err)
                finally:  # also when asyncio's own cancellation, which knows no shield, comes in between
                    feeding.cancel()
                    out.close()
                    err.close()
                if process.returncode is not None:  # what cannot even be killed is left: closing would wait for it
                    await process.aclose()
    return exit_code


async def _feed(stream: ByteSendStream, text: str, scope: anyio.CancelScope) -> None:
    """Give it the text and close. A program may end, or close its input, without reading it."""
    with scope:
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await stream.send(text.encode())
        await stream.aclose()


async def _heard(*captures: Capture) -> None:
    with anyio.move_on_after(EOF_SECONDS):
        for capture in captures:
            await capture.ended.wait()


def _ending(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with {exit_code}"
    name = Signals(-exit_code).name if -exit_code in set(Signals) else f"signal {-exit_code}"
    return f"was killed by {name}"


def _last_words(err: Capture) -> str:
    text = err.text().strip()
    shown = text if len(text) <= LAST_WORDS_CHARACTERS else "..." + text[-LAST_WORDS_CHARACTERS:]
    return f": {shown}" if shown else ""


def _refused(message: str) -> Fail:
    return Fail(ErrorCode.VALIDATION_ERROR, message)
