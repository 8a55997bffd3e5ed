"""The provider of irreversible actions: a separate process with a book of events, which only this process writes.

The provider uses HTTP/1.1 over loopback. An effect has occurred when its line is in the book.

    POST /send   causes the effect, and returns a reference
    GET  /seen   returns whether the effect occurred: only for kinds that can be reconciled
    GET  /quiet  returns when no request with this key is in flight; with the key `*`, no request at all

A client that has exited may have left a request in a socket. So the provider reads all earlier requests before it
answers a query about a key.

The `Kind` header sets the kind of provider, and the `Fault` header its fault. The book has one line for each event, in
the order of events. The checker and the person who answers questions read it.

    request  number kind key            the head of a request was read
    due      number kind key            the effect will occur later
    effect   number kind key arguments  the effect occurred: this may not happen twice
    ended    number how                 the request has ended
    looked   number kind key answer     a caller asked whether the effect occurred
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
"""The window of each kind, in seconds of the callers' clock: almost the maximum of ten years, or five minutes."""

SLOW_SECONDS = 10.0
"""The delay of an unanswered effect of a slow provider, in seconds of the callers' clock."""

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>
LINGER_FOR_NO_TIME = struct.pack("ii", 1, 0)  # with this option, closing a socket sends a reset


class Kind(StrEnum):
    """The behaviour of a provider with a key that it already received."""

    DEDUPES = "dedupes"
    FORGETS = "does not"
    WINDOWED = "windowed"
    BEYOND = "beyond"
    RECONCILABLE = "reconcilable"
    UNSURE = "unsure"  # reconcilable, but always answers that it does not know
    SLOW = "slow"  # reconcilable, but an unanswered effect occurs later: until then, the answer is no


DEDUPLICATING = (Kind.DEDUPES, Kind.WINDOWED, Kind.BEYOND)
CAN_RECONCILE = (Kind.RECONCILABLE, Kind.UNSURE, Kind.SLOW)
"""The kinds that answer whether an effect occurred."""


class ProviderFault(StrEnum):
    """The fault of a request. `…` is the interim reply 102 Processing, which shows the caller where the provider is."""

    NONE = "none"
    REFUSE = "refuse"  # 422: no effect, for good
    BUSY = "busy"  # 503: no effect, for now
    RESET_BEFORE = "reset before"  # no effect
    RESET_AFTER = "reset after"  # effect
    RESET_IN_REPLY = "reset in the reply"  # effect, half of the answer
    IGNORE = "ignore"  # …, no effect and no answer until the caller disconnects
    HOLD = "hold"  # effect, …, no answer until the caller disconnects
    LATE = "late"  # …, the caller disconnects, effect


WITHOUT_ANSWER = (ProviderFault.RESET_AFTER, ProviderFault.RESET_IN_REPLY, ProviderFault.HOLD, ProviderFault.LATE)


@dataclass(frozen=True, slots=True)
class Provider:
    """The ports of a running provider. It resets every connection to `reset_port` at once."""

    port: int
    reset_port: int


@contextmanager
def a_provider(folder: Path) -> Iterator[Provider]:
    """Run a provider with its book in this folder, until the block ends. Its clients may be killed meanwhile."""
    sockets = [socket.create_server(("127.0.0.1", 0), backlog=512) for _ in range(2)]
    journal = Journal(folder / BOOK)
    pid = fork(_serve, journal, *sockets)
    try:
        ports = [listener.getsockname()[1] for listener in sockets]
        for listener in sockets:
            listener.close()
        yield Provider(*ports)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


def _serve(journal: Journal, listener: socket.socket, reset_listener: socket.socket) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    asyncio.run(_Server(journal).serve(listener, reset_listener))


class ResetRequested(Exception):
    """A request whose connection must be reset."""


class PendingRequest:
    """A request, from its connection until its end."""

    def __init__(self) -> None:
        self.key = ""
        self.is_read = asyncio.Event()
        """Set when the head of the request was read, or when the request has ended."""
        self.is_over = asyncio.Event()


class Effect(NamedTuple):
    """An effect, and the time of the callers' clock at which it occurs."""

    number: int
    kind: str
    key: str
    at: float
    body: bytes


class _Server:
    """The server of the provider. Its state is in its own process, so the kill of a caller does not change it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._number = 0
        self._pending: dict[int, PendingRequest] = {}
        self._effects: dict[tuple[str, str], tuple[float, str]] = {}
        self._delayed: list[Effect] = []

    async def serve(self, listener: socket.socket, reset_listener: socket.socket) -> None:
        async with await asyncio.start_server(_reset_at_once, sock=reset_listener):
            async with await asyncio.start_server(self._handle, sock=listener) as server:
                await server.serve_forever()

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        earlier = list(self._pending.values())
        self._number += 1
        number, end = self._number, "answered"
        pending = self._pending[number] = PendingRequest()
        try:
            path, headers = await _read_head(reader)
            pending.key = headers["idempotency-key"] if path == "/send" else ""
            pending.is_read.set()
            self._produce_delayed_effects(float(headers["clock"]))
            if path == "/send":
                self._write_line("request", number, headers["kind"], pending.key)
                await self._send(number, headers, reader, writer)
            else:
                await _wait_until_over(earlier, headers["idempotency-key"])
                self._produce_delayed_effects(float(headers["clock"]))
                self._answer_query(number, path, headers, writer)
            await writer.drain()
            writer.close()
        except ResetRequested:
            end = "reset"
            _reset(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            end = "disconnected"
            writer.close()
        finally:
            self._write_line("ended", number, end)
            del self._pending[number]
            pending.is_read.set()
            pending.is_over.set()

    async def _send(
        self, number: int, headers: dict[str, str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        fault = ProviderFault(headers["fault"])
        if "half" in headers:  # the caller sends no more, and waits for the interim reply
            if fault is ProviderFault.RESET_BEFORE:
                raise ResetRequested
            _write_interim(writer)
        body = await reader.readexactly(int(headers["content-length"]))
        match fault:
            case ProviderFault.REFUSE:
                return _write_answer(writer, "422 Unprocessable Content", {})
            case ProviderFault.BUSY:
                return _write_answer(writer, "503 Service Unavailable", {})
            case ProviderFault.RESET_BEFORE:
                raise ResetRequested
            case ProviderFault.IGNORE:
                _write_interim(writer)
                await reader.readexactly(1)
            case ProviderFault.LATE:
                _write_interim(writer)
                await _wait_until_closed(reader)
        effect = Effect(number, headers["kind"], headers["idempotency-key"], float(headers["clock"]), body)
        if effect.kind == Kind.SLOW and fault in WITHOUT_ANSWER:
            self._write_line("due", number, effect.kind, effect.key)
            self._delayed.append(effect._replace(at=effect.at + SLOW_SECONDS))
            reply = {}
        else:
            reply = {"ref": self._produce_effect(effect)}
        match fault:
            case ProviderFault.RESET_AFTER:
                raise ResetRequested
            case ProviderFault.RESET_IN_REPLY:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
                await writer.drain()
                raise ResetRequested
            case ProviderFault.HOLD:
                _write_interim(writer)
                await reader.readexactly(1)
        _write_answer(writer, "200 OK", reply)

    def _produce_delayed_effects(self, now: float) -> None:
        """Produce the delayed effects that are due."""
        for effect in [effect for effect in self._delayed if effect.at <= now]:
            self._delayed.remove(effect)
            self._produce_effect(effect)

    def _produce_effect(self, effect: Effect) -> str:
        """Produce the effect, unless its key is a known one. Return the reference."""
        number, kind, key, now, body = effect
        known = self._effects.get((kind, key))
        if known and kind in DEDUPLICATING:
            at, ref = known
            if now - at <= WINDOWS.get(kind, now):
                return ref
        self._write_line("effect", number, kind, key, json.loads(body))
        ref = f"ref-{number}"
        self._effects[kind, key] = now, ref
        return ref

    def _answer_query(self, number: int, path: str, headers: dict[str, str], writer: asyncio.StreamWriter) -> None:
        kind, key = headers["kind"], headers["idempotency-key"]
        _, ref = self._effects.get((kind, key), (0.0, None))
        answer = {"known": kind != Kind.UNSURE, "ref": ref}
        if path == "/seen":
            self._write_line("looked", number, kind, key, answer)
        _write_answer(writer, "200 OK", answer)

    def _write_line(self, *values: Any) -> None:
        self._journal.line(json.dumps([*values, time.time()], separators=(",", ":")))


async def _read_head(reader: asyncio.StreamReader) -> tuple[str, dict[str, str]]:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().splitlines()
    pairs = (line.partition(": ") for line in lines if line)
    return first.split()[1], {name.lower(): value for name, _, value in pairs}


async def _wait_until_over(earlier: list[PendingRequest], key: str) -> None:
    for pending in earlier:
        await pending.is_read.wait()
        if pending.key and key in (pending.key, "*"):
            await pending.is_over.wait()


async def _wait_until_closed(reader: asyncio.StreamReader) -> None:
    try:
        await reader.read()
    except ConnectionError:
        pass


async def _reset_at_once(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    _reset(writer)


def _reset(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER_FOR_NO_TIME)
    writer.transport.abort()


def _write_interim(writer: asyncio.StreamWriter) -> None:
    writer.write(b"HTTP/1.1 102 Processing\r\n\r\n")


def _write_answer(writer: asyncio.StreamWriter, status: str, body: dict[str, Any]) -> None:
    text = json.dumps(body).encode()
    writer.write(f"HTTP/1.1 {status}\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)


# The book of the provider


@dataclass(slots=True)
class Book:
    """The contents of a provider's book by key: its requests, effects and queries."""

    requests: Counter[str] = field(default_factory=Counter)
    effects: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)
    arguments: dict[str, list[Any]] = field(default_factory=dict)
    references: dict[str, str] = field(default_factory=dict)
    pending: set[str] = field(default_factory=set)
    """The keys with an effect that may still occur."""

    @classmethod
    def read(cls, folder: Path) -> Book:
        """Return the contents of the book as written so far."""
        book = cls()
        pending: dict[int, str] = {}
        delayed: dict[int, str] = {}
        for kind, number, *values in read_entries(folder):
            match kind:
                case "request":
                    key = values[1]
                    book.requests[key] += 1
                    pending[number] = key
                case "due":
                    delayed[number] = values[1]
                case "effect":
                    _, key, arguments, _ = values
                    delayed.pop(number, None)
                    book.effects[key] += 1
                    book.arguments.setdefault(key, []).append(arguments)
                    book.references[key] = f"ref-{number}"
                case "looked":
                    book.looks[values[1]] += 1
                case "ended":
                    pending.pop(number, None)
        book.pending = {*pending.values(), *delayed.values()}
        return book


def read_entries(folder: Path) -> Iterator[list[Any]]:
    """Yield every line of the book in this folder."""
    with (folder / BOOK).open() as file:
        for line in file:
            yield json.loads(line)
