"""The pytest plugin: `async with craftcore_lab(app) as lab:`. It is found by itself once craftcore is installed."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from craftcore.app import App
    from craftcore.testing.lab import Lab


@pytest.fixture
def craftcore_lab(tmp_path: Path) -> Callable[..., Lab]:
    """Return a function that makes a Lab of an app, with its databases in the test's temporary folder.

    Its options are those of Lab.
    """
    numbers = count(1)

    def make(app: App, **options: Any) -> Lab:
        from craftcore.testing.lab import Lab

        folder = tmp_path / f"lab-{next(numbers)}"
        folder.mkdir()
        return Lab(app, folder=folder, **options)

    return make
