"""The size limit: a database above `max_bytes` loses its oldest bodies, then its oldest rows."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from craftcore.config import Config, RetentionSettings, StorageSettings
from craftcore.retention.cutoffs import NEVER, Cutoffs
from craftcore.retention.service import Retention
from craftcore.retention.size_limit import Limit, Size, plan
from craftcore.storage.repeated_reads import RepeatedReads
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import DedupScope
from craftcore.triggers.settlement import Succeeded
from tests.retention.test_dry_run import take_all
from tests.support.activity_steps import UNKNOWN, an_activity
from tests.support.attempts import begin, end
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.retention_harness import DAY, HOUR, assert_sound, batches, dump, give_all_back
from tests.support.task_steps import a_sleep, complete, go_on, suspend
from tests.support.task_steps import begin as begin_task
from tests.support.trigger_steps import BROKEN, ack, claim_all, emit, start

MEGABYTE = 1 << 20
ONCE = RetryPolicy(max_attempts=1, base=0, cap=0)


@pytest.fixture
def core(tmp_path: Path, clock: VirtualClock) -> Iterator[VirtualCore]:
    """Yield a Core that does not wait for the disk, because these tests cut no power."""
    config = replace(Config(), storage=StorageSettings(synchronous="normal"))
    core = VirtualCore(tmp_path / "agent.db", clock, config, database=RepeatedReads)
    yield core
    core.close()


def run_triggers(core: VirtualCore, number: int, size: int = 20_000, *, every: float = HOUR) -> None:
    """Run `number` triggers, one every hour, each with a payload and a result of `size` characters."""
    for _ in range(number):
        begun = begin(core, payload={"text": "x" * size})
        end(core, begun, Succeeded(result_json=f'"{"y" * size}"'))
        core.clock.advance(every)  # type: ignore[attr-defined]


def limit_retention(core: VirtualCore, settings: RetentionSettings) -> Retention:
    with core.reading() as reader:
        return Retention(settings).tighten(reader, core.clock.now())


def take(core: VirtualCore, retention: Retention) -> None:
    take_all(core, retention)
    give_all_back(core)


def used_bytes(core: VirtualCore) -> int:
    with core.reading() as reader:
        return Retention(RetentionSettings()).size(reader, core.clock.now()).used_bytes


def limited_settings(max_bytes: int) -> RetentionSettings:
    return replace(RetentionSettings(), max_bytes=max_bytes)


def records_with_bodies(core: VirtualCore) -> list[int]:
    return [row["seq"] for row in core.rows("SELECT seq FROM executions WHERE stripped_at IS NULL ORDER BY seq")]


def test_size_limit_changes_nothing_below_max_bytes(core):
    run_triggers(core, 20)

    assert limit_retention(core, limited_settings(used_bytes(core)))._limit == Limit()
    assert limit_retention(core, limited_settings(0))._limit == Limit(), "0 means no limit"


def test_size_limit_takes_the_oldest_bodies_first_and_no_more_than_needed(core):
    run_triggers(core, 100)
    before = used_bytes(core)
    most = before - before // 3

    take(core, limit_retention(core, limited_settings(most)))

    assert used_bytes(core) <= most
    left = records_with_bodies(core)
    assert left == list(range(101 - len(left), 101)), "the newest records keep their bodies"
    assert 50 <= len(left) < 80
    assert len(core.rows("SELECT 1 FROM executions")) == 100, "rows are kept while there are bodies to strip"
    assert_sound(core)


def test_size_limit_takes_the_oldest_rows_when_no_bodies_are_left(core):
    run_triggers(core, 500, size=10)
    most = used_bytes(core) // 2

    for _ in range(6):  # the size of a row is an estimate, which each pass corrects
        take(core, limit_retention(core, limited_settings(most)))

    assert used_bytes(core) <= most
    rows = [row["seq"] for row in core.rows("SELECT seq FROM executions ORDER BY seq")]
    assert rows == list(range(501 - len(rows), 501))
    assert 50 < len(rows) < 400
    assert_sound(core)


GIGABYTE = 1 << 30
MINUTE = 60.0


def test_plan_for_forty_gigabytes_takes_only_the_oldest_bodies_needed():
    """The plan reads 400,000 records of 100 kB, one a minute."""
    old = Cutoffs.from_settings(RetentionSettings(), 400_000 * MINUTE, 0.0)._replace(bodies=NEVER)
    bodies = ((minute * MINUTE, 100_000.0) for minute in range(400_000))
    excess = 40 * GIGABYTE - round(0.95 * 10 * GIGABYTE)

    limit = plan(bodies, iter(()), old, excess=excess, share=1_000.0)

    taken = limit.bodies / MINUTE + 1
    assert (taken - 1) * 100_000 < excess <= taken * 100_000
    assert limit.rows == NEVER


def test_plan_for_forty_gigabytes_without_bodies_takes_the_oldest_rows_needed():
    old = Cutoffs.from_settings(RetentionSettings(), 400_000 * MINUTE, 0.0)._replace(history=NEVER)
    rows = ((minute * MINUTE, 0.0) for minute in range(400_000))
    excess = 30 * GIGABYTE + GIGABYTE // 2

    limit = plan([(MINUTE, float(GIGABYTE // 2))], rows, old, excess=excess, share=100_000.0)

    taken = limit.rows / MINUTE + 1
    assert (taken - 1) * 100_000 < 30 * GIGABYTE <= taken * 100_000
    assert limit.bodies == old.now, "all bodies"


def extend_file(path: Path, size: int) -> None:
    """Extend a file to a size with empty pages, and write the number of pages to its header."""
    with path.open("r+b") as file:
        file.seek(16)
        page_bytes = int.from_bytes(file.read(2), "big")
        os.truncate(path, size)
        file.seek(28)
        file.write((size // page_bytes).to_bytes(4, "big"))


def test_file_of_twelve_gigabytes_is_measured_planned_and_swept(core, clock):
    """The file is sparse and its rows are small. The plan gives each record an equal share of the file."""
    run_triggers(core, 200, size=10)
    core.close()
    extend_file(core.database.path, 12 * GIGABYTE)
    core = VirtualCore(core.database.path, clock)
    with core.reading() as reader:
        size = Retention(RetentionSettings()).size(reader, clock.now())
    assert (size.used_bytes, size.max_bytes) == (12 * GIGABYTE, 10 * GIGABYTE)
    assert size.needed_bytes is not None

    retention = limit_retention(core, RetentionSettings())
    taken, _ = take_all(core, retention)

    # 2.5 of 12 GiB are a fifth of the 200 records. None of them has reached its retention time.
    assert taken.removed["executions"] == pytest.approx(200 * 2.5 / 12, abs=1)
    rows = [row["seq"] for row in core.rows("SELECT seq FROM executions ORDER BY seq")]
    assert rows == list(range(201 - len(rows), 201))
    core.close()


def test_size_limit_counts_the_rows_that_ages_take_first(core):
    run_triggers(core, 6 * 20, every=4 * HOUR)
    before = used_bytes(core)

    assert limit_retention(core, limited_settings(before // 2 + before // 4))._limit == Limit(), (
        "ages remove the bodies of 13 of 20 days"
    )


def test_dry_run_under_a_size_limit_equals_the_rows_taken(core):
    run_triggers(core, 100)
    begin_task(core)
    retention = limit_retention(core, limited_settings(used_bytes(core) // 2))
    with core.reading() as reader:
        due = retention.count_due(reader, core.clock.now())

    taken, weight = take_all(core, limit_retention(core, limited_settings(used_bytes(core) // 2)))

    assert due.weight.tables == weight.tables
    assert due.weight.tables["executions"]["rows"] > 25
    assert {table: sizes["rows"] for table, sizes in weight.tables.items()} == dict(+(taken.removed + taken.stripped))


def write_protected_rows(core: VirtualCore) -> dict[str, Any]:
    """Write work that runs, waits, is in doubt or dead, and a held key, and return the rows."""
    running = begin_task(core, payload={"text": "r" * 20_000})
    complete(core, running)
    go_on(core, running, {"text": "s" * 20_000}, a_sleep(core.clock.now() + 1_000 * DAY))
    waiting = begin_task(core, payload={"text": "w" * 20_000})
    complete(core, waiting, result="c" * 20_000)
    an_activity(core, waiting, UNKNOWN)
    suspend(core, waiting, a_sleep(core.clock.now() + 1_000 * DAY))
    emit(core, payload={"text": "p" * 20_000}, delay=1_000 * DAY)
    emit(core, payload={"text": "d" * 20_000})
    for claim in claim_all(core):
        ack(core, start(core, claim), BROKEN, ONCE)
    emit(core, dedup_key="for-ever", dedup_scope=DedupScope.EVER)
    for claim in claim_all(core):
        ack(core, start(core, claim), Succeeded())
    tables = dump(core)
    return {name: tables[name] for name in ("tasks", "waits", "activity_log", "questions")} | {
        "triggers": [row for row in tables["triggers"] if row["status"] in ("PENDING", "CLAIMED", "DEAD")]
    }


def test_size_limit_keeps_live_work_doubts_dead_letters_and_keys(core):
    before = write_protected_rows(core)
    run_triggers(core, 50)

    for _ in range(3):
        for _ in batches(core, limited_settings(MEGABYTE // 16)):
            pass
        take(core, limit_retention(core, limited_settings(MEGABYTE // 16)))

    after = dump(core)
    for name, rows in before.items():
        assert [row for row in after[name] if row in rows] == rows, name
    assert not emit(core, dedup_key="for-ever", dedup_scope=DedupScope.EVER).created
    assert records_with_bodies(core) == [2], "the record of the waiting turn"
    assert len(core.rows("SELECT 1 FROM executions")) == 2, "the record of the waiting turn, and the newest"
    assert_sound(core)


def test_needed_size_is_estimated_from_the_recent_growth(core):
    """Half of the longest retention time has passed, so about twice the used size is needed."""
    settings = RetentionSettings(bodies=4 * DAY, history=40 * DAY, max_bytes=MEGABYTE)
    retention = Retention(settings)
    for _ in range(20):
        run_triggers(core, 3, size=18_000, every=8 * HOUR)
        for _ in batches(core, settings):
            pass
    give_all_back(core)
    with core.reading() as reader:
        size = retention.size(reader, core.clock.now())
    assert size.needed_bytes is not None

    for _ in range(40):
        run_triggers(core, 3, size=18_000, every=8 * HOUR)
        for _ in batches(core, replace(settings, max_bytes=0)):
            pass
    give_all_back(core)

    assert used_bytes(core) * 0.6 < size.needed_bytes < used_bytes(core) * 1.5


@pytest.mark.parametrize(("hours", "most"), [(30, 1 << 40), (2, MEGABYTE // 16), (30, 0)])
def test_needed_size_is_unknown_far_from_the_limit_or_within_the_first_day(core, hours, most):
    run_triggers(core, hours)

    with core.reading() as reader:
        size = Retention(limited_settings(most)).size(reader, core.clock.now())

    assert size == Size(used_bytes(core), most, None)


def test_size_limit_does_not_take_rows_stamped_by_a_clock_ahead_first(core, clock):
    clock.advance(365 * DAY)
    run_triggers(core, 5)
    clock.set_back(365 * DAY)
    run_triggers(core, 50)
    before = used_bytes(core)

    take(core, limit_retention(core, limited_settings(before - before // 3)))

    assert set(range(1, 6)) < set(records_with_bodies(core))
