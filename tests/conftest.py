"""Fixtures for every test. The tools behind them are in `virtual.py`."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog
from hypothesis import HealthCheck, settings

from tests.processes import PATIENCE
from tests.virtual import VirtualClock, VirtualCore

# The same examples in every run and no clock that judges them: a slow machine is not a bug, and a new example is found
# when somebody looks for it (`--hypothesis-profile=default`), not when somebody else's change is tested.
settings.register_profile(
    "same everywhere", deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("same everywhere")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in a job in the background; programs would inherit it
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every test marked `anyio` runs on both."""
    backend: str = request.param
    return backend


@pytest.fixture(autouse=True)
def slow_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is cancelled at a shutdown is settled in order, however long a flush takes: nobody gives up on it after
    some seconds, as a daemon would."""
    monkeypatch.setattr("craftcore.engine.engine.DRAIN_SECONDS", PATIENCE)


@pytest.fixture(autouse=True)
def nothing_configured_for_the_next() -> Iterator[None]:
    """How a process logs is configured once, and a daemon keeps each logger as it was first used: a test that does so
    would silence those after it, which look for lines."""
    yield
    if structlog.is_configured():
        structlog.reset_defaults()
        for name, module in list(sys.modules.items()):
            if name.startswith("craftcore.") and "log" in vars(module):
                vars(module.log).pop("bind", None)
    structlog.contextvars.clear_contextvars()


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def core(tmp_path: Path, clock: VirtualClock) -> Iterator[VirtualCore]:
    core = VirtualCore(tmp_path / "agent.db", clock)
    yield core
    core.close()
