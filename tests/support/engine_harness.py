"""A running engine on its own database file, and queries of its tables."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio

from craftcore.app import App
from craftcore.clock import Clock, SystemClock
from craftcore.config import Config, DaemonSettings, RetrySettings, TriggerSettings
from craftcore.daemon.lifespan import running
from craftcore.engine.engine import Engine
from craftcore.services import Services
from craftcore.storage.database import Database
from craftcore.storage.repeated_reads import RepeatedReads
from tests.support.made_schema import create_schema
from tests.support.processes import PATIENCE

POLL_SECONDS_MAX = 0.02
"""The longest pause between two polls. A query takes a third of a millisecond of processor."""


def settings(*, claim_batch: int = 256, lease_seconds: float = 30 * PATIENCE, **daemon: Any) -> Config:
    """Return settings with quick retries. Polls and heartbeats are so rare that only doorbells wake the engine."""
    return replace(
        Config(),
        daemon=DaemonSettings(**{"poll_seconds": 10 * PATIENCE, "shutdown_grace": PATIENCE, **daemon}),
        triggers=TriggerSettings(claim_batch=claim_batch, lease_seconds=lease_seconds),
        retry=RetrySettings(max_attempts=3, base_seconds=0.0, cap_seconds=0.0),
    )


class Lab:
    """An app under test, its engine, and queries of its database."""

    def __init__(self, app: App, engine: Engine, path: Path) -> None:
        self.app = app
        self.engine = engine
        self.path = path
        self._database: Database = RepeatedReads(path, SystemClock())

    def rows(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        with self._database.reading() as reader:
            return reader.fetch_all(sql, **params)

    def leave(self) -> None:
        """Close all connections of the lab: the last connection of the engine then checkpoints the WAL."""
        self._database.close()
        self._database = Database(self.path, SystemClock())

    def trigger(self, trigger_id: str) -> dict[str, Any]:
        [row] = self.rows("SELECT * FROM triggers WHERE id = :id", id=trigger_id)
        return row

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds, polling every few milliseconds, and less often the longer it takes."""
        pause = 0.002
        with anyio.fail_after(PATIENCE):
            while not condition():
                await anyio.sleep(pause)
                pause = min(1.1 * pause, POLL_SECONDS_MAX)

    async def settled(self, trigger_id: str) -> dict[str, Any]:
        """Wait until a trigger is settled; return its row."""
        await self.until(lambda: self.trigger(trigger_id)["settled_at"] is not None)
        return self.trigger(trigger_id)

    def end_time(self) -> None:
        """Let the time of the attempt that runs, and of its calls, be over now."""
        [run] = self.engine.consumer.running.values()
        assert run._scope is not None
        for scope in (run._scope, *run.calls):
            scope.deadline = anyio.current_time()

    def task(self, task_id: str) -> dict[str, Any]:
        [row] = self.rows("SELECT * FROM tasks WHERE id = :id", id=task_id)
        return row

    async def ended(self, task_id: str) -> dict[str, Any]:
        """Wait until a task has ended; return its row."""
        ended = "SELECT 1 FROM tasks WHERE id = :id AND ended_at IS NOT NULL"
        await self.until(lambda: bool(self.rows(ended, id=task_id)))
        return self.task(task_id)

    async def waiting(self, task_id: str, turn: int = 0) -> dict[str, Any]:
        """Wait until a task waits (at that turn); return its row."""
        waits = "SELECT 1 FROM tasks WHERE id = :id AND status = 'WAITING' AND :turn IN (0, turn)"
        await self.until(lambda: bool(self.rows(waits, id=task_id, turn=turn)))
        return self.task(task_id)

    async def held(self, task_id: str) -> str:
        """Wait until a hold defers the trigger of a task without a counted attempt, and return the hold's reason."""
        put_off = "SELECT * FROM task_holds WHERE task_id = :id AND trigger_id IS NOT NULL"
        await self.until(lambda: bool(self.rows(put_off, id=task_id)))
        [hold] = self.rows(put_off, id=task_id)
        trigger, task = self.trigger(hold["trigger_id"]), self.task(task_id)
        assert (trigger["status"], trigger["reason"]) == ("PENDING", f"held: {hold['reason']}")
        assert (trigger["settled_at"], task["status"], task["error_code"]) == (None, "RUNNING", None)
        return str(hold["reason"])

    async def question(self, kind: str = "ask") -> dict[str, Any]:
        """Wait for an open question of this kind; return the newest."""
        asked = "SELECT * FROM questions WHERE kind = :kind AND status = 'OPEN' ORDER BY seq DESC LIMIT 1"
        await self.until(lambda: bool(self.rows(asked, kind=kind)))
        return self.rows(asked, kind=kind)[0]

    async def idle_window(self) -> None:
        """Wait until the feeder has completed a poll that began after this call."""
        for _ in range(2):
            looks = self.engine.feeder.polls
            self.engine.feeder.ring()
            await self.until(lambda looks=looks: self.engine.feeder.polls > looks)  # type: ignore[misc]

    async def idle(self) -> None:
        await self.until(lambda: self.engine.is_idle)

    def events(self, trigger_id: str) -> list[str]:
        """Return the event types of all attempts, in order."""
        rows = self.rows(
            "SELECT type FROM events JOIN executions ON executions.seq = execution_seq WHERE trigger_id = :id "
            "ORDER BY execution_seq, events.seq",
            id=trigger_id,
        )
        return [row["type"] for row in rows]

    def response(self, trigger_id: str) -> dict[str, Any]:
        """Return the response of the last attempt."""
        rows = self.rows("SELECT response_json FROM executions WHERE trigger_id = :id ORDER BY seq", id=trigger_id)
        response: dict[str, Any] = json.loads(rows[-1]["response_json"])
        return response


@asynccontextmanager
async def lab(app: App, folder: Path, config: Config | None = None, clock: Clock | None = None) -> AsyncIterator[Lab]:
    """Run `app` in an engine on `folder/agent.db` until the block ends."""
    path = folder / "agent.db"
    create_schema(path)
    async with running(app, path, config or settings(), clock) as engine:
        lab = Lab(app, engine, path)
        try:
            yield lab
        finally:
            lab.leave()


def look(path: Path, sql: str, **params: Any) -> list[dict[str, Any]]:
    with Services(path, Config()).reading() as reader:
        return reader.fetch_all(sql, **params)
