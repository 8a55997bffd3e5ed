"""What raw apsw does on the same schema, in the same run: the ground that every ratio stands on."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from pathlib import Path
from typing import Any

import apsw

from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.services import Services

INSERT = """
INSERT INTO triggers (id, source, workflow, fire_at, due_at, priority, payload_json, created_at, updated_at)
VALUES (?, 'IMMEDIATE', 'noop', ?, ?, 10, ?, ?, ?)
"""
CLAIM = """
UPDATE triggers SET status = 'CLAIMED', claimed_epoch = 1, lease_token = ?1, lease_until = ?2
 WHERE seq IN (SELECT seq FROM triggers WHERE status = 'PENDING' AND priority = 10 AND due_at <= ?2
                ORDER BY due_at LIMIT ?3)
RETURNING seq, id, payload_json
"""
ACK = """
UPDATE triggers SET status = 'DONE', reason = 'succeeded', settled_at = ?1, claimed_epoch = NULL, lease_token = NULL,
       lease_until = NULL
 WHERE seq = ?2 AND lease_token = ?3
"""

_clock = SystemClock()


def fresh(path: Path) -> apsw.Connection:
    """A connection with craftcore's own pragmas on a new database with craftcore's own schema."""
    core = Services(path, Config())
    core.prepare()
    core.close()
    return core.database.connect()


def row(number: int, payload: str | None = None) -> tuple[Any, ...]:
    """One plain trigger, with its number or with this JSON text."""
    now = time.time()
    return (_clock.new_id(), now, now, payload or f'{{"n":{number}}}', now, now)


def single_commits(connection: apsw.Connection, count: int, payload: str | None = None) -> float:
    """Rows per second, each in its own BEGIN IMMEDIATE … COMMIT."""
    rows = [row(number, payload) for number in range(count)]
    started = time.perf_counter()
    for values in rows:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(INSERT, values)
        connection.execute("COMMIT")
    return count / (time.perf_counter() - started)


def batches(connection: apsw.Connection, count: int, size: int = 1000, payload: str | None = None) -> float:
    """Rows per second in transactions of `size`, by executemany."""
    groups = [[row(number, payload) for number in range(size)] for _ in range(count // size)]
    started = time.perf_counter()
    for group in groups:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(INSERT, group)
        connection.execute("COMMIT")
    return count / (time.perf_counter() - started)


class BarePipeline:
    """emit -> claim -> ack with one writer thread and group commit, and nothing else: no checks, no lanes, no leases
    that expire, no retries, no records."""

    def __init__(self, connection: apsw.Connection, loop: asyncio.AbstractEventLoop, expected: int) -> None:
        self._connection = connection
        self._loop = loop
        self._waiting: deque[tuple[tuple[Any, ...], asyncio.Future[None]]] = deque()
        self._acks: list[tuple[float, int, str]] = []
        self._bell = threading.Condition()
        self._left = expected
        self.done = loop.create_future()
        threading.Thread(target=self._write, daemon=True).start()

    async def emit(self, values: tuple[Any, ...]) -> None:
        """Insert one row; it is on disk when this returns."""
        future = self._loop.create_future()
        with self._bell:
            self._waiting.append((values, future))
            self._bell.notify()
        await future

    def _write(self) -> None:
        token = 0
        while self._left:
            with self._bell:
                while not self._waiting and not self._acks:
                    self._bell.wait()
                batch = list(self._waiting)
                self._waiting.clear()
                acks, self._acks = self._acks, []
            token += 1
            now = time.time()
            self._connection.execute("BEGIN IMMEDIATE")
            if acks:
                self._connection.executemany(ACK, acks)
            if batch:
                self._connection.executemany(INSERT, [values for values, _ in batch])
            claims = list(self._connection.execute(CLAIM, (str(token), now, 256)))
            self._connection.execute("COMMIT")
            self._left -= len(acks)
            self._loop.call_soon_threadsafe(self._answer, batch, claims, str(token))
        self._loop.call_soon_threadsafe(self.done.set_result, None)

    def _answer(self, batch: list[Any], claims: list[Any], token: str) -> None:
        for _, future in batch:
            future.set_result(None)
        now = time.time()
        acks = [(now, seq, token) for seq, _, _ in claims]
        if acks:
            with self._bell:
                self._acks.extend(acks)
                self._bell.notify()


async def bare_pipeline(connection: apsw.Connection, count: int, emitters: int, payload: str | None = None) -> float:
    """Triggers per second through emit, claim and ack, `emitters` at a time."""
    pipeline = BarePipeline(connection, asyncio.get_running_loop(), count)

    async def emit(numbers: range) -> None:
        for number in numbers:
            await pipeline.emit(row(number, payload))

    started = time.perf_counter()
    await asyncio.gather(*(emit(range(count // emitters)) for _ in range(emitters)))
    await pipeline.done
    return count / (time.perf_counter() - started)
