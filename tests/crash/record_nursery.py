"""Helpers that run lives with records, and read the database they leave in plain SQL."""

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
from tests.crash.crews import ROOT, last_words
from tests.crash.record_lives import FLUSHED, KNOWN, RecordLife, told
from tests.crash.task_app import lines_of
from tests.crash.task_outside import a_reader
from tests.support.warm_parent import WarmProcess, start

KILLED = -signal.SIGKILL

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")

OF_A_CLOCK = re.compile(r'"(timestamp|latency_ms|due_at|overdue_seconds)":[0-9.e+-]+')
"""What an event says of time, which is another one in each run."""

CLOSING = ("FINAL_RESPONSE", "TURN_SUSPENDED", "ATTEMPT_RELEASED")
"""The events that end a record."""

Event = tuple[int, int, str, str, str | None, int | None]
"""An event on disk as two runs can be compared by it: of which record, number, type, payload, memo, activity."""


class Nursery:
    """Lives in folders of their own, each on a database whose schema is there already."""

    def __init__(self, process: WarmProcess, home: Path) -> None:
        self._process = process
        self._home = home
        self._empty = home / "empty.db"
        core = Services(self._empty, Config())
        core.prepare()
        core.close()

    def cradle(self, name: str) -> Cradle:
        folder = self._home / name
        folder.mkdir()
        shutil.copy(self._empty, folder / "agent.db")
        return Cradle(self._process, folder)


@dataclass
class Cradle:
    """One database, and the lives on it, one after the other."""

    process: WarmProcess
    folder: Path
    lives: int = 0

    @property
    def db(self) -> Path:
        return self.folder / "agent.db"

    def begin(self, **how: Any) -> None:
        """A life begins; hear how it `ended` before the next one."""
        assert self.process.stdin is not None
        self.lives += 1
        self.process.stdin.write(told(RecordLife(folder=self.folder, number=self.lives, **how)).encode())
        self.process.stdin.flush()

    def ended(self) -> int:
        """Wait until it is over: 0, or minus the signal."""
        assert self.process.stdout is not None
        ended: int = json.loads(self.process.stdout.readline())["ended"]
        assert ended in (0, KILLED), last_words(self.folder)
        return ended

    def life(self, **how: Any) -> None:
        """One life, which must end as it is to."""
        self.begin(**how)
        assert self.ended() == (0 if how.get("ends", QUIET) == QUIET else KILLED), last_words(self.folder)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """What the file says, read by nobody but SQLite."""
        with a_reader(self.db) as connection:
            cursor = connection.execute(sql)
            first = cursor.fetchone()
            if first is None:
                return []
            names = [column[0] for column in cursor.get_description()]
            return [dict(zip(names, row, strict=True)) for row in (first, *cursor)]

    def stream(self) -> list[Event]:
        """Every event, in the order in which they came about: one attempt runs after the other."""
        rows = self.rows(
            "SELECT execution_seq, seq, type, payload_json, memo, activity_seq FROM events ORDER BY execution_seq, seq"
        )
        return [
            (row["execution_seq"], row["seq"], row["type"], _timeless(row["payload_json"]), *last)
            for row in rows
            for last in [(row["memo"], row["activity_seq"])]
        ]

    def flushed(self) -> list[int]:
        """How many events were on disk after each commit of the writer, in all lives."""
        path = self.folder / FLUSHED
        return [events for _, events in lines_of(path)] if path.exists() else []

    def known(self) -> list[list[Any]]:
        """Of which events user code knew: [type, field, value]."""
        path = self.folder / KNOWN
        return list(lines_of(path)) if path.exists() else []


def _timeless(payload: str) -> str:
    return OF_A_CLOCK.sub(r'"\1":0', UUID.sub("id", payload))


@contextmanager
def nursery(home: Path) -> Iterator[Nursery]:
    """A warm parent, which ends with the block."""
    command = ["-m", "tests.crash.record_lives"]
    with start(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        yield Nursery(process, home)
        assert process.stdin is not None
        process.stdin.close()
