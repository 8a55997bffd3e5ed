"""The logger of every module, on a chain of its own. `structlog.configure` of the program changes nothing here.

No call raises: a line that cannot be written is lost, and the work goes on. A daemon sets `output`. In any other
program the lines go to its own log: to structlog where the program has configured it, otherwise to the standard
library's `logging`. A logger has the level of the standard library's logger of its name.
"""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, cast

import structlog
from structlog.typing import FilteringBoundLogger

from craftcore.log_format import text_line

ROOT = "craftcore"
"""The name of the logger above all loggers of craftcore."""

Write = Callable[[logging.Logger, int, dict[str, Any]], None]
"""Write one event, with the logger and the level of its call."""

_METHODS = {
    "debug": logging.DEBUG,
    **dict.fromkeys(("info", "msg"), logging.INFO),
    **dict.fromkeys(("warning", "warn"), logging.WARNING),
    "error": logging.ERROR,
    **dict.fromkeys(("critical", "fatal"), logging.CRITICAL),
}


def get_logger(name: str) -> FilteringBoundLogger:
    """Return the logger of a name below `craftcore`."""
    return cast(FilteringBoundLogger, _Logger(logging.getLogger(name), (), {}))


def format_level(level: int) -> str:
    """Return the name of a level, that of the next lower one for a number between two: 25 is `info`."""
    whole = min(max(level // 10 * 10, logging.DEBUG), logging.CRITICAL)
    return logging.getLevelName(whole).lower()


def write_to_program(logger: logging.Logger, level: int, event: dict[str, Any]) -> None:
    """Pass the event to the program's own log. An event that is logged while one is passed on is dropped: a handler of
    the program may use craftcore."""
    if getattr(_passing, "on", False):
        return
    _passing.on = True
    try:
        if structlog.is_configured():
            getattr(structlog.get_logger(logger.name), format_level(level))(**event)
        else:
            _write_to_logging(logger, level, event)
    finally:
        _passing.on = False


def resolve_exception(given: object) -> BaseException | None:
    """Return the exception that a call means by `exc_info`: an exception, the three values of it, or True."""
    match given:
        case BaseException():
            return given
        case (_, BaseException() as error, _):
            return error
        case None | False | tuple():
            return None
    return sys.exc_info()[1]


class _Output:
    """Where every logger writes."""

    def __init__(self) -> None:
        self.write: Write = write_to_program
        self.is_program = True


output = _Output()
_passing = threading.local()


class _Logger(structlog.BoundLoggerBase):
    """A logger with structlog's methods. Neither the call nor a value in it raises."""

    def get_effective_level(self) -> int:
        """Return the level of the nearest logger that has one, up to `craftcore`; else that of the program."""
        logger: logging.Logger | None = self._logger
        while logger is not None and logger.parent is not None:
            if logger.level:
                return logger.level
            logger = logger.parent
        if logger is None or (output.is_program and structlog.is_configured()):
            return logging.NOTSET  # structlog's own level decides
        return logger.level

    def is_enabled_for(self, level: int) -> bool:
        return level >= self.get_effective_level()

    def log(self, level: int, event: object = "", /, *args: object, **facts: Any) -> None:
        """Log an event at a level given as a number."""
        self._log(level, event, args, facts)

    def exception(self, event: object = "", /, *args: object, **facts: Any) -> None:
        """Log an error with the exception that is being handled."""
        self._log(logging.ERROR, event, args, {"exc_info": True, **facts})

    def _log(self, level: int, event: object, args: tuple[object, ...], facts: Mapping[str, Any]) -> None:
        try:
            if not self.is_enabled_for(level):
                return
            full = {**structlog.contextvars.get_contextvars(), **self._context, "event": event, **facts}
            if args:
                _insert_arguments(full, args)
            try:
                output.write(self._logger, level, full)
            except Exception as error:
                _write_to_logging(self._logger, level, {"event": event, "log_error": type(error).__name__})
        except Exception:
            pass  # the work that logs matters more than its line


def _make_method(level: int) -> Callable[..., None]:
    def method(self: _Logger, event: object = "", /, *args: object, **facts: Any) -> None:
        self._log(level, event, args, facts)

    return method


def _make_awaitable(method: Callable[..., None]) -> Callable[..., Any]:
    async def awaitable(self: _Logger, /, *args: Any, **facts: Any) -> None:
        method(self, *args, **facts)

    return awaitable


for _name, _level in _METHODS.items():
    setattr(_Logger, _name, _make_method(_level))
for _name in (*_METHODS, "exception", "log"):
    setattr(_Logger, f"a{_name}", _make_awaitable(getattr(_Logger, _name)))


def _insert_arguments(event: dict[str, Any], args: tuple[object, ...]) -> None:
    """Put the arguments into the text of the event, or beside it where they do not fit its format."""
    values = args[0] if len(args) == 1 and isinstance(args[0], Mapping) and args[0] else args
    try:
        event["event"] = str(event["event"]) % values
    except Exception:
        event["args"] = args


def _write_to_logging(logger: logging.Logger, level: int, event: dict[str, Any]) -> None:
    """Write a record of the standard library: one line of text, and the fields in its attribute `craftcore`."""
    facts = dict(event)
    error = resolve_exception(facts.pop("exc_info", None))
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    frame = _find_caller()
    code = frame.f_code
    record = logger.makeRecord(
        logger.name,
        level,
        code.co_filename,
        frame.f_lineno,
        text_line(facts),
        (),
        exc_info,
        code.co_name,
        extra={"craftcore": facts},
    )
    logger.handle(record)


def _find_caller() -> FrameType:
    """Return the frame that called a method of a logger."""
    frame, began = sys._getframe(), False
    while frame.f_back is not None and not (began and frame.f_code.co_filename != __file__):
        began = began or frame.f_code is _Logger._log.__code__
        frame = frame.f_back
    return frame
