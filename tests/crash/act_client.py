"""The HTTP/1.1 client of the provider, written by hand so that it can send half of a request."""

from __future__ import annotations

import json
import math
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio

from tests.crash.act_provider import Harm, Kind

LOOPBACK = "127.0.0.1"


class Reply(NamedTuple):
    status: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What is sent. `half`: no more than half of its body, and nobody waits for the rest."""

    path: str
    kind: str
    headers: Mapping[str, str]
    clock: float = 0.0
    harm: Harm = Harm.NONE
    body: Any = None
    half: bool = False

    def text(self) -> bytes:
        body = json.dumps(self.body).encode()
        headers = {
            **self.headers,
            "Kind": self.kind,
            "Clock": str(self.clock),
            "Fault": self.harm,
            "Content-Length": str(len(body)),
            **({"Half": "yes"} if self.half else {}),
        }
        lines = [f"POST {self.path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", ""]
        return "\r\n".join(lines).encode() + (body[: len(body) // 2] if self.half else body)


async def ask(port: int, request: Request, on_processing: Callable[[], Awaitable[None]] | None = None) -> Reply:
    """Send it, and wait for the answer. `on_processing` is called when the provider says that it is at work.

    Raises whatever becomes of the connection.
    """
    async with await anyio.connect_tcp(LOOPBACK, port) as stream:
        await stream.send(request.text())
        heard = b""
        while True:
            while (reply := _reply(heard)) is None:
                heard += await stream.receive()
            heard = heard[reply.end :]
            if reply.status != 102:
                return Reply(reply.status, reply.body)
            if on_processing is not None:
                await on_processing()


def ask_in_thread(port: int, request: Request, on_processing: Callable[[], None] | None = None) -> Reply:
    """The same for a plain function."""
    with socket.create_connection((LOOPBACK, port)) as connection:
        connection.sendall(request.text())
        heard = b""
        while True:
            while (reply := _reply(heard)) is None:
                more = connection.recv(65536)
                if not more:
                    raise ConnectionError("the provider closed the connection")
                heard += more
            heard = heard[reply.end :]
            if reply.status != 102:
                return Reply(reply.status, reply.body)
            if on_processing is not None:
                on_processing()


def quiet(key: str = "*", clock: float = math.inf) -> Request:
    """Answered when nothing of this key, or nothing at all, is on its way to the provider. What it would do later, as
    that clock says, is done then."""
    return Request(path="/quiet", kind=Kind.DEDUPES, headers={"Idempotency-Key": key}, clock=clock)


class _Heard(NamedTuple):
    status: int
    body: dict[str, Any]
    end: int


def _reply(heard: bytes) -> _Heard | None:
    """The first reply in it, once it is there."""
    head, found, rest = heard.partition(b"\r\n\r\n")
    if not found:
        return None
    first, *lines = head.decode().splitlines()
    status = int(first.split()[1])
    length = next((int(line.split(": ")[1]) for line in lines if line.startswith("Content-Length")), 0)
    if len(rest) < length:
        return None
    return _Heard(status, json.loads(rest[:length]) if length else {}, len(head) + 4 + length)
