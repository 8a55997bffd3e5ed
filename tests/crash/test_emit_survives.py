"""Processes killed right after emit returned: every accepted trigger is on disk."""

from __future__ import annotations

import apsw
import pytest

from tests.crash.after_emit import kill_after_emits, run_emitters

KILLS = [
    *(("producer", 20), ("asyncio", 10), ("trio", 10)),
    *(
        pytest.param(way, kills, marks=pytest.mark.campaign)
        for way, kills in (("producer", 200), ("asyncio", 100), ("trio", 100))
    ),
]


@pytest.mark.parametrize(("way", "kills"), KILLS)
def test_process_killed_right_after_emit_has_lost_nothing(tmp_path, way, kills):
    found = kill_after_emits(tmp_path, way, kills)

    assert len(found.accepted) == len(set(found.accepted)) == kills
    assert found.lost == set()
    assert found.damage is None


@pytest.mark.parametrize("files", [10, pytest.param(60, marks=pytest.mark.campaign)])
def test_database_of_a_process_killed_during_creation_can_be_used(tmp_path, files):
    run_emitters(tmp_path, "create", files)

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
