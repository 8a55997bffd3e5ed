"""Errors at each line of the writer's thread: every caller gets an answer, and the daemon gets the cause."""

from __future__ import annotations

import threading
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import anyio
import pytest

from craftcore.clock import SystemClock
from craftcore.errors import StorageError, WriterDied
from craftcore.storage import checkpoints as writing
from craftcore.storage.database import Database
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio

STORAGE_FOLDER = str(Path(writing.__file__).parent) + "/"
WRITER = "craftcore-writer"


class Injected(BaseException):
    """An error that no code of craftcore expects."""


class Tracer:
    """A tracer of the storage functions on the writer thread, which raises at the call of one of them."""

    def __init__(self, at: CodeType | None = None) -> None:
        self.at = at
        self.armed = False
        self.raised = 0
        self.seen: dict[CodeType, None] = {}

    def __enter__(self) -> Tracer:
        threading.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        threading.settrace(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if (
            event != "call"
            or threading.current_thread().name != WRITER
            or not code.co_filename.startswith(STORAGE_FOLDER)
        ):
            return
        if not self.armed or code.co_name.startswith("<"):
            return
        self.seen[code] = None
        if code is self.at and not self.raised:
            self.raised += 1
            raise Injected(code.co_qualname)


def insert(tx: Transaction, n: int) -> int:
    tx.run("INSERT INTO kept (n) VALUES (:n)", n=n)
    return n


async def run_writer(
    path: Path, tracer: Tracer, monkeypatch: pytest.MonkeyPatch
) -> tuple[list[Any], list[StorageError]]:
    """Run many commits, an idle time with checkpoints, and one more commit. Return the answers and fatal errors."""
    monkeypatch.setattr(writing, "IDLE_SECONDS", 0.01)
    monkeypatch.setattr(writing, "TRUNCATE_SECONDS", 0.01)
    monkeypatch.setattr(writing, "WAL_KEPT", 0)
    database = Database(path, clock=SystemClock())
    answers: list[Any] = []
    fatal: list[StorageError] = []

    async def commit(writer: Writer, n: int) -> None:
        try:
            answers.append(await writer.commit(insert, n))
        except BaseException as error:
            answers.append(error)
            if not isinstance(error, StorageError | Injected):
                raise

    with tracer, anyio.fail_after(PATIENCE):
        async with Writer(database, on_fatal=fatal.append) as writer:
            await writer.commit(lambda tx: tx.run("CREATE TABLE IF NOT EXISTS kept (n INTEGER)") and None)
            tracer.armed = True
            async with anyio.create_task_group() as group:
                for n in range(20):
                    group.start_soon(commit, writer, n)
            await anyio.sleep(0.1)
            await commit(writer, 20)
            tracer.armed = tracer.armed and bool(answers)
    return answers, fatal


async def test_error_anywhere_on_the_writer_thread_answers_every_caller(tmp_path, monkeypatch):
    seen = Tracer()
    answers, fatal = await run_writer(tmp_path / "whole.db", seen, monkeypatch)
    assert sorted(answers) == list(range(21))
    assert fatal == []
    assert {"_take", "run", "_run_on", "run_groups", "before_begin", "_checkpoint"} <= {
        code.co_name for code in seen.seen
    }

    violations = {}
    for number, code in enumerate(seen.seen):
        for attempt in range(10):  # a busy machine may leave the writer no idle time
            tracer = Tracer(code)
            answers, fatal = await run_writer(tmp_path / f"{number}.{attempt}.db", tracer, monkeypatch)
            if tracer.raised:
                break
        failed = [answer for answer in answers if not isinstance(answer, int)]
        if len(answers) != 21 or not tracer.raised or (failed and not fatal and len(failed) > 20):
            violations[code.co_qualname] = (len(answers), tracer.raised, failed[:2], fatal)
    assert violations == {}


async def test_error_outside_of_a_commit_ends_the_writer_with_its_reason(tmp_path, monkeypatch):
    """The error is raised between two commits."""
    tracer = Tracer(Writer._take.__code__)

    answers, fatal = await run_writer(tmp_path / "agent.db", tracer, monkeypatch)

    assert [type(error) for error in fatal] == [WriterDied]
    assert (fatal[0].exit_code, "Injected" in fatal[0].message) == (70, True)
    assert "the thread that writes was ended" in str(answers[-1])
