"""The first line of every page: the health of the database, read at most once a second for all."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from craftcore.diagnostics.finding import Finding
from craftcore.diagnostics.health import Health, verdict
from craftcore.diagnostics.status import Status, read_status
from craftcore.errors import CraftcoreError
from craftcore.services import Services

SECONDS = 1.0
READ_SECONDS = 2.0
"""How long one reading may take; then the page says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The health in one line. `questions`: how many are open. `status` None: nothing could be read, and `text` says
    why."""

    health: Health
    text: str
    questions: int
    status: Status | None


class VerdictReader:
    """Reads the verdict for all requests and all listeners. `clock` is monotonic, in seconds."""

    def __init__(self, services: Services, clock: Callable[[], float]) -> None:
        self._services = services
        self._clock = clock
        self._reading = threading.Lock()
        self._last: tuple[float, Verdict] | None = None

    def read(self) -> Verdict:
        """Return the verdict, not older than a second. It never raises."""
        with self._reading:
            now = self._clock()
            if self._last is None or now - self._last[0] >= SECONDS:
                self._last = (now, read_verdict(self._services))
            return self._last[1]

    def forget(self) -> None:
        """Read again the next time, because something was changed."""
        with self._reading:
            self._last = None


def read_verdict(services: Services) -> Verdict:
    """Return the verdict of this moment. A database that cannot be read is DOWN, with the reason."""
    try:
        status = read_status(services, within=READ_SECONDS)
    except Exception as error:  # every page has this line, also that of an error
        reason = error.message if isinstance(error, CraftcoreError) else str(error) or type(error).__name__
        return Verdict(health=Health.DOWN, text=f"down: {reason}", questions=0, status=None)
    first = _shorten(status.findings[0]) if status.findings else None
    return Verdict(
        health=status.health,
        text=verdict(status.health, first, status.document),
        questions=status.document["tasks"]["questions"],
        status=status,
    )


def _shorten(finding: Finding) -> str:
    """Return the text of a finding without its last sentence, where that only leads to the commands."""
    before, _, _ = finding.text.rpartition(". ")
    return before if finding.remedies and before else finding.text
