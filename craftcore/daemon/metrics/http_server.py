"""One question and one answer over a stream socket: as much of HTTP/1.1 as a scrape needs.

    GET /metrics   the answer; anything else is told what is wrong with it

A connection has SECONDS for all of it. At most WAITING connections are kept that have not asked yet: a newer one closes
the oldest. PLACES of those that have asked are answered at a time.

On a port only requests to this machine by its own names are answered. A page in a browser can let its own name lead
here, but cannot change the Host that the browser sends.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from collections.abc import Awaitable, Callable
from contextlib import suppress

import anyio
import structlog

from craftcore.config.references import Endpoint, is_loopback
from craftcore.daemon.unix_socket import bind
from craftcore.errors import CannotCreate
from craftcore.forks import in_forked_children
from craftcore.storage.doorbell_client import address
from craftcore.storage.error_mapping import NO_ROOM, no_room

log = structlog.get_logger(__name__)

SECONDS = 5.0
PLACES = 8
WAITING = 32
QUEUE = 32
REQUEST_MAX_BYTES = 8 << 10
FULL_SECONDS = 1.0
"""How long nobody is let in after the process had no descriptor left."""

_HOST = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9.-]+))(?::[0-9]{1,5})?")

Answer = Callable[[], Awaitable[tuple[str, bytes]]]
"""Makes what a scrape is told: its content type and its text."""


class Listener:
    """A socket that listens on this machine only. `where` names it for people."""

    def __init__(self, bound: socket.socket, where: str, path: str = "") -> None:
        self.socket = bound
        self.where = where
        self._path = path
        self._inode = os.lstat(path).st_ino if path else 0
        self._forget_forks = in_forked_children(bound.close)

    @classmethod
    def open(cls, endpoint: Endpoint, beside: str | os.PathLike[str]) -> Listener:
        """A relative path begins where the file `beside` really lies. Raises CannotCreate when nothing can listen
        there, or what lies there is no socket, or is one at which somebody listens; StorageFull for want of room."""
        path = os.path.join(os.path.dirname(os.path.realpath(beside)), endpoint.path) if endpoint.path else ""
        where = path or f"{endpoint.host}:{endpoint.port}"
        family = socket.AF_UNIX if path else socket.AF_INET6 if ":" in endpoint.host else socket.AF_INET
        unbound = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            if path:
                _require_free(path)
                bind(unbound, path)
            else:
                unbound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                unbound.bind((endpoint.host, endpoint.port))
            unbound.listen(QUEUE)
            return cls(unbound, where, path)
        except OSError as error:
            unbound.close()
            if error.errno in NO_ROOM:
                raise no_room(where, NO_ROOM[error.errno]) from error
            raise CannotCreate(
                f"metrics.listen: cannot listen at {where}: {error.strerror or error}", path=where
            ) from error
        except BaseException:
            unbound.close()
            raise

    def close(self) -> None:
        """Listen no more. A file that somebody else has put there meanwhile stays."""
        self._forget_forks()
        self.socket.close()
        with suppress(OSError):
            if self._path and os.lstat(self._path).st_ino == self._inode:
                os.unlink(self._path)


def _require_free(path: str) -> None:
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotCreate(f"metrics.listen: {path} is there and is no socket; name another file", path=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as caller:
        with address(path) as name:
            refused = caller.connect_ex(name)
    if refused != errno.ECONNREFUSED:
        raise CannotCreate(f"metrics.listen: somebody else listens at {path}; name another file", path=path)


async def serve(listener: Listener, answer: Answer) -> None:
    """Answer whoever asks; until cancelled."""
    attending = _Attending(answer, is_port=listener.socket.family != socket.AF_UNIX)
    async with anyio.create_task_group() as tasks:
        while True:
            connection = await _accepted(listener.socket)
            tasks.start_soon(attending.attend, connection, *attending.admit())


class _Attending:
    """Those who are connected. `waiting`: the ones that have not asked yet, the oldest first."""

    def __init__(self, answer: Answer, *, is_port: bool) -> None:
        self._answer = answer
        self._is_port = is_port
        self._places = anyio.Semaphore(PLACES)
        self._waiting: dict[int, anyio.CancelScope] = {}
        self._count = 0

    def admit(self) -> tuple[int, anyio.CancelScope]:
        """Give a new connection its number, and the time in which it asks; the oldest ends where there are too many."""
        self._count += 1
        if len(self._waiting) >= WAITING:
            self._waiting.pop(next(iter(self._waiting))).cancel()
        asking = self._waiting[self._count] = anyio.CancelScope()
        return self._count, asking

    async def attend(self, connection: socket.socket, number: int, asking: anyio.CancelScope) -> None:
        try:
            with connection, anyio.move_on_after(SECONDS):
                with asking:
                    head = await _request(connection)
                self._waiting.pop(number, None)
                if asking.cancelled_caught:
                    return
                async with self._places:
                    await _send(connection, await _response(head, self._answer, is_port=self._is_port))
        except OSError:
            pass  # who asked is gone
        except Exception:
            log.exception("metrics.failed")
        finally:
            self._waiting.pop(number, None)


async def _accepted(listening: socket.socket) -> socket.socket:
    while True:
        await anyio.wait_readable(listening)
        try:
            connection, _ = listening.accept()
        except BlockingIOError:
            continue
        except OSError as error:  # who asked is gone again; or no descriptor is left, and the engine needs the next one
            log.warning("metrics.refused", reason=error.strerror)
            await anyio.sleep(FULL_SECONDS)
            continue
        connection.setblocking(False)
        return connection


async def _request(connection: socket.socket) -> bytes | None:
    """The head of a request; None when it is too long, or never came to its end."""
    head = b""
    while b"\r\n\r\n" not in head:
        if len(head) > REQUEST_MAX_BYTES:
            return None
        await anyio.wait_readable(connection)
        try:
            more = connection.recv(REQUEST_MAX_BYTES)
        except BlockingIOError:
            continue
        if not more:
            return None
        head += more
    return head


async def _response(head: bytes | None, answer: Answer, *, is_port: bool) -> bytes:
    method, _, rest = (head or b"").partition(b"\r\n")[0].partition(b" ")
    target, _, version = rest.partition(b" ")
    if not version.startswith(b"HTTP/1."):
        return _whole("400 Bad Request", "text/plain", b"this is no request of HTTP/1.1\n")
    if is_port and not _is_for_this_machine(head or b""):
        return _whole(
            "421 Misdirected Request", "text/plain", b"Host must be an address of this machine, or localhost\n"
        )
    if target.partition(b"?")[0] != b"/metrics":
        return _whole("404 Not Found", "text/plain", b"there is only /metrics\n")
    if method != b"GET":
        return _whole("405 Method Not Allowed", "text/plain", b"it can only be read: GET\n", "Allow: GET\r\n")
    return _whole("200 OK", *await answer())


def _is_for_this_machine(head: bytes) -> bool:
    """Whether its one Host is a loopback address or localhost. A browser always sends one; HTTP/1.0 need not."""
    lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
    hosts = [value.strip().decode("latin-1") for name, _, value in lines if name.strip().lower() == b"host"]
    if not hosts:
        return head.partition(b"\r\n")[0].endswith(b"HTTP/1.0")
    found = _HOST.fullmatch(hosts[0])
    return len(hosts) == 1 and found is not None and is_loopback(found[1] or found[2])


def _whole(status: str, content_type: str, body: bytes, more: str = "") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n{more}"
    return f"{head}Connection: close\r\n\r\n".encode() + body


async def _send(connection: socket.socket, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        try:
            rest = rest[connection.send(rest) :]
        except BlockingIOError:
            await anyio.wait_writable(connection)
    connection.shutdown(socket.SHUT_WR)
