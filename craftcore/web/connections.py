"""The connections of the server: how many there are, and how long the head of a request may take.

uvicorn waits for a head for ever, so a client that sends none would keep its connection.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 5.0
HEAD_MAX_BYTES = 8 << 10
CONNECTIONS_MAX = 64
LISTENERS_MAX = 200


class LimitedProtocol(H11Protocol):
    """A connection that is closed when its first head does not arrive in time, or when there are too many."""

    _waiting: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if len(self.connections) > CONNECTIONS_MAX + LISTENERS_MAX:
            transport.abort()
            return
        self._waiting = self.loop.call_later(HEAD_SECONDS, self._close_without_head)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
        super().connection_lost(exc)

    def handle_events(self) -> None:
        super().handle_events()
        if self._waiting is not None and self.cycle is not None:  # the head is here
            self._waiting.cancel()
            self._waiting = None

    def _close_without_head(self) -> None:
        if self._waiting is not None:
            self.transport.abort()


def server_options() -> dict[str, Any]:
    """Return the options of uvicorn that limit a connection."""
    return {
        "http": LimitedProtocol,
        "ws": "none",
        "lifespan": "off",
        "h11_max_incomplete_event_size": HEAD_MAX_BYTES,
        "timeout_keep_alive": 15,
        "limit_concurrency": CONNECTIONS_MAX + LISTENERS_MAX,
        "timeout_graceful_shutdown": 5,
        "server_header": False,
        "date_header": False,  # the server does not wake to renew it
        "proxy_headers": False,
        "access_log": False,
        "log_config": None,
        "log_level": "warning",
        "loop": "asyncio",
    }
