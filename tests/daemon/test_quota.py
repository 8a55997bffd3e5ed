"""A daemon under a real quota: its database is in a btrfs subvolume with a limit, on a loop device."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.backups import ask
from tests.support.processes import Result, a_daemon, craftcore, read_trace, until

IMAGE_BYTES, QUOTA_BYTES = 256 << 20, 4 << 20

APP = """
from craftcore import App, TaskContext

app = App()

@app.action("pay", irreversible=True)
async def pay(call, *, number: int) -> int:
    with open("trace", "a") as file:
        file.write(f"{number}\\n")
    return number

@app.workflow("buy")
async def buy(ctx: TaskContext, number: int) -> int:
    return await ctx.act(pay, number=number)
"""


def run(*command: str) -> None:
    """Run a system tool. Skip the test when the tool is missing or refused."""
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip(f"{command[0]} is not here (Debian: btrfs-progs)")
    if done.returncode != 0:
        pytest.skip(f"{' '.join(command)}: {done.stderr.strip()}")


@pytest.fixture
def limited(tmp_path: Path) -> Iterator[Path]:
    """Yield a directory with a quota of QUOTA_BYTES."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a file system")
    image, mounted = tmp_path / "image", tmp_path / "mounted"
    image.touch()
    os.truncate(image, IMAGE_BYTES)
    mounted.mkdir()
    run("mkfs.btrfs", "-q", str(image))
    run("mount", "-o", "loop", str(image), str(mounted))
    try:
        run("btrfs", "quota", "enable", str(mounted))
        run("btrfs", "subvolume", "create", str(mounted / "limited"))
        run("btrfs", "qgroup", "limit", str(QUOTA_BYTES), str(mounted / "limited"))
        yield mounted / "limited"
    finally:
        subprocess.run(["umount", str(mounted)], check=True)


@pytest.fixture
def folder(tmp_path: Path, limited: Path) -> Path:
    """Return a home folder in which only the database is under the quota."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "app.py").write_text(APP)
    assert craftcore(home, "--db", str(limited / "agent.db"), "emit", "buy", "--payload", '{"number": 0}').code == 0
    (home / "agent.db").symlink_to(limited / "agent.db")
    return home


def fill_quota(limited: Path) -> Path:
    """Fill the rest of the quota and return the file that fills it."""
    filler = limited / "filler"
    with filler.open("wb", buffering=0) as file:
        for piece in (1 << 16, 1 << 12):
            with pytest.raises(OSError, match="quota") as refused:
                while True:
                    file.write(bytes(piece))
                    os.fsync(file.fileno())
            assert refused.value.errno == errno.EDQUOT
    return filler


def buy(folder: Path, number: int) -> Result:
    return craftcore(folder, "emit", "buy", "--payload", f'{{"number": {number}}}')


def test_spent_quota_is_reported_by_emit_and_a_start_waits_for_space(folder, limited):
    filler = fill_quota(limited)
    refused = buy(folder, 1)
    with a_daemon(folder, "app:app") as daemon:
        status = daemon.wait_for_notification("STATUS=disk full, cannot start")
        filler.unlink()
        run("btrfs", "filesystem", "sync", str(limited))
        daemon.ready()
        accepted = buy(folder, 2)
        until(lambda: read_trace(folder) == ["0", "2"], "the accepted work to run")
        daemon.signal(signal.SIGTERM)

        assert daemon.wait() == 0, daemon.log

    assert (refused.code, accepted.code) == (74, 0)
    assert "the disk quota is spent; nothing was written" in refused.err
    assert "quota is spent" in status
    assert ask(limited / "agent.db", "SELECT status, count(*) FROM activity_log GROUP BY 1") == [("DONE", 2)]
    assert craftcore(folder, "db", "check").code == 0
