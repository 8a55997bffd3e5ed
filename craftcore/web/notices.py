"""The results of forms, for the page that follows: kept for a minute under a random key, shown once."""

from __future__ import annotations

import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable

NOTICES_MAX = 1_000
SECONDS = 60.0


class Notices:
    """Notices by key. An address never has the text itself: a link could put any words there."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._changing = threading.Lock()
        self._kept: OrderedDict[str, tuple[float, str]] = OrderedDict()

    def add(self, text: str) -> str:
        """Keep a notice, and return its key."""
        key = secrets.token_urlsafe(9)
        with self._changing:
            self._kept[key] = (self._clock() + SECONDS, text)
            while len(self._kept) > NOTICES_MAX:
                self._kept.popitem(last=False)
        return key

    def take(self, key: str | None) -> str:
        """Return the notice of this key, once; '' when there is none, or it is too old."""
        with self._changing:
            until, text = self._kept.pop(key or "", (0.0, ""))
        return text if self._clock() <= until else ""
