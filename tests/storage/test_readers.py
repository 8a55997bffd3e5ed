"""Who reads a database is known by number, whatever it is that reads."""

from __future__ import annotations

import os

from craftcore.storage import readers
from craftcore.storage.readers import reading_pids
from tests.processes import a_reader
from tests.virtual import VirtualCore


def test_a_process_is_named_for_as_long_as_its_snapshot_is_open(tmp_path, core):
    other = VirtualCore(tmp_path / "other.db", core.clock)
    path = core.database.path
    assert reading_pids(path) == []

    with a_reader(path) as pid, a_reader(other.database.path) as elsewhere:
        assert (reading_pids(path), reading_pids(other.database.path)) == ([pid], [elsewhere])
        with core.reading() as reader:
            reader.value("SELECT count(*) FROM facts")
            assert reading_pids(path) == sorted([pid, os.getpid()])
            assert reading_pids(path) == sorted([pid, os.getpid()]), "to look takes no lock from anybody"
        link = tmp_path / "link.db"
        link.symlink_to(path)
        assert reading_pids(link) == [pid]

    assert reading_pids(path) == []
    other.close()


def test_where_the_system_does_not_say_nobody_is_named(tmp_path, core, monkeypatch):
    assert reading_pids(tmp_path / "none.db") == []
    with a_reader(core.database.path):
        monkeypatch.setattr(readers, "LOCKS", tmp_path / "no such list")
        assert reading_pids(core.database.path) == []
