"""The provider of irreversible actions: a process of its own, with a book of events that only this process writes.

It speaks HTTP/1.1 over loopback. An effect has occurred when its line is in the book.

    POST /send   causes the effect, and returns a reference
    GET  /seen   returns whether the effect occurred: only for kinds that can be reconciled
    GET  /quiet  returns when no request with this key is in flight; with the key `*`, no request at all

A client that has exited may have left a request in a socket. So the provider reads all earlier requests before it
answers about a key.

The `Kind` header sets the kind of provider, and the `Fault` header its fault. The book has one line for each event, in
the order of events. The checker and the person who answers questions read it.

    request  number kind key            the head of a request was read
    due      number kind key            the effect will occur later
    effect   number kind key arguments  the effect occurred: this may not happen twice
    ended    number how                 the request has ended
    looked   number kind key answer     the provider was asked whether the effect occurred
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import signal
import socket
import struct
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

from tests.crash.child import Journal
from tests.crash.forks import fork

BOOK = "provider"

WINDOWS = {"windowed": 3e8, "beyond": 300.0}
"""How many seconds of the callers' clock a key is remembered: nearly the ten years that may be declared, or minutes."""

SLOWLY = 10.0
"""So many seconds of that clock a slow provider takes for what it does not answer."""

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends a reset instead of an end


class Kind(StrEnum):
    """What a provider makes of a key that it has had before."""

    DEDUPES = "dedupes"
    FORGETS = "does not"
    WINDOWED = "windowed"
    BEYOND = "beyond"
    RECONCILABLE = "reconcilable"
    UNSURE = "unsure"  # reconcilable, and never knows
    SLOW = "slow"  # reconcilable, and what it gives no answer to is done later: until then it says no


DROP_A_SECOND = (Kind.DEDUPES, Kind.WINDOWED, Kind.BEYOND)
ANSWERS = (Kind.RECONCILABLE, Kind.UNSURE, Kind.SLOW)
"""Those that can be asked what they have done."""


class Harm(StrEnum):
    """How a request fails. `…` is 102 Processing: from there on the caller knows where the provider is."""

    NONE = "none"
    REFUSE = "refuse"  # 422: nothing is done, and it never will be
    BUSY = "busy"  # 503: nothing was done
    RESET_BEFORE = "reset before"  # nothing is done
    RESET_AFTER = "reset after"  # it is done
    RESET_IN_REPLY = "reset in the reply"  # it is done, and half of the answer is sent
    IGNORE = "ignore"  # … and nothing is done: the caller has to leave
    HOLD = "hold"  # it is done, … and no answer: the caller has to leave
    LATE = "late"  # … it is done when the caller has left


UNANSWERED = (Harm.RESET_AFTER, Harm.RESET_IN_REPLY, Harm.HOLD, Harm.LATE)


@dataclass(frozen=True, slots=True)
class Provider:
    """A running one: where to call it. `slammed` is a port at which every connection is reset at once."""

    port: int
    slammed: int


@contextmanager
def a_provider(folder: Path) -> Iterator[Provider]:
    """One for this folder, which outlives whoever calls it. Its book is there when this returns."""
    doors = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
    journal = Journal(folder / BOOK)
    pid = fork(_serve, journal, *doors)
    try:
        ports = [door.getsockname()[1] for door in doors]
        for door in doors:
            door.close()
        yield Provider(*ports)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _serve(journal: Journal, door: socket.socket, slammed: socket.socket) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    asyncio.run(_Serving(journal).serve(door, slammed))


class Dropped(Exception):
    """The connection is to be reset."""


class Coming:
    """A request from its connection on."""

    def __init__(self) -> None:
        self.key = ""
        self.is_read = asyncio.Event()
        """Its head is, or never will be."""
        self.is_over = asyncio.Event()


class Due(NamedTuple):
    """What is to be done, at this time of the callers' clock."""

    number: int
    kind: str
    key: str
    at: float
    body: bytes


class _Serving:
    """Its memory is its own, too: no caller's death touches it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._number = 0
        self._coming: dict[int, Coming] = {}
        self._done: dict[tuple[str, str], tuple[float, str]] = {}
        self._due: list[Due] = []

    async def serve(self, door: socket.socket, slammed: socket.socket) -> None:
        async with await asyncio.start_server(_slam, sock=slammed):
            async with await asyncio.start_server(self._serve_one, sock=door) as server:
                await server.serve_forever()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        earlier = list(self._coming.values())
        self._number += 1
        number, how = self._number, "answered"
        coming = self._coming[number] = Coming()
        try:
            path, headers = await _head(reader)
            coming.key = headers["idempotency-key"] if path == "/send" else ""
            coming.is_read.set()
            self._catch_up(float(headers["clock"]))
            if path == "/send":
                self._line("request", number, headers["kind"], coming.key)
                await self._send(number, headers, reader, writer)
            else:
                await _until_over(earlier, headers["idempotency-key"])
                self._catch_up(float(headers["clock"]))
                self._look(number, path, headers, writer)
            await writer.drain()
            writer.close()
        except Dropped:
            how = "reset"
            _reset(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            how = "left"
            writer.close()
        finally:
            self._line("ended", number, how)
            del self._coming[number]
            coming.is_read.set()
            coming.is_over.set()

    async def _send(
        self, number: int, headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        harm = Harm(headers["fault"])
        if "half" in headers:  # no more of it will come: the caller waits to be told that this much was read
            if harm is Harm.RESET_BEFORE:
                raise Dropped
            _interim(writer)
        body = await reader.readexactly(int(headers["content-length"]))
        match harm:
            case Harm.REFUSE:
                return _answer(writer, "422 Unprocessable Content", {})
            case Harm.BUSY:
                return _answer(writer, "503 Service Unavailable", {})
            case Harm.RESET_BEFORE:
                raise Dropped
            case Harm.IGNORE:
                _interim(writer)
                await reader.readexactly(1)
            case Harm.LATE:
                _interim(writer)
                await _until_gone(reader)
        due = Due(number, headers["kind"], headers["idempotency-key"], float(headers["clock"]), body)
        if due.kind == Kind.SLOW and harm in UNANSWERED:
            self._line("due", number, due.kind, due.key)
            self._due.append(due._replace(at=due.at + SLOWLY))
            reply = {}
        else:
            reply = {"ref": self._do(due)}
        match harm:
            case Harm.RESET_AFTER:
                raise Dropped
            case Harm.RESET_IN_REPLY:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
                await writer.drain()
                raise Dropped
            case Harm.HOLD:
                _interim(writer)
                await reader.readexactly(1)
        _answer(writer, "200 OK", reply)

    def _catch_up(self, now: float) -> None:
        """Do what is due."""
        for due in [due for due in self._due if due.at <= now]:
            self._due.remove(due)
            self._do(due)

    def _do(self, due: Due) -> str:
        """Do it, unless this is a key that it remembers."""
        number, kind, key, now, body = due
        known = self._done.get((kind, key))
        if known and kind in DROP_A_SECOND:
            at, ref = known
            if now - at <= WINDOWS.get(kind, now):
                return ref
        self._line("effect", number, kind, key, json.loads(body))
        ref = f"ref-{number}"
        self._done[kind, key] = now, ref
        return ref

    def _look(self, number: int, path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        kind, key = headers["kind"], headers["idempotency-key"]
        _, ref = self._done.get((kind, key), (0.0, None))
        answer = {"known": kind != Kind.UNSURE, "ref": ref}
        if path == "/seen":
            self._line("looked", number, kind, key, answer)
        _answer(writer, "200 OK", answer)

    def _line(self, *words: Any) -> None:
        self._journal.line(json.dumps([*words, time.time()], separators=(",", ":")))


async def _head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    pairs = (line.partition(": ") for line in lines if line)
    return first.split()[1], {name.lower(): value for name, _, value in pairs}


async def _until_over(earlier: list[Coming], key: str) -> None:
    for coming in earlier:
        await coming.is_read.wait()
        if coming.key and key in (coming.key, "*"):
            await coming.is_over.wait()


async def _until_gone(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionError:
        pass


async def _slam(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    writer.transport.abort()


def _interim(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")


def _answer(writer: asyncio.StreamWriter, status: str, body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)


# Its book


@dataclass(slots=True)
class Book:
    """What a provider wrote down: by key, how often it was asked, and what it did."""

    requests: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)
    arguments: dict[str, list[Any]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    """Keys of which something may still come."""

    @classmethod
    def of(cls, folder: Path) -> Book:
        """As far as it is written."""
        book = cls()
        coming: dict[int, str] = {}
        due: dict[int, str] = {}
        for what, number, *more in entries(folder):
            match what:
                case "request":
                    key = more[1]
                    book.requests[key] += 1
                    coming[number] = key
                case "due":
                    due[number] = more[1]
                case "effect":
                    _, key, arguments, _ = more
                    due.pop(number, None)
                    book.effects[key] += 1
                    book.arguments.setdefault(key, []).append(arguments)
                    book.references[key] = f"ref-{number}"
                case "looked":
                    book.looks[more[1]] += 1
                case "ended":
                    coming.pop(number, None)
        book.pending = {*coming.values(), *due.values()}
        return book


def entries(folder: Path) -> Iterator[list[Any]]:
    """Every line of the book in this folder."""
    with (folder / BOOK).open() as file:
        for line in file:
            yield json.loads(line)
