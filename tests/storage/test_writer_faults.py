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

OURS = str(Path(writing.__file__).parent) + "/"
WRITER = "craftcore-writer"


class Injected(BaseException):
    """The error that no code of ours expects."""


class Profile:
    """Sees each call of a function of the storage on the writer's thread, and raises at one of them."""

    def __init__(self, at: CodeType | None = None) -> None:
        self.at = at
        self.armed = False
        self.raised = 0
        self.seen: dict[CodeType, None] = {}

    def __enter__(self) -> Profile:
        threading.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        threading.settrace(None)

    def _called(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if event != "call" or threading.current_thread().name != WRITER or not code.co_filename.startswith(OURS):
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


async def life(path: Path, profile: Profile, monkeypatch: pytest.MonkeyPatch) -> tuple[list[Any], list[StorageError]]:
    """Many commits, a quiet time with its checkpoints, and one more commit: their answers, and what was fatal."""
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

    with profile, anyio.fail_after(PATIENCE):
        async with Writer(database, on_fatal=fatal.append) as writer:
            await writer.commit(lambda tx: tx.run("CREATE TABLE IF NOT EXISTS kept (n INTEGER)") and None)
            profile.armed = True
            async with anyio.create_task_group() as group:
                for n in range(20):
                    group.start_soon(commit, writer, n)
            await anyio.sleep(0.1)
            await commit(writer, 20)
            profile.armed = profile.armed and bool(answers)
    return answers, fatal


async def test_error_anywhere_on_the_writer_thread_answers_every_caller(tmp_path, monkeypatch):
    seen = Profile()
    answers, fatal = await life(tmp_path / "whole.db", seen, monkeypatch)
    assert sorted(answers) == list(range(21))
    assert fatal == []
    assert {"_take", "run", "_run_on", "run_groups", "before_begin", "_checkpoint"} <= {
        code.co_name for code in seen.seen
    }

    harm = {}
    for nr, code in enumerate(seen.seen):
        for life_nr in range(10):  # a busy machine may leave the writer no quiet time
            profile = Profile(code)
            answers, fatal = await life(tmp_path / f"{nr}.{life_nr}.db", profile, monkeypatch)
            if profile.raised:
                break
        failed = [answer for answer in answers if not isinstance(answer, int)]
        if len(answers) != 21 or not profile.raised or (failed and not fatal and len(failed) > 20):
            harm[code.co_qualname] = (len(answers), profile.raised, failed[:2], fatal)
    assert harm == {}


async def test_error_outside_of_a_commit_ends_the_writer_with_its_reason(tmp_path, monkeypatch):
    """The housekeeping between two commits."""
    profile = Profile(Writer._take.__code__)

    answers, fatal = await life(tmp_path / "agent.db", profile, monkeypatch)

    assert [type(error) for error in fatal] == [WriterDied]
    assert (fatal[0].exit_code, "Injected" in fatal[0].message) == (70, True)
    assert "the thread that writes was ended" in str(answers[-1])
