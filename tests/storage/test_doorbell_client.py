"""Rings of the doorbell by a producer, which never block, with or without a daemon."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from craftcore.storage.doorbell_client import SUN_PATH_MAX, address, doorbell_path, ring


def test_ring_without_a_doorbell_reaches_no_daemon(tmp_path: Path) -> None:
    assert not ring(tmp_path / "agent.db")


def test_ring_at_a_stale_doorbell_reaches_no_daemon(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as dead:
        dead.bind(doorbell_path(tmp_path / "agent.db"))

    assert not ring(tmp_path / "agent.db")


@pytest.mark.parametrize("path", ["", "a\0b", "\ud800", "/dev/null/agent.db", "x" * 5000])
def test_ring_with_an_impossible_path_is_no_error(path: str) -> None:
    assert not ring(path)


def test_ring_at_a_plain_file_is_no_error(tmp_path: Path) -> None:
    Path(doorbell_path(tmp_path / "agent.db")).write_text("not a socket")

    assert not ring(tmp_path / "agent.db")


def test_full_doorbell_counts_as_ringing_and_never_blocks(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as bell:
        bell.bind(doorbell_path(tmp_path / "agent.db"))
        rings = [ring(tmp_path / "agent.db") for _ in range(3000)]

        queued = 0
        while has_received(bell):
            queued += 1

    assert all(rings)
    assert queued < 3000


def test_two_links_to_a_database_share_a_doorbell(tmp_path: Path) -> None:
    (tmp_path / "link.db").symlink_to(tmp_path / "agent.db")

    assert doorbell_path(tmp_path / "link.db") == doorbell_path(tmp_path / "agent.db")


def test_long_socket_path_gets_an_alias_and_a_short_path_does_not(tmp_path: Path) -> None:
    long = tmp_path / ("d" * 120)
    long.mkdir()

    with address("/run/agent.db.bell") as short, address(str(long), "bell") as alias:
        assert short == "/run/agent.db.bell"
        assert len(alias) <= SUN_PATH_MAX
        Path(alias).touch()

    assert (long / "bell").exists()


def has_received(bell: socket.socket) -> bool:
    try:
        bell.recv(1)
    except BlockingIOError:
        return False
    return True
