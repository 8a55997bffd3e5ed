"""End of an engine: asked for, or by an error, by Ctrl-C, by the end of its event loop."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

import anyio

from craftcore.engine.attempt import Attempt
from craftcore.engine.failure import traceback_places as places_of
from craftcore.engine.loop.keyboard_interrupt import is_ctrl_c
from craftcore.engine.loop.loop_end import LoopEnd
from craftcore.errors import CraftcoreError, EngineCrashed, StorageError
from craftcore.log import get_logger
from craftcore.serialization.untrusted import message_of, type_name
from craftcore.storage.group_commit import SLOW_SECONDS

log = get_logger(__name__)

NAMED_MAX = 10
"""How many of the triggers that ran are named when the engine is ended."""

FLUSHES_AT_THE_END = 3
"""How many flushes a stop waits for after the grace."""


class EngineEnd:
    """End of one engine. `running` lists the attempts that run, `stop` begins to drain."""

    def __init__(self, running: Callable[[], list[Attempt]], stop: Callable[[], None], *, owns_loop: bool) -> None:
        self._running = running
        self._stop = stop
        self._owns_loop = owns_loop
        self.stopping = anyio.Event()
        self._hurried = anyio.Event()
        self._news = anyio.Event()
        self.failure: CraftcoreError | None = None
        """The error that ended it; None when it ended in order."""
        self.interrupted_by: BaseException | None = None
        self._ended_by_host = False

    @property
    def is_hurried(self) -> bool:
        """The engine ends without its grace."""
        return self._hurried.is_set()

    def announce_settled(self) -> None:
        """Wake those that wait for another settle."""
        self._news.set()

    @property
    def ends_now(self) -> bool:
        """The engine failed or was interrupted: nothing is waited for any more."""
        return self.failure is not None or self.interrupted_by is not None

    def fail(self, error: CraftcoreError) -> None:
        """Stop at once, because the database or the engine can no longer be trusted; the next boot resumes. The first
        error counts."""
        self.failure = self.failure or error
        self.stop_now()
        self._news.set()

    def stop_now(self) -> None:
        """Do not wait for the grace."""
        self._stop()
        self._hurried.set()

    async def guard(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task that the engine cannot do without: an error in it ends the engine, also while it drains."""
        try:
            await task()
        except StorageError as error:
            self.fail(error)
        except anyio.get_cancelled_exc_class():
            if anyio.current_effective_deadline() > -math.inf and not self._ended_by_host:
                self.crash("a task of the engine was cancelled")
            raise
        except BaseException as error:
            if is_ctrl_c(error):
                self._interrupt(error)
                return
            self.crash(f"an error of craftcore, {type_name(error)}: {message_of(error)}", error)

    def on_loop_end(self, end: LoopEnd) -> None:
        """Handle a call that cancels every task of this event loop."""
        if end.attempt is not None:
            self.crash(
                f"{end.attempt.workflow} ({end.attempt.claim.id}) cancelled every task of the event loop",
                where=end.where,
            )
        elif self.stopping.is_set() and not self._owns_loop:
            self._ended_by_host = True  # a second Ctrl-C, say, while it drains
        elif end.was_broken:
            self.crash("the event loop was ended by SystemExit, KeyboardInterrupt or loop.stop() in a task")
        elif self._owns_loop:
            self.crash("every task of the event loop was cancelled", where=end.where)
        else:
            self._ended_by_host = True  # the program that the engine runs in: it may end itself

    def crash(self, why: str, cause: BaseException | None = None, *, where: Sequence[str] = ()) -> None:
        """Stop at once after an unexpected end, and hand nothing back. The next start counts a crash for what runs.

        Also while it drains. After a first failure another error changes nothing and is logged.
        """
        where = where or (places_of(cause) if cause is not None else ())
        if self.failure is not None:
            if cause is not None:
                log.error("engine.further_error", why=why, where=list(where), exc_info=cause)
            return
        attempts = self._running()
        names = [f"{attempt.workflow} ({attempt.claim.id})" for attempt in attempts]
        if len(names) > NAMED_MAX:
            names[NAMED_MAX:] = [f"{len(names) - NAMED_MAX} more"]
        error = EngineCrashed(
            f"the engine ended without being asked to: {why}. Running then: {', '.join(names) or 'nothing'}. "
            "The next start counts a crash for each; see the log for where it happened",
            running=[attempt.claim.id for attempt in attempts],
        )
        error.__cause__ = cause
        self.fail(error)  # first: a log of the host's may raise, and the end would pass for one in order
        log.critical("engine.crashed", why=why, running=names, where=list(where), exc_info=cause)

    def _interrupt(self, error: BaseException) -> None:
        """End after a Ctrl-C in code of the engine or of a workflow, as if it had come elsewhere in the program.
        Running attempts are cancelled and given back."""
        self.interrupted_by = self.interrupted_by or error
        self.stop_now()
        self._news.set()

    async def wait_for_settle(self) -> None:
        """Wait until another attempt is settled."""
        self._news = anyio.Event() if self._news.is_set() else self._news
        await self._news.wait()

    async def wait_for_news(self) -> None:
        """Wait until another attempt is settled, or the engine ends without its grace."""
        async with anyio.create_task_group() as tasks:

            async def wait_for(wait: anyio.Event) -> None:
                await wait.wait()
                tasks.cancel_scope.cancel()

            self._news = anyio.Event() if self._news.is_set() else self._news
            tasks.start_soon(wait_for, self._news)
            tasks.start_soon(wait_for, self._hurried)


def grace_left(grace: float, flush_seconds: float) -> float:
    """Return how long running work may go on at a stop: on a slow disk less, so that the stop still ends in time.

    After the grace come three flushes: of the commit in progress, of the released attempts, and of the end of the
    epoch.
    """
    return max(0.0, grace - FLUSHES_AT_THE_END * flush_seconds) if flush_seconds > SLOW_SECONDS else grace
