"""The change counter: commits of other connections, and replaced or deleted files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import apsw
import pytest

from craftcore.errors import NotFound
from craftcore.storage.change_counter import ChangeCounter
from craftcore.testing.faulty_disk import FaultyDisk
from tests.support.trigger_steps import emit


@pytest.fixture
def counter(core):
    counter = ChangeCounter(core.database)
    yield counter
    counter.close()


def test_commit_of_another_connection_is_a_change_once(core, counter):
    assert [counter.has_changed() for _ in range(3)] == [True, False, False]
    emit(core)
    assert [counter.has_changed() for _ in range(3)] == [True, False, False]


def test_replaced_file_is_a_change_and_is_read_from_then_on(core, counter):
    path = core.database.path
    counter.has_changed()
    core.close()
    shutil.copy(path, path.with_name("copy.db"))
    path.with_name("copy.db").rename(path)

    assert [counter.has_changed() for _ in range(4)] == [True, True, False, False]
    emit(core)
    assert counter.has_changed()


def test_removed_file_is_not_found_until_put_back(core, counter):
    path = core.database.path
    counter.has_changed()
    core.close()
    for file in sorted(path.parent.glob("agent.db*")):
        file.rename(path.parent / f"away-{file.name}")

    assert counter.has_changed()
    for _ in range(2):
        with pytest.raises(NotFound):
            counter.has_changed()
    for file in path.parent.glob("away-agent.db*"):
        file.rename(path.parent / file.name.removeprefix("away-"))
    assert counter.has_changed()


class DiskThatLosesTheFile(FaultyDisk):
    """A disk on which the database is removed after the first check, while SQLite opens it."""

    def __init__(self, error: apsw.Error) -> None:
        super().__init__()
        self.error = error

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        if flags[0] & apsw.SQLITE_OPEN_MAIN_DB:
            Path(name.filename()).unlink(missing_ok=True)
            raise self.error
        return super().xOpen(name, flags)


@pytest.mark.parametrize("error", [apsw.CantOpenError("unable to open database file"), apsw.IOError("disk I/O error")])
@pytest.mark.parametrize(
    "look", [lambda database: ChangeCounter(database).has_changed(), lambda database: database.reading().__enter__()]
)
def test_file_removed_while_opening_is_not_found(core, look, error):
    core.close()
    with DiskThatLosesTheFile(error), pytest.raises(NotFound):
        look(core.database)
