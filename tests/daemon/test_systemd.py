"""Notifications to systemd, over a real datagram socket."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from craftcore.daemon.sd_notify import STATUS_MAX_CHARACTERS, Notifier
from tests.support.processes import PATIENCE
from tests.support.warm_parent import start


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Yield the socket of the service manager."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        listening.bind(str(tmp_path / "notify"))
        listening.settimeout(PATIENCE)
        yield listening


def notifier(manager: socket.socket, **environ: str) -> Notifier:
    return Notifier.from_environment({"NOTIFY_SOCKET": manager.getsockname(), **environ})


def receive(manager: socket.socket) -> str:
    return manager.recv(4096).decode()


def test_notification_is_a_single_datagram(manager: socket.socket) -> None:
    systemd = notifier(manager)

    assert systemd.notify_ready("3 pending")
    assert receive(manager) == "READY=1\nSTATUS=3 pending"
    assert systemd.notify_status("idle")
    assert receive(manager) == "STATUS=idle"
    assert systemd.notify_watchdog()
    assert receive(manager) == "WATCHDOG=1"
    assert systemd.notify_stopping("draining")
    assert receive(manager) == "STOPPING=1\nSTATUS=draining"
    assert systemd.notify_reloading()
    assert re.fullmatch(r"RELOADING=1\nMONOTONIC_USEC=\d+", receive(manager))


def test_notification_to_an_abstract_socket_arrives() -> None:
    name = f"craftcore-test-{uuid4()}"  # containers may share abstract names and pids
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{name}")
        manager.settimeout(PATIENCE)
        systemd = Notifier.from_environment({"NOTIFY_SOCKET": f"@{name}"})

        assert systemd.notify_watchdog()
        assert receive(manager) == "WATCHDOG=1"


@pytest.mark.parametrize(
    "address", ["", "/no/such/socket", "vsock:2:1234", "relative", "@absent", "/" + "x" * 200, "/a\0b"]
)
def test_notification_without_a_manager_is_harmless(address: str) -> None:
    systemd = Notifier.from_environment({"NOTIFY_SOCKET": address} if address else {})

    results = [
        systemd.notify_ready("up"),
        systemd.notify_status("up"),
        systemd.notify_watchdog(),
        systemd.notify_reloading(),
        systemd.notify_stopping(),
    ]

    assert results == [False] * 5


def test_notification_to_a_manager_that_does_not_read_does_not_block(manager: socket.socket) -> None:
    systemd = notifier(manager)

    while systemd.notify_watchdog():
        pass

    assert not systemd.notify_status("not received")


def test_notification_status_is_a_bounded_line_and_never_an_assignment(manager: socket.socket) -> None:
    systemd = notifier(manager)

    systemd.notify_status("bad\nMAINPID=1\r\x1b[31m\u2028\ud800")
    assert receive(manager) == "STATUS=bad MAINPID=1  [31m  "
    systemd.notify_status("é" * 10_000)
    assert receive(manager) == "STATUS=" + "é" * STATUS_MAX_CHARACTERS


@pytest.mark.parametrize(
    ("variables", "seconds"),
    [
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": str(os.getpid())}, 30.0),
        ({"WATCHDOG_USEC": "500000"}, 0.5),
        ({"WATCHDOG_USEC": "30000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "-5"}, None),
        ({"WATCHDOG_USEC": "²"}, None),
        ({}, None),
    ],
)
def test_watchdog_interval_applies_only_to_this_process(
    manager: socket.socket, variables: dict[str, str], seconds: float | None
) -> None:
    assert notifier(manager, **variables).watchdog_seconds == seconds


def test_watchdog_is_off_for_a_daemon_that_cannot_respond() -> None:
    assert Notifier.from_environment({"WATCHDOG_USEC": "30000000"}).watchdog_seconds is None


def test_subprocess_does_not_inherit_the_notification_socket(manager: socket.socket) -> None:
    code = """if True:
        import os, subprocess, sys
        from craftcore.daemon.sd_notify import Notifier
        Notifier.from_environment(os.environ).notify_ready("up")
        sys.exit(subprocess.run(["sh", "-c", 'test -z "$NOTIFY_SOCKET$WATCHDOG_USEC$WATCHDOG_PID"']).returncode)
    """
    variables = {"NOTIFY_SOCKET": str(manager.getsockname()), "WATCHDOG_USEC": "1000000", "WATCHDOG_PID": "1"}

    with start(["-c", code], env=os.environ | variables) as process:
        assert process.wait(PATIENCE) == 0

    assert receive(manager) == "READY=1\nSTATUS=up"
