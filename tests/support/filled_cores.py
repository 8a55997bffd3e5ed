"""Databases of different sizes for tests of the cost of statements, created once for each module."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fakes import VirtualCore


def filled_core(fill: Callable[[Path, int], VirtualCore], number: int) -> Any:
    """Return a fixture of the database that `fill(path, number)` creates."""

    @pytest.fixture(scope="module")
    def core(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCore]:
        filled = fill(tmp_path_factory.mktemp("filled") / "agent.db", number)
        yield filled
        filled.close()

    return core
