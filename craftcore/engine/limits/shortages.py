"""Shortages of the machine: no descriptors, threads or memory. They are not the fault of the work that meets them.

An attempt that fails by one is handed back, and waits longer each time. While even a look of the engine finds the
shortage, nothing is started. After HAND_BACKS_MAX times the failure counts as that of the work itself: it may leak
descriptors, or allocate too much. The number is kept in memory, and a restart forgets it.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from threading import Thread
from typing import cast

import anyio

from craftcore.clock import Clock
from craftcore.engine.failure import leaf_errors
from craftcore.log import get_logger
from craftcore.serialization.untrusted import MESSAGE_LIMIT, message_of, safe_isinstance, truncate_text, type_name
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.settlement import Failed, Outcome, Snoozed

log = get_logger(__name__)

HAND_BACKS_MAX = 10
"""How often one trigger is handed back. The waits take about four minutes."""

WAITS = RetryPolicy(base=1.0, cap=60.0)

LOOK_SECONDS, LOOK_SECONDS_MAX = 1.0, 30.0
"""Seconds between two looks while there is a shortage: twice as long after each, up to the second."""

CAUSES_MAX = 10

ERRNOS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)

PIPES, BYTES = 8, 16 << 20
"""The resources that a look takes and gives back, besides a thread: about what a handler needs."""

KEPT_MAX = 10_000
"""Triggers whose hand-backs are counted."""


class ReleaseCounts:
    """How often triggers were handed back for one reason, kept in memory for the newest KEPT_MAX triggers."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def count(self, trigger: str) -> int:
        """Count one more, and return how many there were."""
        number = self._counts[trigger] = self._counts.pop(trigger, 0) + 1
        if len(self._counts) > KEPT_MAX:
            del self._counts[next(iter(self._counts))]
        return number


def describe_shortage(error: BaseException) -> str | None:
    """Return the text of the shortage by which an error came about, as itself, in a group or as a cause; None: by
    none."""
    for leaf in leaf_errors(error):
        cause: BaseException | None = leaf
        for _ in range(CAUSES_MAX):
            if cause is None:
                break
            if _is_shortage(cause):
                return truncate_text(f"{type_name(cause)}: {message_of(cause)}".rstrip(": "), MESSAGE_LIMIT)
            cause = BaseException.__dict__["__cause__"].__get__(cause)
    return None


def _is_shortage(error: BaseException) -> bool:
    if safe_isinstance(error, MemoryError):
        return True
    if type(error) is RuntimeError:
        return "can't start new thread" in message_of(error)
    if not safe_isinstance(error, OSError):
        return False
    number = _read_errno(cast(OSError, error))
    # A process is refused with EAGAIN, but so is a lock that another process holds.
    return number in ERRNOS or (number == errno.EAGAIN and find_shortage() is not None)


def _read_errno(error: OSError) -> object:
    try:
        return error.errno
    except BaseException:  # an attribute of an exception of user code may raise
        return None


def find_shortage() -> str | None:
    """Take what a handler may need, and give it back. Return the text of the shortage; None: there is none."""
    opened: list[int] = []
    try:
        for _ in range(PIPES):
            opened.extend(os.pipe())
        thread = Thread(target=bytearray, args=(BYTES,), name="craftcore-look")
        thread.start()
        thread.join()
        bytearray(BYTES)
    except (OSError, RuntimeError, MemoryError) as error:
        return describe_shortage(error)
    finally:
        for descriptor in opened:
            os.close(descriptor)
    return None


class Shortages:
    """The shortages that the work of one engine has met. All on the loop's thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._releases = ReleaseCounts()
        self._met = anyio.Event()
        self.current: str | None = None
        """Why nothing is started; None: there is no shortage now."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when there is none any more."""

    def judge(self, trigger: str, error: BaseException, outcome: Outcome) -> Outcome:
        """Return the outcome of an attempt that ended with this error: handed back after a shortage, unless its code
        decided otherwise or it was handed back too often."""
        if not (isinstance(outcome, Failed) and outcome.retryable) or (why := self.note(error)) is None:
            return outcome
        count = self._releases.count(trigger)
        if count > HAND_BACKS_MAX:
            return outcome
        log.warning("trigger.shortage", trigger=trigger, error=why, hand_backs=count)
        return Snoozed(until=self._clock.now() + WAITS.backoff(trigger, count), reason=f"shortage: {why}")

    def note(self, error: BaseException) -> str | None:
        """Return the text of the shortage behind an error; None: there is none. Nothing is started while it lasts."""
        why = describe_shortage(error)
        if why is not None and self.current is None and (shortage := find_shortage()) is not None:
            self.current = shortage
            log.error("engine.shortage", reason=shortage)
            self._met.set()
        return why

    async def watch(self) -> None:
        """Look again while there is a shortage; until cancelled."""
        while True:
            await self._met.wait()
            self._met = anyio.Event()
            wait = LOOK_SECONDS
            while self.current is not None:
                await anyio.sleep(wait)
                wait = min(2 * wait, LOOK_SECONDS_MAX)
                self.current = find_shortage()
            log.warning("engine.shortage_over")
            self.on_end()
