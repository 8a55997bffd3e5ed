"""The run of a program: with a limited environment and time, its whole output read, and its process group ended."""

from __future__ import annotations

import errno
import re
import traceback
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from signal import Signals
from subprocess import DEVNULL, PIPE, Popen
from typing import Any, TypeGuard

import anyio
from anyio.abc import ByteSendStream, Process

from craftcore.actions.process.captured_output import Capture
from craftcore.actions.process.process_group import GRACE_SECONDS, stop_group
from craftcore.errors import CraftcoreError, ErrorCode
from craftcore.outcome_exceptions import Fail, NoEffect

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Programs:
    """How programs are run. Times in seconds.

    timeout           the limit of a run for which the caller gives none
    output_max_bytes  how much of each output is kept
    environment       the variables that a program sees beside those that the caller gives; it sees no others
    grace             the time between SIGTERM and SIGKILL
    """

    timeout: float
    output_max_bytes: int
    environment: Mapping[str, str]
    grace: float = GRACE_SECONDS

    async def run(
        self,
        argv: list[str],
        cwd: str | None = None,
        env: dict[str, str] | None = None,
        timeout: float | None = None,
        stdin: str | None = None,
        *,
        own: Mapping[str, str] | None = None,
    ) -> dict[str, object]:
        """Run a program and return its output. `argv` is an argument list, never shell text. `own` are the variables
        that craftcore adds.

        Nothing was run when it raises Fail (not found, not executable, no such directory, not a program at all) or
        NoEffect (no process or memory for it now). Otherwise CommandFailed when it exits with another code than 0 or
        is killed by a signal, TimeoutError when `timeout` seconds were not enough.

        When it ends, is cancelled or out of time, its whole process group goes with it: SIGTERM, the grace, SIGKILL.
        When the daemon itself is killed with SIGKILL, the program lives on, unless the service manager ends it.
        """
        limit = self.timeout if timeout is None else timeout
        check(argv, cwd, env, limit, stdin)
        program, began = argv[0], anyio.current_time()
        out, err = Capture(self.output_max_bytes), Capture(self.output_max_bytes)

        variables = {**self.environment, **(env or {}), **(own or {})}
        process = await _start(argv, cwd, variables, stdin=PIPE if stdin else DEVNULL)
        exit_code = await _supervise(process, out, err, stdin or "", limit, self.grace)

        seen: dict[str, object] = {
            "exit_code": exit_code,
            "stdout": out.text(),
            "stderr": err.text(),
            "stdout_bytes": out.total_bytes,
            "stderr_bytes": err.total_bytes,
            "seconds": round(anyio.current_time() - began, 6),
        }
        if exit_code is None:
            raise TimeoutError(f"{program} was stopped: it was not done after {limit:g} seconds{_output_tail(err)}")
        if exit_code != 0:
            raise CommandFailed(f"{program} {_ending_text(exit_code)}{_output_tail(err)}", **seen)
        return seen


def select_environment(names: Iterable[str], environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of `environ` whose names are in `names`."""
    return {name: environ[name] for name in names if name in environ}


def check(argv: Any, cwd: Any, env: Any, timeout: Any, stdin: Any) -> None:
    """Refuse what no attempt could run: raise Fail. Nothing is taken to be of any type."""
    if not isinstance(argv, list) or not argv or not all(isinstance(argument, str) for argument in argv) or not argv[0]:
        raise refusal("argv must be a list of texts, the program first")
    for name, text in {"cwd": cwd, "stdin": stdin}.items():
        if text is not None and not isinstance(text, str):
            raise refusal(f"{name} must be a text")
    if env is not None and not isinstance(env, dict):
        raise refusal("env must be names and texts")
    env = env or {}
    if bad := [name for name in env if not isinstance(name, str) or not _ENVIRONMENT_NAME.fullmatch(name)]:
        raise refusal(f"not a name for an environment variable: {bad[0]!r:.80}")
    if not all(isinstance(value, str) for value in env.values()):
        raise refusal("the values of env must be texts")
    for text in (*argv, cwd or "", *env.values()):
        if "\0" in text:
            raise refusal(f"argv, cwd and env must not contain NUL characters: {text[:40]!r}")
    try:
        "".join((*argv, cwd or "", *env.values(), stdin or "")).encode()
    except UnicodeEncodeError as error:
        raise refusal("argv, cwd, env and stdin must be valid Unicode") from error
    if not is_timeout(timeout):
        raise refusal("timeout must be a positive number of seconds, at most a year")


def is_timeout(value: Any) -> TypeGuard[float]:
    """Return whether it is a time that a program may be given."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value <= TIMEOUT_MAX_SECONDS


async def _start(argv: list[str], cwd: str | None, env: Mapping[str, str], *, stdin: int) -> Process:
    try:
        # Shielded: a program that was started and then lost to a cancellation could not be stopped.
        with anyio.CancelScope(shield=True):
            process = await anyio.open_process(
                argv, stdin=stdin, stdout=PIPE, stderr=PIPE, cwd=cwd, env=env, start_new_session=True
            )
    except OSError as error:
        if not _has_not_started(error):
            raise
        where = f" in {cwd[:200]!r}" if cwd is not None and error.filename == cwd else ""
        message = f"cannot start {argv[0][:200]!r}{where}: {error.strerror}"
        if error.errno in _HOPELESS:
            raise refusal(message) from error
        raise NoEffect(message) from error
    return process


def _has_not_started(error: OSError) -> bool:
    """Return whether the process was not made, or could not become the program. A later failure (of its pipes, or of
    the wait for its end) leaves a running program."""
    made_by = Popen.__init__.__code__
    return any(frame.f_code is made_by for frame, _ in traceback.walk_tb(error.__traceback__))


async def _supervise(
    process: Process, out: Capture, err: Capture, stdin: str, timeout: float, grace: float
) -> int | None:
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
                await _read_output(out, err)
        finally:
            with anyio.CancelScope(shield=True):
                try:
                    await stop_group(process, grace=grace)
                    await _read_output(out, err)
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


async def _read_output(*captures: Capture) -> None:
    with anyio.move_on_after(EOF_SECONDS):
        for capture in captures:
            await capture.ended.wait()


def _ending_text(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exited with {exit_code}"
    name = Signals(-exit_code).name if -exit_code in set(Signals) else f"signal {-exit_code}"
    return f"was killed by {name}"


def _output_tail(err: Capture) -> str:
    text = err.text().strip()
    shown = text if len(text) <= LAST_WORDS_CHARACTERS else "..." + text[-LAST_WORDS_CHARACTERS:]
    return f": {shown}" if shown else ""


def refusal(message: str) -> Fail:
    """Return the error of a program that did not run, and that no other attempt could run."""
    return Fail(ErrorCode.VALIDATION_ERROR, message)
