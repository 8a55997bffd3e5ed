"""Processes that are killed right after `emit` returned, and the triggers that are on disk then."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import apsw

from tests.crash.crews import run_program
from tests.support.processes import PATIENCE

WAYS = ("producer", "asyncio", "trio")
"""The ways to emit: a Producer, and an engine on each of the two event loops."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AfterEmits:
    """The ids that the processes received and those in the database. `damage` is None when the file is intact."""

    accepted: list[str]
    present: set[str]
    damage: str | None

    @property
    def lost(self) -> set[str]:
        return set(self.accepted) - self.present


def run_emitters(folder: Path, way: str, kills: int) -> None:
    """Run `tests.crash.emitter` with `kills` processes. Raises AssertionError when the program fails."""
    child = run_program("-m", "tests.crash.emitter", str(folder), way, str(kills), timeout=10 * PATIENCE)
    assert child.returncode == 0, child.stdout + child.stderr


def kill_after_emits(folder: Path, way: str, kills: int) -> AfterEmits:
    """Kill `kills` processes, each right after its `emit`, on one new database in `folder`."""
    run_emitters(folder, way, kills)
    connection = apsw.Connection(str(folder / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        present = {id for (id,) in connection.execute("SELECT id FROM triggers")}
        checked = connection.pragma("integrity_check")
    finally:
        connection.close()
    accepted = (folder / "accepted").read_text().split()
    return AfterEmits(accepted=accepted, present=present, damage=None if checked == "ok" else str(checked))
