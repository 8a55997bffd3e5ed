"""The process that the schedule campaign forks for each life: a program with schedules.

Its clock moves only when the life moves it, by seconds, minutes or hours, sometimes back. A file keeps the time for the
next life. The events outside of the database, and rows that retention removes before the checker runs, are written to
append-only files:

    ran         "+ <trigger> <schedule> <nominal> <life>"                a handler began; "-": it is about to return
    declared    "<schedule> <generation> <mark> <anchor> <step>"         before the commit: the last line is valid
    marks       "<life> <schedule> <generation> <mark> <anchor> <step>"  the marks that a life found at its boot
    deleted     "<trigger> <status> <reason>"                            before retention deletes a settled trigger
"""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import anyio
import apsw

from craftcore import App, Retry, RetryPolicy, TaskContext
from craftcore.config import Config, DaemonSettings, RetrySettings, StorageSettings
from craftcore.daemon.lifespan import running
from craftcore.engine.engine import Engine
from craftcore.errors import CraftcoreError
from craftcore.failpoints import Failpoint, arm, kill_process
from craftcore.schedules.model import CatchUp, Origin, Overlap, Schedule, ScheduleSpec
from craftcore.schedules.recurrence.timing import Every
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from tests.crash.child import FROM_OUTSIDE, IN_HANDLER, QUIET, Journal, Life, forgive, until_idle
from tests.support.fakes import NEW_YEAR, VirtualClock

MINUTE, HOUR = 60.0, 3600.0

LAST = "until nothing is left"
"""A quiet life after which nothing waits any more: what the checker asks for."""

STEPS = 14
"""How often a life moves its clock."""

BACK_MOST = 2 * HOUR
"""How far the clock is ever behind what it once showed: less than what holds schedules."""

PASSES = {
    Failpoint.TICK_WRITTEN: 6,
    Failpoint.TICK_COMMITTED: 6,
    Failpoint.WRITER_FLUSHING: 30,
    Failpoint.WRITER_FLUSHED: 30,
    Failpoint.CLAIM_COMMITTED: 12,
    Failpoint.START_COMMITTED: 8,
    Failpoint.HANDLER_RETURNED: 16,
    Failpoint.SETTLE_BEGUN: 8,
    Failpoint.SETTLE_COMMITTED: 8,
    Failpoint.RECLAIM_COMMITTED: 1,
}
"""The points that a life with schedules passes, and at which of the first passes it may die there."""

TICK_POINTS = (Failpoint.TICK_WRITTEN, Failpoint.TICK_COMMITTED)
COMMIT_POINTS = (Failpoint.WRITER_FLUSHING, Failpoint.WRITER_FLUSHED)

WAYS = (*TICK_POINTS * 4, *COMMIT_POINTS * 2, *(set(PASSES) - {*TICK_POINTS, *COMMIT_POINTS}), IN_HANDLER, FROM_OUTSIDE)
"""How lives end; what stands here more than once does so more often."""

KEPT_IN_FILE = struct.Struct("<ddd")


class MortalClock(VirtualClock):
    """A clock that outlives its process: what it is about to show is in a file first. `latest`: the most it showed."""

    def __init__(self, path: Path, *, seed: int) -> None:
        super().__init__(NEW_YEAR + 0.25, seed=seed)
        self.latest = self._now
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if kept := os.pread(self._file, KEPT_IN_FILE.size, 0):
            self._now, self._boot_time, self.latest = KEPT_IN_FILE.unpack(kept)

    def move(self, seconds: float) -> None:
        """Let time pass; less than 0: the wall clock is set back instead, as far as it may, while time passes."""
        wall = max(self._now + seconds, self.latest - BACK_MOST)
        boot_time, latest = self._boot_time + max(seconds, 0.01), max(self.latest, wall)
        os.pwrite(self._file, KEPT_IN_FILE.pack(wall, boot_time, latest), 0)
        self._now, self._boot_time, self.latest = wall, boot_time, latest

    def wander(self, chance: random.Random) -> None:
        """A step as time takes it: most are short, some are of hours, some go back."""
        how = chance.random()
        if self.latest - self._now > 10 * MINUTE and how < 0.5:
            self.move(self.latest - self._now + chance.uniform(0, MINUTE))
        elif how < 0.75:
            self.move(chance.uniform(5, 90))
        elif how < 0.90:
            self.move(chance.uniform(2, 25) * MINUTE)
        elif how < 0.94:
            self.move(chance.uniform(1, 7) * HOUR)
        else:
            self.move(-chance.choice([90, 15 * MINUTE, BACK_MOST]) * chance.random())


def live(life: Life) -> None:
    """Live it. Returns only from a life that nobody killed."""
    anyio.run(_live, life, backend=life.backend)


async def _live(life: Life) -> None:
    chance = random.Random(life.seed)
    clock = MortalClock(life.folder / "clock", seed=life.seed)
    clock.wander(chance)
    look_and_clean(life, chance)
    hands = Hands(life, clock, chance)
    if chance.random() < 0.2:
        hands.reach_in_from_outside()
    point = Failpoint(life.ends) if life.ends in PASSES else None
    selective = point in TICK_POINTS and chance.random() < 0.6
    if point is not None and not selective:
        arm(point, kill_process, at_pass=chance.randint(1, PASSES[point]))
    config = Config(
        daemon=DaemonSettings(concurrency=life.concurrency, shutdown_grace=5.0),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
        storage=StorageSettings(synchronous="normal"),  # no power is cut: the kernel keeps what a dead process wrote
    )
    async with running(an_app(life), life.db, config, clock) as engine:
        if point is not None and selective:
            await engine.writer.commit(die_in_a_tick_that_writes, point, chance.randint(1, PASSES[point]))
        await until_idle(engine)
        if life.ends == LAST:
            await leave_nothing(life, engine, clock)
            return
        for _ in range(STEPS):
            clock.wander(chance)
            engine.ring(schedules=True)
            if chance.random() < 0.3:
                await hands.reach_in(engine)
            if chance.random() < 0.7:
                await until_idle(engine)
            else:
                for _ in range(chance.randrange(20)):
                    await anyio.lowlevel.checkpoint()
        await until_idle(engine)


def die_in_a_tick_that_writes(tx: Transaction, point: Failpoint, at_pass: int) -> None:
    """Most looks find nothing due. This kills at the n-th that changed the account, on the writer's connection."""
    wrote, left = False, at_pass

    def changed(_kind: int, _database: str, table: str, _row: int) -> None:
        nonlocal wrote
        wrote = wrote or table == "schedule_occurrences"

    def look_is_over() -> None:
        nonlocal wrote, left
        left -= wrote
        wrote = False
        if left == 0:
            kill_process()
        arm(point, look_is_over)

    tx._connection.set_update_hook(changed)
    arm(point, look_is_over)


async def leave_nothing(life: Life, engine: Engine, clock: MortalClock) -> None:
    """Let time pass in steps shorter than any schedule's until nothing waits and nothing is live."""
    clock.move(clock.latest - clock.now() + 1)
    connection = apsw.Connection(str(life.db), flags=apsw.SQLITE_OPEN_READONLY)
    left = (
        "SELECT (SELECT count(*) FROM triggers WHERE status IN ('PENDING', 'CLAIMED')) + "
        "(SELECT count(*) FROM schedule_occurrences WHERE outcome = 'buffered')"
    )
    while True:
        engine.ring(schedules=True)
        await until_idle(engine)
        if not connection.execute(left).get:
            break
        clock.move(20)
    connection.close()


def an_app(life: Life) -> App:
    """Handlers that write down when they run, and fail or die as their trigger's id says."""
    app = App("mortal")
    ran = Journal(life.folder / "ran")
    deadly = random.Random(life.seed).randint(1, 16) if life.ends == IN_HANDLER else 0
    patient = RetryPolicy(max_attempts=50, base=0, cap=0)
    runs = 0

    @app.workflow("work", retry=patient)
    async def work(ctx: TaskContext) -> None:
        nonlocal runs
        runs += 1
        dies = runs == deadly
        trigger = ctx.trigger
        assert trigger.nominal_at is not None, trigger
        words = (trigger.id, trigger.schedule_id, repr(trigger.nominal_at.timestamp()), life.number)
        ran.line("+", *words)
        await anyio.lowlevel.checkpoint()
        if dies:
            kill_process()
        ran.line("-", *words)
        mood = random.Random(trigger.id).random()
        if mood < 0.2 and ctx.attempt == 1 and life.ends not in (QUIET, LAST):
            raise Retry("not the first time", after=mood * 1000)  # so the next occurrence finds it unsettled

    for spec in declared_in_code(life):
        app.declared_schedules[spec.id] = spec
    return app


def declared_in_code(life: Life) -> list[ScheduleSpec]:
    """Some of every kind. A few are there in some lives only, or say something else in others."""

    def a(id: str, when: str, **options: object) -> ScheduleSpec:
        return ScheduleSpec(id=id, when=when, workflow="work", timezone="UTC", **options)  # type: ignore[arg-type]

    specs = [
        a("minute", "every 1m"),
        a("minute-queue", "every 1m", catch_up=CatchUp.ALL, catch_up_max=4),
        a("second", "every 1s", catch_up=CatchUp.NONE, overlap=Overlap.SKIP),
        a("seven", "every 7m", catch_up=CatchUp.ALL, catch_up_max=6, overlap=Overlap.ALLOW),
        a("seven-none", "every 7m", catch_up=CatchUp.NONE),
        a("seven-jitter", "every 7m", overlap=Overlap.ALLOW, jitter=150),
        a("five", "*/5 * * * *", overlap=Overlap.SKIP),
        a("five-all", "*/5 * * * *", catch_up=CatchUp.ALL, catch_up_max=5, overlap=Overlap.ALLOW, jitter=30),
        a("five-none", "*/5 * * * *", catch_up=CatchUp.NONE, overlap=Overlap.ALLOW),
        a("limited", "every 2m", catch_up=CatchUp.ALL, catch_up_max=3, max_runs=40),
        a("ends", "every 3m", overlap=Overlap.ALLOW, until=NEW_YEAR + 9 * HOUR),
        a("start", "on startup"),
        a("start-each", "on startup", overlap=Overlap.ALLOW),
        a("edited", ("every 2m", "every 3m")[life.number // 9 % 2]),
        *(
            a(f"once-{number}", f"in {5 + 37 * number % 300}m", overlap=tuple(Overlap)[number % 3])
            for number in range(life.number // 4 + 2)
        ),
    ]
    if life.number // 5 % 2:
        specs.append(a("now-and-then", "every 4m", catch_up=CatchUp.ALL, catch_up_max=3))
    return specs


BY_HAND = (
    ScheduleSpec(id="hand-every", when="every 3m", workflow="work"),
    ScheduleSpec(
        id="hand-all", when="every 2m", workflow="work", catch_up=CatchUp.ALL, catch_up_max=4, overlap="allow"
    ),
    ScheduleSpec(id="hand-cron", when="*/5 * * * *", workflow="work", timezone="UTC"),
    ScheduleSpec(id="hand-once", when="in 17m", workflow="work"),
    ScheduleSpec(id="hand-late", when="in 3h", workflow="work", overlap="skip"),
)


class Hands:
    """A person who changes schedules, one random thing at a time."""

    def __init__(self, life: Life, clock: MortalClock, chance: random.Random) -> None:
        self._core = Services(life.db, Config(), clock)
        self._chance = chance
        self._declared = Journal(life.folder / "declared")
        self._everything = [spec for spec in (*declared_in_code(life), *BY_HAND) if spec.when != "on startup"]

    def reach_in_from_outside(self) -> None:
        """While no daemon runs."""
        try:
            self._core.prepare()
            with self._core.transaction() as tx:
                self._something()(tx)
        except CraftcoreError:
            pass  # refused: not there, or not in that state
        finally:
            self._core.close()

    async def reach_in(self, engine: Engine) -> None:
        """While it runs."""
        try:
            await engine.writer.commit(self._something())
        except CraftcoreError:
            pass
        engine.ring(schedules=True)

    def _something(self) -> Callable[[Transaction], object]:
        service, chance = self._core.schedules, self._chance
        spec = chance.choice(BY_HAND)
        any_id = chance.choice(self._everything).id
        span = chance.uniform(0, 40) * MINUTE

        def put(tx: Transaction) -> None:
            done = service.put(tx, spec, Origin.OPERATOR)
            if done.change == "added":
                self._write_down(done.schedule)

        def put_anew(tx: Transaction) -> None:
            service.remove(tx, spec.id)
            put(tx)

        def pause(tx: Transaction) -> None:
            service.pause(tx, any_id, f"paused at {tx.now!r}")

        def backfill(tx: Transaction) -> None:
            service.backfill(tx, any_id, tx.now - span, tx.now - span / 2)

        return chance.choice(
            [
                put,
                put,
                put,
                put_anew,
                put_anew,
                pause,
                lambda tx: service.resume(tx, any_id),
                lambda tx: service.resume(tx, any_id),
                lambda tx: service.skip_next(tx, any_id),
                lambda tx: service.run_now(tx, any_id),
                lambda tx: service.run_now(tx, spec.id),
                lambda tx: service.remove(tx, spec.id),
                backfill,
            ]
        )

    def _write_down(self, schedule: Schedule) -> None:
        timing = schedule.timing
        anchor, step = (timing.anchor_at, timing.step_seconds) if isinstance(timing, Every) else (None, None)
        self._declared.line(schedule.id, schedule.generation, repr(schedule.high_water_at), anchor, step)


def look_and_clean(life: Life, chance: random.Random) -> None:
    """Before the boot, with plain SQL: write down how far each schedule is; in some lives, do what retention does."""
    if not forgive(life.db):
        return
    connection = apsw.Connection(str(life.db))
    connection.set_busy_timeout(5000)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    marks = Journal(life.folder / "marks")
    for id, generation, mark, anchor, step in connection.execute(
        "SELECT id, generation, high_water_at, anchor_at, step_seconds FROM schedules WHERE status <> 'REMOVED'"
    ):
        marks.line(life.number, id, generation, repr(mark), anchor, step)
    how = chance.random()
    if how < 0.3:
        deleted = Journal(life.folder / "deleted")
        which = "settled_at IS NOT NULL"
        if how < 0.15:
            which += " AND dedup_key LIKE 'scheduled-once:%'"
        for id, status, reason in connection.execute(f"SELECT id, status, reason FROM triggers WHERE {which}"):
            deleted.line(id, status, reason)
        connection.execute(f"DELETE FROM triggers WHERE {which}")
    connection.close()
