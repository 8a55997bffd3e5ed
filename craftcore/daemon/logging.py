"""Where log lines go: JSON for machines, text for a person at a terminal, and never an error back to who logged.

Records of the standard library's logging come out the same way where the program has not configured it. The
program's own configuration of logging and structlog stays as it is.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TextIO

import structlog

from craftcore.daemon.log_stream import LogStream
from craftcore.log import ROOT, format_level, output, resolve_exception
from craftcore.log_format import LINE_MAX_BYTES, json_line, text_line

_PRIORITIES = {"debug": 7, "info": 6, "warning": 4, "error": 3, "critical": 2}

_Render = Callable[[dict[str, Any]], str]


def configure(
    level: str,
    format: str,
    *,
    stream: TextIO | None,
    under_systemd: bool,
    line_max_bytes: int = LINE_MAX_BYTES,
) -> None:
    """Send what craftcore logs in this process to `stream`, and the records of a root logger that has no handler.

    `level` is debug, info, warning or error; `format` is json, text, or auto (text on a terminal, otherwise JSON).
    Under systemd each line carries its journal priority. A stream that is closed, broken or None swallows the lines.
    """
    terminal = _is_terminal(stream)
    render: _Render = partial(json_line, max_bytes=line_max_bytes)
    if format == "text" or (format == "auto" and terminal):
        colours = terminal and "NO_COLOR" not in os.environ
        render = partial(text_line, colours=colours, max_bytes=line_max_bytes)
    write = _Writer(render, stream, priorities=under_systemd)
    output.write = write
    _bridge(write)
    set_level(level)


def set_level(level: str) -> None:
    """Set the level of craftcore's loggers, and that of the root logger where the program has set up neither a level
    nor a handler for it."""
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

    def __init__(self, render: _Render, stream: TextIO | None, *, priorities: bool) -> None:
        self._render = render
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
        return self._line(
            logging.WARNING, {"event": "log.dropped", "lines": dropped, "why": "the reader of the log did not read"}
        )


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
