"""Where log lines go: JSON for machines, text for a person at a terminal, and never an error back to who logged.

Records of the standard library's logging come out the same way where the program has not configured it. The
program's own configuration of logging and structlog stays as it is.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TextIO

import structlog

from craftcore.daemon.log_stream import LogStream
from craftcore.log import ROOT, format_level, output, resolve_exception, write_to_program
from craftcore.log_format import LINE_MAX_BYTES, json_line, text_line

_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}

_Render = Callable[[dict[str, Any]], str]


def configure(
    level: str, format: str, *, stream: TextIO | None, under_systemd: bool, line_max_bytes: int = LINE_MAX_BYTES
) -> None:
    """Send what craftcore logs in this process to `stream`, and the records of a root logger that has no handler.

    `level` is debug, info, warning, error, or auto (info); `format` is json, text, or auto (text on a terminal,
    otherwise JSON). Under systemd each line carries its journal priority. A stream that is closed, broken or None
    swallows the lines.
    """
    write = _Writer(stream, format, priorities=under_systemd, line_max_bytes=line_max_bytes)
    output.write, output.is_program = write, False
    _bridge(write)
    set_level(level)


def embed(level: str, format: str) -> None:
    """Log as the settings say in a program that runs an engine itself. Does nothing after `configure`.

    A level other than auto is that of craftcore's loggers, unless the program has set one. Where the program has no log
    of its own, the lines go to stderr in this format.
    """
    if not output.is_program:
        return
    output.write = _Embedded(format)
    ours = logging.getLogger(ROOT)
    if ours.level in (logging.NOTSET, _Embedded.level):
        _Embedded.level = logging.NOTSET if level == "auto" else logging.getLevelNamesMapping()[level.upper()]
        ours.setLevel(_Embedded.level)


def set_level(level: str) -> None:
    """Set the level of craftcore's loggers, and that of the root logger where the program has set up neither a level
    nor a handler for it."""
    level = "info" if level == "auto" else level
    logging.getLogger(ROOT).setLevel(level.upper())
    root = logging.getLogger()
    for bridge in _find_bridges(root):
        if root.level == bridge.root_level:
            root.setLevel(level.upper())
            bridge.root_level = root.level


def is_journal_stream(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Return True when the stream is the very one that systemd connected to its journal ($JOURNAL_STREAM)."""
    try:
        found = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):
        return False
    return found is not None and environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class _Writer:
    """Writes an event as its line, each of its rows with the journal's priority where that is asked for."""

    def __init__(
        self, stream: TextIO | None, format: str, *, priorities: bool = False, line_max_bytes: int = LINE_MAX_BYTES
    ) -> None:
        terminal = _is_terminal(stream)
        self._render: _Render = partial(json_line, max_bytes=line_max_bytes)
        if format == "text" or (format == "auto" and terminal):
            colours = terminal and "NO_COLOR" not in os.environ
            self._render = partial(text_line, colours=colours, max_bytes=line_max_bytes)
        self._priorities = priorities
        self._stream = LogStream(stream, self._count_line)
        self._stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)

    def __call__(self, logger: logging.Logger, level: int, event: dict[str, Any]) -> None:
        self._stream.write(self._line(level, event))

    def _line(self, level: int, event: dict[str, Any]) -> str:
        name = format_level(level)
        event = dict(self._stamp(None, name, {**event, "level": name}))
        event["exc_info"] = resolve_exception(event.pop("exc_info", None))
        line = self._render(dict(structlog.processors.format_exc_info(None, name, event)))
        if not self._priorities:
            return line
        prefix = f"<{_PRIORITIES[name]}>"
        return "\n".join(prefix + row for row in line.split("\n"))

    def _count_line(self, dropped: int) -> str:
        return self._line(logging.WARNING, {"event": "log.dropped", "lines": dropped, "why": "its reader did not read"})


class _Embedded:
    """Passes events to the log of the program, and writes them to stderr while the program has none."""

    level = logging.NOTSET
    """The level that settings gave to craftcore's loggers in this process."""

    def __init__(self, format: str) -> None:
        self._format = format
        self._stream: TextIO | None = None
        self._write: _Writer | None = None

    def __call__(self, logger: logging.Logger, level: int, event: dict[str, Any]) -> None:
        if structlog.is_configured() or logger.hasHandlers():
            write_to_program(logger, level, event)
            return
        if self._write is None or self._stream is not sys.stderr:
            self._stream, self._write = sys.stderr, _Writer(sys.stderr, self._format)
        self._write(logger, level, event)


_NOT_EXTRA = {*vars(logging.makeLogRecord({})), "message", "asctime", "taskName"}
_OURS = {"timestamp", "level", "event", "exception", "logger", "message", "exc_info"}


class _Bridge(logging.Handler):
    """Writes records of the standard library's logging as events, with the fields of their `extra`."""

    root_level = logging.WARNING
    """The level of a root logger that the program has not set."""

    def __init__(self, write: _Writer) -> None:
        super().__init__()
        self._write = write

    def emit(self, record: logging.LogRecord) -> None:
        event: dict[str, Any] = {"event": "log.received", "logger": record.name, "message": _message(record)}
        for name, value in vars(record).items():
            if name not in _NOT_EXTRA:
                event[f"extra_{name}" if name in _OURS else name] = value
        if record.exc_info:
            event["exc_info"] = record.exc_info
        try:
            self._write(logging.getLogger(record.name), record.levelno, event)
        except Exception:
            pass  # the work that logs matters more than its line


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # its arguments do not fit its format
        return str(record.msg)


def _bridge(write: _Writer) -> None:
    """Write the records of the root logger, unless the program handles them itself."""
    root = logging.getLogger()
    for earlier in _find_bridges(root):
        root.removeHandler(earlier)
    if not root.handlers:
        root.addHandler(_Bridge(write))


def _find_bridges(root: logging.Logger) -> list[_Bridge]:
    return [handler for handler in root.handlers if isinstance(handler, _Bridge)]


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):
        return False
