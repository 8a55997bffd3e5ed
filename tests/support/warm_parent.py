"""Real processes that start in milliseconds, because a warm parent forks them.

An interpreter takes a third of a second to import craftcore. The warm parent imports it once for each test process. It
runs no thread and opens no database, so forking it is safe. A child has its own folder, mask, environment, arguments
and files, and runs its program as `__main__`. At its end it waits for its threads, calls the functions of `atexit`,
flushes its output and destroys the objects of the program, as an interpreter does. It does not destroy the modules of
its parent, unless FINALIZES is in its environment. Destroying them would copy their memory, which takes 60 ms of
processor.

A test of the interpreter itself (imports, memory, encodings, closed files, Ctrl-C in a terminal) starts a new one.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import io
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any, TextIO

ROOT = Path(__file__).parents[2]

READ_BY_THE_INTERPRETER = ("PYTHON", "LC_", "LANG", "LD_", "MALLOC_")
"""Prefixes of variables that act while an interpreter starts, so that a child of a warm parent would ignore them."""

FINALIZES = "CRAFTCORE_TESTS_FINALIZES"
"""The environment variable with which a child destroys all its modules at its end."""

NOT_PRELOADED = ("craftcore.temporal", "craftcore.cli.temporal", "craftcore.testing")
"""Folders that other programs must not import, because the cluster's library changes the end of a process."""

PRELOADED = ("anyio._backends._asyncio", "aiosmtplib", "httpx2", "prometheus_client", "rich.live", "uvicorn")
"""Libraries that craftcore imports when it calls them."""

seconds_of_children: list[float] = []
"""The processor time of each ended child. The kernel adds it to the warm parent, not to this process."""


class WarmProcess:
    """A forked process, with the part of the interface of `subprocess.Popen` that tests use."""

    def __init__(self, args: Sequence[str], pid: int, descriptor: int, ended: socket.socket) -> None:
        self.args = args
        self.pid = pid
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        self._descriptor = descriptor
        self._ended = ended

    def poll(self) -> int | None:
        """Return the exit code, minus a signal's number, or None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end, without limit for None. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        if self.returncode is None:
            if not select.select([self._ended], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(list(self.args), timeout or 0)
            status, seconds = self._ended.recv(64).split()
            self.returncode = os.waitstatus_to_exitcode(int(status))
            seconds_of_children.append(float(seconds))
            self._ended.close()
            os.close(self._descriptor)
        return self.returncode

    def communicate(self, input: bytes | None = None, timeout: float | None = None) -> tuple[bytes, bytes]:
        """Return all output until the end. With two pipes, one of the outputs must be short."""
        if self.stdin is not None:
            self.stdin.write(input or b"")
            self.stdin.close()
        printed = []
        for pipe in (self.stdout, self.stderr):
            printed.append(b"" if pipe is None else pipe.read())
            if pipe is not None:
                pipe.close()
        self.wait(timeout)
        return printed[0], printed[1]

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended. A process with a reused pid does not receive it."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):  # the process has ended, and the report has not arrived
                signal.pidfd_send_signal(self._descriptor, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> WarmProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None:  # the block failed, and the wait below must not hang
            self.kill()
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        self.wait()


def start(
    arguments: Sequence[str | Path],
    *,
    cwd: Path | str | None = None,
    env: Mapping[str, str] | None = None,
    stdin: int | IO[bytes] | None = None,
    stdout: int | IO[bytes] | None = None,
    stderr: int | IO[bytes] | None = None,
    library: str = "",
) -> WarmProcess:
    """Start a process with the arguments of a new interpreter: `-m MODULE`, `-c CODE` or a file, and its arguments.

    The other parameters are those of `subprocess.Popen`. `library`: a module that this child's parent has also
    imported; each library has a parent of its own. Raises ValueError for an environment that the interpreter itself
    would read.
    """
    environment = dict(os.environ if env is None else env)
    for name in {*environment, *os.environ}:
        if name.startswith(READ_BY_THE_INTERPRETER) and environment.get(name) != os.environ.get(name):
            raise ValueError(f"{name} acts on an interpreter that starts: start one")
    own_ends: list[IO[bytes] | None] = []
    child_files = [_descriptor(number, file, own_ends) for number, file in enumerate((stdin, stdout, stderr))]
    request = {
        "arguments": [str(word) for word in arguments],
        "cwd": str(cwd or Path.cwd()),
        "env": environment,
        "umask": _umask(),
    }
    try:
        process = _warm_parent(library).fork(request, child_files)
    finally:
        for number, file in enumerate((stdin, stdout, stderr)):
            if isinstance(file, int) and file in (subprocess.PIPE, subprocess.DEVNULL):
                os.close(child_files[number])
    process.stdin, process.stdout, process.stderr = own_ends
    return process


def _umask() -> int:
    """Return the umask of this process without changing it."""
    [mask] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line[:6] == "Umask:"]
    return int(mask, 8)


def _descriptor(number: int, file: int | IO[bytes] | None, own_ends: list[IO[bytes] | None]) -> int:
    """Return the descriptor for a child's standard file, and append this side of a pipe to `own_ends`."""
    if file == subprocess.PIPE:
        reads, writes = os.pipe()
        own_ends.append(open(writes, "wb") if number == 0 else open(reads, "rb"))  # noqa: SIM115 - the caller closes it
        return reads if number == 0 else writes
    own_ends.append(None)
    if file is None:
        return number
    if file == subprocess.DEVNULL:
        return os.open(os.devnull, os.O_RDWR)
    return file if isinstance(file, int) else file.fileno()


class _WarmParent:
    """The client's side of the process that forks."""

    def __init__(self, library: str) -> None:
        self._control, served = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with served:
            command = [sys.executable, "-m", "tests.support.warm_parent", str(served.fileno()), library]
            self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[served.fileno()], stdin=subprocess.DEVNULL)
        self._lock = threading.Lock()

    def fork(self, request: dict[str, Any], files: list[int]) -> WarmProcess:
        """Start a process with these standard files."""
        ended, reports = socket.socketpair()
        with reports, open(os.memfd_create("request"), "w+b") as text:
            text.write(json.dumps(request).encode())
            text.flush()
            with self._lock:
                socket.send_fds(self._control, [b"fork"], [text.fileno(), reports.fileno(), *files])
            answer, [descriptor], *_ = socket.recv_fds(ended, 32, 1)
        return WarmProcess([sys.executable, *request["arguments"]], int(answer), descriptor, ended)

    def close(self) -> None:
        self._control.close()
        self._process.wait()


_parents: dict[str, _WarmParent] = {}
"""The warm parents of this process, by the library that each has imported."""


def _warm_parent(library: str) -> _WarmParent:
    """Return a warm parent of this process, started at its first use."""
    if library not in _parents:
        _parents[library] = _WarmParent(library)
    return _parents[library]


def close() -> None:
    """End the warm parents that were started. Another call of `start` would start a new one."""
    while _parents:
        _parents.popitem()[1].close()


def _serve(control: socket.socket) -> dict[str, Any]:
    """Fork until the client has disconnected, and report each end. Returns only in a child, with its request."""
    children: dict[int, tuple[int, socket.socket]] = {}
    while True:
        for readable in select.select([control.fileno(), *children], [], [])[0]:
            if readable in children:
                os.close(readable)
                _report_end(*children.pop(readable))
                continue
            word, descriptors, *_ = socket.recv_fds(control, 32, 5)
            if not word:
                os._exit(0)
            pid = os.fork()
            if not pid:
                control.close()
                for descriptor in children:
                    os.close(descriptor)
                return _take(descriptors)
            text, caller, *files = descriptors
            reports, descriptor = socket.socket(fileno=caller), os.pidfd_open(pid)
            socket.send_fds(reports, [str(pid).encode()], [descriptor])
            children[descriptor] = pid, reports
            for taken in (text, *files):
                os.close(taken)


def _report_end(pid: int, reports: socket.socket) -> None:
    _, status, used = os.wait4(pid, 0)
    with reports, contextlib.suppress(BrokenPipeError):  # the test did not wait for the process
        reports.send(f"{status} {used.ru_utime + used.ru_stime}".encode())


def _take(descriptors: list[int]) -> dict[str, Any]:
    """Receive the request, and replace the standard files of this process by those of the request."""
    text, reports, *files = descriptors
    os.close(reports)
    for number, descriptor in enumerate(files):
        os.dup2(descriptor, number)
        os.close(descriptor)
    with open(text, "rb") as file:
        file.seek(0)
        request: dict[str, Any] = json.load(file)
    return request


def _become(request: dict[str, Any]) -> None:
    """Set the folder, umask and environment of the request, and open the standard files as an interpreter does."""
    os.chdir(request["cwd"])
    os.umask(request["umask"])
    os.environ.clear()
    os.environ.update(request["env"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = sys.__stdin__ = _open(0, sys.stdin)  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _open(1, sys.stdout)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _open(2, sys.stderr)  # type: ignore[misc]


def _open(number: int, inherited: TextIO) -> io.TextIOWrapper:
    """Open a standard file with the encoding of the interpreter, and the buffering for its kind of file."""
    unbuffered = number > 0 and bool(os.environ.get("PYTHONUNBUFFERED"))
    raw = open(number, "wb" if number else "rb", 0 if unbuffered else -1, closefd=False)  # noqa: SIM115 - never closed
    return io.TextIOWrapper(
        raw,
        encoding=inherited.encoding,
        errors=inherited.errors,
        line_buffering=number == 2 or os.isatty(number),
        write_through=unbuffered,
    )


def _run(arguments: list[str]) -> None:
    """Run a program as `__main__`, with the path that a new interpreter would have."""
    kind, *rest = arguments
    sys.modules["__main__"] = main = ModuleType("__main__")
    if kind == "-m":
        sys.path[0] = os.getcwd()
        sys.argv = rest
        runpy._run_module_as_main(rest[0])  # type: ignore[attr-defined]
    elif kind == "-c":
        sys.path[0] = ""
        sys.argv = ["-c", *rest[1:]]
        exec(compile(rest[0], "<string>", "exec"), main.__dict__)
    else:
        sys.path[0] = str(Path(kind).resolve().parent)
        sys.argv = arguments
        main.__dict__["__file__"] = kind
        exec(compile(Path(kind).read_bytes(), kind, "exec"), main.__dict__)


def _end(exit_code: int) -> None:
    """End this process. Returns when the output cannot be flushed, which the interpreter reports at its own end."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    sys.modules["__main__"].__dict__.clear()
    gc.collect()  # scans only objects of this process, because the parent froze the others
    with contextlib.suppress(AttributeError, OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _preload(library: str) -> None:
    """Import the modules that children need."""
    for name in (*PRELOADED, *filter(None, [library])):
        import_module(name)
    import craftcore
    from craftcore.version import installed_version

    for module in pkgutil.walk_packages(craftcore.__path__, "craftcore."):
        if not module.name.startswith(NOT_PRELOADED) and not module.name.endswith("__main__"):
            import_module(module.name)
    installed_version()
    assert threading.active_count() == 1, "a fork copies the locks of a thread in any state"
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    _preload(sys.argv[2])
    with socket.socket(fileno=int(sys.argv[1])) as client:
        asked = _serve(client)
    _become(asked)
    exit_code = 0
    try:
        _run(asked["arguments"])
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        exit_code = end.code or 0
    if FINALIZES not in asked["env"]:
        _end(exit_code)
    sys.exit(exit_code)
