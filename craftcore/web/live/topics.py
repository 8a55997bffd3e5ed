"""Live updates: topics that are rendered once for all listeners, and sent when they changed.

A topic is a fragment of a page without forms and without personal data. There is one per role, because masking differs
by role. Without a listener, nothing is read.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import AsyncGenerator, Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from craftcore.errors import CraftcoreError, InvalidInput, StateRefused
from craftcore.log import get_logger
from craftcore.web.live.watch import LOOKS_SECONDS, FileWatch

log = get_logger(__name__)
T = TypeVar("T")

LISTENERS_MAX = 200
RENDER_SECONDS = 1.25
"""Between two renderings of one topic, at least. With a look every quarter of a second, a change is in the browser
within 1.5 s."""

QUIET_SECONDS = 15.0
"""Seconds without a frame after which a comment is sent, so that a connection that is gone is found."""

QUIET = b": quiet\n\n"

RETRY_SECONDS = (2.0, 8.0)
"""A browser connects again after a time between these, so a restart causes no storm."""

Render = Callable[[str, str], str]
"""Return the fragment of a topic for a role. It runs in a thread, and says in the fragment what cannot be read."""


class Key(NamedTuple):
    """A topic for a role: the unit that is rendered once."""

    topic: str
    role: str


class Frame(NamedTuple):
    """A fragment as it is sent, and the hash that tells it from others."""

    digest: bytes
    text: bytes


@dataclass(slots=True, eq=False)
class Listener:
    """One open connection. It has one slot a topic: a slow reader misses frames, and never has a queue."""

    keys: frozenset[Key]
    slots: dict[Key, Frame] = field(default_factory=dict)
    ready: asyncio.Event = field(default_factory=asyncio.Event)

    def offer(self, key: Key, frame: Frame) -> None:
        """Put a frame into its slot, in place of one that was not sent yet."""
        self.slots[key] = frame
        self.ready.set()

    def take(self) -> list[Frame]:
        """Return the frames to send, and empty the slots."""
        frames = [self.slots[key] for key in sorted(self.slots)]
        self.slots.clear()
        self.ready.clear()
        return frames


class Live:
    """The topics and listeners of one process. All but `render` and the watch runs on the event loop.

    `before_rendering` is called in the thread that renders, before it does; `on_end`, when the last listener has gone.
    `is_stopping`: the server ends; so do all streams.
    """

    def __init__(
        self,
        watch: FileWatch,
        topics: Collection[str],
        render: Render,
        *,
        before_rendering: Callable[[], object] = lambda: None,
        on_end: Callable[[], object] = lambda: None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self._watch, self._topics, self._render = watch, frozenset(topics), render
        self._before_rendering, self._on_end, self._is_stopping = before_rendering, on_end, is_stopping
        self._listeners: set[Listener] = set()
        self._frames: dict[Key, Frame] = {}
        self._stale: set[Key] = set()
        self._rendered_at: dict[Key, float] = {}
        self._joined = asyncio.Event()
        self._thread: ThreadPoolExecutor | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False
        self._spoke_at = time.monotonic()

    @property
    def listeners(self) -> int:
        """The number of open connections."""
        return len(self._listeners)

    def require_place(self, topics: Collection[str]) -> None:
        """Raise InvalidInput for a topic that there is not, and StateRefused at LISTENERS_MAX."""
        if not topics or not self._topics.issuperset(topics):
            raise InvalidInput(f"topic is unknown; it must be one of {', '.join(sorted(self._topics))}")
        if self._closed or len(self._listeners) >= LISTENERS_MAX:
            raise StateRefused(f"{LISTENERS_MAX} pages are connected already: load this one again to update it")

    async def stream(
        self, topics: Collection[str], role: str, is_allowed: Callable[[], bool] = lambda: True
    ) -> AsyncGenerator[bytes, None]:
        """Yield the events of a new listener, the current fragments first, until the reader goes or the server stops.

        `is_allowed` ends the stream when its login ends. Raises as `require_place` does, at the first step.
        """
        self.require_place(topics)
        listener = self._join(frozenset(Key(topic, role) for topic in topics))
        try:
            yield f"retry: {random.uniform(*RETRY_SECONDS) * 1000:.0f}\n\n".encode()
            while not self._is_over(is_allowed):
                await listener.ready.wait()
                if not self._is_over(is_allowed):
                    yield b"".join(frame.text for frame in listener.take()) or QUIET
        finally:
            self._listeners.discard(listener)

    async def close(self) -> None:
        """End every stream and the watch, for the end of the server."""
        self._end()
        if self._task is not None:
            await self._task

    def _join(self, keys: frozenset[Key]) -> Listener:
        """Return a listener that has the current frames, and start to look at the file for the first one."""
        listener = Listener(keys)
        for key in keys & self._frames.keys():
            listener.offer(key, self._frames[key])
        self._listeners.add(listener)
        self._joined.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return listener

    def _end(self) -> None:
        self._closed = True
        for listener in self._listeners:
            listener.ready.set()
        self._listeners.clear()
        self._joined.set()

    def _is_over(self, is_allowed: Callable[[], bool]) -> bool:
        return self._closed or not is_allowed()

    async def _run(self) -> None:
        """Look and render while there are listeners."""
        self._thread = ThreadPoolExecutor(1, "craftcore-live")
        try:
            while self._listeners:
                await self._update()
                await self._pause()
                if self._is_stopping():
                    self._end()
        finally:
            await self._call(self._watch.close)
            self._on_end()
            self._thread.shutdown()
            self._thread, self._task = None, None
            self._frames.clear()
            self._rendered_at.clear()
            if self._listeners and not self._closed:  # one joined while the file was closed
                self._task = asyncio.create_task(self._run())

    async def _update(self) -> None:
        """Look at the file once, and render what may have changed, was not rendered lately and is listened to."""
        keys = {key for listener in self._listeners for key in listener.keys}
        for key in self._rendered_at.keys() - keys:  # it would be old when somebody listens to it again
            self._frames.pop(key, None)
            del self._rendered_at[key]
        if await self._call(self._watch.has_news):
            self._stale |= keys
        self._stale = (self._stale | (keys - self._frames.keys())) & keys
        now = time.monotonic()
        due = sorted(one for one in self._stale if now - self._rendered_at.get(one, -RENDER_SECONDS) >= RENDER_SECONDS)
        if due:
            self._stale.difference_update(due)
            self._rendered_at.update(dict.fromkeys(due, now))
            await self._call(self._before_rendering)
        self._offer_all([key for key in due if await self._render_key(key)])

    def _offer_all(self, changed: Collection[Key]) -> None:
        """Offer the changed frames, all at once: each listener is woken once. After a quiet time, wake all."""
        is_quiet = time.monotonic() - self._spoke_at >= QUIET_SECONDS
        if changed or is_quiet:
            self._spoke_at = time.monotonic()
        for listener in self._listeners:
            for key in listener.keys.intersection(changed):
                listener.offer(key, self._frames[key])
            if is_quiet:
                listener.ready.set()

    async def _render_key(self, key: Key) -> bool:
        """Render one topic; return whether it changed."""
        try:
            frame = make_frame(key.topic, await self._call(self._render, key.topic, key.role))
        except CraftcoreError as error:  # the verdict says so
            log.warning("web.fragment_refused", topic=key.topic, reason=error.message)
            return False
        except Exception:
            log.exception("web.fragment_failed", topic=key.topic)
            return False
        known = self._frames.get(key)
        if known is not None and known.digest == frame.digest:
            return False
        self._frames[key] = frame
        return True

    async def _pause(self) -> None:
        """Wait for the next look, or for a listener that has no frame yet."""
        self._joined.clear()
        if any(key not in self._frames and key not in self._rendered_at for one in self._listeners for key in one.keys):
            return
        try:
            await asyncio.wait_for(self._joined.wait(), LOOKS_SECONDS)
        except TimeoutError:
            pass

    async def _call(self, fn: Callable[..., T], *args: str) -> T:
        """Run a function in the one thread that reads for all listeners."""
        assert self._thread is not None
        return await asyncio.get_running_loop().run_in_executor(self._thread, fn, *args)


def make_frame(topic: str, fragment: str) -> Frame:
    """Return the event that carries a fragment: each line of it is a line of data. An empty fragment has one line, for
    a browser drops an event without data."""
    lines = "".join(f"data: {line}\n" for line in fragment.splitlines() or [""])
    return Frame(hashlib.sha256(fragment.encode()).digest(), f"event: {topic}\n{lines}\n".encode())
