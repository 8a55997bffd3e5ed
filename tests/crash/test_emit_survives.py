"""Processes killed right after emit returned: every accepted trigger is on disk."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.crash.crews import run_program
from tests.support.processes import PATIENCE


def emitters(folder: Path, door: str, kills: int) -> None:
    child = run_program("-m", "tests.crash.emitter", str(folder), door, str(kills), timeout=10 * PATIENCE)
    assert child.returncode == 0, child.stdout + child.stderr


DOORS = [
    *(("producer", 20), ("asyncio", 10), ("trio", 10)),
    *(
        pytest.param(door, kills, marks=pytest.mark.campaign)
        for door, kills in (("producer", 200), ("asyncio", 100), ("trio", 100))
    ),
]


@pytest.mark.parametrize(("door", "kills"), DOORS)
def test_process_killed_right_after_emit_has_lost_nothing(tmp_path, door, kills):
    emitters(tmp_path, door, kills)

    accepted = (tmp_path / "accepted").read_text().split()
    connection = apsw.Connection(str(tmp_path / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
    present = {id for (id,) in connection.execute("SELECT id FROM triggers")}
    intact = connection.pragma("integrity_check")
    connection.close()
    assert len(accepted) == len(set(accepted)) == kills
    assert set(accepted) <= present
    assert intact == "ok"


@pytest.mark.parametrize("files", [20, pytest.param(60, marks=pytest.mark.campaign)])
def test_database_of_a_process_killed_during_creation_can_be_used(tmp_path, files):
    emitters(tmp_path, "create", files)

    schemas = set()
    for number in range(files):
        connection = apsw.Connection(str(tmp_path / str(number) / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
        assert connection.pragma("integrity_check") == "ok"
        assert connection.pragma("journal_mode") == "wal"
        schemas.add(tuple(connection.execute("SELECT name FROM sqlite_schema ORDER BY name").fetchall()))
        accepted = tmp_path / str(number) / "accepted"
        ids = {id for (id,) in connection.execute("SELECT id FROM triggers")}
        assert set(accepted.read_text().split() if accepted.exists() else []) <= ids
        connection.close()
    assert len(schemas) == 1
