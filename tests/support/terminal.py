"""A terminal with a shell, and the actions of a person in it: type a line, read, and press Ctrl-C."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.processes import PATIENCE, environment

PROMPT = re.compile(r"<(\d+)>\$ \Z")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
TEST_VARIABLES = (
    "PYTHONPATH",
    "PYTHONHOME",
    "VIRTUAL_ENV",
    "PYTEST_",
    "PS1",
    "BASH_ENV",
    "NO_COLOR",
    "COLUMNS",
    "LINES",
)
"""Variables of the test environment that a new user does not have."""

SIZE = (50, 132)
"""Lines and columns. The width is that of the README's lines, so that no table is folded."""


class Terminal:
    """An interactive bash on a pseudo-terminal. Its prompt has the exit code of the previous line."""

    def __init__(self, screen: int, process: subprocess.Popen[bytes]) -> None:
        self._screen = screen
        self._process = process
        self.seen = ""

    def type(self, line: str) -> None:
        """Type a line without waiting for its end. `seen` is cleared."""
        self.seen = ""
        os.write(self._screen, line.encode() + b"\n")

    def run(self, line: str, patience: float = PATIENCE) -> int:
        """Type a line, wait for its end, and return its exit code. Its output is in `seen`."""
        self.type(line)
        return self.ended(patience)

    def ended(self, patience: float = PATIENCE) -> int:
        """Wait for the prompt; return the exit code of the previous line."""
        deadline = time.monotonic() + patience
        while not (prompt := PROMPT.search(self.seen)):
            assert time.monotonic() < deadline, f"no end in {patience:.0f} s:\n{self.seen}"
            self.read()
        self.seen = self.seen[: prompt.start()]
        return int(prompt[1])

    def until(self, wanted: re.Pattern[str]) -> None:
        """Read until the text appears."""
        deadline = time.monotonic() + PATIENCE
        while not wanted.search(self.read()):
            assert time.monotonic() < deadline, f"{wanted.pattern} does not appear:\n{self.seen}"

    def read(self) -> str:
        """Read all available output, and wait a moment for more."""
        if select.select([self._screen], [], [], 0.05)[0]:
            with contextlib.suppress(OSError):  # the shell has ended
                self.seen += os.read(self._screen, 65_536).decode(errors="replace").replace("\r\n", "\n")
            self.seen = COLOUR.sub("", self.seen)
        return self.seen

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        os.write(self._screen, b"\x03")


@contextlib.contextmanager
def a_terminal(folder: Path, **env: str) -> Iterator[Terminal]:
    """Run a terminal in that folder, and kill its processes at the end of the block."""
    screen, shell_side = os.openpty()
    settings = termios.tcgetattr(shell_side)
    settings[3] &= ~termios.ECHO
    termios.tcsetattr(shell_side, termios.TCSANOW, settings)
    termios.tcsetwinsize(shell_side, SIZE)
    # a session leader that opens the terminal makes it its controlling terminal
    shell = """PS1='<$?>$ ' exec bash --noprofile --norc --noediting -i <"$0" >"$0" 2>&1"""
    user_environment = {name: value for name, value in environment().items() if not name.startswith(TEST_VARIABLES)}
    process = subprocess.Popen(
        ["bash", "-c", shell, os.ttyname(shell_side)],
        cwd=folder,
        env={**user_environment, "HISTFILE": "", **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    terminal = Terminal(screen, process)
    try:
        assert terminal.ended() == 0
        yield terminal
    finally:
        for pid in session_of(process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
        os.close(shell_side)
        os.close(screen)


def session_of(leader: int) -> list[int]:
    """Return the pids of all processes in the session of that shell."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.getsid(int(process.name)) == leader:
                found.append(int(process.name))
    return found
