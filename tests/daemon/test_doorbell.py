"""The doorbell with real processes over a real socket."""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from craftcore.daemon.doorbell import Doorbell, may_ring
from craftcore.errors import CannotCreate
from craftcore.storage.doorbell_client import DoorbellSender, doorbell_path, ring
from tests.support.processes import PATIENCE
from tests.support.warm_parent import start


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def bell(db: Path) -> Iterator[Doorbell]:
    opened = Doorbell.open(db)
    yield opened
    opened.close()


@pytest.mark.anyio
async def test_doorbell_is_rung_by_another_process(bell: Doorbell, db: Path) -> None:
    async with anyio.create_task_group() as group:
        group.start_soon(ring_in_another_process, db)
        with anyio.fail_after(PATIENCE):
            await bell.wait()


@pytest.mark.anyio
async def test_doorbell_wait_answers_all_queued_rings_at_once(bell: Doorbell, db: Path) -> None:
    for _ in range(50):
        assert ring(db)

    with anyio.fail_after(PATIENCE):
        await bell.wait()

    assert not await rings_again(bell)


@pytest.mark.anyio
async def test_doorbell_ring_before_the_wait_is_not_missed(bell: Doorbell, db: Path) -> None:
    for _ in range(20):
        ring(db)
        with anyio.fail_after(PATIENCE):
            await bell.wait()


def test_doorbell_is_private_with_any_umask(db: Path) -> None:
    umask = os.umask(0)
    try:
        bell = Doorbell.open(db)
    finally:
        os.umask(umask)

    assert stat.S_IMODE(os.stat(doorbell_path(db)).st_mode) == 0o600
    bell.close()


@pytest.mark.anyio
async def test_stale_doorbell_is_replaced(db: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(doorbell_path(db))
    bell = Doorbell.open(db)

    assert ring(db)
    with anyio.fail_after(PATIENCE):
        await bell.wait()

    bell.close()


def test_closed_doorbell_leaves_no_file(db: Path) -> None:
    Doorbell.open(db).close()

    assert not ring(db)
    assert list(db.parent.iterdir()) == []


def test_doorbell_file_removed_from_outside_is_no_error_at_close(db: Path) -> None:
    bell = Doorbell.open(db)
    os.unlink(doorbell_path(db))

    bell.close()


@pytest.mark.anyio
@pytest.mark.parametrize("name", ["agent.db", "n" * 240 + ".db"], ids=["long folder", "long folder and name"])
async def test_doorbell_path_longer_than_a_socket_address_works(tmp_path: Path, name: str) -> None:
    folder = tmp_path / ("d" * 200) / ("e" * 200)
    folder.mkdir(parents=True)
    bell = Doorbell.open(folder / name)

    assert ring(folder / name)
    with anyio.fail_after(PATIENCE):
        await bell.wait()

    bell.close()
    assert list(folder.iterdir()) == []


def test_doorbell_in_a_missing_folder_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotCreate, match=r"cannot make the doorbell .*agent\.db\.bell: No such file"):
        Doorbell.open(tmp_path / "missing" / "agent.db")


def test_doorbell_accepts_rings_from_the_owner_and_root_only() -> None:
    assert may_ring(1000, owner=1000)
    assert may_ring(0, owner=1000)
    assert not may_ring(1001, owner=1000)
    assert not may_ring(1000, owner=0)
    assert not may_ring(None, owner=1000)


@pytest.mark.anyio
@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
async def test_doorbell_ring_from_another_user_is_ignored_and_counted(bell: Doorbell, db: Path) -> None:
    sender_code = "import os, socket, sys\ns = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)\n"
    sender_code += "s.connect(sys.argv[1])\nos.setuid(65534)\ns.send(b'x')"
    with start(["-c", sender_code, doorbell_path(db)]) as process:
        assert await anyio.to_thread.run_sync(process.wait, PATIENCE) == 0

    assert not await rings_again(bell)

    ring(db)  # arrives after the ring of the other user, which is processed by then
    with anyio.fail_after(PATIENCE):
        await bell.wait()
    assert bell.ignored == 1


@pytest.mark.anyio
async def test_descriptors_sent_along_are_not_taken(bell: Doorbell, db: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.connect(doorbell_path(db))
        socket.send_fds(sender, [b"x"], [0, 1, 2])

    with anyio.fail_after(PATIENCE):
        await bell.wait()

    with anyio.move_on_after(0):
        await anyio.sleep_forever()
    assert len(os.listdir("/proc/self/fd")) <= before + 2  # descriptors of the event loop


async def ring_in_another_process(db: Path) -> None:
    code = "import sys; from craftcore.storage.doorbell_client import ring; sys.exit(not ring(sys.argv[1]))"
    with start(["-c", code, db]) as process:
        assert await anyio.to_thread.run_sync(process.wait, PATIENCE) == 0


async def rings_again(bell: Doorbell) -> bool:
    with anyio.move_on_after(0.05):
        await bell.wait()
        return True
    return False


def test_doorbell_sender_shared_by_threads_has_a_single_socket(db: Path) -> None:
    """A second socket would be left to the garbage collector, with a warning that is an error in tests."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(100):
            sender, barrier = DoorbellSender(), threading.Barrier(4)
            sockets: list[socket.socket] = []

            def ring(sender: DoorbellSender, barrier: threading.Barrier, sockets: list[socket.socket]) -> None:
                barrier.wait()
                sender.ring(str(db))
                assert sender._socket is not None
                sockets.append(sender._socket)

            threads = [threading.Thread(target=ring, args=(sender, barrier, sockets)) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert len(sockets) == 4
            assert len(set(map(id, sockets))) == 1
            sender.close()
    finally:
        sys.setswitchinterval(interval)
