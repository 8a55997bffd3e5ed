"""Helpers that run lives with records, and read their database in plain SQL."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from craftcore.config import Config
from craftcore.services import Services
from tests.crash.child import QUIET
from tests.crash.crews import ROOT, logged_errors
from tests.crash.record_lives import FLUSHED, KNOWN, RecordLife, to_line
from tests.crash.task_app import read_events
from tests.crash.task_outside import a_reader
from tests.support.warm_parent import WarmProcess, start

KILLED = -signal.SIGKILL

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

TIME_FIELDS = re.compile(r'"(timestamp|latency_ms|due_at|overdue_seconds)":[0-9.e+-]+')
"""The fields of an event that depend on the clock, so that they differ between two runs."""

CLOSING = ("FINAL_RESPONSE", "TURN_SUSPENDED", "ATTEMPT_RELEASED")
"""The events that end a record."""

Event = tuple[int, int, str, str, str | None, int | None]
"""An event on disk, comparable between two runs: record, number, type, payload, memo, activity."""


class RecordRunner:
    """A runner of lives on new databases, each in its own folder and with its schema."""

    def __init__(self, process: WarmProcess, home: Path) -> None:
        self._process = process
        self._home = home
        self._empty = home / "empty.db"
        core = Services(self._empty, Config())
        core.prepare()
        core.close()

    def new_database(self, name: str) -> RecordDatabase:
        folder = self._home / name
        folder.mkdir()
        shutil.copy(self._empty, folder / "agent.db")
        return RecordDatabase(self._process, folder)


@dataclass
class RecordDatabase:
    """One database, and the lives that run on it one after another."""

    process: WarmProcess
    folder: Path
    lives: int = 0

    @property
    def db(self) -> Path:
        return self.folder / "agent.db"

    def start(self, **options: Any) -> None:
        """Start a life. Call `wait_for_end` before the next one."""
        assert self.process.stdin is not None
        self.lives += 1
        self.process.stdin.write(to_line(RecordLife(folder=self.folder, number=self.lives, **options)).encode())
        self.process.stdin.flush()

    def wait_for_end(self) -> int:
        """Wait for the end of the life, and return 0 or minus the signal."""
        assert self.process.stdout is not None
        ended: int = json.loads(self.process.stdout.readline())["ended"]
        assert ended in (0, KILLED), logged_errors(self.folder)
        return ended

    def run(self, **options: Any) -> None:
        """Run a life, and require that it ends in its way."""
        self.start(**options)
        assert self.wait_for_end() == (0 if options.get("ends", QUIET) == QUIET else KILLED), logged_errors(self.folder)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Return the rows of a query, read without code of craftcore."""
        with a_reader(self.db) as connection:
            cursor = connection.execute(sql)
            first = cursor.fetchone()
            if first is None:
                return []
            names = [column[0] for column in cursor.get_description()]
            return [dict(zip(names, row, strict=True)) for row in (first, *cursor)]

    def stream(self) -> list[Event]:
        """Return all events in the order of their creation. Attempts run one after another."""
        rows = self.rows(
            "SELECT execution_seq, seq, type, payload_json, memo, activity_seq FROM events ORDER BY execution_seq, seq"
        )
        return [
            (row["execution_seq"], row["seq"], row["type"], _without_times(row["payload_json"]), *last)
            for row in rows
            for last in [(row["memo"], row["activity_seq"])]
        ]

    def flushed(self) -> list[int]:
        """Return the number of events on disk after each commit of the writer, in all lives."""
        path = self.folder / FLUSHED
        return [events for _, events in read_events(path)] if path.exists() else []

    def known(self) -> list[list[Any]]:
        """Return the events that user code acted on, as [type, field, value]."""
        path = self.folder / KNOWN
        return list(read_events(path)) if path.exists() else []


def _without_times(payload: str) -> str:
    return TIME_FIELDS.sub(r'"\1":0', UUID.sub("id", payload))


@contextmanager
def record_runner(home: Path) -> Iterator[RecordRunner]:
    """Run a warm parent until the block ends."""
    command = ["-m", "tests.crash.record_lives"]
    with start(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield RecordRunner(process, home)
        assert process.stdin is not None
        process.stdin.close()
