"""The loggers of craftcore: they have their own chain, never raise, and write to the log of the program."""

from __future__ import annotations

import io
import json
import logging
from typing import Any

import anyio
import pytest
import structlog

from craftcore.daemon.logging import configure
from craftcore.log import get_logger

log = get_logger("craftcore.test_log")


class Kept(logging.Handler):
    """A handler that keeps its records."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


class Unprintable:
    def __str__(self) -> str:
        raise ValueError("no text")

    __repr__ = __str__


@pytest.fixture
def kept() -> list[logging.LogRecord]:
    """Return the records that a handler of the program gets."""
    handler = Kept()
    logging.getLogger().addHandler(handler)
    return handler.records


@pytest.fixture
def stream() -> io.StringIO:
    """Return the stream of a daemon whose program has a root logger without handlers."""
    logging.getLogger().handlers.clear()
    stream = io.StringIO()
    configure("info", "json", stream=stream, under_systemd=False)
    return stream


def rows(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def raise_error(*_: object) -> Any:
    raise ValueError("no such field")


def test_daemon_log_is_the_same_after_the_program_configured_structlog(stream) -> None:
    """The chain of the program leads back to the daemon's, which would be an endless loop."""
    structlog.configure(logger_factory=structlog.stdlib.LoggerFactory())
    log.error("trigger.settled", trigger="t-1")
    get_logger("craftcore.test_log.later").error("trigger.settled", trigger="t-2")

    assert [(row["event"], row["trigger"]) for row in rows(stream)] == [
        ("trigger.settled", "t-1"),
        ("trigger.settled", "t-2"),
    ]


def test_program_structlog_over_the_standard_library_arrives_in_the_daemon_log(stream) -> None:
    structlog.configure(
        processors=[structlog.stdlib.render_to_log_kwargs], logger_factory=structlog.stdlib.LoggerFactory()
    )
    structlog.get_logger("shop").error("order.refused", order="o-1")

    [row] = rows(stream)
    assert (row["logger"], row["message"], row["order"]) == ("shop", "order.refused", "o-1")


def test_daemon_log_leaves_structlog_and_the_root_logger_of_the_program_alone() -> None:
    root, handler = logging.getLogger(), Kept()
    root.handlers[:] = [handler]
    root.setLevel(logging.ERROR)
    configure("debug", "json", stream=io.StringIO(), under_systemd=False)

    assert (root.handlers, root.level) == ([handler], logging.ERROR)
    assert not structlog.is_configured()


@pytest.mark.parametrize("level", ["debug", "info", "warning", "error", "critical", "exception"])
def test_log_call_does_not_raise_when_the_structlog_chain_of_the_program_raises(kept, level) -> None:
    """The standard library logs the line without its fields."""
    structlog.configure(processors=[raise_error])

    getattr(log, level)("trigger.settled", trigger="t-1")

    assert kept[-1].getMessage() == "trigger.settled log_error=ValueError"


def test_log_call_does_not_raise_when_a_handler_of_the_program_raises(kept, monkeypatch) -> None:
    monkeypatch.setattr(Kept, "emit", raise_error)

    log.error("trigger.settled")

    assert kept == []


@pytest.mark.parametrize("value", [Unprintable(), ValueError(Unprintable())], ids=["value", "exception"])
def test_log_call_does_not_raise_for_a_value_without_text(stream, value) -> None:
    log.error("trigger.settled", value=value, exc_info=ValueError(value))

    assert rows(stream)[0]["event"] == "trigger.settled"


@pytest.mark.parametrize(
    ("arguments", "event"),
    [(("a %s",), "a %s"), (("a %s", 1), "a 1"), (("a %d", "b"), "a %d"), ((Unprintable(), 1), None), ((), "")],
)
def test_log_call_does_not_raise_for_arguments_that_do_not_fit(stream, arguments, event) -> None:
    log.warning(*arguments)

    assert [row["event"] for row in rows(stream)] in ([event], ["<Unprintable>"])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_log_call_that_is_awaited_writes_its_line(stream, backend) -> None:
    async def write_lines() -> None:
        await log.ainfo("trigger.settled", trigger="t-1")
        await log.aexception("trigger.settled")
        await log.alog(logging.ERROR, "trigger.settled")

    anyio.run(write_lines, backend=backend)

    assert [row["level"] for row in rows(stream)] == ["info", "error", "error"]


def test_logger_that_is_bound_keeps_its_fields(stream) -> None:
    bound = log.bind(trigger="t-1", turn=2)
    bound.info("task.started", turn=3)
    bound.unbind("turn").info("task.ended")

    assert [(row.get("trigger"), row.get("turn")) for row in rows(stream)] == [("t-1", 3), ("t-1", None)]


def test_logger_has_the_level_of_the_standard_library_logger_of_its_name(stream) -> None:
    quiet, loud = logging.getLogger("craftcore.test_log.quiet"), logging.getLogger("craftcore.test_log.loud")
    quiet.setLevel(logging.ERROR)
    loud.setLevel(logging.DEBUG)

    get_logger("craftcore.test_log.quiet.part").warning("line.dropped")
    get_logger("craftcore.test_log.loud").debug("debug.line")
    log.debug("line.dropped")
    log.info("info.line")

    assert [row["event"] for row in rows(stream)] == ["debug.line", "info.line"]


def test_line_of_another_program_is_a_record_with_its_fields_and_place(kept) -> None:
    log.warning("trigger.settled", trigger="t-1", exc_info=ValueError("bad"))

    [record] = kept
    assert (record.name, record.levelname) == ("craftcore.test_log", "WARNING")
    assert record.getMessage() == "trigger.settled trigger=t-1"
    assert record.craftcore == {"event": "trigger.settled", "trigger": "t-1"}
    assert record.exc_info is not None
    assert record.filename == "test_log.py"


def test_line_arrives_in_the_configured_structlog_of_the_program() -> None:
    with structlog.testing.capture_logs() as lines:
        log.info("trigger.settled", trigger="t-1")

    assert lines == [{"event": "trigger.settled", "trigger": "t-1", "log_level": "info"}]


def test_line_of_a_log_handler_of_the_program_is_dropped(monkeypatch, kept) -> None:
    """A log handler that uses craftcore would otherwise call itself."""
    keep = Kept.emit

    def use_craftcore(self: Kept, record: logging.LogRecord) -> None:
        keep(self, record)
        log.warning("in.a.handler")

    monkeypatch.setattr(Kept, "emit", use_craftcore)
    log.warning("trigger.settled")
    log.warning("trigger.settled")

    assert [record.getMessage() for record in kept] == ["trigger.settled"] * 2


def test_extra_of_a_record_is_kept(stream) -> None:
    logging.getLogger("shop").warning("refused", extra={"order": "o-1", "event": "theirs"})

    [row] = rows(stream)
    assert (row["event"], row["message"], row["order"], row["extra_event"]) == (
        "log.received",
        "refused",
        "o-1",
        "theirs",
    )
