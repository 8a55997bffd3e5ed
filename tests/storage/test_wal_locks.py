"""Process ids of the readers and writers of a database."""

from __future__ import annotations

import os

from craftcore.storage.files import wal_locks
from craftcore.storage.files.wal_locks import list_wal_locks
from tests.support.fakes import VirtualCore
from tests.support.processes import a_reader


def test_reader_process_is_named_while_its_snapshot_is_open(tmp_path, core):
    other = VirtualCore(tmp_path / "other.db", core.clock)
    path = core.database.path
    assert list_wal_locks(path).readers == []

    with a_reader(path) as pid, a_reader(other.database.path) as other_pid:
        assert (list_wal_locks(path).readers, list_wal_locks(other.database.path).readers) == ([pid], [other_pid])
        with core.reading() as reader:
            reader.fetch_value("SELECT count(*) FROM facts")
            assert list_wal_locks(path).readers == sorted([pid, os.getpid()])
            assert list_wal_locks(path).readers == sorted([pid, os.getpid()]), "the check drops no lock"
        link = tmp_path / "link.db"
        link.symlink_to(path)
        assert list_wal_locks(link).readers == [pid]

    assert list_wal_locks(path).readers == []
    other.close()


def test_writer_process_is_named_while_its_transaction_is_open(core):
    path = core.database.path
    with core.reading() as reader:
        reader.fetch_value("SELECT count(*) FROM facts")
        assert list_wal_locks(path).writer is None

    with core.transaction():
        assert (list_wal_locks(path).writer, list_wal_locks(path.with_name("other.db")).writer) == (os.getpid(), None)

    assert list_wal_locks(path).writer is None


def test_lock_owner_is_unknown_where_the_system_does_not_tell(tmp_path, core, monkeypatch):
    assert list_wal_locks(tmp_path / "none.db").readers == []
    with a_reader(core.database.path):
        monkeypatch.setattr(wal_locks, "LOCKS", tmp_path / "no such list")
        assert list_wal_locks(core.database.path).readers == []
