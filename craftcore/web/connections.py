"""The connections of the server: how many there are, and how long each may wait for its client.

uvicorn waits for a head for ever, for the rest of a refused form, and for a client that reads nothing. Here a
connection is aborted when

    a head takes longer than 5 s, the first of a connection and each that follows
    a form that was refused takes longer than 5 s to end
    the client takes nothing of an answer for 30 s
    the client does not take the end of an answer within 20 s

A connection that is one too many takes the place of the one that waits longest for its client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import h11
from uvicorn.protocols.http.flow_control import CLOSE_HEADER
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from craftcore.web.live.topics import LISTENERS_MAX
from craftcore.web.request_gate import HEADERS
from craftcore.web.request_rules import HEAD_MAX_BYTES

HEAD_SECONDS = 5.0
KEEP_ALIVE_SECONDS = 15
TAKEN_SECONDS = KEEP_ALIVE_SECONDS + 5.0
STALLED_SECONDS = 30.0
CONNECTIONS_MAX = 64
LISTENERS_PATH = "/live"


class LimitedProtocol(H11Protocol):
    """A connection with the limits of this module."""

    _limit: asyncio.TimerHandle | None = None
    _has_begun = False
    _waits_since: float | None = None
    _is_aborted = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._waits_since = self.loop.time()
        if len(others := list(self._list_others())) >= CONNECTIONS_MAX:
            waiting = [one for one in others if one._waits_since is not None]
            min(waiting, key=lambda one: one._waits_since or 0.0, default=self)._abort()
        self._abort_in(HEAD_SECONDS)

    def connection_lost(self, exc: Exception | None) -> None:
        self._abort_in(None)
        super().connection_lost(exc)

    @property
    def is_busy(self) -> bool:
        """True from the end of a head to the end of its answer."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    @property
    def is_listening(self) -> bool:
        """True for a connection that gets news, which has a limit of its own."""
        return self.is_busy and self.scope["path"] == LISTENERS_PATH

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_client(has_begun=True)

    def on_response_complete(self) -> None:
        self._has_begun, self._waits_since = False, self.loop.time()
        self._abort_in(TAKEN_SECONDS)
        super().on_response_complete()  # it may begin the next request, which came with this one
        is_unread = self.conn.their_state is h11.SEND_BODY
        self._watch_client(has_begun=is_unread or bool(self.conn.trailing_data[0]))

    def pause_writing(self) -> None:
        super().pause_writing()
        self._abort_in(STALLED_SECONDS)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self.is_busy:
            self._abort_in(None)

    def send_400_response(self, msg: str) -> None:
        """Answer what cannot be read as a request, and close; without an answer where one has begun."""
        if self.is_busy:  # what a page still waits for does not come
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            self.transport.abort()
            return
        text = f"{msg}\n".encode()
        headers = {**HEADERS, b"content-type": b"text/plain", b"content-length": b"%d" % len(text)}
        for part in (
            h11.Response(status_code=400, headers=[*headers.items(), CLOSE_HEADER], reason=b"Bad Request"),
            h11.Data(data=text),
            h11.EndOfMessage(),
        ):
            self.transport.write(self.conn.send(part) or b"")
        self.transport.close()

    def _should_upgrade(self) -> bool:
        return False

    def _watch_client(self, *, has_begun: bool) -> None:
        """Limit what the client does next: it has begun with something, which ends in time."""
        if self.transport.is_closing():
            self._abort_in(HEAD_SECONDS)
        elif self.is_busy:
            self._has_begun, self._waits_since = False, None
            if not self.flow.write_paused:
                self._abort_in(None)
        elif has_begun and not self._has_begun:
            self._has_begun = True
            self._abort_in(HEAD_SECONDS)

    def _list_others(self) -> Iterator[LimitedProtocol]:
        """Yield the other connections that count."""
        for one in self.server_state.connections:
            if isinstance(one, LimitedProtocol) and one is not self and not (one._is_aborted or one.is_listening):
                yield one

    def _abort(self) -> None:
        self._is_aborted = True  # it stays in the list until the loop goes on
        self.transport.abort()

    def _abort_in(self, seconds: float | None) -> None:
        if self._limit is not None:
            self._limit.cancel()
        self._limit = None if seconds is None else self.loop.call_later(seconds, self._abort)


def server_options() -> dict[str, Any]:
    """Return the options of uvicorn that limit a connection."""
    return {
        "http": LimitedProtocol,
        "ws": "none",
        "lifespan": "off",
        "h11_max_incomplete_event_size": HEAD_MAX_BYTES,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "limit_concurrency": CONNECTIONS_MAX + LISTENERS_MAX + 1,
        "timeout_graceful_shutdown": 5,
        "server_header": False,
        "date_header": False,  # the server does not wake to renew it
        "proxy_headers": False,
        "access_log": False,
        "log_config": None,
        "log_level": "error",  # a flood of what cannot be read as a request is no flood of lines
        "loop": "asyncio",
    }
