"""The main function of a worker process: read a call, run it, write the answer, until the daemon closes the socket.

The kernel kills the process when the daemon dies, also in code that never returns to the interpreter.
"""

from __future__ import annotations

import ctypes
import os
import pickle
import signal
import socket
import sys
from contextlib import suppress
from functools import partial
from types import FrameType
from typing import BinaryIO

from craftcore import forks
from craftcore.engine.workers.answer import encode_answer
from craftcore.engine.workers.encoded import Encoded

PR_SET_PDEATHSIG, PR_GET_DUMPABLE, PR_SET_DUMPABLE = 1, 3, 4

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""Signals that mean the daemon. It ends its worker processes itself, after running work had its time."""

LENGTH_BYTES = 8


def main(descriptor: int, daemon: int, dumpable: int) -> None:
    """Serve the daemon with this process ID at the other end of the socket. `dumpable`: that of the daemon, whose
    environment this process has."""
    if not die_with_parent(daemon):
        return
    call_prctl(PR_SET_DUMPABLE, dumpable)
    for number in SIGNALS:
        signal.signal(number, _ignore)  # not SIG_IGN: programs that the function starts would inherit that
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    channel = socket.socket(fileno=descriptor)
    channel.set_inheritable(False)
    forks.run_in_forked_children(partial(os.close, descriptor))  # `channel` stays open with its file
    with suppress(OSError), channel, channel.makefile("rb") as requests:
        while (request := read_frame(requests)) is not None:
            answer = encode_answer(_answer(request))
            channel.sendall(len(answer).to_bytes(LENGTH_BYTES))
            channel.sendall(answer)


def read_frame(requests: BinaryIO) -> bytes | None:
    """Return the next frame; None at its end."""
    length = requests.read(LENGTH_BYTES)
    if len(length) < LENGTH_BYTES:
        return None
    frame = requests.read(size := int.from_bytes(length))
    return frame if len(frame) == size else None


def die_with_parent(parent: int) -> bool:
    """Let the kernel kill this process when its parent dies. Return False when the parent has died before."""
    call_prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    return os.getppid() == parent


def call_prctl(option: int, value: int = 0) -> int:
    """Call prctl of the C library; -1 where the system refuses it."""
    try:
        return int(ctypes.CDLL(None).prctl(option, value, 0, 0, 0))
    except (OSError, AttributeError):
        return -1


def _answer(request: bytes) -> Encoded | BaseException:
    began_in = forks.generation
    try:
        result: Encoded = pickle.loads(request)()  # noqa: S301 - from our own daemon
        return result
    except BaseException as error:  # SystemExit, too, is a failure of the function
        return error
    finally:
        forks.require_not_forked(began_in)
        for stream in (sys.stdout, sys.stderr):
            with suppress(Exception):  # user code has closed or replaced it
                stream.flush()


def _ignore(_number: int, _frame: FrameType | None) -> None:
    pass
