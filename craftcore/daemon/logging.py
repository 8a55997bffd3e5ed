"""Where log lines go: JSON for machines, text for a person at a terminal, and never an error back to who logged.

A handler's own records, through the standard library's logging, come out the same way.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping, MutableMapping
from functools import partial
from typing import Any, TextIO

import structlog

from craftcore.daemon.log_format import LINE_MAX_BYTES, json_line, text_line

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
    """Send everything logged in this process to `stream`. Once per process: only the level can be changed later.

    `level` is debug, info, warning or error; `format` is json, text, or auto (text on a terminal, otherwise JSON).
    Under systemd each line carries its journal priority. A stream that is closed, broken or None swallows the lines.
    """
    terminal = _is_terminal(stream)
    render: _Render = partial(json_line, max_bytes=line_max_bytes)
    if format == "text" or (format == "auto" and terminal):
        colours = terminal and "NO_COLOR" not in os.environ
        render = partial(text_line, colours=colours, max_bytes=line_max_bytes)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _Renderer(render, priorities=under_systemd),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=partial(_Lines, stream, threading.Lock()),
        cache_logger_on_first_use=True,
    )
    _bridge(level)


def set_level(level: str) -> None:
    """Set the log level, also for loggers of craftcore that are in use already."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))
    for name, module in list(sys.modules.items()):
        logger = getattr(module, "log", None) if name.startswith("craftcore.") else None
        if isinstance(logger, type(structlog.get_logger())):
            # A logger that was used once is kept, and with it the level: that is what makes `debug` free.
            vars(logger).pop("bind", None)
    logging.getLogger().setLevel(level.upper())


def is_journal_stream(stream: TextIO | None, environ: Mapping[str, str]) -> bool:
    """Return True when the stream is the very one that systemd connected to its journal ($JOURNAL_STREAM)."""
    try:
        found = os.fstat(stream.fileno()) if stream is not None else None
    except (OSError, ValueError):
        return False
    return found is not None and environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


class _Renderer:
    """The last processor: the event's line, each of its rows with the journal's priority where that is asked for."""

    def __init__(self, render: _Render, *, priorities: bool) -> None:
        self._render = render
        self._priorities = priorities

    def __call__(self, logger: object, method: str, event: MutableMapping[str, Any]) -> str:
        line = self._render(dict(event))
        if not self._priorities:
            return line
        prefix = f"<{_PRIORITIES.get(str(event.get('level')), 6)}>"
        return "\n".join(prefix + row for row in line.split("\n"))


class _Lines:
    """Writes whole lines, from any thread. The daemon goes on when the reader has gone."""

    def __init__(self, stream: TextIO | None, turn: threading.Lock, *_name: object) -> None:
        self._stream = stream
        self._turn = turn

    def msg(self, line: str) -> None:
        if self._stream is None:
            return
        try:
            with self._turn:
                self._stream.write(line + "\n")
                self._stream.flush()
        except (OSError, ValueError):
            pass  # there is nowhere left to say so

    log = debug = info = warn = warning = msg
    err = error = critical = fatal = failure = exception = msg


class _Bridge(logging.Handler):
    """Hands records of the standard library's logging to ours."""

    def emit(self, record: logging.LogRecord) -> None:
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        facts: dict[str, Any] = {"logger": record.name, "message": _message(record)}
        if record.exc_info:
            facts["exc_info"] = record.exc_info
        structlog.get_logger().log(level, "log.received", **facts)


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # its arguments do not fit its format
        return str(record.msg)


def _bridge(level: str) -> None:
    root = logging.getLogger()
    for earlier in [handler for handler in root.handlers if isinstance(handler, _Bridge)]:
        root.removeHandler(earlier)
    root.addHandler(_Bridge())
    root.setLevel(level.upper())


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and stream.isatty()
    except (OSError, ValueError):
        return False
