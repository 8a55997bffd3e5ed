"""Fixtures of the page on a copy of the populated database: in this process, and in a separate process."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.populated_database import World
from tests.support.populated_database import made as made
from tests.support.web_site import ServedSite, SiteInProcess, in_process, serving


@pytest.fixture
def world(made: tuple[World, Path]) -> World:
    return made[0]


@pytest.fixture
def database(made: tuple[World, Path], tmp_path: Path) -> Path:
    """Return a copy of the populated database for one test."""
    shutil.copy(made[1], tmp_path / "agent.db")
    return tmp_path / "agent.db"


@pytest.fixture
def site(database: Path) -> Iterator[SiteInProcess]:
    """Serve a page in this process for one test."""
    with in_process(database) as site:
        yield site


@pytest.fixture
def served(database: Path) -> Iterator[ServedSite]:
    """Run a page process for one test that depends on its socket or its exit."""
    with serving(database) as site:
        yield site
