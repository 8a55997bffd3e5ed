"""Raw HTTP requests that no client library would send."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import PATIENCE

Address = Path | int
"""A socket file, or a port of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """An answer, with header names in lower case. Status 0 means that the server closed without an answer."""

    status: int
    headers: list[tuple[str, str]]
    body: str

    def values(self, name: str) -> list[str]:
        return [value for key, value in self.headers if key == name]


def connect(where: Address) -> socket.socket:
    """Return a connection to the server."""
    if isinstance(where, int):
        return socket.create_connection(("127.0.0.1", where), PATIENCE)
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(where))  # without a timeout, the call waits while the server's queue is full
    connection.settimeout(PATIENCE)
    return connection


@contextlib.contextmanager
def connected(where: Address) -> Iterator[socket.socket]:
    """Open a connection, and close it when the block ends."""
    with contextlib.closing(connect(where)) as connection:
        yield connection


def receive_all(connection: socket.socket) -> bytes:
    """Return all received bytes until the server closes."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65_536):
            received += part
    return received


def read_answer(received: bytes) -> Answer:
    """Return the last answer in the received bytes. Earlier answers have status 100, or belong to a pipeline."""
    head, _, body = received.partition(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    status = int(lines[0].split()[1]) if lines[0] else 0
    pairs = [line.partition(":") for line in lines[1:]]
    headers = [(name.lower(), value.strip()) for name, _, value in pairs]
    return Answer(status=status, headers=headers, body=body.decode("utf-8", "replace"))


def exchange(where: Address, data: bytes) -> Answer:
    """Send exactly these bytes, which ask the server to close, and return the answer."""
    with connected(where) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
        return read_answer(receive_all(connection))


def request(
    where: Address,
    target: str = "/",
    *lines: str,
    method: str = "GET",
    host: str | None = "localhost",
    version: str = "1.1",
    body: bytes = b"",
) -> Answer:
    """Send one request with these header lines, in Latin-1, and return its answer."""
    fixed = [] if host is None else [f"Host: {host}"]
    if body or method == "POST":
        fixed += [f"Content-Length: {len(body)}"]
        if not any(line.lower().startswith("content-type") for line in lines):
            fixed += ["Content-Type: application/x-www-form-urlencoded"]
    head = "\r\n".join([f"{method} {target} HTTP/{version}", *fixed, *lines, "Connection: close", "", ""])
    return exchange(where, head.encode("latin-1") + body)
