"""`craftcore demo`: see the main promise kept. A real daemon is killed with -9 in the middle of work, again and again.

The verdict is counted, not hoped for: from an append-only file that the work itself writes, and from the table.
"""

from __future__ import annotations

import signal
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NoReturn

import click

from craftcore.cli.base import WriteCommand
from craftcore.cli.demo.demo_daemon import DemoDaemon, emit_elsewhere
from craftcore.cli.demo.demo_store import UNSETTLED
from craftcore.cli.demo.demo_verdict import Verdict, judge, lines_of
from craftcore.cli.exit_codes import PROBLEM
from craftcore.cli.session import Session
from craftcore.config import Config
from craftcore.errors import StorageError
from craftcore.producer import Producer
from craftcore.serialization.plurals import format_count
from craftcore.services import Services
from craftcore.triggers.model import TriggerSpec

WORK_SECONDS = 0.03
DEADLINE_SECONDS = 120.0
POLL_SECONDS = 0.01
ELSEWHERE = 3
FRESH = 2 * Config().daemon.concurrency


@click.command(
    cls=WriteCommand,
    touches="Works in a temporary directory that it removes; it never touches your databases.",
    exits={PROBLEM: "a promise was broken"},
    examples=("craftcore demo", "craftcore demo --triggers 2000 --kills 10"),
    see=("craftcore run", "docs/explanation/guarantees.md"),
)
@click.option("--triggers", type=click.IntRange(20, 20_000), default=400, show_default=True, help="How many to emit.")
@click.option("--kills", type=click.IntRange(0, 50), default=4, show_default=True, help="How often to kill the daemon.")
@click.pass_obj
def demo(session: Session, /, triggers: int, kills: int) -> int:
    """See craftcore survive kill -9, on a temporary database.

    A real daemon is killed in the middle of work, again and again. Then everything is counted: triggers that were
    accepted, done, lost, settled twice, and run again because a kill cut them off.
    """
    before = signal.signal(signal.SIGTERM, _on_interrupt)
    try:
        with tempfile.TemporaryDirectory(prefix="craftcore-demo-") as folder:
            verdict = Demo(session, Path(folder), triggers, kills).play()
    finally:
        signal.signal(signal.SIGTERM, before)
    if session.json:
        session.out.document(verdict.document())
    else:
        session.out.line()
        for line in verdict.lines():
            session.out.line(line)
        session.out.line(verdict.sentence(), style="good" if verdict.kept else "bad")
    return 0 if verdict.kept else 1


class Demo:
    """One play in one temporary folder."""

    def __init__(self, session: Session, folder: Path, triggers: int, kills: int) -> None:
        self._session = session
        self._ledger = folder / "ledger"
        self._core = Services(folder / "demo.db", Config())
        self._triggers = triggers
        self._kills = kills
        self._accepted: list[str] = []
        self._ended_at_kill = 0
        self._began = time.monotonic()

    def play(self) -> Verdict:
        """Raise CraftcoreError when the stage itself breaks down."""
        with closing(self._core), closing(DemoDaemon(self._core.database.path)) as daemon:
            daemon.start()
            self._say(f"a daemon runs on a temporary database, pid {daemon.pid}")
            self._emit(self._triggers // 2)
            for kill in range(self._kills):
                self._wait_for_work(daemon, (kill + 1) * self._triggers // (self._kills + 2))
                pid = daemon.pid
                code = daemon.kill()
                assert code == -signal.SIGKILL, code
                self._ended_at_kill = self._ended_count()
                counts = f"{self._ended_at_kill} of {len(self._accepted)} done, {self._running_count()} in progress"
                self._say(f"kill -9 {pid} in the middle of work: {counts}")
                if kill == 0:  # with nobody there to do the work, emitting works all the same
                    self._emit(self._triggers - len(self._accepted) - ELSEWHERE)
                    self._emit_elsewhere()
                daemon.start()
                self._say(f"started again, pid {daemon.pid}")
            if self._kills == 0:
                self._emit(self._triggers - len(self._accepted))
            self._wait_until_settled(daemon)
            self._say(f"all is settled; SIGTERM, and the daemon ends with exit code {daemon.stop()}")
            with self._core.reading() as reader:
                return judge(reader, self._accepted, self._ledger, self._kills, time.monotonic() - self._began)

    def _emit(self, count: int) -> None:
        first = len(self._accepted)
        with Producer(self._core.database.path) as producer:
            for number in range(first, first + count):
                self._accepted.append(producer.emit_many([TriggerSpec(**self._spec(number))])[0].id)
        self._say(f"{format_count(count, 'trigger')} emitted, each on disk before the next")

    def _emit_elsewhere(self) -> None:
        first = len(self._accepted)
        specs = [self._spec(number) for number in range(first, self._triggers)]
        self._accepted += emit_elsewhere(self._core.database.path, specs)
        self._say(f"{len(specs)} more by `craftcore emit`, each from a process of its own, while no daemon runs")

    def _spec(self, number: int) -> dict[str, Any]:
        payload = {"number": number, "ledger": str(self._ledger), "seconds": WORK_SECONDS}
        return {"workflow": "demo.work", "payload": payload}

    def _wait_for_work(self, daemon: DemoDaemon, ended: int) -> None:
        """Wait until that many have ended and others have begun, or until no work is left to be cut off."""
        # Once those that the last kill cut off are done: cut off three times in a row, one would count as poison.
        enough = max(ended, self._ended_at_kill + FRESH)

        def is_in_the_middle() -> bool:
            done = self._ended_count()
            return (done >= enough and self._running_count() > 0) or done == len(self._accepted)

        self._wait(daemon, is_in_the_middle)

    def _wait_until_settled(self, daemon: DemoDaemon) -> None:
        def is_settled() -> bool:
            with self._core.reading() as reader:
                return not reader.fetch_value(UNSETTLED)

        self._wait(daemon, is_settled)

    def _wait(self, daemon: DemoDaemon, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not holds():
            daemon.require_alive()
            if time.monotonic() > deadline:
                raise StorageError(f"the demo did not get on within {DEADLINE_SECONDS:.0f} s: {daemon.last_words()}")
            time.sleep(POLL_SECONDS)

    def _ended_count(self) -> int:
        return len({number for word, number in lines_of(self._ledger) if word == "end"})

    def _running_count(self) -> int:
        lines = lines_of(self._ledger)
        return len({number for _, number in lines} - {number for word, number in lines if word == "end"})

    def _say(self, text: str) -> None:
        if not self._session.json:
            self._session.out.line(f"{time.monotonic() - self._began:5.1f} s  {text}")


def _on_interrupt(_signal: int, _frame: object) -> NoReturn:
    """Handle a signal like Ctrl-C, which cleans up."""
    raise KeyboardInterrupt
