"""Another user of the machine, for tests that run as root."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

NOBODY = 65_534

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")


@contextmanager
def as_other_user() -> Iterator[None]:
    """Run the block with the rights of the user `nobody`."""
    os.setegid(NOBODY)
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
        os.setegid(0)


@contextmanager
def a_shared_folder() -> Iterator[Path]:
    """Create a directory that every user can enter, unlike those of pytest."""
    place = Path(tempfile.mkdtemp(prefix="craftcore-shared-"))
    place.chmod(0o755)
    try:
        yield place
    finally:
        shutil.rmtree(place)
