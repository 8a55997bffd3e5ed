"""Process ids of the readers and writers of a database."""

from __future__ import annotations

import os

from craftcore.storage.files import wal_locks
from craftcore.storage.files.wal_locks import reader_pids, writer_pid
from tests.support.fakes import VirtualCore
from tests.support.processes import a_reader


def test_reader_process_is_named_while_its_snapshot_is_open(tmp_path, core):
    other = VirtualCore(tmp_path / "other.db", core.clock)
    path = core.database.path
    assert reader_pids(path) == []

    with a_reader(path) as pid, a_reader(other.database.path) as other_pid:
        assert (reader_pids(path), reader_pids(other.database.path)) == ([pid], [other_pid])
        with core.reading() as reader:
            reader.fetch_value("SELECT count(*) FROM facts")
            assert reader_pids(path) == sorted([pid, os.getpid()])
            assert reader_pids(path) == sorted([pid, os.getpid()]), "the check drops no lock"
        link = tmp_path / "link.db"
        link.symlink_to(path)
        assert reader_pids(link) == [pid]

    assert reader_pids(path) == []
    other.close()


def test_writer_process_is_named_while_its_transaction_is_open(core):
    path = core.database.path
    with core.reading() as reader:
        reader.fetch_value("SELECT count(*) FROM facts")
        assert writer_pid(path) is None

    with core.transaction():
        assert (writer_pid(path), writer_pid(path.with_name("other.db"))) == (os.getpid(), None)

    assert writer_pid(path) is None


def test_lock_owner_is_unknown_where_the_system_does_not_tell(tmp_path, core, monkeypatch):
    assert reader_pids(tmp_path / "none.db") == []
    with a_reader(core.database.path):
        monkeypatch.setattr(wal_locks, "LOCKS", tmp_path / "no such list")
        assert reader_pids(core.database.path) == []
