"""An HTTP/1.1 client of the provider that can send half of a request."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from tests.crash.act_provider import Kind, ProviderFault

LOOPBACK = "127.0.0.1"


class Reply(NamedTuple):
    status: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request. `is_half`: the client sends only half of the body."""

    path: str
    kind: str
    headers: Mapping[str, str]
    clock: float = 0.0
    fault: ProviderFault = ProviderFault.NONE
    body: Any = None
    is_half: bool = False

    def text(self) -> bytes:
        body = json.dumps(self.body).encode()
        headers = {
            **self.headers,
            "Kind": self.kind,
            "Clock": str(self.clock),
            "Fault": self.fault,
            "Content-Length": str(len(body)),
            **({"Half": "yes"} if self.is_half else {}),
        }
        lines = [f"POST {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + (body[: len(body) // 2] if self.is_half else body)


async def send(port: int, request: Request, on_processing: Callable[[], Awaitable[None]] | None = None) -> Reply:
    """Send a request and return the reply. Each interim reply 102 calls `on_processing`.

    An error of the connection is raised.
    """
    async with await anyio.connect_tcp(LOOPBACK, port) as stream:
        await stream.send(request.text())
        received = b""
        while True:
            while (reply := _parse_reply(received)) is None:
                received += await stream.receive()
            received = received[reply.end :]
            if reply.status != 102:
                return Reply(reply.status, reply.body)
            if on_processing is not None:
                await on_processing()


def send_in_thread(port: int, request: Request, on_processing: Callable[[], None] | None = None) -> Reply:
    """Send a request and return the reply, as `send` does, from a plain function."""
    with socket.create_connection((LOOPBACK, port)) as connection:
        connection.sendall(request.text())
        received = b""
        while True:
            while (reply := _parse_reply(received)) is None:
                chunk = connection.recv(65536)
                if not chunk:
                    raise ConnectionError("the provider closed the connection")
                received += chunk
            received = received[reply.end :]
            if reply.status != 102:
                return Reply(reply.status, reply.body)
            if on_processing is not None:
                on_processing()


def quiet_request(key: str = "*", clock: float = math.inf) -> Request:
    """Return a request whose reply means that no request with this key, or with any key for `*`, is in flight.

    The provider first produces the delayed effects that are due at this time of the clock.
    """
    return Request(path="/quiet", kind=Kind.DEDUPES, headers={"Idempotency-Key": key}, clock=clock)


class _ParsedReply(NamedTuple):
    status: int
    body: dict[str, Any]
    end: int


def _parse_reply(received: bytes) -> _ParsedReply | None:
    """Return the first reply in the received bytes, or None while it is incomplete."""
    head, found, rest = received.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.decode().splitlines()
    status = int(first.split()[1])
    length = next((int(line.split(": ")[1]) for line in lines if line.startswith("Content-Length")), 0)
    if len(rest) < length:
        return None
    return _ParsedReply(status, json.loads(rest[:length]) if length else {}, len(head) + 4 + length)
