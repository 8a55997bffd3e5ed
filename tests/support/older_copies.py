"""Copies of a database file that replace a later file, and the release that follows."""

from __future__ import annotations

import shutil
from pathlib import Path

from craftcore.config import Config
from craftcore.services import Services
from craftcore.storage.facts import get_fact
from craftcore.triggers.start_holds import release as release_holds
from tests.support.engine_harness import Lab
from tests.support.fakes import VirtualClock, VirtualCore


def copy(database: Path, name: str = "copy.db") -> Path:
    """Copy the database into a new file, and return its path."""
    target = database.with_name(name)
    target.touch()
    Services(database, Config()).database.copy_into(f"file:{target}", target)
    return target


def put_back(copied: Path, database: Path) -> None:
    """Replace a database and remove its WAL, as a person does. The lock file stays."""
    for side in ("", "-wal", "-shm"):
        database.with_name(database.name + side).unlink(missing_ok=True)
    shutil.copy(copied, database)


def held(it: Lab) -> str | None:
    with Services(it.path, Config()).reading() as reader:
        return get_fact(reader, "held")


def release(it: Lab) -> None:
    core = VirtualCore(it.path, VirtualClock())
    core.do(release_holds)
    core.close()
    it.engine.ring(schedules=True)
