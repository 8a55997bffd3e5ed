"""The process that the task campaigns fork for each life: a program with tasks.

Before its boot a life reads the database with plain SQL, as the previous life left it. It records the status of each
task (`found`) and each impossible state (`impossible`).
"""

from __future__ import annotations

import json
import signal
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import anyio

from craftcore.config import Config, DaemonSettings, RetrySettings, StorageSettings
from craftcore.daemon import lifespan
from craftcore.failpoints import Failpoint, arm, kill_process
from tests.crash.child import QUIET, forget_crashes
from tests.crash.task_app import Deeds, Seen, an_app
from tests.crash.task_never import impossible, standing
from tests.crash.task_outside import Beside, Story, a_reader, outside_within

LEAVES = "in order"
"""Nobody kills it: it ends while its tasks run, and gives them back."""

COUNTED = "until idle, and counted"

STOPPED = "stopped everywhere"
"""Not killed: whoever started it lets it go on. What is on disk meanwhile is what a kill would leave there."""

PASSING = threading.Lock()
"""One place is passed at a time: the writer, the loop and threads with steps go through them."""

IN_STEP = "in a step"
"""In the function of one."""

POINTS = (
    Failpoint.EMIT_COMMITTED,
    Failpoint.CLAIM_COMMITTED,
    Failpoint.START_COMMITTED,
    Failpoint.ROUTE_DECIDED,
    Failpoint.TURN_ENTERED,
    Failpoint.STEP_ENTERED,
    Failpoint.STEP_RAN,
    Failpoint.STEP_COMMITTED,
    Failpoint.TURN_SUSPENDED,
    Failpoint.HANDLER_RETURNED,
    Failpoint.SETTLE_BEGUN,
    Failpoint.SETTLE_COMMITTED,
    Failpoint.WRITER_FLUSHING,
    Failpoint.WRITER_FLUSHED,
    Failpoint.ANSWER_COMMITTED,
    Failpoint.RECLAIM_COMMITTED,
)
"""The cut points that a life with tasks passes."""

WAYS = (*POINTS, IN_STEP)
"""Every named place where one may die."""

DEEDS = Deeds()
APP = an_app(DEEDS)
"""Declared once, in the warm parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLife:
    """Which database, which number, and how it ends: at the so-manieth pass of a place, or by itself.

    reboots  the machine was restarted with it: no trigger is blamed for a crash
    """

    folder: Path
    number: int
    story: Story
    ends: str = QUIET
    at_pass: int = 1
    backend: str = "asyncio"
    concurrency: int = 4
    reboots: bool = False

    @property
    def db(self) -> Path:
        return self.folder / "agent.db"

    @property
    def spot(self) -> Path:
        """Where a life that is stopped says where it is: the place and the number of the pass."""
        return self.folder / "spot"

    @property
    def passes(self) -> Path:
        """Where a life that is counted leaves how often it passed each place."""
        return self.folder / f"passes-{self.number}"


class Places:
    """Counts how often each is passed; dies where it is to, or stops at each."""

    def __init__(self, life: TaskLife) -> None:
        self.passed: Counter[str] = Counter()
        self._life = life
        for point in POINTS if life.ends != QUIET else ():
            arm(point, self._at(point))

    def _at(self, point: Failpoint) -> Callable[[], None]:
        def passes() -> None:
            arm(point, passes)
            self.passes(point)

        return passes

    def in_step(self) -> None:
        self.passes(IN_STEP)

    def passes(self, place: str) -> None:
        life = self._life
        with PASSING:
            self.passed[place] += 1
            if life.ends == STOPPED:
                life.spot.write_text(json.dumps([place, self.passed[place]]))
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # so that no line more of this is run
            elif place == life.ends and self.passed[place] == life.at_pass:
                kill_process()


def live(life: TaskLife) -> None:
    """Live it. Returns only from a life that nobody killed."""
    seen = Seen(life.folder, life.number)
    find(life, seen)
    places = Places(life)
    DEEDS.live(seen, places.in_step)
    if life.reboots:
        lifespan._machine_boot_id = lambda: f"machine {life.number}"
    anyio.run(_live, life, seen, backend=life.backend)
    if life.ends == COUNTED:
        life.passes.write_text(json.dumps(places.passed))


async def _live(life: TaskLife, seen: Seen) -> None:
    config = Config(
        daemon=DaemonSettings(concurrency=life.concurrency, shutdown_grace=0.0 if life.ends == LEAVES else 60.0),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
        storage=StorageSettings(synchronous="normal"),  # no power is cut: the kernel keeps what a dead process wrote
    )
    async with APP.running(life.db, config=config) as engine:
        with anyio.move_on_after(life.at_pass / 50 if life.ends == LEAVES else None):
            await outside_within(APP, engine, life.db, life.story, seen)


def find(life: TaskLife, seen: Seen) -> None:
    """Write down how the file is found."""
    if not forget_crashes(life.db, restarts=life.reboots):
        return
    with a_reader(life.db) as connection:
        for task in standing(connection):
            seen.line("found", *task)
        for text in impossible(connection):
            seen.line("impossible", text)


def beside(life: TaskLife, rounds: int) -> None:
    """The outside as a process of its own, which dies as a life does."""
    Places(life)
    Beside(life.db, Seen(life.folder, life.number)).work(life.story, rounds)
