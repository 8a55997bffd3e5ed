"""Lives for tests of records: a warm parent that forks one life for each line of its input.

    python -m tests.crash.record_lives < {"folder": …, "number": 1, "ends": "writer.flushed", "at_pass": 7} …

The parent answers each line with the exit code of the life. A life writes two append-only files:

    flushed   [pass, events]            a commit is on disk, and the number of events that another connection reads
    known     [type, field, value]      user code begins or continues because of an event of this type and value
"""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
import apsw

from craftcore import App, Call, Continue, Retry, TaskContext, TriggerSpec
from craftcore.config import Config, DaemonSettings, RetrySettings, StorageSettings
from craftcore.failpoints import Failpoint, arm, kill_process
from tests.crash.child import IN_HANDLER, QUIET, Journal, forget_crashes
from tests.crash.crews import run_life
from tests.crash.forks import fork, prepare_forks, wait
from tests.crash.task_app import PATIENT
from tests.crash.task_outside import a_reader

FLUSHED, KNOWN = "flushed", "known"

EVENTS_FLUSHED = "events flushed"
"""The passes of WRITER_FLUSHED whose commit added events. The commit is on disk, and no caller has its result yet."""

ASKED = """
SELECT questions.id,
       kind
  FROM questions
  JOIN tasks ON tasks.seq = task_seq
 WHERE questions.status = 'OPEN'
   AND ended_at IS NULL
"""
"""The open questions of live tasks: whether to go on, or whether an act happened whose call a kill interrupted."""

AT_FLUSH, GO_ON = "at flush", "go on"
"""Named pipes of a watched life: it writes to `at flush` before and after each flush, and then waits for `go on`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordLife:
    """A life that emits `count` triggers of the workflow `emits`. With "", it emits none and runs the existing ones."""

    folder: Path
    number: int
    backend: str = "asyncio"
    ends: str = QUIET
    at_pass: int = 1
    emits: str = ""
    count: int = 1
    is_watched: bool = False

    @property
    def db(self) -> Path:
        return self.folder / "agent.db"


def an_app(life: RecordLife) -> App:
    """Return an app with two workflows. `whole` makes each kind of event and falls back; `plain` is one function."""
    app = App("recorded")
    known = Journal(life.folder / KNOWN)

    def record(type_: str, field: str, value: Any) -> None:
        known.line(json.dumps([type_, field, value]))

    @app.action("pay", irreversible=True, on_unknown="assume_done")
    async def pay(call: Call) -> str:
        record("ACTIVITY_INTENT", "key", call.key)
        return "ref-1"

    async def fetch(what: str) -> str:
        return f"fetched {what}"

    @app.workflow("whole", fallback=["second"], retry=PATIENT)
    async def whole(ctx: TaskContext) -> None:
        record("AGENT_ATTEMPT_START", "agent", "whole")
        await ctx.step("first", fetch, "one")
        record("STEP_COMPLETED", "name", "first")
        await ctx.sleep(0)
        record("TURN_SUSPENDED", "wait", "sleep#1")
        record("TURN_ENTERED", "resume", "TIMER")
        raise Retry("another one is to do it")

    @app.workflow("second")
    async def second(ctx: TaskContext[int]) -> Any:
        record("FALLBACK_TRIGGERED", "to_agent", "second")
        record("AGENT_ATTEMPT_START", "agent", "second")
        if ctx.state is not None:
            record("TURN_CONTINUED", "", None)
            record("TURN_ENTERED", "turn", 2)
            await ctx.step("third", fetch, "three")
            record("STEP_COMPLETED", "name", "third")
            return "done"
        await ctx.step("second", fetch, "two")
        record("STEP_COMPLETED", "name", "second")
        await ctx.note("noted", {"n": 1})
        record("NOTE", "name", "noted")
        await ctx.act(pay)
        record("ACTIVITY_DONE", "action", "pay")
        await ctx.ask("Go on?", ["yes", "no"])
        record("TURN_ENTERED", "resume", "ANSWER")
        return Continue(1)

    @app.workflow("plain", retry=PATIENT)
    async def plain() -> str:
        record("AGENT_ATTEMPT_START", "agent", "plain")
        if life.ends == IN_HANDLER:
            kill_process()
        return "done"

    return app


class Flushes:
    """A counter of the writer's commits, which records the number of events on disk after each."""

    def __init__(self, life: RecordLife) -> None:
        self._life = life
        self._journal = Journal(life.folder / FLUSHED)
        self._passed: Counter[str] = Counter()
        self._events = 0
        self._reader: apsw.Connection | None = None
        self._wait: Callable[[], None] = _watch(life.folder) if life.is_watched else lambda: None
        for point in (Failpoint.WRITER_FLUSHING, Failpoint.WRITER_FLUSHED):
            arm(point, self._at(point))

    def _at(self, point: Failpoint) -> Callable[[], None]:
        def on_pass() -> None:
            arm(point, on_pass)
            if point is Failpoint.WRITER_FLUSHED:
                before, self._events = self._events, self._on_disk()
                self._journal.line(json.dumps([self._passed[point] + 1, self._events]))
                if self._events > before:
                    self._pass(EVENTS_FLUSHED)
            self._wait()
            self._pass(point)

        return on_pass

    def _pass(self, place: str) -> None:
        self._passed[place] += 1
        if place == self._life.ends and self._passed[place] == self._life.at_pass:
            kill_process()

    def _on_disk(self) -> int:
        if self._reader is None:
            self._reader = apsw.Connection(str(self._life.db), flags=apsw.SQLITE_OPEN_READONLY)
        return int(self._reader.execute("SELECT count(*) FROM events").get)


def _watch(folder: Path) -> Callable[[], None]:
    at_flush, go_on = os.open(folder / AT_FLUSH, os.O_RDWR), os.open(folder / GO_ON, os.O_RDWR)

    def wait_for_watcher() -> None:
        os.write(at_flush, b".")
        os.read(go_on, 1)

    return wait_for_watcher


def live(life: RecordLife) -> None:
    """Run a life in this process."""
    forget_crashes(life.db)
    Flushes(life)
    if life.ends in tuple(Failpoint) and life.ends not in (Failpoint.WRITER_FLUSHING, Failpoint.WRITER_FLUSHED):
        arm(Failpoint(life.ends), kill_process, at_pass=life.at_pass)
    anyio.run(_live, life, an_app(life), backend=life.backend)


async def _live(life: RecordLife, app: App) -> None:
    config = Config(
        daemon=DaemonSettings(concurrency=4, shutdown_grace=60.0),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
        storage=StorageSettings(synchronous="normal"),  # a kill without a power cut loses no write
    )
    async with app.running(life.db, config=config):
        if life.emits:
            ids = [f"{life.emits}-{life.number}-{n}" for n in range(1, life.count + 1)]
            await app.emit_many([TriggerSpec(workflow=life.emits, id=id) for id in ids])
        with a_reader(life.db) as reader, anyio.fail_after(200):
            while not _is_over(reader):
                for question, kind in reader.execute(ASKED).fetchall():
                    if kind == "ask":
                        await app.answer(str(question), "yes", answered_by="ada")
                    else:
                        await app.answer(str(question), "happened", reference="ref-1", answered_by="ada")
                await anyio.sleep(0.002)


def _is_over(reader: apsw.Connection) -> bool:
    unfinished = """
    SELECT (SELECT count(*) FROM triggers WHERE settled_at IS NULL)
         + (SELECT count(*) FROM tasks WHERE ended_at IS NULL)
    """
    return not reader.execute(unfinished).get


def main() -> None:
    prepare_forks()
    for line in sys.stdin:
        words = json.loads(line)
        life = RecordLife(**{**words, "folder": Path(words["folder"])})
        ended = wait(fork(run_life, life, live), None)
        print(json.dumps({"ended": ended}), flush=True)


def to_line(life: RecordLife) -> str:
    """Return the line of input that starts a life."""
    return json.dumps({**asdict(life), "folder": str(life.folder)}) + "\n"


if __name__ == "__main__":
    main()
