"""Dry runs of retention: the reported rows and bytes equal those that a run removes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from craftcore.activities.model import Decision
from craftcore.config import RetentionSettings
from craftcore.retention.model import Taken
from craftcore.retention.service import STEPS, Retention
from craftcore.retention.size_store import TableSizes
from tests.retention.test_kills import many_starts, opened
from tests.retention.test_tasks import with_everything
from tests.support.activity_steps import UNKNOWN, an_activity, decide
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.recorded_executions import record_everything
from tests.support.retention_harness import DAY, dump, only
from tests.support.task_steps import begin, finish


def with_doubts(folder: Path) -> Path:
    """Tasks with all that a task may have, and one whose activity nobody knows the end of: that stays."""
    core = VirtualCore(folder / "agent.db", clock := VirtualClock())
    with_everything(core, clock)
    running = begin(core)
    decide(core, an_activity(core, running, UNKNOWN), Decision.GIVE_UP)
    finish(core, running, {"result": "nobody knows"})
    with_everything(core, clock)
    core.close()
    return core.database.path


@pytest.fixture(scope="module", params=[record_everything, many_starts, with_doubts])
def old(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path: Path = request.param(tmp_path_factory.mktemp("old"))
    return path


def take_all(core: VirtualCore, retention: Retention) -> tuple[Taken, TableSizes]:
    all_taken, weight = Taken(), TableSizes(Counter(), Counter())
    for step in STEPS:
        after: int | None = 0
        while after is not None:
            with core.reading() as reader:
                found = retention.find(reader, step, core.clock.now(), after)
            taken = Taken()
            if found.seqs:
                taken, of_it = core.do(retention.take_weighed, step, found, core.clock.now())
                all_taken.add(taken)
                weight.add(of_it)
            if not taken.goes_on:
                after = found.after
    return all_taken, weight


def texts(core: VirtualCore) -> Counter[str]:
    """Bytes of text in each table."""
    sizes: Counter[str] = Counter()
    for table, rows in dump(core).items():
        sizes[table] += sum(len(str(value).encode()) for row in rows for value in row.values() if is_text(value))
    return sizes


def is_text(value: Any) -> bool:
    return isinstance(value, str)


SETTINGS = {
    "as shipped": RetentionSettings(),
    "bodies": only(bodies=7 * DAY),
    "history, and bodies that stay": only(history=90 * DAY),
    "triggers whose keys hold": only(triggers=DAY, keys=4_000 * DAY),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_dry_run_counts_equal_the_rows_and_bytes_taken(old, tmp_path, settings):
    core = opened(Path(shutil.copy(old, tmp_path / "agent.db")))
    retention = Retention(settings)
    with core.reading() as reader:
        due = retention.count_due(reader, core.clock.now())
    before = texts(core)

    taken, weight = take_all(core, retention)

    assert due.weight.tables == weight.tables
    assert {table: told["rows"] for table, told in weight.tables.items()} == dict(+(taken.removed + taken.stripped))
    shrunk = +(before - texts(core))
    assert {table: told["bytes"] for table, told in weight.tables.items() if told["bytes"]} == dict(shrunk)
    assert weight.tables
    with core.reading() as reader:
        again = retention.count_due(reader, core.clock.now())
    assert again.weight.tables == {}
    core.close()
