"""The pool of worker processes: each runs one call at a time, and the death of one concerns no other."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable

import anyio
import msgspec

from craftcore.engine.workers.answer import Returned, decode_answer, decode_exception
from craftcore.engine.workers.encoded import Encoded
from craftcore.engine.workers.worker_process import WorkerProcess
from craftcore.errors import InvalidInput, WorkerDied
from craftcore.serialization.encode import describe_error

REQUEST_MAX = 16 << 20
"""Bytes of a pickled call: the event loop pickles it."""


class WorkerPool:
    """Up to `size` worker processes, started when they are needed. 0: one for each processor."""

    def __init__(self, size: int) -> None:
        self._slots = anyio.Semaphore(size or len(os.sched_getaffinity(0)))
        self._free: list[WorkerProcess] = []

    async def __aenter__(self) -> WorkerPool:
        return self

    async def __aexit__(self, *_: object) -> None:
        async with anyio.create_task_group() as tasks:
            while self._free:
                tasks.start_soon(self._free.pop().end)

    async def call(self, what: str, call: Callable[[], Encoded], limit: float | None = None) -> Encoded:
        """Run a call in a worker process; cancellation kills the process.

        Raises what the call raises. Raises InvalidInput for one that cannot be pickled, TimeoutError after `limit`
        seconds in the process, and WorkerDied when the process ended during the call.
        """
        request = _encode_call(what, call)
        async with self._slots:
            worker = self._take_free() or WorkerProcess()
            try:
                with anyio.move_on_after(limit) as scope:
                    data = await worker.ask(request)
            finally:
                if worker.is_free:
                    self._free.append(worker)
                else:
                    await worker.end()
        if scope.cancelled_caught:
            raise TimeoutError(f"{what} did not end within {limit:g} seconds")
        if data is None:
            raise WorkerDied(_format_death(what, worker.cause_of_death))
        try:
            answer = decode_answer(data)
        except msgspec.MsgspecError as error:
            raise WorkerDied(f"the worker process of {what} gave no valid answer: {describe_error(error)}") from error
        if isinstance(answer, Returned):
            return Encoded(answer.text, answer.is_stored)
        raise await decode_exception(answer)

    def _take_free(self) -> WorkerProcess | None:
        """Return the process that was used last; None when none is free. Those that died meanwhile are forgotten."""
        while self._free:
            worker = self._free.pop()
            if worker.is_alive:
                return worker
            worker.forget()
        return None


def _encode_call(what: str, call: Callable[[], Encoded]) -> bytes:
    try:
        request = pickle.dumps(call)
    except Exception as error:
        raise InvalidInput(
            f"{what} cannot be sent to a worker process: {describe_error(error)}. "
            "Give it arguments that can be pickled, and a function at the top level of a module"
        ) from error
    if len(request) > REQUEST_MAX:
        raise InvalidInput(
            f"the arguments of {what} have {len(request):,} bytes; the limit for a worker process is "
            f"{REQUEST_MAX:,}. Store them in a file and pass its name"
        )
    return request


def _format_death(what: str, cause: str) -> str:
    text = f"the worker process of {what} {cause}"
    return f"{text}. See the kernel log: memory may have run out" if "SIGKILL" in cause else text
