"""Atomic file writes: readers see the whole file, also when the writer is killed."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from craftcore.errors import CannotCreate, PermissionRefused, StorageError
from craftcore.storage.files.whole_file import write_whole
from tests.support.other_users import a_shared_folder, as_other_user, as_root
from tests.support.processes import a_program, until

WRITER = """
import sys
from pathlib import Path
from typing import Any
from craftcore.storage.files.whole_file import write_whole

for number in range(1_000_000):
    write_whole(Path("record.json"), bytes([97 + number % 26]) * (1 << 20))
"""


def test_file_is_written_private_and_leaves_no_other_file(tmp_path):
    os.umask(before := os.umask(0))
    try:
        write_whole(tmp_path / "record.json", b"{}\n")
    finally:
        os.umask(before)

    assert (tmp_path / "record.json").read_bytes() == b"{}\n"
    assert stat.S_IMODE((tmp_path / "record.json").stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["record.json"]


def test_open_old_file_stays_whole_after_a_replacement(tmp_path):
    path = tmp_path / "record.json"
    write_whole(path, b"old")
    with path.open("rb") as reader:
        write_whole(path, b"new and longer")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new and longer"


@pytest.mark.parametrize("link_target", ["to a file", "nowhere"])
def test_link_is_refused_and_its_target_neither_created_nor_changed(tmp_path, link_target):
    target = tmp_path / "target"
    if link_target == "to a file":
        target.write_bytes(b"foreign")
    (tmp_path / "link.json").symlink_to(target)

    with pytest.raises(CannotCreate, match="is a symbolic link"):
        write_whole(tmp_path / "link.json", b"{}")

    assert (tmp_path / "link.json").is_symlink()
    assert (target.read_bytes() if target.exists() else None) == (b"foreign" if link_target == "to a file" else None)
    assert sorted(os.listdir(tmp_path)) == sorted(["link.json", *(["target"] if target.exists() else [])])


def test_file_with_a_second_name_is_refused(tmp_path):
    (tmp_path / "foreign").write_bytes(b"foreign")
    os.link(tmp_path / "foreign", tmp_path / "record.json")

    with pytest.raises(CannotCreate, match="hard links"):
        write_whole(tmp_path / "record.json", b"{}")

    assert (tmp_path / "foreign").read_bytes() == (tmp_path / "record.json").read_bytes() == b"foreign"


@as_root
def test_file_of_another_user_is_refused():
    """The file of another user is in a folder with the sticky bit, which every user may write to."""
    with a_shared_folder() as shared:
        shared.chmod(0o1777)
        path = shared / "record.json"
        path.write_bytes(b"foreign")
        path.chmod(0o666)
        with as_other_user(), pytest.raises(PermissionRefused, match="belongs to user id 0"):
            write_whole(path, b"{}")

        assert path.read_bytes() == b"foreign"


def test_foreign_file_created_during_the_rename_is_reported(tmp_path, monkeypatch):
    """Another user with write access to the folder creates a file during the rename."""
    real = os.replace

    def replace_and_interfere(*args: Any, **kwargs: Any) -> None:
        real(*args, **kwargs)
        (tmp_path / "record.json").unlink()
        (tmp_path / "record.json").write_bytes(b"foreign")

    monkeypatch.setattr(os, "replace", replace_and_interfere)

    with pytest.raises(StorageError, match="something else"):
        write_whole(tmp_path / "record.json", b"{}")


@pytest.mark.parametrize("round", range(3))
def test_reader_always_sees_a_whole_file_even_when_the_writer_is_killed(tmp_path, round):
    path = tmp_path / "record.json"

    def is_whole() -> bool:
        body = path.read_bytes()
        return len(body) == 1 << 20 and body == body[:1] * len(body)

    with a_program([sys.executable, "-c", WRITER], tmp_path, PYTHONPATH=os.pathsep.join(sys.path)) as writer:
        until(path.exists, "the first file")
        seen: set[bytes] = set()
        while len(seen) < 5 + round:
            assert is_whole()
            seen.add(path.read_bytes()[:1])
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        assert is_whole()
    left = [name for name in os.listdir(tmp_path) if name != "record.json"]
    assert all(name.startswith(".craftcore-") for name in left)
    assert len(left) <= 1


def test_missing_folder_is_not_created(tmp_path):
    with pytest.raises(CannotCreate, match="No such file or directory"):
        write_whole(tmp_path / "nowhere" / "record.json", b"{}")
    assert os.listdir(tmp_path) == []


def test_special_file_is_left_alone(tmp_path):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "folder", tmp_path / "pipe", Path("/dev/null")):
        before = path.stat().st_mode, path.stat().st_ino
        with pytest.raises(CannotCreate, match="something else than a regular file"):
            write_whole(path, b"{}")
        assert (path.stat().st_mode, path.stat().st_ino) == before
    assert sorted(os.listdir(tmp_path)) == ["folder", "pipe"]


FULL = """
import resource, signal, sys
from pathlib import Path
from typing import Any
from craftcore.errors import CraftcoreError
from craftcore.storage.files.whole_file import write_whole

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    write_whole(Path("record.json"), b"x" * 100_000)
except CraftcoreError as error:
    print(type(error).__name__)
"""


def test_file_without_space_keeps_the_old_content_and_no_part(tmp_path):
    write_whole(tmp_path / "record.json", b"old")

    ran = subprocess.run(
        [sys.executable, "-c", FULL],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=120,
    )

    assert ran.stdout.strip() == "StorageFull", ran
    assert (tmp_path / "record.json").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["record.json"]
