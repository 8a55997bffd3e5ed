"""The format and the destination of log lines, and a daemon whose log readers exit."""

from __future__ import annotations

import io
import json
import logging
import os
import pty
import subprocess
import threading
from pathlib import Path
from typing import TextIO

import pytest
import structlog

from craftcore.daemon.logging import configure, is_journal_stream
from craftcore.log import get_logger
from tests.support.warm_parent import start


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def rows(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_log_format_auto_is_json_without_a_terminal(stream: io.StringIO) -> None:
    configure("info", "auto", stream=stream, under_systemd=False)

    get_logger("craftcore.test").info("trigger.settled", trigger="t-1")

    [seen] = [json.loads(row) for row in rows(stream)]
    assert seen.pop("timestamp").endswith("Z")
    assert seen == {"level": "info", "event": "trigger.settled", "trigger": "t-1"}


def test_auto_is_text_on_a_terminal() -> None:
    read_end, write_end = pty.openpty()
    with open(write_end, "w") as terminal:
        configure("info", "auto", stream=terminal, under_systemd=False)
        get_logger("craftcore.test").warning("trigger.settled", note="\x1b[2J")
        seen = ""
        while not seen.endswith("\n"):
            seen += os.read(read_end, 4096).decode()
    os.close(read_end)

    assert "trigger.settled" in seen
    assert seen.rstrip("\r\n").endswith('note="\\x1b[2J"')


def test_log_format_that_was_chosen_wins(stream: io.StringIO) -> None:
    configure("info", "text", stream=stream, under_systemd=False)
    get_logger("craftcore.test").info("trigger.settled", trigger="t-1")

    assert stream.getvalue().endswith("Z info     trigger.settled trigger=t-1\n")


@pytest.mark.parametrize(
    ("level", "prefix"), [("debug", "<7>"), ("info", "<6>"), ("warning", "<4>"), ("error", "<3>"), ("critical", "<2>")]
)
def test_journal_lines_have_a_priority(stream: io.StringIO, level: str, prefix: str) -> None:
    configure("debug", "auto", stream=stream, under_systemd=True)

    getattr(get_logger("craftcore.test"), level)("trigger.settled")

    assert stream.getvalue().startswith(prefix + '{"timestamp"')


def test_traceback_rows_in_the_journal_have_a_priority(stream: io.StringIO) -> None:
    configure("info", "text", stream=stream, under_systemd=True)

    get_logger("craftcore.test").error("handler.failed", exc_info=ValueError("bad"))

    assert len(rows(stream)) == 2
    assert all(row.startswith("<3>") for row in rows(stream))


def test_error_is_logged_with_its_traceback(stream: io.StringIO) -> None:
    configure("info", "json", stream=stream, under_systemd=False)
    try:
        raise ValueError("bad")
    except ValueError:
        get_logger("craftcore.test").exception("handler.failed")

    seen = json.loads(stream.getvalue())
    assert seen["level"] == "error"
    assert seen["exception"].startswith("Traceback")
    assert seen["exception"].endswith("ValueError: bad")


def test_event_below_the_level_is_not_rendered(stream: io.StringIO) -> None:
    class Never:
        def __repr__(self) -> str:
            raise AssertionError("rendered")

    configure("warning", "json", stream=stream, under_systemd=False)
    log = get_logger("craftcore.test")

    log.debug("engine.looked", at=Never())
    log.info("engine.looked", at=Never())
    assert stream.getvalue() == ""

    log.warning("engine.looked")
    assert len(rows(stream)) == 1


def test_context_bound_for_a_run_is_on_each_of_its_lines(stream: io.StringIO) -> None:
    configure("info", "json", stream=stream, under_systemd=False)

    with structlog.contextvars.bound_contextvars(trigger="t-1", attempt=2):
        get_logger("craftcore.test").info("task.started")

    assert json.loads(stream.getvalue())["attempt"] == 2


def test_log_line_has_a_maximum_length(stream: io.StringIO) -> None:
    configure("info", "json", stream=stream, under_systemd=False, line_max_bytes=1024)

    get_logger("craftcore.test").info("trigger.settled", value="x" * 100_000)

    assert len(rows(stream)[0]) <= 1024
    assert "characters cut" in stream.getvalue()


def test_records_of_the_standard_library_come_out_the_same_way(stream: io.StringIO) -> None:
    logging.getLogger().handlers.clear()  # the handlers of pytest
    configure("info", "json", stream=stream, under_systemd=False)
    configure("info", "json", stream=stream, under_systemd=False)

    logging.getLogger("other.library").warning("%s is\nlate", "it")
    logging.getLogger("other.library").debug("not asked for")

    [seen] = [json.loads(row) for row in rows(stream)]
    assert (seen["level"], seen["logger"], seen["message"]) == ("warning", "other.library", "it is\nlate")


def test_record_with_a_custom_level_or_bad_format_is_no_error(stream: io.StringIO) -> None:
    logging.getLogger().handlers.clear()  # the handlers of pytest
    configure("info", "json", stream=stream, under_systemd=False)

    logging.getLogger("other.library").log(25, "NOTICE: %s", "odd")
    logging.getLogger("other.library").warning("%d", "not a number")

    seen = [json.loads(row) for row in rows(stream)]
    assert [line["message"] for line in seen] == ["NOTICE: odd", "%d"]


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    with open(tmp_path / "log", "w") as stream:
        configure("info", "json", stream=stream, under_systemd=False)
        threads = [threading.Thread(target=log_many, args=(n,)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    seen = [json.loads(row) for row in (tmp_path / "log").read_text().splitlines()]
    assert len(seen) == 8 * 200


def test_closed_log_stream_swallows_the_line() -> None:
    stream = io.StringIO()
    configure("info", "json", stream=stream, under_systemd=False)
    stream.close()

    get_logger("craftcore.test").info("trigger.settled")


def test_missing_log_stream_swallows_the_line() -> None:
    configure("info", "auto", stream=None, under_systemd=False)

    get_logger("craftcore.test").info("trigger.settled")


def test_daemon_survives_the_loss_of_its_log_reader() -> None:
    code = """if True:
        import sys
        from craftcore.log import get_logger
        from craftcore.daemon.logging import configure
        configure("info", "auto", stream=sys.stderr, under_systemd=False)
        log = get_logger("craftcore.test")
        log.info("first")
        sys.stdin.read()                          # until the reader has closed the pipe
        for _ in range(1000):
            log.info("log.flood", value="x" * 500)
        print("alive", flush=True)
    """
    pipe = subprocess.PIPE
    with start(["-c", code], stdin=pipe, stdout=pipe, stderr=pipe) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        assert daemon.stderr is not None
        assert b"first" in daemon.stderr.readline()
        daemon.stderr.close()
        daemon.stdin.close()

        assert daemon.stdout.read() == b"alive\n"
    assert daemon.returncode == 0


def test_journal_is_recognised_by_its_stream(tmp_path: Path) -> None:
    with open(tmp_path / "journal", "w") as journal, open(tmp_path / "file", "w") as redirected:
        status = os.fstat(journal.fileno())
        environ = {"JOURNAL_STREAM": f"{status.st_dev}:{status.st_ino}"}

        assert is_journal_stream(journal, environ)
        assert not is_journal_stream(redirected, environ)
        assert not is_journal_stream(journal, {})


@pytest.mark.parametrize("stream", [None, io.StringIO()], ids=["none", "no descriptor"])
def test_stream_without_a_descriptor_is_not_the_journal(stream: TextIO | None) -> None:
    assert not is_journal_stream(stream, {"JOURNAL_STREAM": "1:2"})


def log_many(thread: int) -> None:
    log = get_logger("craftcore.test")
    for n in range(200):
        log.info("thread.wrote", thread=thread, n=n)
