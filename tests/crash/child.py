"""The process that the campaign forks for each life: a program that embeds craftcore, from its boot to the kill.

The process writes its events to append-only files, one `os.write` a line. So the checker does not depend on the
database:

    accepted    "<trigger id> <life>"               `emit` returned
    ran         "+ <trigger id> <start> <life>"     the handler began; "-": it is about to return
    observed    "<trigger id> <life>"               a boot found the trigger settled on disk
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import apsw

from craftcore import App, Producer, Retry, RetryPolicy, Route, RoutedTrigger, RoutingContext, TaskContext, TriggerSpec
from craftcore.clock import SystemClock
from craftcore.config import Config, DaemonSettings, RetrySettings
from craftcore.engine.engine import Engine
from craftcore.failpoints import Failpoint, arm, kill_process

IN_HANDLER = "in the handler"
FROM_OUTSIDE = "from outside"
QUIET = "until idle"
PRODUCER = "a second producer"

TASK_POINTS = {
    Failpoint.STEP_ENTERED,
    Failpoint.STEP_RAN,
    Failpoint.STEP_COMMITTED,
    Failpoint.STREAM_COMMITTED,
    Failpoint.INTENT_COMMITTED,
    Failpoint.CALL_MARKED,
    Failpoint.PROVIDER_ANSWERED,
    Failpoint.ACTIVITY_SETTLED,
    Failpoint.TURN_SUSPENDED,
    Failpoint.ANSWER_COMMITTED,
}
"""The failpoints of tasks and activities, which only the campaigns of those pass."""

KILLS = (*(point for point in Failpoint if point not in TASK_POINTS), IN_HANDLER, FROM_OUTSIDE)
"""Every way in which a life may be killed."""

ROUND = 12
"""Triggers emitted at once. A life that still runs when they are settled emits another round."""

ROUNDS = 40
KEYS = 8
"""Dedup keys that every life emits again."""

REACHED_ONCE = (Failpoint.RECLAIM_COMMITTED, Failpoint.TICK_WRITTEN, Failpoint.TICK_COMMITTED)
"""Points that a life without schedules passes once: its scheduler polls again only after half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """One process of a campaign: its database, its number, and the way it ends."""

    folder: Path
    number: int
    backend: str
    concurrency: int
    ends: str
    seed: int

    @property
    def db(self) -> Path:
        return self.folder / "agent.db"


class Journal:
    """An append-only file of one program. A line is one write, so a kill never leaves a partial line."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o600)

    def line(self, *words: object) -> None:
        os.write(self._descriptor, (" ".join(str(word) for word in words) + "\n").encode())


class Rule:
    """The router: a trigger without a workflow goes to `work`, in the session that its payload names."""

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        return Route(workflow="work", session_id=json.loads(trigger.payload_json).get("join"))


def live(life: Life) -> None:
    """Run a life. Returns only when nothing kills it."""
    anyio.run(_live, life, backend=life.backend)


def an_app(life: Life, ran: Journal) -> App:
    """Return an app whose handlers record their runs, and fail, wait or kill the process as their payload says."""
    app = App("killed", router=Rule())
    patient = RetryPolicy(max_attempts=50, base=0, cap=0)
    chance = random.Random(life.seed)
    killed_run = chance.randint(1, ROUND) if life.ends == IN_HANDLER else 0
    runs = 0

    @app.workflow("work", retry=patient)
    async def work(ctx: TaskContext, failures: int = 0, turns: int = 0, join: str | None = None) -> int:
        nonlocal runs
        runs += 1
        is_killed = runs == killed_run
        ran.line("+", ctx.trigger.id, ctx.execution_id.rpartition(".")[2], life.number)
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        if is_killed:
            kill_process()
        ran.line("-", ctx.trigger.id, ctx.execution_id.rpartition(".")[2], life.number)
        if ctx.attempt <= failures:
            raise Retry(f"attempt {ctx.attempt} of {failures} that fail")
        return ctx.attempt

    @app.workflow("frail", retry=patient, fallback=["work"])
    async def frail(failures: int = 0, turns: int = 0) -> None:
        raise Retry("another one is to do it")

    @app.workflow("plain", retry=patient)
    def plain(id: str) -> None:
        ran.line("+", id, "?", life.number)
        ran.line("-", id, "?", life.number)

    return app


def prepare(life: Life) -> tuple[Config, random.Random]:
    """Arm the failpoint that ends this life, if one does. Return the settings and the randomness of the life."""
    config = Config(
        daemon=DaemonSettings(concurrency=life.concurrency, shutdown_grace=60.0, poll_seconds=1.0),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
    )
    chance = random.Random(life.seed + 1)
    if life.ends in tuple(Failpoint):
        point = Failpoint(life.ends)
        arm(point, kill_process, at_pass=1 if point in REACHED_ONCE else chance.randint(1, 14))
    return config, chance


async def _live(life: Life) -> None:
    observed = _observe(life)
    forget_crashes(life.db)
    accepted, ran = Journal(life.folder / "accepted"), Journal(life.folder / "ran")
    config, chance = prepare(life)
    app = an_app(life, ran)
    async with app.running(life.db, config=config) as engine:
        if life.ends != QUIET:
            for _ in range(ROUNDS):
                async with anyio.create_task_group() as emitters:
                    for number in range(ROUND):
                        emitters.start_soon(_emit, app, accepted, life, chance.random(), number)
                if chance.random() < 0.5:
                    await until_idle(engine)
        await until_idle(engine)
    assert observed >= 0


async def until_idle(engine: Engine) -> None:
    """Poll until nothing is due, claimed or running."""
    with anyio.fail_after(200):
        while not engine.is_idle:  # noqa: ASYNC110 - it has no event to wait on
            await anyio.sleep(0.002)


async def _emit(app: App, accepted: Journal, life: Life, chance: float, number: int) -> None:
    """Emit in a way chosen by `chance`, and write the id to the journal when `emit` has returned."""
    payload: dict[str, Any] = {"failures": int(chance * 1000) % 3 // 2, "turns": int(chance * 100) % 4}
    if chance < 0.5:
        emitted = await app.emit("frail" if number % 3 else "work", payload)
    elif chance < 0.7:
        emitted = await app.emit("work", payload, session_id=f"session-{number % 3}")
    elif chance < 0.85:
        payload |= {"join": f"session-{number % 2}"}
        emitted = await app.emit(None, payload, source="SKILL_WORKFLOW", priority=3)
    elif chance < 0.95:
        emitted = await app.emit("work", {}, dedup_key=f"once:{number % KEYS}", dedup_scope="ever")
    else:
        own_id = SystemClock().new_id()
        [emitted] = await app.emit_many([TriggerSpec(workflow="plain", payload={"id": own_id}, id=own_id)])
    accepted.line(emitted.id, life.number)


def produce(life: Life) -> None:
    """Emit into the database of a life from a second process, which is killed from outside."""
    accepted = Journal(life.folder / "accepted")
    chance = random.Random(life.seed)
    with Producer(life.db) as producer:
        for number in range(200):
            if chance.random() < 0.8:
                emitted = [producer.emit("work", {}, session_id=f"session-{number % 3}" if number % 2 else None)]
            else:
                emitted = producer.emit_many([TriggerSpec(workflow="work") for _ in range(5)])
            for one in emitted:
                accepted.line(one.id, life.number)


HAS_RESTARTS = "SELECT count(*) FROM pragma_table_info('triggers') WHERE name = 'machine_restarts'"


def forget_crashes(db: Path, *, restarts: bool = False) -> bool:
    """Reset the crash count as `craftcore release` does. Returns False when the database does not exist yet.

    Six crashes in ten minutes would hold scheduled work. The function uses plain SQL on its own connection. `restarts`
    also resets the machine restarts of triggers, because every second restart of a trigger counts as a crash.
    """
    if not db.exists():
        return False
    connection = apsw.Connection(str(db))
    connection.set_busy_timeout(5000)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # the boot must find the WAL of the killed process
    try:
        if connection.execute("SELECT count(*) FROM sqlite_schema WHERE name IN ('facts', 'epochs')").get != 2:
            return False
        connection.execute(
            """
            INSERT OR REPLACE INTO facts (name, value)
            SELECT 'released_epoch', CAST(epoch AS TEXT) FROM epochs ORDER BY epoch DESC LIMIT 1
            """
        )
        if restarts and connection.execute(HAS_RESTARTS).get:
            connection.execute("UPDATE triggers SET machine_restarts = 0 WHERE machine_restarts > 0")
    finally:
        connection.close()
    return True


def _observe(life: Life) -> int:
    """Record the triggers that are settled on disk before this life begins, with plain SQL on its own connection."""
    if not life.db.exists():
        return 0
    path = life.folder / "observed"
    known = {line.split()[0] for line in path.read_text().splitlines()} if path.exists() else set()
    connection = apsw.Connection(str(life.db), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(60_000)
    try:
        if not connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'triggers'").get:
            return 0
        settled = [id for (id,) in connection.execute("SELECT id FROM triggers WHERE settled_at IS NOT NULL")]
    except apsw.ReadOnlyError as error:
        if getattr(error, "extendedresult", None) != apsw.SQLITE_READONLY_ROLLBACK:
            raise
        return 0  # a kill during the creation of the file left a journal, which only a writer can roll back
    finally:
        connection.close()
    observed = Journal(path)
    for id in settled:
        if id not in known:
            observed.line(id, life.number)
    return len(settled)
