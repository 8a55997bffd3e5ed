"""The updates and queries of one entry: one update is on its way at a time, and is sent until there is an answer."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from hashlib import sha256
from typing import Any

import anyio
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from craftcore.errors import LeaseLost
from craftcore.failpoints import Failpoint, hit
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.sent_size import SENT_MAX_BYTES, measure_call, require_sendable_call
from craftcore.temporal.queries import ask
from craftcore.temporal.workflow.journal_messages import (
    LEASE_LOST,
    JournalAnswer,
    JournalBatch,
    JournalCall,
    Written,
    read_answers,
    write_batch,
)

RETRY_SECONDS = 0.5
"""How often a cluster that cannot be reached is asked again."""

CALLS_MAX = 100
"""Calls in one update."""

MARK_LENGTH = 16
"""Characters of the hash of a task id in the ids of its updates."""


class UpdateSender:
    """Sends calls in updates. Calls that come while an update is on its way share the next update.

    Another task may have the same workflow id by then. So an update says whose it is, and its id is of this task alone.
    """

    def __init__(self, entry: OpenEntry) -> None:
        self._entry = entry
        self._mark = f"{sha256(entry.task_id.encode()).hexdigest()[:MARK_LENGTH]}.{entry.token}"
        self._sent = 0
        self._waiting: list[tuple[JournalCall, asyncio.Future[JournalAnswer]]] = []
        self._sender: asyncio.Task[None] | None = None

    async def send(self, call: JournalCall) -> JournalAnswer:
        """Return the answer once the call is in the history, also when the caller is cancelled meanwhile.

        Raises PayloadTooLarge: nothing was sent.
        """
        require_sendable_call(call)
        answered: asyncio.Future[JournalAnswer] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answered))
        if self._sender is None or self._sender.done():
            self._sender = asyncio.create_task(self._send_waiting())
        try:
            return await asyncio.shield(answered)
        except asyncio.CancelledError:
            with anyio.CancelScope(shield=True):  # a scope cancels again and again
                await asyncio.wait({answered})
            raise

    async def query(self, name: str, args: list[Any], result_type: Any) -> Any:
        """Return the answer of the workflow to a query, which is repeated until there is one. Raises LeaseLost when the
        workflow has ended."""
        while True:
            try:
                return await ask(self._entry.run, name, *args, result_type=result_type)
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    raise LeaseLost(_LOST.message) from error
            await asyncio.sleep(RETRY_SECONDS)

    async def _send_waiting(self) -> None:
        while self._waiting:
            batch = self._take_batch()
            self._sent += 1
            try:
                answers = await self._send([call for call, _ in batch], f"{self._mark}.{self._sent}")
            except Exception as error:
                for _, answered in batch:
                    answered.set_exception(error)
                continue
            for (_, answered), answer in zip(batch, answers, strict=True):
                answered.set_result(answer)

    def _take_batch(self) -> list[tuple[JournalCall, asyncio.Future[JournalAnswer]]]:
        """Take the calls of the next update, as many as it has room for."""
        size = count = 0
        for call, _ in self._waiting[:CALLS_MAX]:
            size += measure_call(call)
            if count and size > SENT_MAX_BYTES:
                break
            count += 1
        batch, self._waiting = self._waiting[:count], self._waiting[count:]
        return batch

    async def _send(self, calls: list[JournalCall], id: str) -> list[JournalAnswer]:
        """Return the answers of the workflow, whose commit they are. It is sent until there is an answer."""
        while True:
            hit(Failpoint.WRITER_FLUSHING)
            try:
                batch = JournalBatch(token=self._entry.token, calls=calls, task=self._entry.task_id)
                sent: list[Written] = await self._entry.workflow.execute_update(
                    "journal", write_batch(batch), id=id, result_type=list[Written]
                )
                hit(Failpoint.WRITER_FLUSHED)
                return read_answers(sent)
            except WorkflowUpdateFailedError as error:
                match error.cause:
                    case ApplicationError(type="LEASE_LOST"):
                        return await self._send_outcomes(calls, id)
                    case ApplicationError(type="NOT_FOUND"):  # its key is in use by another task
                        return _list_over(calls)
                raise
            except WorkflowUpdateRPCTimeoutOrCancelledError:
                pass
            except RPCError as error:
                if error.status is RPCStatusCode.NOT_FOUND:
                    return _list_over(calls)
            await asyncio.sleep(RETRY_SECONDS)

    async def _send_outcomes(self, calls: list[JournalCall], id: str) -> list[JournalAnswer]:
        """Send, of the calls of a lost entry, those that say what has happened: they are accepted."""
        outcomes = [call for call in calls if call.kind == "settle"]
        if not outcomes or len(outcomes) == len(calls):
            return [_LOST] * len(calls)
        answers = iter(await self._send(outcomes, f"{id}.settle"))
        return [next(answers) if call.kind == "settle" else _LOST for call in calls]


_LOST = JournalAnswer(error=LEASE_LOST, message="the turn is over; nothing was written")


def _list_over(calls: list[JournalCall]) -> list[JournalAnswer]:
    """Return the answers of a task that has ended, and in which what was in doubt is decided."""
    return [replace(_LOST, is_late=is_done(call)) for call in calls]


def is_done(call: JournalCall) -> bool:
    """Return whether a call says that an action was done."""
    return call.outcome is not None and call.outcome.status == "DONE"
