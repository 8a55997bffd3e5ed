"""Copies of a database file that are put back by hand, and the release that follows."""

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
    """A whole copy of the file as it is now."""
    place = database.with_name(name)
    place.touch()
    Services(database, Config()).database.copy_into(f"file:{place}", place)
    return place


def put_back(copied: Path, database: Path) -> None:
    """By hand: everything of the file goes but its lock file."""
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
