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
from tests.crash.act_app import LATER, Deeds, an_app
from tests.crash.act_person import Beside, Outside
from tests.crash.act_provider import Provider
from tests.crash.act_time import LoopTime, World
from tests.crash.child import QUIET, forget_crashes
from tests.crash.task_app import Seen
from tests.crash.task_child import LEAVES
from tests.crash.task_never import impossible
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
"""The cut points that a life with acts passes."""

POINTS_BESIDE = (Failpoint.ANSWER_COMMITTED,)

DAY = 86_400.0

DEEDS = Deeds()
APP = an_app(DEEDS)
"""Declared once, in the warm parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActLife:
    """Which database, which number, what it starts, and how it ends: at the so-manieth pass of a place, or by what its
    tasks do to it, or by itself."""

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
        """Written by a life that saw everything through."""
        return self.folder / "over"

    @property
    def booted(self) -> Path:
        """Written once there is something to look at."""
        return self.folder / "booted"

    @property
    def died(self) -> Path:
        """Where a life says what it dies of, unless that comes from outside."""
        return self.folder / "died"

    def die(self, of: str) -> None:
        with suppress(FileExistsError), self.died.open("x") as died:  # in another thread it dies already
            died.write(of)
        kill_process()


def live(life: ActLife) -> None:
    """Live it. Returns only from a life that nobody killed."""
    seen = Seen(life.folder, life.number)
    for path in (life.over, life.died):
        path.unlink(missing_ok=True)
    if forget_crashes(life.db, restarts=True):
        with a_reader(life.db) as connection:
            _find(connection, seen)
    if life.ends in POINTS:
        arm(Failpoint(life.ends), partial(life.die, life.ends), at_pass=life.at_pass)
    lifespan._machine_boot_id = lambda: f"machine {life.number}"  # no trigger is blamed
    loop = LoopTime()
    anyio.run(_live, life, seen, loop, backend=life.backend, backend_options=loop.options(life.backend))


async def _live(life: ActLife, seen: Seen, loop: LoopTime) -> None:
    loop.take_over(life.backend)
    world = World(life.folder)
    if life.number > 1:
        world.pass_by(LATER)
    config = Config(
        daemon=DaemonSettings(concurrency=life.concurrency, shutdown_grace=0.0, poll_seconds=0.1),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
        storage=StorageSettings(synchronous="normal"),  # no power is cut: the kernel keeps what a dead process wrote
        triggers=TriggerSettings(lease_seconds=DAY),
        tasks=TaskSettings(stall_after=0, resume_max_age=365 * DAY),  # much time passes, and means nothing
    )
    stopped = anyio.Event()
    async with anyio.create_task_group() as around:
        DEEDS.live(seen, life.provider, world, loop, stop=stopped.set, die=life.die, begin=around.start_soon)
        async with lifespan.running(APP, life.db, config, world) as engine:
            life.booted.touch()
            with a_reader(life.db) as connection:
                for (key,) in connection.execute(IN_DOUBT):
                    seen.line("impossible", f"{key} is INTENT, and whoever called is dead")
            outside = Outside(APP, engine, life.folder, life.db, life.provider, world, seen)
            async with anyio.create_task_group() as beside:
                beside.start_soon(_see_through, life, outside, beside)
                with anyio.move_on_after(life.at_pass / 100 if life.ends == LEAVES else None):
                    await stopped.wait()
                beside.cancel_scope.cancel()
        around.cancel_scope.cancel()


async def _see_through(life: ActLife, outside: Outside, beside: TaskGroup) -> None:
    await outside.see_through(life.specs, one_by_one=life.one_by_one)
    life.over.touch()
    beside.cancel_scope.cancel()


def beside(life: ActLife, rounds: int) -> None:
    """The person in a process of her own, which dies as a life does."""
    if life.ends in POINTS_BESIDE:
        arm(Failpoint(life.ends), kill_process, at_pass=life.at_pass)
    if life.booted.exists():
        Beside(life.folder, life.db, life.provider, Seen(life.folder, life.number)).work(rounds)


IN_DOUBT = """
    SELECT idem_key FROM activity_log WHERE status = 'INTENT' AND epoch < (SELECT max(epoch) FROM epochs)
"""
"""After a boot there is none."""


def _find(connection: apsw.Connection, seen: Seen) -> None:
    """Write down what cannot be, as the life before left it."""
    if connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'activity_log'").get:
        for text in impossible(connection):
            seen.line("impossible", text)
