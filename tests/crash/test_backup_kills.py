"""SIGKILL before each line of a backup and of a restore: no partial file remains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.backup_lives import KEEP, NEW, OLD
from tests.crash.crews import run_program
from tests.support.backups import emit, rotate, set_database_id, take_backup
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import PATIENCE


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a database and its backups, of which each process gets a copy."""
    root = tmp_path_factory.mktemp("lives")
    folder = root / "made"
    folder.mkdir()
    clock = VirtualClock()
    core = VirtualCore(folder / "agent.db", clock)
    set_database_id(core.database, "this-one")
    emit(core, NEW)
    take_backup(core.database, folder / "backup.db")
    emit(core, OLD - NEW)
    for _ in range(KEEP):
        rotate(core.database, folder / "kept", KEEP)
        clock.advance(60)
    files = {path: path.read_bytes() for path in folder.glob("agent.db*") if path.name != "agent.db-shm"}
    core.close()
    for path, body in files.items():  # as a killed daemon leaves it
        path.write_bytes(body)
    assert (folder / "agent.db-wal").stat().st_size > 0
    return root


EVERY = 90
FIRST = {"backup": 65, "restore": 46, "copying": 46}
"""The first line of a normal run, which kills before each ninetieth line from there.

The kills then hit the critical states. A backup has written its manifest and not yet renamed its copy. A restore has
kept the old file under a second name, or a copy of it, and not yet replaced it.
"""

EACH_SIXTH = pytest.param(6, marks=pytest.mark.acceptance)
EACH_LINE = pytest.param(1, marks=pytest.mark.campaign)


@pytest.mark.parametrize("every", [EVERY, EACH_SIXTH, EACH_LINE])
@pytest.mark.parametrize(("what", "lines"), [("backup", 80), ("restore", 120), ("copying", 150)])
def test_backup_killed_at_any_point_leaves_nothing_partial_and_loses_nothing(made, what, lines, every):
    first = FIRST[what] if every == EVERY else 1
    command = ["-m", "tests.crash.backup_lives", str(made), what, str(first), str(every)]
    child = run_program(*command, timeout=10 * PATIENCE)

    assert child.returncode == 0, child.stdout + child.stderr
    assert int(child.stdout) >= lines
