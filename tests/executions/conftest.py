"""A database with records of every standing, made once for all tests that look at a copy of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.recorded_executions import record_everything


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_everything(tmp_path_factory.mktemp("sound"))
