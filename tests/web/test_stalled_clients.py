"""Clients that read nothing of an answer: they are closed. The server runs in the test, with its own limits."""

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
WHOLE = PART * 64
"""More than the buffers of a socket hold."""


@dataclass(slots=True)
class Answering:
    """An application whose answer ends when the test says so, or when its client is gone."""

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
        await send({"type": "http.response.body", "body": WHOLE})

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.is_gone.set()


@asynccontextmanager
async def listening(where: Path, app: ASGIApp) -> AsyncIterator[ServerState]:
    """Serve an application as `craftcore web` does; the state has the connections."""
    config = uvicorn.Config(app, interface="asgi3", **server_options())  # uvicorn takes no method for one
    config.load()
    state = ServerState()

    def make_protocol() -> LimitedProtocol:
        return LimitedProtocol(config=config, server_state=state, app_state={})

    async with await asyncio.get_running_loop().create_unix_server(make_protocol, where):
        yield state


async def hold(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():  # noqa: ASYNC110 - a connection has no event for it
            await asyncio.sleep(0.002)


def ask(where: Path) -> socket.socket:
    """Return a connection on which a page was asked for, and nothing is read."""
    connection = connect(where)
    connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return connection


@pytest.fixture
def limit(monkeypatch) -> Callable[[str], None]:
    """Make one limit short, and all others longer than the test."""

    def set_limit(name: str) -> None:
        for one in LIMITS:
            monkeypatch.setattr(f"craftcore.web.connections.{one}", SOON if one == name else NEVER)

    return set_limit


@pytest.mark.parametrize(
    ("name", "answer"),
    [("STALLED_SECONDS", "answer_without_end"), ("TAKEN_SECONDS", "answer_once")],
    ids=["an answer that goes on", "the end of an answer"],
)
def test_client_that_takes_nothing_is_cut_off(tmp_path, limit, name, answer):
    limit(name)
    where = tmp_path / "web.sock"

    async def stall() -> bytes:
        answering = Answering()

        async with listening(where, getattr(answering, answer)) as state:
            client = ask(where)
            await hold(lambda: len(state.connections) == 1)
            await hold(lambda: not state.connections)
            await hold(lambda: not state.tasks)
            with client:
                return await asyncio.to_thread(receive_all, client)

    received = asyncio.run(stall())

    assert received.startswith(b"HTTP/1.1 200 OK")
    assert len(received) < len(WHOLE)
    assert not received.endswith(b"0\r\n\r\n")


def test_client_that_goes_on_reading_is_not_cut_off(tmp_path, limit):
    """Its pause is limited only while it lasts."""
    limit("none")
    where = tmp_path / "web.sock"

    async def pause_and_read() -> bytes:
        answering = Answering()
        async with listening(where, answering.answer_without_end) as state:
            client = ask(where)
            await hold(lambda: len(state.connections) == 1)
            [connection] = state.connections
            assert isinstance(connection, LimitedProtocol)
            await hold(lambda: connection.flow is not None and connection.flow.write_paused)
            assert connection._limit is not None

            answering.has_enough.set()
            reading = asyncio.create_task(asyncio.to_thread(receive_all, client))
            await hold(lambda: not connection.flow.write_paused and connection._limit is None)
            answering.ends.set()
            await hold(lambda: not state.tasks)
            connection.transport.close()
            with client:
                return await reading

    assert b"the end" in asyncio.run(pause_and_read())
