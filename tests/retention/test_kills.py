"""A kill at any commit of a pass leaves a sound file, and the next pass ends where one that nobody killed does."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.executions.recorded import record_everything
from tests.processes import PATIENCE
from tests.retention.sweeping import DAY, assert_sound, dump, sweep
from tests.virtual import VirtualClock, VirtualCore

AFTER = 100 * DAY

PASS = """
import os, signal, sys
from pathlib import Path
from tests.retention import test_kills
from tests.retention.sweeping import batches
core = test_kills.opened(Path(sys.argv[1]))
for number, _ in enumerate(batches(core), 1):
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def opened(path: Path) -> VirtualCore:
    clock = VirtualClock()
    clock.advance(AFTER)
    return VirtualCore(path, clock)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_everything(tmp_path_factory.mktemp("old"))


def copied(old: Path, folder: Path, name: str) -> Path:
    path = folder / name
    shutil.copy(old, path)
    return path


def test_a_pass_that_is_killed_after_any_batch_is_gone_on_with(old, tmp_path):
    whole = opened(copied(old, tmp_path, "whole.db"))
    sweep(whole)
    expected = dump(whole)
    whole.close()

    killed = 0
    while True:
        path = copied(old, tmp_path, f"{killed}.db")
        command = [sys.executable, "-c", PASS, str(path), str(killed + 1)]
        ran = subprocess.run(command, timeout=PATIENCE, env=os.environ)
        if ran.returncode == 0:
            break
        assert ran.returncode == -signal.SIGKILL
        killed += 1
        core = opened(path)
        assert_sound(core)
        sweep(core)
        assert dump(core) == expected
        core.close()

    assert killed >= 5
