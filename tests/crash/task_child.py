"""The process that the task campaigns fork for each life: a program with tasks.

Before its boot, a life reads the database in plain SQL, as the previous life left it. It logs the state of each task
(`found`) and each impossible state (`impossible`).
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
from tests.crash.task_app import EventLog, Recorder, an_app
from tests.crash.task_never import impossible_states, task_states
from tests.crash.task_outside import Scenario, SecondProgram, a_reader, send_inputs

ORDERLY_STOP = "in order"
"""The end of a life that is not killed, but stops while its tasks run, and releases them."""

COUNTS_PASSES = "until idle, and counted"
"""The end of a life that runs until it is idle, and writes how often it passed each place."""

STOPS_EVERYWHERE = "stopped everywhere"
"""The end of a life that stops at every pass, until its parent continues it. Its files are those that a kill leaves."""

PASS_LOCK = threading.Lock()
"""The lock that a thread holds while it passes a place: the writer, the event loop and threads with steps do so."""

IN_STEP = "in a step"
"""The place in the function of a step."""

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

KILL_PLACES = (*POINTS, IN_STEP)
"""Every named place where a life may be killed."""

RECORDER = Recorder()
APP = an_app(RECORDER)
"""The app of all lives, declared once in their warm parent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLife:
    """One process of a task campaign: its database, its number and the way it ends.

    ends     the place where it is killed, or another way to end
    at_pass  the pass of that place at which it is killed
    reboots  the machine restarts with each life: no trigger is blamed for a crash
    """

    folder: Path
    number: int
    scenario: Scenario
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
        """Return the file to which a stopped life writes its place and the number of the pass."""
        return self.folder / "spot"

    @property
    def passes(self) -> Path:
        """Return the file to which a life writes how often it passed each place."""
        return self.folder / f"passes-{self.number}"


class PassCounter:
    """The number of passes of each place. The counter kills or stops the life at the places chosen for it."""

    def __init__(self, life: TaskLife) -> None:
        self.passed: Counter[str] = Counter()
        self._life = life
        for point in POINTS if life.ends != QUIET else ():
            arm(point, self._pass_function(point))

    def _pass_function(self, point: Failpoint) -> Callable[[], None]:
        def pass_point() -> None:
            arm(point, pass_point)
            self.pass_place(point)

        return pass_point

    def pass_step(self) -> None:
        self.pass_place(IN_STEP)

    def pass_place(self, place: str) -> None:
        life = self._life
        with PASS_LOCK:
            self.passed[place] += 1
            if life.ends == STOPS_EVERYWHERE:
                life.spot.write_text(json.dumps([place, self.passed[place]]))
                signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)  # this thread executes no further line
            elif place == life.ends and self.passed[place] == life.at_pass:
                kill_process()


def live(life: TaskLife) -> None:
    """Run a life. Return only when nothing kills it."""
    log = EventLog(life.folder, life.number)
    record_found_state(life, log)
    counter = PassCounter(life)
    RECORDER.attach(log, counter.pass_step)
    if life.reboots:
        lifespan._machine_boot_id = lambda: f"machine {life.number}"
    anyio.run(_run_app, life, log, backend=life.backend)
    if life.ends == COUNTS_PASSES:
        life.passes.write_text(json.dumps(counter.passed))


async def _run_app(life: TaskLife, log: EventLog) -> None:
    config = Config(
        daemon=DaemonSettings(concurrency=life.concurrency, shutdown_grace=0.0 if life.ends == ORDERLY_STOP else 60.0),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
        storage=StorageSettings(synchronous="normal"),  # no power cut: the kernel keeps what a killed process wrote
    )
    async with APP.running(life.db, config=config) as engine:
        with anyio.move_on_after(life.at_pass / 50 if life.ends == ORDERLY_STOP else None):
            await send_inputs(APP, engine, life.db, life.scenario, log)


def record_found_state(life: TaskLife, log: EventLog) -> None:
    """Log the state of the database as the previous life left it."""
    if not forget_crashes(life.db, restarts=life.reboots):
        return
    with a_reader(life.db) as connection:
        for task in task_states(connection):
            log.write("found", *task)
        for text in impossible_states(connection):
            log.write("impossible", text)


def run_second_program(life: TaskLife, rounds: int) -> None:
    """Run the second program in this process, which may be killed at a place as a life is."""
    PassCounter(life)
    SecondProgram(life.db, EventLog(life.folder, life.number)).work(life.scenario, rounds)
