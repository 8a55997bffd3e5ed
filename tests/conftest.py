"""Fixtures for every test. The tools behind them are in `virtual.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.virtual import VirtualClock, VirtualCore


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    """Every test marked `anyio` runs on both."""
    backend: str = request.param
    return backend


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def core(tmp_path: Path, clock: VirtualClock) -> Iterator[VirtualCore]:
    core = VirtualCore(tmp_path / "agent.db", clock)
    yield core
    core.close()
