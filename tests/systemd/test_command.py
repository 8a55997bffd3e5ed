"""The selection of tests by `python -m tests.systemd`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.support.processes import PATIENCE, environment

ROOT = Path(__file__).parents[2]


def test_command_selects_every_test_of_the_booted_machine():
    expected = re.findall(r"^def (test_\w+)", (ROOT / "tests/systemd/test_under_systemd.py").read_text(), re.M)
    command = [sys.executable, "-m", "tests.systemd", "--collect-only"]

    listed = subprocess.run(
        command, cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=PATIENCE, check=True
    )

    assert expected
    assert set(re.findall(r"<Function (test_\w+)", listed.stdout)) == set(expected)
