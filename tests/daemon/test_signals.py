"""Signals of the daemon, handled in the order of their arrival."""

from __future__ import annotations

import os
from signal import SIGHUP, SIGINT, SIGTERM, Signals

import anyio
import pytest

from craftcore.daemon.signals import watch_signals
from tests.support.log_capture import capture_logs
from tests.support.processes import PATIENCE


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def calls_for(*signals: Signals, reload_fails: bool = False) -> list[str]:
    """Return the calls for these signals, each sent after the call for the one before."""
    calls: list[str] = []
    called = anyio.Event()

    def call(name: str) -> None:
        calls.append(name)
        called.set()

    def reload() -> None:
        call("reload")
        if reload_fails:
            raise ValueError("bad configuration")

    async with anyio.create_task_group() as group:
        await group.start(
            watch_signals, lambda name: call(f"stop {name}"), lambda name: call(f"stop again {name}"), reload
        )
        for signal in signals:
            called = anyio.Event()
            os.kill(os.getpid(), signal)
            with anyio.fail_after(PATIENCE):
                await called.wait()
        group.cancel_scope.cancel()
    return calls


@pytest.mark.anyio
@pytest.mark.parametrize("signal", [SIGTERM, SIGINT])
async def test_first_signal_asks_to_stop_and_further_signals_ask_again(signal: Signals) -> None:
    assert await calls_for(signal, signal, SIGTERM) == [
        f"stop {signal.name}",
        f"stop again {signal.name}",
        "stop again SIGTERM",
    ]


@pytest.mark.anyio
async def test_sighup_is_not_a_stop() -> None:
    assert await calls_for(SIGHUP, SIGTERM, SIGHUP, SIGINT) == [
        "reload",
        "stop SIGTERM",
        "reload",
        "stop again SIGINT",
    ]


@pytest.mark.anyio
async def test_failed_reload_is_logged_and_later_signals_are_handled() -> None:
    with capture_logs() as logs:
        assert await calls_for(SIGHUP, SIGTERM, reload_fails=True) == ["reload", "stop SIGTERM"]

    assert [line["event"] for line in logs] == ["reload.failed"]
