"""Emitting, and speaking to tasks on a cluster, from any program, synchronously: a script, a web handler."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from threading import Thread
from typing import Any, TypeVar

from craftcore.client.blocking_work_calls import BlockingWorkCalls
from craftcore.temporal.cluster_connection import connect
from craftcore.temporal.cluster_requests import ClusterRequests
from craftcore.temporal.settings import TemporalSettings

T = TypeVar("T")


class LoopThread:
    """An event loop in a thread of its own, for callers without one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="craftcore-temporal", daemon=True)
        try:
            self._thread.start()
        except BaseException:  # the system gives no thread
            self._loop.close()
            raise

    def run(self, call: Coroutine[Any, Any, T], /) -> T:
        """Run a coroutine on the loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(call, self._loop).result()

    def close(self) -> None:
        """Cancel running calls, and stop the loop and its thread."""
        self.run(_cancel_others())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class TemporalProducer(BlockingWorkCalls):
    """Writes to an app on a cluster, with or without a worker. May be shared by threads.

    Its calls are those of an App, blocking, unless a cluster lacks them.

        with TemporalProducer("host:7233", namespace="ns", app="my-agent") as producer:
            producer.emit("order", {"what": "lamp"}, dedup_key="order:lamp")

    `app` is the name of the app, unless `settings` has a task queue. `settings` has TLS, key and data converter; None:
    the defaults. The payload is not checked against the workflow. Raises ClusterUnavailable when nothing answers.
    """

    def __init__(
        self,
        address: str | None = None,
        *,
        namespace: str | None = None,
        app: str | None = None,
        settings: TemporalSettings | None = None,
    ) -> None:
        settings = settings or TemporalSettings()
        settings = replace(
            settings,
            address=address or settings.address,
            namespace=namespace or settings.namespace,
            task_queue=app or settings.task_queue,
        )
        self._loop_thread = LoopThread()
        try:
            requests = ClusterRequests(self._loop_thread.run(connect(settings)), None, settings)
        except BaseException:
            self.close()
            raise
        super().__init__(requests, self._loop_thread.run)

    def __enter__(self) -> TemporalProducer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._loop_thread.close()


async def _cancel_others() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)
