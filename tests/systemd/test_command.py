"""The selection of tests by `python -m tests.systemd`."""

from __future__ import annotations

import re
from pathlib import Path

from tests.support.processes import run_python

ROOT = Path(__file__).parents[2]


def test_command_selects_every_test_of_the_booted_machine():
    written = re.findall(r"^def (test_\w+)", (ROOT / "tests/systemd/test_under_systemd.py").read_text(), re.M)

    listed = run_python(["-m", "tests.systemd", "--collect-only"], ROOT)

    assert written
    assert listed.code == 0, listed.err
    assert set(re.findall(r"<Function (test_\w+)", listed.out)) == set(written)
