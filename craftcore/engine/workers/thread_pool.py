"""Threads for plain functions of user code, and the way back to the event loop.

`anyio.to_thread` costs three times as much: a limiter, a scope, a queue for each thread, and a call into the loop for
each result. Here all threads take from one queue, and results that come together wake the loop once.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from queue import Empty, SimpleQueue

from craftcore.storage.event_loop import Loop

IDLE_SECONDS = 10.0
"""Seconds after which a thread without work ends."""

Job = Callable[[], None]


class ThreadPool:
    """At most `size` threads, made when they are needed. Further jobs wait, in order.

    Leave it with `async with` when nothing is submitted any more. A thread that runs user code cannot be ended: it
    outlives the pool, and the process waits for it at its end.
    """

    def __init__(self, loop: Loop, size: int) -> None:
        self._loop = loop
        self._size = size
        self._jobs: SimpleQueue[tuple[Job, Job] | None] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0
        self._free = 0
        """The threads that wait, less the jobs that wait."""
        self._ended: deque[Job] = deque()
        self._is_waking = False
        self._is_closed = False

    def submit(self, job: Job, on_end: Job) -> None:
        """Run `job` in a thread, and then `on_end` on the loop. Neither may raise. Raises RuntimeError when there is no
        thread and none can be made."""
        with self._lock:
            if self._free <= 0 and self._threads < self._size and not self._is_closed:
                self._begin_thread()
            self._free -= 1
        self._jobs.put((job, on_end))

    async def __aenter__(self) -> ThreadPool:
        return self

    async def __aexit__(self, *_exit: object) -> None:
        with self._lock:  # each thread ends after its job
            self._is_closed = True
            for _ in range(self._threads):
                self._jobs.put(None)

    def _begin_thread(self) -> None:
        try:
            threading.Thread(target=self._work, name="craftcore-call").start()
        except RuntimeError:  # the system gives no more: the others do it
            if not self._threads:
                raise
        else:
            self._threads += 1
            self._free += 1

    def _work(self) -> None:
        while True:
            try:
                item = self._jobs.get(timeout=IDLE_SECONDS)
            except Empty:
                if self._may_end():
                    return
                continue
            if item is None:
                return
            job, on_end = item
            job()
            with self._lock:
                self._free += 1
            self._ended.append(on_end)
            del item, job, on_end  # what they hold must not live until the next job
            if not self._is_waking:
                self._is_waking = True
                self._loop.call_soon(self._wake)

    def _may_end(self) -> bool:
        with self._lock:
            may = self._free > 0
            if may:
                self._free -= 1
                self._threads -= 1
            return may

    def _wake(self) -> None:
        """Call what waits for jobs that have ended, on the loop's thread."""
        self._is_waking = False  # first: what ends from now on calls again
        while self._ended:
            self._ended.popleft()()
