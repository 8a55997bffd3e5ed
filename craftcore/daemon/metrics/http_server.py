"""The standard library's HTTP server on a port of loopback or a socket file, with a thread for each connection.

There is `GET /metrics` and nothing else. A read or a write of a connection has SECONDS. At most CONNECTIONS are open: a
new one closes the oldest, so that clients that hang do not block a scrape.

On a port only requests to this machine by its own names are answered. A web page can point its own name at loopback,
but it cannot change the Host header that the browser sends.
"""

from __future__ import annotations

import os
import re
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from socketserver import TCPServer, ThreadingMixIn
from typing import Any

from craftcore.config.references import Endpoint, is_loopback
from craftcore.daemon.unix_socket import bind, require_free
from craftcore.errors import CannotCreate
from craftcore.forks import run_in_forked_children
from craftcore.log import get_logger
from craftcore.storage.sqlite_errors import NO_ROOM, storage_full_error

log = get_logger(__name__)

SECONDS = 5.0
CONNECTIONS = 32
FULL_SECONDS = 1.0
"""Pause after the process had no descriptor left for a connection."""

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::[0-9]{1,5})?")


class Handler(BaseHTTPRequestHandler):
    """One request and its answer."""

    server: MetricsServer
    timeout = SECONDS
    protocol_version = "HTTP/1.1"
    default_request_version = "HTTP/1.0"  # an answer to HTTP/0.9 would have no status line
    server_version, sys_version = "craftcore", ""

    def do_GET(self) -> None:
        if self.server.is_port and not self._is_for_this_machine():
            self.send_error(421, explain="Host must be an address of this machine, or localhost")
        elif self.path.partition("?")[0] != "/metrics":
            self.send_error(404, explain="there is only /metrics")
        else:
            content_type, body = self.server.answer()
            self.send_response(200)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(body)

    def _is_for_this_machine(self) -> bool:
        """Return whether the one Host is a loopback address or localhost. HTTP/1.0 may omit it, browsers do not."""
        hosts = self.headers.get_all("Host") or []
        if not hosts:
            return self.request_version == "HTTP/1.0"
        found = _HOST.fullmatch(hosts[0].strip())
        return len(hosts) == 1 and found is not None and is_loopback(found[1] or found[2])

    def log_message(self, format: str, *args: Any) -> None:
        """Log no request."""


class MetricsServer(ThreadingMixIn, TCPServer):
    """A server that listens on this machine only. `where` names its address. Answers are made one at a time.

    A relative path begins in the real folder of the file `beside`. Raises CannotCreate when it cannot listen there,
    or when the path has another file or a socket in use; StorageFull when the disk is full.
    """

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 4 * CONNECTIONS

    def __init__(
        self, endpoint: Endpoint, beside: str | os.PathLike[str], answer: Callable[[], tuple[str, bytes]]
    ) -> None:
        self._path = endpoint.path_beside(beside)
        self._inode: int | None = None
        self._answer = answer
        self._answering = threading.Lock()
        self._connections: list[socket.socket] = []
        self._stopping = threading.Event()
        self.is_port = not self._path
        self.where = self._path or f"{endpoint.host}:{endpoint.port}"
        self.address_family = endpoint.family
        super().__init__((endpoint.host, endpoint.port), Handler, bind_and_activate=False)
        self._forget_forks = run_in_forked_children(self.socket.close)
        try:
            self._bind()
            self.server_activate()
        except OSError as error:
            self.close()
            if error.errno in NO_ROOM:
                raise storage_full_error(self.where, NO_ROOM[error.errno]) from error
            reason = f"metrics.listen: cannot listen at {self.where}: {error.strerror or error}"
            raise CannotCreate(reason, path=self.where) from error
        except BaseException:
            self.close()
            raise

    def _bind(self) -> None:
        if self.is_port:
            self.server_bind()
        else:
            require_free(self._path, "metrics.listen")
            bind(self.socket, self._path)
            self._inode = os.lstat(self._path).st_ino

    def run(self) -> None:
        """Answer scrapes until `stop`. An unexpected error ends the metrics, and not the engine."""
        try:
            self.serve_forever()
        except Exception:
            log.exception("metrics.stopped")

    def stop(self) -> None:
        """End `run` and all connections, and close."""
        self._stopping.set()
        for connection in (self.socket, *self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)  # wakes the thread that waits for it
        self.shutdown()
        self.close()
        with self._answering:  # after this no thread reads the database
            pass

    def close(self) -> None:
        """Close the socket, and remove its file unless another file is in its place."""
        self._forget_forks()
        self.server_close()
        with suppress(OSError):
            if self._path and os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)

    def answer(self) -> tuple[str, bytes]:
        """Return the content type and the text of one scrape."""
        with self._answering:
            if self._stopping.is_set():
                raise ConnectionAbortedError
            return self._answer()

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError as error:
            if not self._stopping.is_set():  # no descriptor is left, and the engine needs the next one
                log.warning("metrics.refused", reason=error.strerror)
                self._stopping.wait(FULL_SECONDS)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        self._connections = [one for one in (*self._connections, request) if one.fileno() >= 0]  # the others are closed
        for oldest in self._connections[:-CONNECTIONS]:
            with suppress(OSError):
                oldest.shutdown(socket.SHUT_RDWR)
        super().process_request(request, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exception(), OSError):  # which says that the client has left
            log.exception("metrics.failed")
