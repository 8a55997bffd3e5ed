"""A worker process as the daemon sees it: a program at the other end of a socket, in a process group of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import anyio

from craftcore.engine.workers.worker_main import LENGTH_BYTES, PR_GET_DUMPABLE, SIGNALS, call_prctl
from craftcore.errors import WorkerDied
from craftcore.forks import run_in_forked_children

CHUNK_BYTES = 1 << 20
POLL_SECONDS = 0.005
"""How often an end is looked for: no portable call waits for a process without a thread."""

EXIT_SECONDS = 2.0
"""How long a process whose connection is closed may take to exit."""

KILL_SECONDS = 5.0
"""How long a killed process may take to end: it may wait for a dead disk."""

PROGRAM = "import sys; sys.path[:] = {path!r}; from craftcore.engine.workers.worker_main import main; main({arguments})"


class WorkerProcess:
    """A spawned Python process with the import path, environment and outputs of the daemon.

    It is started in the thread of the event loop: the kernel ends it together with the thread that started it.
    """

    def __init__(self) -> None:
        """Raise WorkerDied when the system refuses another process."""
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        descriptor = theirs.fileno()
        path = [str(entry) for entry in sys.path]
        arguments = f"{descriptor}, {os.getpid()}, {max(call_prctl(PR_GET_DUMPABLE), 0)}"
        command = [sys.executable, "-P", "-c", PROGRAM.format(path=path, arguments=arguments), "craftcore-worker"]
        try:
            with theirs, _blocked_signals():
                self._process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=[descriptor], process_group=0
                )
        except OSError as error:
            self._socket.close()
            raise WorkerDied(f"a worker process cannot be started: {error.strerror}") from error
        self._keep_in_forks = run_in_forked_children(self._socket.close)
        self._was_killed = False
        self.is_free = True
        """It waits for a call."""

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    async def ask(self, request: bytes) -> bytes | None:
        """Return the answer to a request; None when the process ended. When this is cancelled it is not free again."""
        self.is_free = False
        try:
            await self._send(len(request).to_bytes(LENGTH_BYTES))
            await self._send(request)
            length = await self._receive(LENGTH_BYTES)
            answer = await self._receive(int.from_bytes(length))
        except (OSError, EOFError):
            await self._wait(EXIT_SECONDS)
            return None
        self.is_free = True
        return answer

    async def end(self) -> None:
        """Let a free process exit, and kill any other one with the processes that it started. Cancellation does not
        shorten it, and its time is bounded."""
        with anyio.CancelScope(shield=True):
            if self.is_free:
                self._socket.close()
                await self._wait(EXIT_SECONDS)
            if self._process.returncode is None:  # not reaped, so its number is not given anew
                self._was_killed = True
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._process.pid, signal.SIGKILL)
                await self._wait(KILL_SECONDS)
        self.forget()

    def forget(self) -> None:
        """Release what is left of an ended process."""
        self._socket.close()
        self._keep_in_forks()

    @property
    def cause_of_death(self) -> str:
        """How it ended by itself, in words."""
        code = self._process.returncode
        if code is None or self._was_killed:
            return "closed its connection"
        if code >= 0:
            return f"ended with exit code {code}"
        with suppress(ValueError):
            return f"was killed by {signal.Signals(-code).name}"
        return f"was killed by signal {-code}"

    async def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            try:
                rest = rest[self._socket.send(rest[:CHUNK_BYTES]) :]
            except BlockingIOError:
                await anyio.wait_writable(self._socket)

    async def _receive(self, size: int) -> bytes:
        """Return that number of bytes. Raises EOFError."""
        received = bytearray()
        while len(received) < size:
            await anyio.wait_readable(self._socket)
            chunk = self._socket.recv(min(size - len(received), CHUNK_BYTES))
            if not chunk:
                raise EOFError
            received += chunk
        return bytes(received)

    async def _wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            while self.is_alive:  # noqa: ASYNC110 - see POLL_SECONDS
                await anyio.sleep(POLL_SECONDS)


@contextmanager
def _blocked_signals() -> Iterator[None]:
    """Let a process that is started in the block begin with these signals blocked, until it can ignore them."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
