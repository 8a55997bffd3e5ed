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
from craftcore.tasks.session_message import NewMessage
from craftcore.tasks.session_message_store import SessionMessageStore
from tests.retention.test_kills import open_database, record_many_starts
from tests.retention.test_tasks import run_task_with_all_rows
from tests.support.activity_steps import UNKNOWN, an_activity, decide
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.recorded_executions import record_everything
from tests.support.retention_harness import DAY, dump, only
from tests.support.task_steps import begin, finish


def record_undecided_activity(folder: Path) -> Path:
    """Write two tasks with every dependent row, and one with an activity of unknown outcome, which is kept."""
    core = VirtualCore(folder / "agent.db", clock := VirtualClock())
    run_task_with_all_rows(core, clock)
    running = begin(core)
    decide(core, an_activity(core, running, UNKNOWN), Decision.GIVE_UP)
    finish(core, running, {"result": "unknown"})
    run_task_with_all_rows(core, clock)
    said = [NewMessage('{"text":"é"}', True, None), NewMessage('"b"', False, "call_1")]
    core.do(SessionMessageStore().append_all, "s", running.task.id, 1, said, kept=10)
    core.close()
    return core.database.path


@pytest.fixture(scope="module", params=[record_everything, record_many_starts, record_undecided_activity])
def old_database(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
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
                taken, taken_sizes = core.do(retention.take_weighed, step, found, core.clock.now())
                all_taken.add(taken)
                weight.add(taken_sizes)
            if not taken.goes_on:
                after = found.after
    return all_taken, weight


def text_bytes(core: VirtualCore) -> Counter[str]:
    """Return the bytes of text in each table."""
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
    "triggers whose keys hold, and messages": only(triggers=DAY, keys=4_000 * DAY, messages=30 * DAY),
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_dry_run_counts_equal_the_rows_and_bytes_taken(old_database, tmp_path, settings):
    core = open_database(Path(shutil.copy(old_database, tmp_path / "agent.db")))
    retention = Retention(settings)
    with core.reading() as reader:
        due = retention.count_due(reader, core.clock.now())
    before = text_bytes(core)

    taken, weight = take_all(core, retention)

    assert due.weight.tables == weight.tables
    assert {table: sizes["rows"] for table, sizes in weight.tables.items()} == dict(+(taken.removed + taken.stripped))
    shrunk = +(before - text_bytes(core))
    assert {table: sizes["bytes"] for table, sizes in weight.tables.items() if sizes["bytes"]} == dict(shrunk)
    assert weight.tables
    with core.reading() as reader:
        again = retention.count_due(reader, core.clock.now())
    assert again.weight.tables == {}
    core.close()
