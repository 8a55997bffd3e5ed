"""Telling systemd how the daemon is: one datagram each, no library.

https://www.freedesktop.org/software/systemd/man/latest/sd_notify.html
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import MutableMapping

STATUS_MAX_CHARACTERS = 300
PATIENCE_SECONDS = 1.0
"""How long the words that must arrive (ready, stopping) wait for room in systemd's queue. Others do not wait."""


class Notifier:
    """Sends the state of the daemon to the service manager, if there is one. Never raises.

    Each method returns whether the word was sent.
    """

    def __init__(self, address: str | None = None, watchdog_seconds: float | None = None) -> None:
        self._address = address
        self.watchdog_seconds = watchdog_seconds
        """The interval within which systemd wants to hear `watchdog`; None when it does not watch."""

    @property
    def is_supervised(self) -> bool:
        """True when there is a service manager to notify."""
        return self._address is not None

    @classmethod
    def from_environment(cls, environ: MutableMapping[str, str]) -> Notifier:
        """Return what systemd asked for, taken out of the environment, so that no subprocess speaks in our name."""
        address = environ.pop("NOTIFY_SOCKET", "")
        interval = environ.pop("WATCHDOG_USEC", "")
        watched = environ.pop("WATCHDOG_PID", str(os.getpid()))
        if not address.startswith(("/", "@")):
            return cls()
        return cls(address, _seconds(interval) if watched == str(os.getpid()) else None)

    def notify_ready(self, status: str) -> bool:
        """Notify the end of the start-up or of a reload."""
        return self._say("READY=1", _status(status), patience=PATIENCE_SECONDS)

    def notify_status(self, text: str) -> bool:
        return self._say(_status(text))

    def extend_start(self, text: str, seconds: float) -> bool:
        """Extend the start-up, which waits, by this many seconds."""
        return self._say(_status(text), f"EXTEND_TIMEOUT_USEC={seconds * 1e6:.0f}")

    def notify_watchdog(self) -> bool:
        return self._say("WATCHDOG=1")

    def notify_stopping(self, status: str = "stopping") -> bool:
        return self._say("STOPPING=1", _status(status), patience=PATIENCE_SECONDS)

    def notify_reloading(self) -> bool:
        """Notify that a reload begins; `notify_ready` ends it."""
        microseconds = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        return self._say("RELOADING=1", f"MONOTONIC_USEC={microseconds}", patience=PATIENCE_SECONDS)

    def _say(self, *lines: str, patience: float = 0.0) -> bool:
        if self._address is None:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
                sender.settimeout(patience)
                sender.sendto("\n".join(lines).encode(errors="replace"), address)
        except (OSError, ValueError):
            return False
        return True


def _status(text: str) -> str:
    """Return the text on one line: a line break would start another assignment."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return f"STATUS={printable[:STATUS_MAX_CHARACTERS]}"


def _seconds(microseconds: str) -> float | None:
    return int(microseconds) / 1e6 if microseconds.isascii() and microseconds.isdigit() and int(microseconds) else None
