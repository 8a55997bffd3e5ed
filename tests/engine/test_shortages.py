"""Shortages of descriptors, threads or memory: work is retried without a counted attempt, up to a limit."""

from __future__ import annotations

import errno
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import anyio
import pytest

from craftcore import App, Fail, NoEffect, RetryPolicy, TaskContext
from craftcore.clock import SystemClock
from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_commits import AttemptCommits
from craftcore.engine.failure import outcome_of
from craftcore.engine.limits.shortages import HAND_BACKS_MAX, Shortages, describe_shortage, find_shortage
from craftcore.storage.transaction import Transaction
from craftcore.triggers.settlement import Failed, Snoozed
from tests.support.engine_harness import lab, settings

pytestmark = pytest.mark.anyio

FULL = OSError(errno.EMFILE, "Too many open files")


@contextmanager
def few_descriptors(free: int) -> Iterator[None]:
    """Leave this process the given number of free descriptors."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(name) for name in os.listdir("/proc/self/fd"))
    taken = [os.open(os.devnull, os.O_RDONLY) for _ in range(highest)]  # fills the gaps below
    limit = max(taken) + 1 + free
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for descriptor in taken:
            os.close(descriptor)


def open_many() -> None:
    opened: list[int] = []
    try:
        for _ in range(20):
            opened.append(os.open(os.devnull, os.O_RDONLY))
    finally:
        for descriptor in opened:
            os.close(descriptor)


async def test_work_spends_no_attempt_while_the_process_has_no_descriptors(tmp_path, monkeypatch):
    """Each trigger meets the shortage often enough to spend all its attempts."""
    monkeypatch.setattr("craftcore.engine.limits.shortages.WAITS", RetryPolicy(base=0.0, cap=0.0))
    monkeypatch.setattr("craftcore.engine.limits.shortages.LOOK_SECONDS", 0.01)
    app, task_ids = App(), list[str]()

    @app.workflow("opens", max_attempts=1)
    async def opens(ctx: TaskContext) -> None:
        task_ids.append(ctx.task_id)
        await ctx.step("open", open_many, executor="inline")

    async with lab(app, tmp_path, settings(concurrency=4)) as harness:
        ids = []
        with few_descriptors(8):
            for _ in range(8):
                ids.append((await app.emit("opens")).id)
            dead = "SELECT 1 FROM triggers WHERE status IN ('DEAD', 'FAILED')"
            await harness.until(lambda: harness.engine.live_state().shortage is not None or bool(harness.rows(dead)))
            assert not harness.rows(dead)
            assert "Too many open files" in str(harness.engine.live_state().shortage)
        rows = [await harness.settled(id) for id in ids]

    assert {(row["status"], row["attempts"]) for row in rows} == {("DONE", 1)}
    assert harness.engine.live_state().shortage is None


async def test_plain_work_spends_no_attempt_while_there_are_no_threads(tmp_path, monkeypatch):
    monkeypatch.setattr("craftcore.engine.limits.shortages.WAITS", RetryPolicy(base=0.0, cap=0.0))
    monkeypatch.setattr("craftcore.engine.limits.shortages.LOOK_SECONDS", 0.01)
    app, refused = App(), list[str]()
    start = threading.Thread.start

    def refuse(self: threading.Thread) -> None:
        if self.name in ("craftcore-call", "craftcore-look") and len(refused) < 6:
            refused.append(self.name)
            raise RuntimeError("can't start new thread")
        start(self)

    @app.workflow("plain", max_attempts=1)
    def plain() -> int:
        return 1

    async with lab(app, tmp_path) as harness:
        monkeypatch.setattr(threading.Thread, "start", refuse)
        row = await harness.settled((await app.emit("plain")).id)

    assert (row["status"], row["attempts"]) == ("DONE", 1)
    assert "craftcore-call" in refused


@pytest.mark.parametrize("step", ["start_all", "settle_all"])
async def test_commit_of_the_engine_is_made_once_the_shortage_is_over(tmp_path, monkeypatch, step):
    """A refused start releases the claim, and a refused end is written later, so the trigger runs once."""
    monkeypatch.setattr("craftcore.engine.attempt_commits.LOOK_SECONDS", 0.001)
    app, ran, refused = App(), list[str](), list[str]()
    commit = getattr(AttemptCommits, step)

    def refuse(self: AttemptCommits, *arguments: object) -> object:
        if len(refused) < 3:
            refused.append(step)
            raise OSError(errno.EMFILE, "Too many open files")
        return commit(self, *arguments)

    @app.workflow("plain", max_attempts=1)
    async def plain(ctx: TaskContext) -> None:
        ran.append(ctx.task_id)

    async with lab(app, tmp_path) as harness:
        monkeypatch.setattr(AttemptCommits, step, refuse)
        row = await harness.settled((await app.emit("plain")).id)

    assert (row["status"], row["attempts"], len(ran), len(refused)) == ("DONE", 1, 1, 3)


async def test_end_that_a_shortage_refuses_too_often_is_a_failure(tmp_path, monkeypatch):
    monkeypatch.setattr("craftcore.engine.attempt_commits.LOOK_SECONDS", 0.001)
    app, refused = App(), list[str]()
    settle = AttemptCommits.settle_all

    def refuse(self: AttemptCommits, tx: Transaction, runs: list[Attempt]) -> object:
        if len(refused) < HAND_BACKS_MAX:
            refused.append("settle_all")
            raise OSError(errno.EMFILE, "Too many open files")
        return settle(self, tx, runs)

    @app.workflow("plain", max_attempts=1)
    async def plain() -> None:
        pass

    async with lab(app, tmp_path) as harness:
        monkeypatch.setattr(AttemptCommits, "settle_all", refuse)
        row = await harness.settled((await app.emit("plain")).id)

    assert (row["status"], row["error_code"]) == ("FAILED", "INTERNAL_AGENT_ERROR")
    assert "Too many open files" in row["error_message"]


def test_shortage_is_handed_back_with_growing_waits_and_in_the_end_counts():
    """A handler that leaks descriptors or allocates too much fails in the end."""
    shortages = Shortages(SystemClock())

    outcomes = [shortages.judge("t", FULL, outcome_of(FULL, 0.0)) for _ in range(HAND_BACKS_MAX + 1)]

    waits = [outcome.until for outcome in outcomes if isinstance(outcome, Snoozed)]
    assert len(waits) == HAND_BACKS_MAX
    assert waits[0] < waits[2] < waits[4] < waits[-1]
    last = outcomes[-1]
    assert isinstance(last, Failed)
    assert "Too many open files" in last.message
    assert isinstance(shortages.judge("other", FULL, outcome_of(FULL, 0.0)), Snoozed)


def with_cause(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        FULL,
        OSError(errno.ENFILE, "Too many open files in system"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        MemoryError(),
        RuntimeError("can't start new thread"),
        ExceptionGroup("group", [ValueError("x"), FULL]),
        with_cause(ConnectionError("all attempts failed"), FULL),
        with_cause(NoEffect("the host cannot be reached"), FULL),
    ],
    ids=repr,
)
def test_shortage_is_recognized_in_groups_and_causes(error):
    assert describe_shortage(error) is not None
    assert isinstance(Shortages(SystemClock()).judge("t", error, outcome_of(error, 0.0)), Snoozed)


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOENT, "no such file"),
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),
        RuntimeError("something else"),
        ValueError("Too many open files"),
        with_cause(Fail("FULL", "definitive"), FULL),
    ],
    ids=repr,
)
def test_failure_without_a_shortage_counts(error):
    outcome = outcome_of(error, 0.0)

    assert Shortages(SystemClock()).judge("t", error, outcome) is outcome


def test_refusal_that_a_lock_gives_too_counts_as_a_shortage_only_during_a_shortage():
    refused = BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    with few_descriptors(4):
        found = describe_shortage(refused)

    assert found == "BlockingIOError: [Errno 11] Resource temporarily unavailable"


async def test_looks_end_with_the_shortage(monkeypatch):
    monkeypatch.setattr("craftcore.engine.limits.shortages.LOOK_SECONDS", 0.01)
    shortages, is_over = Shortages(SystemClock()), anyio.Event()
    shortages.on_end = is_over.set
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(shortages.watch)
        with few_descriptors(4):
            assert shortages.note(FULL) is not None
            assert shortages.current == find_shortage()
        await is_over.wait()
        tasks.cancel_scope.cancel()

    assert shortages.current is None
    assert find_shortage() is None
