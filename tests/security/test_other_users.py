"""Attacks by another user who renames files before each line of craftcore, in a folder that root writes to."""

from __future__ import annotations

import os
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from craftcore.cli.main import main as craftcore
from craftcore.daemon import lock, lock_file
from craftcore.errors import CraftcoreError, PermissionRefused
from craftcore.storage.backup import backup, restore, staging_file
from craftcore.storage.backup.manifest import manifest_path
from craftcore.storage.files import file_modes, whole_file
from tests.support.backups import ask, emit, rotate, set_database_id, take_backup
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.other_users import NOBODY, a_shared_folder, as_other_user, as_root

pytestmark = as_root

WATCHED_FILES = {module.__file__ for module in (backup, staging_file, lock, lock_file, file_modes, restore, whole_file)}
CREATED_NAMES = (".craftcore-", "agent.db.lock", "agent.db-wal", "agent.db-shm")

Attack = Callable[[Path, Path], None]


@pytest.fixture
def shared() -> Iterator[Path]:
    with a_shared_folder() as place:
        yield place


STEP = 4
"""Each attack runs before every fourth line, with its own offset; together they cover all. The default runs fewer."""

ALL_LINES = pytest.param(STEP, id="all lines", marks=pytest.mark.acceptance)


def attack_before_line(number: int, attack: Callable[[], None], work: Callable[[], object]) -> bool:
    """Run `work`, with the attack before a line of the watched modules. Return whether that line was reached."""
    lines_left = number

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines_left
        if frame.f_code.co_filename not in WATCHED_FILES:
            return None
        if event == "line":
            lines_left -= 1
            if lines_left == 0:
                with as_other_user():
                    attack()
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(None)
    return lines_left <= 0


def replace_by_links(folder: Path, link: Callable[[Path], None]) -> None:
    """Replace each new file of craftcore in a folder by a link."""
    for name in os.listdir(folder):
        if name.startswith(CREATED_NAMES) and not (folder / name).is_symlink():
            os.rename(folder / name, folder / f"moved-{name}")
            link(folder / name)


def link_to_directory(victim: Path, name: Path) -> None:
    name.symlink_to(victim, target_is_directory=True)


def link_to_file(victim: Path, name: Path) -> None:
    name.symlink_to(victim / "shadow")


def link_to_missing_file(victim: Path, name: Path) -> None:
    name.symlink_to(victim / "new")


def create_own_directory(victim: Path, name: Path) -> None:
    name.mkdir(mode=0o777)
    name.chmod(0o777)
    for side in ("", "-wal", "-shm"):
        (name / f"{staging_file.NAME}{side}").touch(0o666)


def create_victim(shared: Path) -> Path:
    """Create a directory of root with files that other users may not change."""
    victim = shared / "victim"
    victim.mkdir()
    for name, mode in ((staging_file.NAME, 0o644), ("shadow", 0o640)):
        (victim / name).write_bytes(b"")
        (victim / name).chmod(mode)
    return victim


def state(folder: Path) -> dict[str, tuple[int, int, int, bytes]]:
    found = {}
    for path in folder.iterdir():
        at = path.lstat()
        found[path.name] = at.st_mode, at.st_uid, at.st_ino, path.read_bytes()
    return found


def leaked_files(folder: Path) -> list[str]:
    """Return the files of the other user that are not empty, so that the user can read what root wrote."""
    return [
        str(path)
        for path in folder.rglob("*")
        if not path.is_symlink() and path.is_file() and path.stat().st_uid == NOBODY and path.stat().st_size
    ]


ATTACKS = [link_to_directory, link_to_file, link_to_missing_file, create_own_directory]
DEFAULT_ATTACKS = [*ATTACKS[:2], *(pytest.param(attack, marks=pytest.mark.acceptance) for attack in ATTACKS[2:])]


@pytest.mark.parametrize("step", [pytest.param(2 * STEP, id="a half"), ALL_LINES])
@pytest.mark.parametrize("attack", DEFAULT_ATTACKS, ids=lambda attack: attack.__name__)
def test_backup_into_a_foreign_folder_writes_nowhere_else(tmp_path, shared, attack, step):
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    emit(core)
    victim = create_victim(shared)
    before = state(victim)
    made = 0
    folder = shared / "theirs"
    target = folder / "backup.db"

    for number in count(1 + ATTACKS.index(attack) * step // STEP, step):
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        reached = True
        try:
            reached = attack_before_line(
                number,
                lambda: replace_by_links(folder, lambda name: attack(victim, name)),
                lambda: take_backup(core.database, target),
            )
        except CraftcoreError:
            pass
        else:
            made += 1
            assert ask(target, "PRAGMA integrity_check") == [("ok",)], number
            assert (target.lstat().st_uid, stat.S_IMODE(target.lstat().st_mode)) == (0, 0o600)
            assert (target.with_name("backup.db.manifest.json").lstat().st_uid) == 0
        assert state(victim) == before, f"before line {number}"
        assert leaked_files(folder) == [], f"before line {number}"
        shutil.rmtree(folder)
        if not reached:
            break

    assert number > 80
    assert 0 < made < number // step, "some attacks have no effect, and the others are refused"
    core.close()


@pytest.mark.parametrize("step", [pytest.param(5 * STEP, id="a fifth"), ALL_LINES])
@pytest.mark.parametrize("attack", DEFAULT_ATTACKS, ids=lambda attack: attack.__name__)
def test_restore_into_a_foreign_folder_writes_nowhere_else(tmp_path, shared, attack, step, capsys):
    """The user of the daemon is hostile, and root replaces its database by a backup."""
    made = tmp_path / "made"
    made.mkdir()
    core = VirtualCore(made / "agent.db", VirtualClock())
    set_database_id(core.database, "this-one")
    take_backup(core.database, tmp_path / "backup.db")
    core.close()
    victim = create_victim(shared)
    before = state(victim)
    restored = 0
    folder = shared / "theirs"
    arguments = ["--db", str(folder / "agent.db"), "db", "restore", str(tmp_path / "backup.db"), "--yes"]
    code: list[int] = []

    for number in count(1 + ATTACKS.index(attack) * step // STEP, step):
        code.clear()
        shutil.copytree(made, folder)
        for path in (folder, *folder.iterdir()):
            os.chown(path, NOBODY, NOBODY)
        reached = attack_before_line(
            number,
            lambda: replace_by_links(folder, lambda name: attack(victim, name)),
            lambda: code.append(craftcore(arguments)),
        )
        restored += code == [0]
        assert code[0] in (0, 64, 65, 73, 74, 75, 77), (number, code, capsys.readouterr().err)
        assert state(victim) == before, f"before line {number}"
        shutil.rmtree(folder)
        if not reached:
            break

    assert number > 150
    assert 0 < restored < number // step


@pytest.mark.parametrize(("mode", "refused"), [(0o777, True), (0o1777, False), (0o775, True), (0o755, False)])
def test_backup_is_refused_where_others_may_rename_the_file(core, shared, mode, refused):
    folder = shared / "backups"
    folder.mkdir()
    os.chown(folder, -1, NOBODY)
    folder.chmod(mode)
    emit(core)

    if refused:
        with pytest.raises(PermissionRefused, match=f"mode {mode:o}.*chmod go-w") as error:
            take_backup(core.database, folder / "backup.db")
        assert error.value.exit_code == 77
        assert os.listdir(folder) == []
    else:
        take_backup(core.database, folder / "backup.db")
        assert ask(folder / "backup.db", "PRAGMA integrity_check") == [("ok",)]


def test_folder_writable_by_the_own_group_is_accepted(core, shared):
    """Distributions create such folders if each user has a group of the same name."""
    shared.chmod(0o775)
    emit(core)

    take_backup(core.database, shared / "backup.db")

    assert (shared / "backup.db").exists()


def test_foreign_backups_remove_none_of_the_own(core, shared, clock):
    """In a folder with the sticky bit, another user adds newer backups, so that the rotation removes older ones."""
    shared.chmod(0o1777)
    set_database_id(core.database, "this-one")
    own, _ = rotate(core.database, shared, 2)
    clock.advance(60)
    forged, _ = rotate(core.database, shared, 2)
    for path in (forged, manifest_path(forged)):
        os.chown(path, NOBODY, NOBODY)
    clock.advance(60)

    _, gone = rotate(core.database, shared, 2)

    assert gone == []
    assert own.exists()


@pytest.mark.parametrize("end", ["-wal", "-shm", ""])
@pytest.mark.parametrize("kind", ["a link", "a second name"])
def test_mode_of_another_file_is_not_changed_through_a_craftcore_name(shared, clock, end, kind):
    """A user links a file of root beside the database, and root runs a command there."""
    path = shared / "agent.db"
    core = VirtualCore(path, clock)
    core.close()
    victim = shared / "passwd"
    victim.write_bytes(b"")
    victim.chmod(0o644)
    name = path.with_name(f"agent.db{end}")
    name.unlink(missing_ok=True)
    if kind == "a link":
        name.symlink_to(victim)
    else:
        os.link(victim, name)

    if end == "" and kind == "a link":
        file_modes.close_to_others(str(path))
    else:
        file_modes.close_to_others(os.path.realpath(path))

    assert stat.S_IMODE(victim.stat().st_mode) == 0o644


def test_foreign_file_keeps_its_mode(shared):
    foreign = shared / "agent.db"
    foreign.touch(0o644)
    os.chown(foreign, NOBODY, NOBODY)

    file_modes.close_to_others(str(foreign))

    assert stat.S_IMODE(foreign.stat().st_mode) == 0o644
    os.chown(foreign, 0, 0)
    file_modes.close_to_others(str(foreign))
    assert stat.S_IMODE(foreign.stat().st_mode) == 0o600
