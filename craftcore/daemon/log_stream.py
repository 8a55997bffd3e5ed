"""The stream of the log. A reader that stops reading, or exits, does not delay the work that logs.

A line is written at once while the stream takes it. When it does not, lines wait in a queue, and a thread writes them
as the reader goes on. A line that finds the queue full is dropped, and a later line has the count.
"""

from __future__ import annotations

import atexit
import os
import select
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO

from craftcore.forks import run_in_forked_children

QUEUE_MAX_BYTES = 1 << 20
AT_EXIT_SECONDS = 1.0
"""How long the end of the process waits for a reader that does not read."""


class LogStream:
    """Writes whole lines in their order, from any thread."""

    def __init__(self, stream: TextIO | None, count_line: Callable[[int], str]) -> None:
        """Take the stream, and the function that returns the line about a number of dropped lines."""
        self._stream = stream
        self._descriptor = _open_without_waiting(stream)
        self._encoding = getattr(stream, "encoding", None) or "utf-8"
        self._count_line = count_line
        self._start_again()
        if self._descriptor is not None:
            run_in_forked_children(self._start_again)
            atexit.register(self.drain, AT_EXIT_SECONDS)

    def _start_again(self) -> None:
        """Forget the queue. In a forked child the lines are the parent's, and so is the thread."""
        self._turn = threading.RLock()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._dropped = 0
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> None:
        """Write the line, or let it wait. Does nothing when the reader has exited or the stream is closed."""
        if self._stream is None or self._stream.closed:
            return
        with suppress(OSError, ValueError), self._turn:
            if self._descriptor is None:
                self._stream.write(line + "\n")
                self._stream.flush()
            else:
                self._write_or_queue(self._descriptor, self._encode(line))

    def drain(self, seconds: float) -> None:
        """Wait until no line waits, at most this long."""
        if (thread := self._thread) is not None:
            thread.join(seconds)

    def _encode(self, line: str) -> bytes:
        return (line + "\n").encode(self._encoding, "backslashreplace")

    def _write_or_queue(self, descriptor: int, data: bytes) -> None:
        if self._thread is None:
            data = _write_what_fits(descriptor, data)
            if not data:
                return
            self._queue(data)  # the rest of a line is not dropped
            self._start_thread(descriptor)
        elif self._waiting_bytes + len(data) > QUEUE_MAX_BYTES:
            self._dropped += 1
        else:
            self._queue_count()
            self._queue(data)

    def _queue(self, data: bytes) -> None:
        self._waiting.append(data)
        self._waiting_bytes += len(data)

    def _queue_count(self) -> None:
        if self._dropped:
            self._queue(self._encode(self._count_line(self._dropped)))
            self._dropped = 0

    def _start_thread(self, descriptor: int) -> None:
        thread = threading.Thread(target=self._write_waiting, args=(descriptor,), name="craftcore log", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the machine has no thread left: the next line tries again
            self._dropped += len(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
        else:
            self._thread = thread

    def _write_waiting(self, descriptor: int) -> None:
        """Write lines as the reader takes them, until none waits."""
        while True:
            with self._turn:
                if not self._waiting:
                    self._queue_count()
                if not self._waiting:
                    self._thread = None
                    return
                data = self._waiting.popleft()
                self._waiting_bytes -= len(data)
            with suppress(OSError, ValueError):
                while data := _write_what_fits(descriptor, data):
                    _wait_for_reader(descriptor, None)


def _open_without_waiting(stream: TextIO | None) -> int | None:
    """Return the descriptor for the lines; None for a stream that has none.

    A pipe or terminal is opened once more, so that a write to it never waits: the flag of a descriptor that other
    programs share would change it for them. Where that is refused, it is asked for room before each write.
    """
    try:
        descriptor = None if stream is None else stream.fileno()
        if descriptor is None or not (stat.S_ISFIFO(os.fstat(descriptor).st_mode) or os.isatty(descriptor)):
            return descriptor
    except (OSError, ValueError, AttributeError):
        return None
    try:
        return os.open(f"/dev/fd/{descriptor}", os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY)
    except OSError:
        return descriptor


def _write_what_fits(descriptor: int, data: bytes) -> bytes:
    """Write while the reader takes it. Return the rest. A pipe that is ready takes PIPE_BUF bytes without waiting."""
    while data and _wait_for_reader(descriptor, 0):
        try:
            data = data[os.write(descriptor, data[: select.PIPE_BUF]) :]
        except BlockingIOError:
            break
    return data


def _wait_for_reader(descriptor: int, milliseconds: int | None) -> bool:
    """Return whether a write would not wait: there is room, or the reader has exited."""
    poll = select.poll()
    poll.register(descriptor, select.POLLOUT)
    return bool(poll.poll(milliseconds))
