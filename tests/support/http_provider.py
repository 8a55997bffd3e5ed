"""A fake HTTP provider on loopback that counts its effects and returns programmed answers.

Its count is independent of craftcore: `effects`, and one line for each effect in an optional file. With `honours_keys`
it repeats no effect for the same Idempotency-Key within its window. Its time advances only through `later`.
"""

from __future__ import annotations

import fcntl
import json
import socket
import ssl
import struct
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.support.processes import PATIENCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A received request."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


class Handler(BaseHTTPRequestHandler):
    """The handler of one request. It records a client that disconnects during the answer, without an error."""

    server: Provider
    timeout = PATIENCE
    protocol_version = "HTTP/1.1"

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        headers = {name.lower(): value for name, value in self.headers.items()}
        asked = Asked(method=self.command, path=self.path, headers=headers, body=body)
        self.server.asked.append(asked)
        self.close_connection = True
        try:
            self.server.behaviour(self, asked)
        except (ConnectionError, ssl.SSLError):
            self.server.left.set()

    do_GET = do_HEAD = do_OPTIONS = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def begin(self, status: int, **headers: str) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.flush()

    def reset(self) -> None:
        """Reset the connection after all sent bytes have arrived."""
        while struct.unpack("i", fcntl.ioctl(self.connection, termios.TIOCOUTQ, b"\0\0\0\0"))[0]:
            self.server.released.wait(0.001)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.server.broken.add(self.connection)

    def await_leaving(self) -> None:
        """Wait until the client has disconnected."""
        self.connection.settimeout(PATIENCE)
        while self.connection.recv(65536):
            pass

    def log_message(self, format: str, *args: Any) -> None:
        pass


Behaviour = Callable[[Handler, Asked], None]


class Provider(ThreadingHTTPServer):
    """A provider with its received requests (`asked`) and its effects. `behaviour` sets the answer.

    A test waits for `began` and `left`, and sets `released` to end a hanging answer.
    """

    daemon_threads = False  # close() waits for the end of each request
    request_queue_size = 64

    def __init__(self, file: Path | None, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[Asked] = []
        self.effects: list[Asked] = []
        self.behaviour: Behaviour = creates
        self.honours_keys = False
        self.window: float | None = None
        self.now = 0.0
        self.began = threading.Event()
        self.left = threading.Event()
        self.released = threading.Event()
        self.broken: set[socket.socket] = set()
        self._known: dict[str, tuple[float, int]] = {}
        self._file = file
        self._tls = tls
        self._turn = threading.Lock()

    @property
    def url(self) -> str:
        return f"{'http' if self._tls is None else 'https'}://127.0.0.1:{self.server_port}"

    def later(self, seconds: float) -> None:
        self.now += seconds

    def do(self, asked: Asked) -> int:
        """Cause the effect once for each key, and return the number of the effect."""
        with self._turn:
            known = self._known.get(asked.key or "") if self.honours_keys else None
            if known is not None and (self.window is None or self.now - known[0] < self.window):
                return known[1]
            self.effects.append(asked)
            if self._file is not None:
                with self._file.open("a") as file:
                    file.write(f"{asked.key}\n")
            self._known[asked.key or ""] = (self.now, len(self.effects))
            return len(self.effects)

    def finish_request(self, request: Any, client_address: Any) -> None:
        if self._tls is not None:
            try:
                request = self._tls.wrap_socket(request, server_side=True)
            except (OSError, ssl.SSLError):
                self.left.set()
                return
        try:
            super().finish_request(request, client_address)
        finally:
            if self._tls is not None:
                request.close()

    def shutdown_request(self, request: Any) -> None:
        if request in self.broken:
            self.close_request(request)  # without a shutdown of the connection
        else:
            super().shutdown_request(request)


@contextmanager
def a_provider(file: Path | None = None, *, tls: ssl.SSLContext | None = None) -> Iterator[Provider]:
    """Run a provider until the block ends, even during an answer."""
    with Provider(file, tls) as provider:
        serving = threading.Thread(target=provider.serve_forever, args=(0.01,))
        serving.start()
        try:
            yield provider
        finally:
            provider.released.set()
            provider.shutdown()
            serving.join()


# Behaviours


def creates(handler: Handler, asked: Asked) -> None:
    """Cause the effect, and report it."""
    number = handler.server.do(asked)
    replies(201, {"id": f"made-{number}"})(handler, asked)


def replies(status: int, body: object = b"", **headers: str) -> Behaviour:
    """Reply without an effect, with bytes unchanged and any other body as JSON."""
    sent = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = {} if isinstance(body, bytes) else {"Content_Type": "application/json"}

    def behaviour(handler: Handler, asked: Asked) -> None:
        handler.begin(status, **({"Content_Length": str(len(sent))} | kind | headers))
        if asked.method != "HEAD":
            handler.wfile.write(sent)

    return behaviour


def done_and(then: Behaviour) -> Behaviour:
    """Cause the effect, and answer with `then`."""

    def behaviour(handler: Handler, asked: Asked) -> None:
        handler.server.do(asked)
        then(handler, asked)

    return behaviour


def once(first: Behaviour, then: Behaviour = creates) -> Behaviour:
    """Treat the first request differently from later ones."""

    def behaviour(handler: Handler, asked: Asked) -> None:
        (first if len(handler.server.asked) == 1 else then)(handler, asked)

    return behaviour


def resets(handler: Handler, asked: Asked) -> None:
    """Reset the connection without an answer."""
    handler.reset()


def hangs_up(handler: Handler, asked: Asked) -> None:
    """Close the connection in order, without an answer."""
    handler.connection.shutdown(socket.SHUT_WR)
    handler.await_leaving()


def answers_too_late(handler: Handler, asked: Asked) -> None:
    """Answer after the client has disconnected."""
    handler.server.began.set()
    handler.await_leaving()
    replies(201, {"id": "too-late"})(handler, asked)
    handler.server.left.set()


def babbles(handler: Handler, asked: Asked) -> None:
    """Answer with bytes that are not HTTP."""
    handler.wfile.write(b"220 mail.example ESMTP\r\n")


def sends_partial_head(handler: Handler, asked: Asked) -> None:
    """Send the status line, and never end the headers."""
    handler.wfile.write(b"HTTP/1.1 201 Created\r\nContent-Ty")


def floods_headers(handler: Handler, asked: Asked) -> None:
    """Send more headers than a client accepts."""
    handler.wfile.write(b"HTTP/1.1 201 Created\r\n" + b"X-Filler: %s\r\n" % (b"x" * 1000) * 500 + b"\r\n")


def breaks_off(status: int = 201, body: bytes = b'{"id": ', *, reset: bool = False) -> Behaviour:
    """Send a head that announces a longer body than the one sent."""

    def behaviour(handler: Handler, asked: Asked) -> None:
        handler.begin(status, Content_Length="1000", Content_Type="application/json", Request_Id="req-7")
        handler.wfile.write(body)
        handler.wfile.flush()
        if reset:
            handler.reset()

    return behaviour


def drips(handler: Handler, asked: Asked) -> None:
    """Send a beginning, and the rest after the release."""
    handler.begin(201, Content_Length="12")
    handler.wfile.write(b"a begin")
    handler.wfile.flush()
    handler.server.began.set()
    handler.server.released.wait(PATIENCE)
    handler.wfile.write(b"ning.")


def never_ends(handler: Handler, asked: Asked) -> None:
    """Send an endless body until the client disconnects."""
    handler.begin(201)
    while not handler.server.released.is_set():
        handler.wfile.write(b"\xff" * 65536)
