"""The page about installation: its commands build and install a wheel, and its table has every extra."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.support.processes import PATIENCE

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs/how-to/install.md").read_text("utf-8")
FOR_DEVELOPERS = {"test", "dev"}


def test_table_has_every_extra_with_its_library():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    listed = dict(re.findall(r"^\| `(\w+)` \| ([\w-]+) \|", PAGE, re.M))

    assert listed == {
        name: re.split(r"[>=]", needs[0])[0] for name, needs in extras.items() if name not in FOR_DEVELOPERS
    }


@pytest.mark.packaging
def test_commands_of_the_page_build_a_wheel_that_installs(tmp_path):
    """The test runs `pip wheel` as the page shows it, and then `pip install`, without the network."""
    [wheel] = re.findall(r"^pip (wheel .*)$", PAGE, re.M)
    words = wheel.replace("/path/to/craftcore", str(ROOT)).split()
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, *words, "--no-build-isolation", "--no-index"], cwd=tmp_path, check=True, timeout=PATIENCE)
    [built] = (tmp_path / "dist").glob("craftcore-*.whl")

    install = [*pip, "install", "--no-deps", "--no-index", "--target", "site", str(built)]
    subprocess.run(install, cwd=tmp_path, check=True, timeout=PATIENCE)

    assert (tmp_path / "site/craftcore/__init__.py").is_file()
    assert "pip install --require-hashes -r requirements.lock" in PAGE
    assert (ROOT / "requirements.lock").is_file()
