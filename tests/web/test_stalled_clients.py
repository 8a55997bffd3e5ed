"""Clients that stop reading a response: their connections are closed. The server runs in the test process."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.server import ServerState

from craftcore.web.connections import LimitedProtocol, server_options
from tests.support.processes import PATIENCE
from tests.support.raw_http import connect, receive_all

LIMITS = ("HEAD_SECONDS", "STALLED_SECONDS", "TAKEN_SECONDS")
NEVER, SOON = 3_600.0, 0.05
PART = b"x" * (1 << 16)
LARGE_BODY = PART * 64
"""A body that exceeds the buffers of a socket."""


@dataclass(slots=True)
class StreamingApp:
    """An ASGI application whose response ends at an event of the test or after the disconnect of its client."""

    has_enough: asyncio.Event = field(default_factory=asyncio.Event)
    ends: asyncio.Event = field(default_factory=asyncio.Event)
    is_gone: asyncio.Event = field(default_factory=asyncio.Event)

    async def answer_without_end(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        watching = asyncio.create_task(self._watch(receive))
        while not (self.is_gone.is_set() or self.has_enough.is_set()):
            await send({"type": "http.response.body", "body": PART, "more_body": True})
            await asyncio.sleep(0)
        if not self.is_gone.is_set():
            await self.ends.wait()
            await send({"type": "http.response.body", "body": b"the end"})
        watching.cancel()

    async def answer_once(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": LARGE_BODY})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_gone.set()


@asynccontextmanager
async def serve_app(where: Path, app: ASGIApp) -> AsyncIterator[ServerState]:
    """Serve an application as `craftcore web` does; the state has the connections."""
    config = uvicorn.Config(
        app, interface="asgi3", **server_options()
    )  # uvicorn does not recognize a bound method as an ASGI 3 app
    config.load()
    state = ServerState()

    def make_protocol() -> LimitedProtocol:
        return LimitedProtocol(config=config, server_state=state, app_state={})

    async with await asyncio.get_running_loop().create_unix_server(make_protocol, where):
        yield state


async def wait_until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a connection has no event
            await asyncio.sleep(0.002)


def ask(where: Path) -> socket.socket:
    """Return a connection that has requested a page and reads nothing."""
    connection = connect(where)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection


@pytest.fixture
def limit(monkeypatch) -> Callable[[str], None]:
    """Return a function that makes one limit short, and all others longer than the test."""

    def set_limit(name: str) -> None:
        for one in LIMITS:
            monkeypatch.setattr(f"craftcore.web.connections.{one}", SOON if one == name else NEVER)

    return set_limit


@pytest.mark.parametrize(
    ("name", "answer"),
    [("STALLED_SECONDS", "answer_without_end"), ("TAKEN_SECONDS", "answer_once")],
    ids=["an endless answer", "the end of an answer"],
)
def test_client_that_stops_reading_is_disconnected(tmp_path, limit, name, answer):
    limit(name)
    where = tmp_path / "web.sock"

    async def stall() -> bytes:
        streaming = StreamingApp()

        async with serve_app(where, getattr(streaming, answer)) as state:
            client = ask(where)
            await wait_until(lambda: len(state.connections) == 1)
            await wait_until(lambda: not state.connections)
            await wait_until(lambda: not state.tasks)
            with client:
                return await asyncio.to_thread(receive_all, client)

    received = asyncio.run(stall())

    assert received.startswith(b"HTTP/1.1 200 OK")
    assert len(received) < len(LARGE_BODY)
    assert not received.endswith(b"0\r\n\r\n")


def test_client_that_continues_to_read_is_not_disconnected(tmp_path, limit):
    """The limit applies to a single pause, not to the whole response."""
    limit("none")
    where = tmp_path / "web.sock"

    async def pause_and_read() -> bytes:
        streaming = StreamingApp()
        async with serve_app(where, streaming.answer_without_end) as state:
            client = ask(where)
            await wait_until(lambda: len(state.connections) == 1)
            [connection] = state.connections
            assert isinstance(connection, LimitedProtocol)
            await wait_until(lambda: connection.flow is not None and connection.flow.write_paused)
            assert connection._limit is not None

            streaming.has_enough.set()
            reading = asyncio.create_task(asyncio.to_thread(receive_all, client))
            await wait_until(lambda: not connection.flow.write_paused and connection._limit is None)
            streaming.ends.set()
            await wait_until(lambda: not state.tasks)
            connection.transport.close()
            with client:
                return await reading

    assert b"the end" in asyncio.run(pause_and_read())
