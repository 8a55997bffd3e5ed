"""A reader of the log that stops reading for a while."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from craftcore.daemon.log_stream import QUEUE_MAX_BYTES
from tests.support.warm_parent import WarmProcess, start

LINES = 3 * QUEUE_MAX_BYTES // 500
FLOOD = f"""if True:
    import sys
    from craftcore.daemon.logging import configure
    from craftcore.log import get_logger
    configure("info", "json", stream=sys.stderr, under_systemd=False)
    log = get_logger("craftcore.flood")
    for n in range({LINES}):
        log.info("flood.line", n=n, value="x" * 500)
    print("alive", flush=True)
    sys.stdin.readline()
    log.info("reader.resumed")
    sys.stdin.read()
"""


@contextmanager
def flood(stderr: int) -> Iterator[WarmProcess]:
    """Run a program that logs more than its reader and the queue take, until it reports that it is alive."""
    with start(["-c", FLOOD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=stderr) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == b"alive\n"
        yield program
        assert program.stdin is not None
        program.stdin.close()
    assert program.returncode == 0


def check_order_and_count(lines: list[bytes]) -> None:
    """Assert that the lines are those of the flood, in their order, with a true count of the dropped ones."""
    events = [json.loads(line) for line in lines]
    kept = [event["n"] for event in events if event["event"] == "flood.line"]
    [dropped] = [event for event in events if event["event"] == "log.dropped"]

    assert kept == list(range(len(kept)))
    assert dropped["lines"] == LINES - len(kept) > 0
    assert (dropped["level"], events[len(kept)]) == ("warning", dropped)


def test_full_pipe_does_not_delay_the_log_and_dropped_lines_are_counted() -> None:
    read_end, write_end = os.pipe()
    with flood(write_end) as program, open(read_end, "rb") as reader:
        os.close(write_end)
        lines = [reader.readline()]
        while b"log.dropped" not in lines[-1]:
            lines.append(reader.readline())
        assert program.stdin is not None
        program.stdin.write(b"\n")
        program.stdin.flush()
        after = reader.readline()

    check_order_and_count(lines)
    assert b"reader.resumed" in after


def test_full_terminal_does_not_delay_the_log() -> None:
    read_end, write_end = pty.openpty()
    with flood(write_end), open(read_end, "rb", buffering=0) as terminal:
        os.close(write_end)
        seen = b""
        while b"log.dropped" not in seen:
            seen += terminal.read(65_536)

    check_order_and_count(seen[: seen.index(b"\n", seen.index(b"log.dropped"))].split(b"\r\n"))


def test_flag_of_the_pipe_that_other_programs_write_to_is_left_alone() -> None:
    """A program that inherits the pipe would otherwise be refused a write while the pipe is full."""
    read_end, write_end = os.pipe()
    with flood(write_end), open(read_end, "rb"):
        assert os.get_blocking(write_end)
        os.close(write_end)
