"""The log lines of craftcore, captured or suppressed."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from craftcore.log import ROOT, Write, format_level, output, write_to_program


@contextmanager
def capture_logs(level: int = logging.DEBUG) -> Iterator[list[dict[str, Any]]]:
    """Capture what craftcore logs, each event with its `log_level`, instead of writing it."""
    events: list[dict[str, Any]] = []

    def keep(_: logging.Logger, level: int, event: dict[str, Any]) -> None:
        events.append({**event, "log_level": format_level(level)})

    with _output(keep, level):
        yield events


@contextmanager
def suppressed_logs() -> Iterator[None]:
    """Suppress log lines, so that only the command under test prints."""
    with _output(lambda *_: None, logging.CRITICAL):
        yield


def suppress_log() -> None:
    """Suppress log lines for the rest of this process."""
    output.write, output.is_program = lambda *_: None, False


def reset() -> None:
    """Write to the program's log again, as an import does."""
    output.write, output.is_program = write_to_program, True
    logging.getLogger(ROOT).setLevel(logging.NOTSET)


@contextmanager
def _output(write: Write, level: int) -> Iterator[None]:
    root = logging.getLogger(ROOT)
    before = output.write, output.is_program, root.level
    output.write, output.is_program = write, False
    root.setLevel(level)
    try:
        yield
    finally:
        output.write, output.is_program, level = before
        root.setLevel(level)
