"""The watchdog of systemd: the daemon sends pings only while the engine makes progress."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from craftcore.daemon.sd_notify import Notifier
from craftcore.daemon.watchdog import watchdog
from tests.support.log_capture import capture_logs
from tests.support.processes import PATIENCE


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


class Manager:
    """The service manager's end of the socket."""

    def __init__(self, listening: socket.socket) -> None:
        self._listening = listening

    def notifier(self, interval: float) -> Notifier:
        microseconds = str(int(interval * 1e6))
        return Notifier.from_environment(
            {"NOTIFY_SOCKET": self._listening.getsockname(), "WATCHDOG_USEC": microseconds}
        )

    async def ping(self) -> None:
        with anyio.fail_after(PATIENCE):
            await anyio.wait_readable(self._listening)
        assert self._listening.recv(100) == b"WATCHDOG=1"

    def is_quiet(self) -> bool:
        try:
            self._listening.recv(100)
        except BlockingIOError:
            return True
        return False


@pytest.fixture
async def manager(tmp_path: Path) -> AsyncIterator[Manager]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as listening:
        listening.bind(str(tmp_path / "notify"))
        yield Manager(listening)


def waits_never() -> bool:
    """Return that the writer waits for no other process."""
    return False


async def succeeds() -> None:
    await anyio.lowlevel.checkpoint()


@pytest.mark.anyio
async def test_ping_follows_each_round_trip(manager: Manager) -> None:
    trips = 0

    async def round_trip() -> None:
        nonlocal trips
        trips += 1

    async with anyio.create_task_group() as group:
        group.start_soon(watchdog, manager.notifier(0.05), round_trip, waits_never)
        for pings in range(1, 6):
            await manager.ping()
            assert trips >= pings
        group.cancel_scope.cancel()


@pytest.mark.anyio
async def test_ping_is_sent_twice_per_interval(manager: Manager) -> None:
    began = anyio.current_time()
    async with anyio.create_task_group() as group:
        group.start_soon(watchdog, manager.notifier(0.2), succeeds, waits_never)
        for _ in range(3):  # at 0, 0.1 and 0.2 seconds
            await manager.ping()
        group.cancel_scope.cancel()

    assert anyio.current_time() - began >= 0.19


@pytest.mark.anyio
async def test_hanging_round_trip_is_logged_and_not_followed_by_a_ping(manager: Manager) -> None:
    hung = anyio.Event()

    async def round_trip() -> None:
        hung.set()
        await anyio.sleep_forever()

    with capture_logs() as logs:
        async with anyio.create_task_group() as group:
            group.start_soon(watchdog, manager.notifier(0.05), round_trip, waits_never)
            await hung.wait()
            await wait_for_log(logs)
            group.cancel_scope.cancel()

    assert [line["event"] for line in logs] == ["watchdog.stuck"]
    assert manager.is_quiet()


@pytest.mark.anyio
async def test_round_trip_that_waits_for_another_process_is_logged_once_and_pinged(
    manager: Manager,
) -> None:
    waits = True

    with capture_logs() as logs:
        async with anyio.create_task_group() as group:
            group.start_soon(watchdog, manager.notifier(0.05), anyio.sleep_forever, lambda: waits)
            for _ in range(5):
                await manager.ping()
            waits = False
            while len(logs) < 2:  # noqa: ASYNC110 - a log has no event to wait on
                await anyio.sleep(0.005)
            while not manager.is_quiet():
                continue
            await anyio.sleep(0.1)
            group.cancel_scope.cancel()

    assert [line["event"] for line in logs] == ["watchdog.waiting", "watchdog.stuck"]
    assert manager.is_quiet()


@pytest.mark.anyio
async def test_round_trip_that_raises_is_logged_and_retried_without_a_ping(manager: Manager) -> None:
    pinged_before: list[bool] = []

    async def round_trip() -> None:
        if len(pinged_before) < 3:
            pinged_before.append(not manager.is_quiet())
        if len(pinged_before) < 3:
            raise OSError("the writer is gone")

    with capture_logs() as logs:
        async with anyio.create_task_group() as group:
            group.start_soon(watchdog, manager.notifier(0.05), round_trip, waits_never)
            await manager.ping()
            group.cancel_scope.cancel()

    assert pinged_before == [False] * 3
    # The third round trip may be slow on a busy machine.
    events = [line["event"] for line in logs if line["event"] != "watchdog.slow"]
    assert events == ["watchdog.failed", "watchdog.failed"]


@pytest.mark.anyio
async def test_loop_blocked_for_a_quarter_of_the_interval_is_logged_and_pinged(manager: Manager) -> None:
    async def round_trip() -> None:
        time.sleep(0.06)  # blocks the loop as a bad handler would

    with capture_logs() as logs:
        async with anyio.create_task_group() as group:
            group.start_soon(watchdog, manager.notifier(0.2), round_trip, waits_never)
            await manager.ping()
            group.cancel_scope.cancel()

    assert logs[0]["event"] == "watchdog.slow"
    assert logs[0]["seconds"] >= 0.06


@pytest.mark.anyio
async def test_watchdog_does_nothing_without_an_interval() -> None:
    async def round_trip() -> None:
        raise AssertionError("not asked for")

    with anyio.fail_after(PATIENCE):
        await watchdog(Notifier(), round_trip, waits_never)


async def wait_for_log(logs: list[dict[str, Any]]) -> None:
    """Wait until a line is logged, by polling, since captured logs have no event."""
    with anyio.fail_after(PATIENCE):
        while not logs:  # noqa: ASYNC110 - there is no event to await
            await anyio.sleep(0.001)
