"""A database with data for every command, as an engine left it at noon."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from craftcore.audit.model import AuditRow
from craftcore.audit.store import list_rows
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage.facts import set_fact
from craftcore.tasks.session_message import NewMessage
from craftcore.tasks.session_message_store import SessionMessageStore
from tests.support.fake_payments import LOST, NOTHING, Bank
from tests.support.fakes import VirtualClock, VirtualCore, a_trigger
from tests.support.idle_database import FILES, a_task, restore_files

NOON = 1_795_262_400.0
"""2026-11-21T12:00:00Z, a Saturday."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """The ids of the rows. `died` and `ended` are records: of the dead letter's attempt, and of a successful one.

    The database also has the schedules `nightly`, `paused` and `ahead`. `ahead` fired under a wrong clock.
    """

    dead: str
    died: str
    ended: str
    waiting: str
    nap: str
    waits: str
    failed: str
    asks: str
    question: str
    in_doubt: str


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """Return a database with rows for every command and every page, and its file."""
    path = tmp_path_factory.mktemp("world") / "agent.db"
    return a_world(path), path


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldCopy:
    """A test's copy of the world, with its audit rows."""

    world: World
    core: VirtualCore

    def rows(self) -> list[AuditRow]:
        with self.core.reading() as reader:
            return list(list_rows(reader))


_made: dict[float, tuple[World, dict[str, bytes]]] = {}
"""The first world of each moment in a new file, and its files by their suffix."""


def a_world(path: Path, now: float = NOON) -> World:
    """Populate a database, in which a hold is set and schedules wait for the clock.

    A world in a new file is created once for each moment, and then copied.
    """
    if path.exists() or path.is_symlink():
        return _make(path, now)
    if now not in _made:
        world = _make(path, now)
        _made[now] = world, {end: path.with_name(path.name + end).read_bytes() for end in FILES}
        return world
    world, files = _made[now]
    restore_files(path, files)
    return world


def _make(path: Path, now: float) -> World:
    clock = VirtualClock(now=now, seed=1)  # another seed than a test's clock, so that the ids differ
    core = VirtualCore(path, clock)
    _schedules(core)
    core.close()
    paid = Bank(path, clock).pay()
    dead = Bank(path, clock).pay(NOTHING)
    in_doubt = f"activity:{Bank(path, clock).pay(LOST)}:1.1"
    nap, waits, failed = (a_task(path, name, clock) for name in ("nap", "wait", "fails"))
    asks = a_task(path, "ask", clock, session_id="lobby")
    with core.transaction() as tx:
        waiting = core.triggers.emit(tx, a_trigger()).id
        said = [NewMessage('{"user":"hello"}', True, None), NewMessage('"ho"', True, "call_1")]
        SessionMessageStore().append_all(tx, "lobby", asks, 1, said, kept=10)
        set_fact(tx, "held", "it was restored")
        died = tx.fetch_value("SELECT id FROM executions WHERE trigger_id = :id", id=dead)
        ended = tx.fetch_value("SELECT id FROM executions WHERE trigger_id = :id", id=paid)
        question = tx.fetch_value(
            "SELECT questions.id FROM questions JOIN tasks ON tasks.seq = task_seq WHERE tasks.id = :id", id=asks
        )
    _schedule_ahead(core, clock)
    core.close()
    return World(
        dead=dead,
        died=died,
        ended=ended,
        waiting=waiting,
        nap=nap,
        waits=waits,
        failed=failed,
        asks=asks,
        question=question,
        in_doubt=in_doubt,
    )


def _schedules(core: VirtualCore) -> None:
    for name in ("nightly", "paused"):
        core.do(core.schedules.put, ScheduleSpec(id=name, when="every day at 3am", workflow="nap"), Origin.OPERATOR)
    core.do(core.schedules.pause, "paused")


def _schedule_ahead(core: VirtualCore, clock: VirtualClock) -> None:
    """Fire a schedule two hours ahead of the clock. A later start would set its triggers back."""
    core.do(core.schedules.put, ScheduleSpec(id="ahead", when="every 1h", workflow="nap"), Origin.OPERATOR)
    clock.advance(hours=2)
    core.do(core.ticks.tick)
    clock.set_back(2 * 3600)
