"""Functions for worker processes, in a module with few imports because each worker process imports it."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import craftcore
from craftcore import Continue, Fail, Retry, Snooze, TriggerView

MAIN = os.getpid()


@dataclass(frozen=True)
class Sum:
    """A typed result."""

    total: int
    pid: int


@dataclass(frozen=True)
class Cat:
    """One of two classes with the same JSON."""

    name: str


@dataclass(frozen=True)
class Dog:
    """The other one."""

    name: str


@dataclass(frozen=True)
class Pets:
    """A class whose field is a union without tags, which pydantic reads."""

    all: list[Cat | Dog]


def choose_pets() -> Pets:
    return Pets([Cat("Tom"), Dog("Rex")])


def choose_cats() -> Pets:
    return Pets([Cat("Tom")])


def add(*numbers: int) -> Sum:
    return Sum(sum(numbers), os.getpid())


def describe(path: str, *, trigger: TriggerView) -> dict[str, Any]:
    return {"path": path, "session": trigger.session_id, "pid": os.getpid()}


def wait_for_work(database: str) -> Any:
    """Emit work, and wait for its result."""
    from craftcore import Producer  # as expensive as all other imports of this module together

    with Producer(database) as producer:
        return producer.emit("inner").result()


def note_pid(file: str) -> int:
    """Append the pid of this process to a file, and return the pid."""
    with open(file, "a") as pids:
        pids.write(f"{os.getpid()}\n")
    return os.getpid()


def die(number: int = signal.SIGKILL) -> None:
    os.kill(os.getpid(), number)


def die_once(file: str) -> str:
    """Kill this process in the first call."""
    if not os.path.exists(file):
        note_pid(file)
        die()
    return "alive"


def leave(code: int) -> NoReturn:
    os._exit(code)


def hang(file: str) -> None:
    """Run C code that never returns, so that no other thread and no signal handler of this process runs.

    The code waits for a mutex that this thread has locked, and keeps the interpreter's lock. A loop would use the
    processor.
    """
    note_pid(file)
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(128)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)


def hang_with_child(file: str) -> None:
    """Wait for a child process that never ends."""
    program = subprocess.Popen(["sleep", "3600"])
    with open(file, "a") as pids:
        pids.write(f"{program.pid}\n")
    hang(file)


def wait_for(begun: str, file: str) -> str:
    """Return once the file exists."""
    note_pid(begun)
    while not os.path.exists(file):
        time.sleep(0.01)
    return "ended"


def make_lock() -> Any:
    return threading.Lock()


def return_awaitable() -> Any:
    async def wait() -> None: ...

    return wait()


def make_text(length: int) -> str:
    return "x" * length


class Holder(Exception):
    """An object that cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.lock = threading.Lock()


class TwoPart(ValueError):
    """An object that can be pickled, and whose unpickling fails."""

    def __init__(self, left: str, right: str) -> None:
        super().__init__(f"{left} and {right}")


class Changing(ValueError):
    """An object that has another text after a round trip through pickle."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no {name}")


class Homesick(ValueError):
    """An object whose unpickling succeeds in a worker process and fails in the daemon."""

    def __reduce__(self) -> Any:
        return _unpickle, (os.getpid(), str(self))


def _unpickle(pid: int, text: str) -> Homesick:
    if pid != os.getpid():
        raise SystemExit("not here")
    return Homesick(text)


class Sleepy(ValueError):
    """An object whose unpickling ends in a worker process and takes long in the daemon."""

    def __reduce__(self) -> Any:
        return _unpickle_slowly, (os.getpid(), str(self))


def _unpickle_slowly(pid: int, text: str) -> Sleepy:
    if pid != os.getpid():
        time.sleep(10)
    return Sleepy(text)


class NoPage(Fail):
    """A permanent failure that cannot be pickled."""

    def __init__(self, number: int, *, page: str) -> None:
        super().__init__("NO_PAGE", f"page {page} is gone", number=number)


def raise_holder() -> NoReturn:
    raise Holder("it holds a lock")


def raise_two_part() -> NoReturn:
    raise TwoPart("this", "that")


def raise_changing() -> NoReturn:
    raise Changing("page")


def raise_homesick() -> NoReturn:
    raise Homesick("far away")


def raise_sleepy() -> NoReturn:
    raise Sleepy("tired")


def raise_no_page() -> NoReturn:
    raise NoPage(7, page="seven")


def raise_key() -> NoReturn:
    raise KeyError("a")


def raise_exit() -> NoReturn:
    sys.exit("enough")


def raise_interrupt() -> NoReturn:
    raise KeyboardInterrupt


def snooze_once(file: str) -> str:
    if not os.path.exists(file):
        note_pid(file)
        raise Snooze("too early", until=time.time() + 0.05)
    return "awake"


def fail() -> NoReturn:
    raise Fail("NO_SUCH_PAGE", "it is gone")


def retry_once(file: str) -> str:
    if not os.path.exists(file):
        note_pid(file)
        raise Retry("busy", after=0)
    return "free"


def go_on() -> Continue[int]:
    return Continue(1)


def fork_and_return(file: str) -> int:
    """Fork, and let the child return, too; return the exit code of the child."""
    pid = os.fork()
    if pid == 0:
        return 0
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def has_open(path: str) -> bool:
    """Return whether this process has that file open."""
    inode = os.stat(path).st_ino
    return any(inode == _inode(descriptor) for descriptor in range(256))


def _inode(descriptor: int) -> int | None:
    try:
        return os.fstat(descriptor).st_ino
    except OSError:
        return None


def is_alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def find_current() -> object:
    return craftcore.current()
