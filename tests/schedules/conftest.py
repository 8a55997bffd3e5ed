"""A Core that reuses its connections, because SQLite reads the whole schema when it opens one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from craftcore.storage.repeated_reads import RepeatedReads
from tests.support.fakes import VirtualClock, VirtualCore


@pytest.fixture
def core(tmp_path: Path, clock: VirtualClock) -> Iterator[VirtualCore]:
    core = VirtualCore(tmp_path / "agent.db", clock, database=RepeatedReads)
    yield core
    core.close()
