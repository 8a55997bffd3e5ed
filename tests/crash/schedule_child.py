"""The process that the schedule campaign forks for each life: a program with schedules.

Its clock moves only when the life moves it, by seconds, minutes or hours, sometimes back. A file keeps the time for the
next life. The life writes its events, and the rows that retention removes before the checker runs, to append-only
files:

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
from tests.crash.child import FROM_OUTSIDE, IN_HANDLER, QUIET, Journal, Life, forget_crashes, until_idle
from tests.support.fakes import NEW_YEAR, VirtualClock

MINUTE, HOUR = 60.0, 3600.0

LAST = "until nothing is left"
"""The end of a quiet life that finishes all work, as the checker requires."""

STEPS = 14
"""The number of times that a life moves its clock."""

MAX_SETBACK = 2 * HOUR
"""The greatest distance of the clock from its latest time. A greater one would hold schedules."""

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
"""The points that a life with schedules passes, each with the number of passes among which one kills it."""

TICK_POINTS = (Failpoint.TICK_WRITTEN, Failpoint.TICK_COMMITTED)
COMMIT_POINTS = (Failpoint.WRITER_FLUSHING, Failpoint.WRITER_FLUSHED)

WAYS = (*TICK_POINTS * 4, *COMMIT_POINTS * 2, *(set(PASSES) - {*TICK_POINTS, *COMMIT_POINTS}), IN_HANDLER, FROM_OUTSIDE)
"""The ways in which lives are killed. An entry that is repeated is chosen more often."""

CLOCK_RECORD = struct.Struct("<ddd")


class PersistentClock(VirtualClock):
    """A clock that writes each new time to a file first, so that the next process continues from it.

    `latest`: the latest time that the clock has shown.
    """

    def __init__(self, path: Path, *, seed: int) -> None:
        super().__init__(NEW_YEAR + 0.25, seed=seed)
        self.latest = self._now
        self._file = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
        if kept := os.pread(self._file, CLOCK_RECORD.size, 0):
            self._now, self._boot_time, self.latest = CLOCK_RECORD.unpack(kept)

    def move(self, seconds: float) -> None:
        """Move the clock forward. A negative number sets the wall clock back, by MAX_SETBACK at most."""
        wall = max(self._now + seconds, self.latest - MAX_SETBACK)
        boot_time, latest = self._boot_time + max(seconds, 0.01), max(self.latest, wall)
        os.pwrite(self._file, CLOCK_RECORD.pack(wall, boot_time, latest), 0)
        self._now, self._boot_time, self.latest = wall, boot_time, latest

    def move_randomly(self, chance: random.Random) -> None:
        """Move the clock by a random step: most steps are short, some take hours, and some go back."""
        choice = chance.random()
        if self.latest - self._now > 10 * MINUTE and choice < 0.5:
            self.move(self.latest - self._now + chance.uniform(0, MINUTE))
        elif choice < 0.75:
            self.move(chance.uniform(5, 90))
        elif choice < 0.90:
            self.move(chance.uniform(2, 25) * MINUTE)
        elif choice < 0.94:
            self.move(chance.uniform(1, 7) * HOUR)
        else:
            self.move(-chance.choice([90, 15 * MINUTE, MAX_SETBACK]) * chance.random())


def live(life: Life) -> None:
    """Run a life. Returns only when nothing kills it."""
    anyio.run(_live, life, backend=life.backend)


async def _live(life: Life) -> None:
    chance = random.Random(life.seed)
    clock = PersistentClock(life.folder / "clock", seed=life.seed)
    clock.move_randomly(chance)
    record_marks_and_clean(life, chance)
    operator = Operator(life, clock, chance)
    if chance.random() < 0.2:
        operator.change_while_stopped()
    point = Failpoint(life.ends) if life.ends in PASSES else None
    selective = point in TICK_POINTS and chance.random() < 0.6
    if point is not None and not selective:
        arm(point, kill_process, at_pass=chance.randint(1, PASSES[point]))
    config = Config(
        daemon=DaemonSettings(concurrency=life.concurrency, shutdown_grace=5.0),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
        storage=StorageSettings(synchronous="normal"),  # a kill without a power cut loses no write
    )
    async with running(an_app(life), life.db, config, clock) as engine:
        if point is not None and selective:
            await engine.writer.commit(kill_in_writing_tick, point, chance.randint(1, PASSES[point]))
        await until_idle(engine)
        if life.ends == LAST:
            await finish_all_work(life, engine, clock)
            return
        for _ in range(STEPS):
            clock.move_randomly(chance)
            engine.ring(schedules=True)
            if chance.random() < 0.3:
                await operator.change_while_running(engine)
            if chance.random() < 0.7:
                await until_idle(engine)
            else:
                for _ in range(chance.randrange(20)):
                    await anyio.lowlevel.checkpoint()
        await until_idle(engine)


def kill_in_writing_tick(tx: Transaction, point: Failpoint, at_pass: int) -> None:
    """Kill the process at the nth tick that changed the account. Most ticks find nothing due.

    The function runs on the writer's connection.
    """
    wrote, left = False, at_pass

    def on_change(_kind: int, _database: str, table: str, _row: int) -> None:
        nonlocal wrote
        wrote = wrote or table == "schedule_occurrences"

    def on_tick_end() -> None:
        nonlocal wrote, left
        left -= wrote
        wrote = False
        if left == 0:
            kill_process()
        arm(point, on_tick_end)

    tx._connection.set_update_hook(on_change)
    arm(point, on_tick_end)


async def finish_all_work(life: Life, engine: Engine, clock: PersistentClock) -> None:
    """Move the clock in short steps until no trigger is live and no occurrence is buffered."""
    clock.move(clock.latest - clock.now() + 1)
    connection = apsw.Connection(str(life.db), flags=apsw.SQLITE_OPEN_READONLY)
    unfinished = (
        "SELECT (SELECT count(*) FROM triggers WHERE status IN ('PENDING', 'CLAIMED')) + "
        "(SELECT count(*) FROM schedule_occurrences WHERE outcome = 'buffered')"
    )
    while True:
        engine.ring(schedules=True)
        await until_idle(engine)
        if not connection.execute(unfinished).get:
            break
        clock.move(20)
    connection.close()


def an_app(life: Life) -> App:
    """Return an app whose handlers record their runs, and fail or kill the process as their trigger's id says."""
    app = App("killed")
    ran = Journal(life.folder / "ran")
    killed_run = random.Random(life.seed).randint(1, 16) if life.ends == IN_HANDLER else 0
    patient = RetryPolicy(max_attempts=50, base=0, cap=0)
    runs = 0

    @app.workflow("work", retry=patient)
    async def work(ctx: TaskContext) -> None:
        nonlocal runs
        runs += 1
        is_killed = runs == killed_run
        trigger = ctx.trigger
        assert trigger.nominal_at is not None, trigger
        words = (trigger.id, trigger.schedule_id, repr(trigger.nominal_at.timestamp()), life.number)
        ran.line("+", *words)
        await anyio.lowlevel.checkpoint()
        if is_killed:
            kill_process()
        ran.line("-", *words)
        share = random.Random(trigger.id).random()
        if share < 0.2 and ctx.attempt == 1 and life.ends not in (QUIET, LAST):
            raise Retry("not the first time", after=share * 1000)  # the next occurrence finds an unsettled trigger

    for spec in declared_in_code(life):
        app.declared_schedules[spec.id] = spec
    return app


def declared_in_code(life: Life) -> list[ScheduleSpec]:
    """Return schedules of every kind. A few exist in some lives only, or differ between lives."""

    def declare(id: str, when: str, **options: object) -> ScheduleSpec:
        return ScheduleSpec(id=id, when=when, workflow="work", timezone="UTC", **options)  # type: ignore[arg-type]

    specs = [
        declare("minute", "every 1m"),
        declare("minute-queue", "every 1m", catch_up=CatchUp.ALL, catch_up_max=4),
        declare("second", "every 1s", catch_up=CatchUp.NONE, overlap=Overlap.SKIP),
        declare("seven", "every 7m", catch_up=CatchUp.ALL, catch_up_max=6, overlap=Overlap.ALLOW),
        declare("seven-none", "every 7m", catch_up=CatchUp.NONE),
        declare("seven-jitter", "every 7m", overlap=Overlap.ALLOW, jitter=150),
        declare("five", "*/5 * * * *", overlap=Overlap.SKIP),
        declare("five-all", "*/5 * * * *", catch_up=CatchUp.ALL, catch_up_max=5, overlap=Overlap.ALLOW, jitter=30),
        declare("five-none", "*/5 * * * *", catch_up=CatchUp.NONE, overlap=Overlap.ALLOW),
        declare("limited", "every 2m", catch_up=CatchUp.ALL, catch_up_max=3, max_runs=40),
        declare("ends", "every 3m", overlap=Overlap.ALLOW, until=NEW_YEAR + 9 * HOUR),
        declare("start", "on startup"),
        declare("start-each", "on startup", overlap=Overlap.ALLOW),
        declare("edited", ("every 2m", "every 3m")[life.number // 9 % 2]),
        *(
            declare(f"once-{number}", f"in {5 + 37 * number % 300}m", overlap=tuple(Overlap)[number % 3])
            for number in range(life.number // 4 + 2)
        ),
    ]
    if life.number // 5 % 2:
        specs.append(declare("now-and-then", "every 4m", catch_up=CatchUp.ALL, catch_up_max=3))
    return specs


OPERATOR_SPECS = (
    ScheduleSpec(id="hand-every", when="every 3m", workflow="work"),
    ScheduleSpec(
        id="hand-all", when="every 2m", workflow="work", catch_up=CatchUp.ALL, catch_up_max=4, overlap="allow"
    ),
    ScheduleSpec(id="hand-cron", when="*/5 * * * *", workflow="work", timezone="UTC"),
    ScheduleSpec(id="hand-once", when="in 17m", workflow="work"),
    ScheduleSpec(id="hand-late", when="in 3h", workflow="work", overlap="skip"),
)


class Operator:
    """A person who makes random changes to schedules."""

    def __init__(self, life: Life, clock: PersistentClock, chance: random.Random) -> None:
        self._core = Services(life.db, Config(), clock)
        self._chance = chance
        self._declared = Journal(life.folder / "declared")
        self._all_specs = [spec for spec in (*declared_in_code(life), *OPERATOR_SPECS) if spec.when != "on startup"]

    def change_while_stopped(self) -> None:
        """Make a random change before the daemon starts."""
        try:
            self._core.prepare()
            with self._core.transaction() as tx:
                self._random_change()(tx)
        except CraftcoreError:
            pass  # refused: the schedule does not exist, or its state does not allow the change
        finally:
            self._core.close()

    async def change_while_running(self, engine: Engine) -> None:
        """Make a random change while the daemon runs."""
        try:
            await engine.writer.commit(self._random_change())
        except CraftcoreError:
            pass
        engine.ring(schedules=True)

    def _random_change(self) -> Callable[[Transaction], object]:
        service, chance = self._core.schedules, self._chance
        spec = chance.choice(OPERATOR_SPECS)
        any_id = chance.choice(self._all_specs).id
        span = chance.uniform(0, 40) * MINUTE

        def put(tx: Transaction) -> None:
            done = service.put(tx, spec, Origin.OPERATOR)
            if done.change == "added":
                self._record(done.schedule)

        def replace(tx: Transaction) -> None:
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
                replace,
                replace,
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

    def _record(self, schedule: Schedule) -> None:
        timing = schedule.timing
        anchor, step = (timing.anchor_at, timing.step_seconds) if isinstance(timing, Every) else (None, None)
        self._declared.line(schedule.id, schedule.generation, repr(schedule.high_water_at), anchor, step)


def record_marks_and_clean(life: Life, chance: random.Random) -> None:
    """Record the mark of each schedule before the boot, with plain SQL. In some lives, also delete settled triggers."""
    if not forget_crashes(life.db):
        return
    connection = apsw.Connection(str(life.db))
    connection.set_busy_timeout(5000)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    marks = Journal(life.folder / "marks")
    for id, generation, mark, anchor, step in connection.execute(
        "SELECT id, generation, high_water_at, anchor_at, step_seconds FROM schedules WHERE status <> 'REMOVED'"
    ):
        marks.line(life.number, id, generation, repr(mark), anchor, step)
    choice = chance.random()
    if choice < 0.3:
        deleted = Journal(life.folder / "deleted")
        which = "settled_at IS NOT NULL"
        if choice < 0.15:
            which += " AND dedup_key LIKE 'scheduled-once:%'"
        for id, status, reason in connection.execute(f"SELECT id, status, reason FROM triggers WHERE {which}"):
            deleted.line(id, status, reason)
        connection.execute(f"DELETE FROM triggers WHERE {which}")
    connection.close()
