"""The process that the matrix and the campaign of irreversible actions fork for each life."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import anyio
import apsw
from anyio.abc import TaskGroup

from craftcore import TriggerSpec
from craftcore.config import Config, DaemonSettings, RetrySettings, StorageSettings, TaskSettings, TriggerSettings
from craftcore.daemon import lifespan
from craftcore.failpoints import Failpoint, arm, kill_process
from tests.crash.act_app import SHIFT, ActRunner, an_app
from tests.crash.act_person import CommandLinePerson, Person
from tests.crash.act_provider import Provider
from tests.crash.act_time import LoopTime, ShiftedClock
from tests.crash.child import QUIET, forget_crashes
from tests.crash.task_app import EventLog
from tests.crash.task_child import ORDERLY_STOP
from tests.crash.task_never import impossible_states
from tests.crash.task_outside import a_reader

POINTS = (
    Failpoint.EMIT_COMMITTED,
    Failpoint.CLAIM_COMMITTED,
    Failpoint.START_COMMITTED,
    Failpoint.TURN_ENTERED,
    Failpoint.INTENT_COMMITTED,
    Failpoint.CALL_MARKED,
    Failpoint.PROVIDER_ANSWERED,
    Failpoint.ACTIVITY_SETTLED,
    Failpoint.TURN_SUSPENDED,
    Failpoint.HANDLER_RETURNED,
    Failpoint.SETTLE_BEGUN,
    Failpoint.SETTLE_COMMITTED,
    Failpoint.WRITER_FLUSHING,
    Failpoint.WRITER_FLUSHED,
    Failpoint.RECLAIM_COMMITTED,
)
"""The failpoints that a life with acts passes."""

POINTS_OF_PERSON = (Failpoint.ANSWER_COMMITTED,)

DAY = 86_400.0

RUNNER = ActRunner()
APP = an_app(RUNNER)
"""The app of all lives, declared once in their warm parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActLife:
    """One process of a campaign of acts: its database, its number, the tasks it starts, and the way it ends.

    A life ends at the pass `at_pass` of the place `ends`, by a fault of one of its tasks, or when everything is over.
    """

    folder: Path
    number: int
    provider: Provider
    specs: tuple[TriggerSpec, ...]
    one_by_one: bool = False
    ends: str = QUIET
    at_pass: int = 1
    backend: str = "asyncio"
    concurrency: int = 4

    @property
    def db(self) -> Path:
        return self.folder / "agent.db"

    @property
    def over(self) -> Path:
        """Return the file that a life creates when all tasks have ended."""
        return self.folder / "over"

    @property
    def booted(self) -> Path:
        """Return the file that a life creates after its boot."""
        return self.folder / "booted"

    @property
    def killed_at(self) -> Path:
        """Return the file to which a life writes its fault before it kills itself."""
        return self.folder / "killed_at"

    def kill(self, fault: str) -> None:
        """Kill this process because of a fault."""
        with suppress(FileExistsError), self.killed_at.open("x") as killed_at:  # another thread may kill the process
            killed_at.write(fault)
        kill_process()


def live(life: ActLife) -> None:
    """Run a life. Return only when nothing kills it."""
    log = EventLog(life.folder, life.number)
    for path in (life.over, life.killed_at):
        path.unlink(missing_ok=True)
    if forget_crashes(life.db, restarts=True):
        with a_reader(life.db) as connection:
            _log_impossible_states(connection, log)
    if life.ends in POINTS:
        arm(Failpoint(life.ends), partial(life.kill, life.ends), at_pass=life.at_pass)
    lifespan._machine_boot_id = lambda: f"machine {life.number}"  # no trigger is blamed for a crash
    loop_time = LoopTime()
    anyio.run(_run_app, life, log, loop_time, backend=life.backend, backend_options=loop_time.options(life.backend))


async def _run_app(life: ActLife, log: EventLog, loop_time: LoopTime) -> None:
    loop_time.install(life.backend)
    clock = ShiftedClock(life.folder)
    if life.number > 1:
        clock.advance(SHIFT)
    config = Config(
        daemon=DaemonSettings(concurrency=life.concurrency, shutdown_grace=0.0, poll_seconds=0.1),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
        storage=StorageSettings(synchronous="normal"),  # no power cut: the kernel keeps what a killed process wrote
        triggers=TriggerSettings(lease_seconds=DAY),
        tasks=TaskSettings(stall_after=0, resume_max_age=365 * DAY),  # the clock jumps, which is not a stall
    )
    stopped = anyio.Event()
    async with anyio.create_task_group() as outer:
        RUNNER.attach(
            log, life.provider, clock, loop_time, stop=stopped.set, kill=life.kill, start_soon=outer.start_soon
        )
        async with lifespan.running(APP, life.db, config, clock) as engine:
            life.booted.touch()
            with a_reader(life.db) as connection:
                for (key,) in connection.execute(OLD_INTENTS):
                    log.write("impossible", f"{key} is INTENT after the boot, and its caller was killed")
            person = Person(APP, engine, life.folder, life.db, life.provider, clock, log)
            async with anyio.create_task_group() as group:
                group.start_soon(_complete_tasks, life, person, group)
                with anyio.move_on_after(life.at_pass / 100 if life.ends == ORDERLY_STOP else None):
                    await stopped.wait()
                group.cancel_scope.cancel()
        outer.cancel_scope.cancel()


async def _complete_tasks(life: ActLife, person: Person, group: TaskGroup) -> None:
    await person.complete_tasks(life.specs, one_by_one=life.one_by_one)
    life.over.touch()
    group.cancel_scope.cancel()


def run_person(life: ActLife, rounds: int) -> None:
    """Run the person in this process, which may be killed at a place as a life is."""
    if life.ends in POINTS_OF_PERSON:
        arm(Failpoint(life.ends), kill_process, at_pass=life.at_pass)
    if life.booted.exists():
        CommandLinePerson(life.folder, life.db, life.provider, EventLog(life.folder, life.number)).work(rounds)


OLD_INTENTS = """
    SELECT idem_key FROM activity_log WHERE status = 'INTENT' AND epoch < (SELECT max(epoch) FROM epochs)
"""
"""The keys of acts that an earlier life began and that are still INTENT: none after a boot."""


def _log_impossible_states(connection: apsw.Connection, log: EventLog) -> None:
    """Log the impossible states of the database as the previous life left it."""
    if connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'activity_log'").get:
        for text in impossible_states(connection):
            log.write("impossible", text)
