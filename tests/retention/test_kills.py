"""Kills at each commit of a retention pass: the file stays sound, and the next pass completes the work."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from craftcore.storage.repeated_reads import RepeatedReads
from craftcore.triggers.settlement import Succeeded
from tests.support.attempts import end, start_due
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.many_starts import insert_starts
from tests.support.processes import PATIENCE
from tests.support.recorded_executions import record_everything
from tests.support.retention_harness import DAY, assert_sound, batches, dump, sweep
from tests.support.trigger_steps import emit
from tests.support.warm_parent import ROOT, start

AGE = 100 * DAY

PASS = """
import os, signal, sys
from pathlib import Path
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.retention_harness import batches
clock = VirtualClock()
clock.advance(float(sys.argv[3]))
core = VirtualCore(Path(sys.argv[1]), clock)
for number, _ in enumerate(batches(core), 1):
    if number == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
"""


def open_database(path: Path) -> VirtualCore:
    clock = VirtualClock()
    clock.advance(AGE)
    return VirtualCore(path, clock, database=RepeatedReads)


def record_many_starts(folder: Path) -> Path:
    """Write the database of a daemon that was started 2,500 times and then ran one trigger."""
    path = folder / "agent.db"
    core = VirtualCore(path, VirtualClock())
    insert_starts(core, 2_500)
    emit(core)
    end(core, start_due(core, epoch=2_500), Succeeded())
    core.close()
    return path


@pytest.fixture(scope="module", params=[record_everything, record_many_starts])
def old_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = request.param(tmp_path_factory.mktemp("old"))
    return path


def copy_database(old_database: Path, folder: Path, name: str) -> Path:
    path = folder / name
    shutil.copy(old_database, path)
    return path


def test_retention_pass_killed_after_any_batch_is_completed_by_the_next_pass(old_database, tmp_path):
    uninterrupted = open_database(copy_database(old_database, tmp_path, "whole.db"))
    sweep(uninterrupted)
    expected = dump(uninterrupted)
    uninterrupted.close()

    killed = 0
    while True:
        path = copy_database(old_database, tmp_path, f"{killed}.db")
        with start(["-c", PASS, str(path), str(killed + 1), str(AGE)], cwd=ROOT) as process:
            code = process.wait(PATIENCE)
        if code == 0:
            break
        assert code == -signal.SIGKILL
        killed += 1
        core = open_database(path)
        assert_sound(core)
        for _ in batches(core):
            pass
        assert_sound(core)
        assert dump(core) == expected
        core.close()

    assert killed >= 5
