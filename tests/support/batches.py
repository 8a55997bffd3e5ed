"""Batches under the control of a test: the writer is held while calls are queued, and then runs them as one batch."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio

from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from tests.support.processes import PATIENCE


class Gate:
    """A call that blocks the writer's thread, so that later calls are queued."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def pass_through(self, tx: Transaction) -> None:
        self.entered.set()
        assert self.open.wait(PATIENCE)

    async def is_held(self) -> None:
        with anyio.fail_after(PATIENCE):
            while not self.entered.is_set():
                await anyio.lowlevel.checkpoint()


@asynccontextmanager
async def held(writer: Writer) -> AsyncIterator[None]:
    """Hold the writer until the block ends. All calls that are queued then are one batch."""
    gate = Gate()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(writer.commit, gate.pass_through)
        await gate.is_held()
        try:
            yield
        finally:
            gate.open.set()


async def wait_for_calls(writer: Writer, count: int) -> None:
    """Wait until this number of calls is queued."""
    with anyio.fail_after(PATIENCE):
        while len(writer.queue) < count:
            await anyio.lowlevel.checkpoint()


class Answers(dict[int, Any]):
    """The answer of each caller: its result or its exception."""

    async def of(self, number: int, commit: Any, *args: Any) -> None:
        try:
            self[number] = await commit(*args)
        except Exception as error:
            self[number] = error


async def commit_together(writer: Writer, calls: list[tuple[Any, ...]]) -> Answers:
    """Queue all calls in this order while the writer is blocked, and wait for every answer."""
    answers = Answers()
    async with anyio.create_task_group() as tasks:
        async with held(writer):
            for number, call in enumerate(calls):
                tasks.start_soon(answers.of, number, *call)
                await wait_for_calls(writer, number + 1)
    return answers
