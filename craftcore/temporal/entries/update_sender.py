"""The updates and queries of one entry: one update is on its way at a time, and is sent until there is an answer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Any, TypeVar

import anyio
from temporalio.client import WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from craftcore.errors import LeaseLost
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.temporal.cluster_connection import FORBIDDEN
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.sent_size import measure_call, require_sendable_call
from craftcore.temporal.queries import ask
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.workflow.journal_messages import (
    LEASE_LOST,
    NOT_FOUND,
    SENT_MAX_BYTES,
    STATE_REFUSED,
    JournalAnswer,
    JournalBatch,
    JournalCall,
    Written,
    read_answers,
    write_batch,
)

log = get_logger(__name__)
T = TypeVar("T")

RETRY_SECONDS = 0.5
"""How often a cluster that cannot be reached is asked again."""

RETRY_MAX_SECONDS = 10.0
"""The same for a cluster that forbids it."""

CALLS_MAX = 100
"""Calls in one update."""

MARK_LENGTH = 16
"""Characters of the hash of a task id in the ids of its updates."""


class UpdateSender:
    """Sends calls in updates. Calls that come while an update is on its way share the next update.

    Another task may have the same workflow id by then. So an update names its task, and its id is of this task alone.
    """

    def __init__(self, entry: OpenEntry) -> None:
        self._entry = entry
        self._mark = f"{sha256(entry.task_id.encode()).hexdigest()[:MARK_LENGTH]}.{entry.token}"
        self._sent = 0
        self._waiting: list[tuple[JournalCall, asyncio.Future[JournalAnswer]]] = []
        self._sender: asyncio.Task[None] | None = None

    def _is_over(self, calls: list[JournalCall]) -> bool:
        """Return whether no answer to these calls is waited for any more. The end of a call is sent for longer."""
        outcomes_only = all(call.kind == "settle" for call in calls)
        return self._entry.has_stopped() if outcomes_only else self._entry.has_lost_lease()

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
        workflow has ended, or when the cluster may have given the entry up."""
        is_over = self._entry.has_lost_lease
        while True:
            try:
                return await answer_unless(is_over, ask(self._entry.run, name, *args, result_type=result_type))
            except RPCError as error:
                if is_missing(error):
                    raise LeaseLost(_LOST.message) from error
            except Unanswered:
                pass
            if is_over():
                raise LeaseLost(_LOST.message)
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
        """Return the answers of the workflow, whose commit they are. It is sent until there is an answer, or until the
        calls are over."""
        batch = JournalBatch(token=self._entry.token, calls=calls, task=self._entry.task_id)
        is_over, wait = partial(self._is_over, calls), RETRY_SECONDS
        while True:
            hit(Failpoint.WRITER_FLUSHING)
            try:
                sent: list[Written] = await answer_unless(
                    is_over,
                    self._entry.workflow.execute_update(
                        "journal", write_batch(batch), id=id, result_type=list[Written]
                    ),
                )
                hit(Failpoint.WRITER_FLUSHED)
                return read_answers(sent)
            except WorkflowUpdateFailedError as error:
                refusal = error.cause.type if isinstance(error.cause, ApplicationError) else None
                if refusal == LEASE_LOST:
                    return await self._send_outcomes(calls, id)
                if refusal == NOT_FOUND:  # its key is in use by another task
                    return _list_over(calls)
                raise
            except (WorkflowUpdateRPCTimeoutOrCancelledError, Unanswered):
                pass
            except RPCError as error:
                if is_missing(error):
                    return _list_over(calls)
                if error.status is RPCStatusCode.INVALID_ARGUMENT:
                    return await self._send_less(calls, id, error)
                if error.status in FORBIDDEN:  # heartbeats are refused, too: soon all but outcomes are over
                    log.error("temporal.update_refused", task=self._entry.task_id, error=f"{error.message:.200}")
                    wait = min(2 * wait, RETRY_MAX_SECONDS)
            await wait_unless(is_over, wait)
            if is_over():
                return await self._leave(calls, id)

    async def _send_less(self, calls: list[JournalCall], id: str, error: RPCError) -> list[JournalAnswer]:
        """Send what the cluster refused as a whole: each call alone, and an outcome without its result."""
        if len(calls) > 1:
            return [(await self._send([call], f"{id}.{place}"))[0] for place, call in enumerate(calls)]
        outcome, refusal = calls[0].outcome, f"the cluster refused it: {error.message:.200}"
        if outcome is None or outcome.result_json is None:
            return [JournalAnswer(error=STATE_REFUSED, message=refusal)]
        outcome = replace(outcome, result_json=None, result_unstored=refusal)
        return await self._send([replace(calls[0], outcome=outcome)], id)

    async def _leave(self, calls: list[JournalCall], id: str) -> list[JournalAnswer]:
        """Return the answers of an entry that may be lost. Its outcomes are sent until the worker has stopped."""
        if not self._entry.has_stopped():
            return await self._send_outcomes(calls, id)
        for call in calls:
            if call.outcome is not None:
                outcome = {"status": call.outcome.status, "provider_ref": call.outcome.provider_ref}
                log.error("temporal.outcome_unsent", activity=call.key, **outcome)
        return [_LOST] * len(calls)

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


class Unanswered(Exception):
    """Raised when no answer had come, and none is waited for any more."""


async def answer_unless(is_over: Callable[[], bool], request: Coroutine[Any, Any, T]) -> T:
    """Return the answer to a request. Raises Unanswered when there is none within a moment, and then it is over."""
    asking = asyncio.ensure_future(request)
    asking.add_done_callback(lambda done: done.cancelled() or done.exception())  # nobody may wait for it any more
    try:
        while not asking.done():
            await asyncio.wait({asking}, timeout=RETRY_SECONDS)
            if not asking.done() and is_over():
                raise Unanswered
        return asking.result()
    finally:
        asking.cancel()


async def wait_unless(is_over: Callable[[], bool], seconds: float) -> None:
    """Wait, at most until it is over."""
    while seconds > 0 and not is_over():
        await asyncio.sleep(min(RETRY_SECONDS, seconds))
        seconds -= RETRY_SECONDS


def is_done(call: JournalCall) -> bool:
    """Return whether a call reports that an action was done."""
    return call.outcome is not None and call.outcome.status == "DONE"
