"""A database file with a second name, or that is mounted alone: two daemons would each run all its work."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from craftcore import Producer
from craftcore.errors import CannotCreate
from craftcore.storage.database import Database
from craftcore.storage.files import second_names
from tests.support.trigger_steps import emit

MOUNT = "36 35 98:0 /mnt1 {} rw,noatime master:1 - ext3 /dev/root rw,errors=continue\n"
"""A line of mountinfo in the format of proc_pid_mountinfo(5)."""


def emit_to(path: Path) -> bool:
    with Producer(path) as producer:
        return producer.emit("greet").created


@pytest.mark.parametrize("name", ["agent.db", "other.db"])
def test_hard_link_of_a_database_is_refused_under_each_name(core, name):
    emit(core)
    core.close()
    other = core.database.path.with_name("other.db")
    os.link(core.database.path, other)

    with pytest.raises(CannotCreate, match=r"has 2 names \(hard links\).*find -inum .*Nothing was changed"):
        emit_to(other.with_name(name))
    other.unlink()
    assert emit_to(core.database.path)


def test_copy_and_symbolic_link_are_not_second_names(core):
    emit(core)
    core.close()
    folder = core.database.path.parent
    shutil.copy(core.database.path, folder / "copy.db")
    (folder / "link.db").symlink_to("agent.db")
    for name in ("copy.db", "link.db", "agent.db"):
        assert emit_to(folder / name)


def test_name_left_by_a_killed_restore_is_not_a_second_name(core, clock):
    emit(core)
    core.close()
    path = core.database.path
    os.link(path, path.with_name(f"{path.name}{second_names.KEPT}20260101T000000Z"))

    connection = Database(path, clock).connect()
    connection.close()


@pytest.mark.parametrize("folder", ["data", "a folder"])
def test_database_that_is_mounted_alone_is_refused_and_a_mounted_folder_is_not(tmp_path, monkeypatch, folder):
    place = tmp_path / folder
    place.mkdir()
    assert emit_to(place / "agent.db")
    mounts = tmp_path / "mountinfo"
    monkeypatch.setattr(second_names, "MOUNTS", mounts)

    mounts.write_text(MOUNT.format(str(place).replace(" ", "\\040")))
    assert emit_to(place / "agent.db")
    mounts.write_text(MOUNT.format(str(place / "agent.db").replace(" ", "\\040")))
    with pytest.raises(CannotCreate, match=r"the file is mounted alone.*mount its folder"):
        emit_to(place / "agent.db")
