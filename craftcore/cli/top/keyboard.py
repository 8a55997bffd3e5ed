"""A terminal whose keys are read one by one, and which is as it was when that is over, however it ends."""

from __future__ import annotations

import os
import select
import signal
import sys
import termios
import tty
from types import FrameType
from typing import Any

KEY, RESIZED, NOTHING, GONE = "key", "resized", "nothing", "gone"


class Keyboard:
    """Use it with `with`, in the main thread, where standard input is a terminal.

    Ctrl-C raises KeyboardInterrupt as ever. SIGTERM and SIGHUP raise SystemExit, so that the terminal is restored.
    Ctrl-Z is ignored, because it would leave the terminal as it is.
    """

    def __enter__(self) -> Keyboard:
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._wakeup_before = signal.set_wakeup_fd(self._wake_write, warn_on_full_buffer=False)
        self._handlers = {number: signal.signal(number, handler) for number, handler in _HANDLERS.items()}
        tty.setcbreak(self._input)
        quiet = termios.tcgetattr(self._input)
        quiet[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(self._input, termios.TCSADRAIN, quiet)
        return self

    def __exit__(self, *_: object) -> None:
        try:
            termios.tcsetattr(self._input, termios.TCSAFLUSH, self._before)
        except termios.error:
            pass  # the terminal is gone
        signal.set_wakeup_fd(self._wakeup_before)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        os.close(self._wake_read)
        os.close(self._wake_write)

    def wait(self, seconds: float) -> tuple[str, str]:
        """Return what happens first within `seconds`: (KEY, the key), or RESIZED, NOTHING, GONE and an empty text."""
        ready, _, _ = select.select([self._input, self._wake_read], [], [], seconds)
        if self._wake_read in ready:
            os.read(self._wake_read, 1024)
            return RESIZED, ""
        if self._input not in ready:
            return NOTHING, ""
        try:
            typed = os.read(self._input, 1024)
        except OSError:
            typed = b""
        return (KEY, typed.decode(errors="replace")) if typed else (GONE, "")


def _end(number: int, _frame: FrameType | None) -> None:
    raise SystemExit(128 + number)


def _on_resize(_number: int, _frame: FrameType | None) -> None:
    return  # the wakeup descriptor has told who waits


_HANDLERS: dict[int, Any] = {signal.SIGWINCH: _on_resize, signal.SIGTERM: _end, signal.SIGHUP: _end}
