"""The public calls on the work of an app, for programs without an event loop."""

from __future__ import annotations

from typing import Any

from craftcore.blocking_calls import BlockingCalls, Run, make_blocking
from craftcore.client.backend import Backend
from craftcore.client.work_calls import WorkCalls
from craftcore.results.handle import (
    BlockingClient,
    BlockingHandle,
    EmittedBlockingHandle,
    EmittedHandle,
    Handle,
    KnownBlockingHandle,
)
from craftcore.schedules.calls import BlockingSchedules


class BackendCalls(WorkCalls):
    """The calls on the work of one backend."""

    def __init__(self, backend: Backend) -> None:
        self._only_backend = backend

    @property
    def _backend(self) -> Backend:
        return self._only_backend


def _wrap_emitted(work: BlockingWorkCalls, handle: EmittedHandle[Any]) -> EmittedBlockingHandle[Any]:
    return EmittedBlockingHandle(work.client, handle)


def _wrap_all_emitted(work: BlockingWorkCalls, handles: list[EmittedHandle[Any]]) -> list[EmittedBlockingHandle[Any]]:
    return [_wrap_emitted(work, handle) for handle in handles]


def _wrap_known(work: BlockingWorkCalls, handles: list[Handle[Any]]) -> list[BlockingHandle[Any]]:
    return [work.handle(handle.id) for handle in handles]


class BlockingWorkCalls(BlockingCalls):
    """The calls of WorkCalls, blocking. Arguments, results and errors are the same."""

    _awaitable: WorkCalls

    def __init__(self, backend: Backend, run: Run) -> None:
        self._awaitable = BackendCalls(backend)
        self._run = run
        self.client = BlockingClient(backend, run)

    emit = make_blocking(WorkCalls.emit, _wrap_emitted)
    emit_many = make_blocking(WorkCalls.emit_many, _wrap_all_emitted)
    find = make_blocking(WorkCalls.find, _wrap_known)
    transaction = make_blocking(WorkCalls.transaction)
    cancel = make_blocking(WorkCalls.cancel)
    cancel_all = make_blocking(WorkCalls.cancel_all)
    signal = make_blocking(WorkCalls.signal)
    answer = make_blocking(WorkCalls.answer)
    decide = make_blocking(WorkCalls.decide)
    cancel_task = make_blocking(WorkCalls.cancel_task)
    stop_turn = make_blocking(WorkCalls.stop_turn)
    retry_task = make_blocking(WorkCalls.retry_task)
    hold = make_blocking(WorkCalls.hold)
    release = make_blocking(WorkCalls.release)
    task = make_blocking(WorkCalls.task)
    tasks = make_blocking(WorkCalls.tasks)
    questions = make_blocking(WorkCalls.questions)
    history = make_blocking(WorkCalls.history)
    forget_history = make_blocking(WorkCalls.forget_history)
    dead_letters = make_blocking(WorkCalls.dead_letters)
    requeue = make_blocking(WorkCalls.requeue)

    def handle(self, id: str) -> BlockingHandle[Any]:
        """Return the handle of emitted work by its id. Nothing is read until one of its methods is called."""
        return KnownBlockingHandle(id, self.client)

    @property
    def schedules(self) -> BlockingSchedules:
        """The schedules at run time, as WorkCalls.schedules has them, blocking."""
        return BlockingSchedules(self._awaitable.schedules, self._run)
