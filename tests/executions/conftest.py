"""A database with records in every state, made once and copied for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from craftcore.storage.repeated_reads import RepeatedReads
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.recorded_executions import record_everything


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_everything(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def core(tmp_path: Path, clock: VirtualClock) -> Iterator[VirtualCore]:
    """Yield a Core that reuses its connections, because SQLite reads the whole schema when it opens one."""
    core = VirtualCore(tmp_path / "agent.db", clock, database=RepeatedReads)
    yield core
    core.close()
