"""Waiting for the end of work that another process runs: one thread for all callers of a producer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Container
from queue import Empty, SimpleQueue

from craftcore.errors import CraftcoreError
from craftcore.results.handle import WITH_A_DAEMON, timeout_error
from craftcore.services import Services
from craftcore.storage.change_counter import ChangeCounter
from craftcore.tasks.work_store import WorkResult

LOOK_SECONDS = 0.1
"""How long it waits between two looks at the change counter of the database. Tables are read after a change only."""

OnEnded = Callable[[WorkResult | CraftcoreError], None]


class ResultWatch:
    """The callers that wait for the end of work. Any thread may call it.

    Its thread runs while there are callers. `on_ended` of a caller is called on that thread, once, and may not raise.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._changed = threading.Condition()
        self._waiting: list[tuple[str, OnEnded]] = []
        self._has_new_caller = False
        self._is_running = False

    def look(self, id: str) -> WorkResult | None:
        """Return the end of this work; None while it goes on. Raises NotFound when no row of it is left."""
        end = self._services.find_ends_of_work([id]).get(id)
        if isinstance(end, CraftcoreError):
            raise end
        return end

    def wait(self, id: str, timeout: float | None) -> WorkResult:
        """Block this thread until the end of this work, and return it. `timeout` in seconds; None: no limit. Raises
        TimeoutError, NotFound, or the StorageError of a read."""
        if (end := self.look(id)) is not None:
            return end
        answers: SimpleQueue[WorkResult | CraftcoreError] = SimpleQueue()
        withdraw = self.add(id, answers.put)
        try:
            answer = answers.get(timeout=timeout)
        except Empty:
            raise timeout_error(id, timeout, WITH_A_DAEMON) from None
        finally:
            withdraw()
        if isinstance(answer, CraftcoreError):
            raise answer
        return answer

    def add(self, id: str, on_ended: OnEnded) -> Callable[[], None]:
        """Call `on_ended` with the end of this work, or with the error for which it cannot be known. Return the call
        that withdraws it. Raises CraftcoreError when the system gives no thread to wait in."""
        entry = (id, on_ended)
        with self._changed:
            if not self._is_running:
                self._begin_thread()
            self._waiting.append(entry)
            self._has_new_caller = True
            self._changed.notify()

        def withdraw() -> None:
            with self._changed:
                if entry in self._waiting:
                    self._waiting.remove(entry)
                    self._changed.notify()

        return withdraw

    def _begin_thread(self) -> None:
        """Start the thread, which looks for callers as soon as the caller of this leaves the lock."""
        try:
            threading.Thread(target=self._watch, name="craftcore-results", daemon=True).start()
        except RuntimeError as error:
            raise CraftcoreError(
                f"cannot wait for results: {error}. The work goes on; ask again when the machine has threads"
            ) from error
        self._is_running = True

    def _watch(self) -> None:
        counter = ChangeCounter(self._services.database)
        try:
            while self._has_callers():
                try:
                    self._look(counter)
                except CraftcoreError as error:
                    self._answer_all(error)
        except BaseException as error:
            with self._changed:
                self._is_running = False
            self._answer_all(CraftcoreError(f"the thread that waits for results was ended by {type(error).__name__}"))
            raise
        finally:
            counter.close()

    def _has_callers(self) -> bool:
        with self._changed:
            self._is_running = bool(self._waiting)
            return self._is_running

    def _look(self, counter: ChangeCounter) -> None:
        """Wait for the time of the next look, and answer those whose work has ended if something has changed."""
        with self._changed:
            if not self._has_new_caller:
                self._changed.wait(LOOK_SECONDS)
            is_due, self._has_new_caller = self._has_new_caller, False
            ids = list(dict.fromkeys(id for id, _ in self._waiting))
        if (counter.has_changed() or is_due) and ids:
            ends = self._services.find_ends_of_work(ids)
            for id, on_ended in self._take(ends):
                on_ended(ends[id])

    def _take(self, ended: Container[str]) -> list[tuple[str, OnEnded]]:
        """Remove the callers of these ids, and return them."""
        with self._changed:
            taken = [entry for entry in self._waiting if entry[0] in ended]
            self._waiting = [entry for entry in self._waiting if entry[0] not in ended]
        return taken

    def _answer_all(self, error: CraftcoreError) -> None:
        with self._changed:
            waiting, self._waiting = self._waiting, []
        for _, on_ended in waiting:
            on_ended(error)
