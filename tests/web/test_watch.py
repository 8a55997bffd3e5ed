"""The watch of a database: it reports commits of other processes, replaced and missing files, and passing time."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from craftcore.storage.database import Database
from craftcore.web.live.watch import AGAIN_SECONDS, FileWatch
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import open_files
from tests.support.trigger_steps import emit


class ManualClock:
    """A monotonic clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def monotonic() -> ManualClock:
    return ManualClock()


@pytest.fixture
def watch(core: VirtualCore, monotonic: ManualClock) -> Iterator[FileWatch]:
    watch = FileWatch(Database(core.database.path, core.clock, read_only=True), monotonic)
    yield watch
    watch.close()


def test_watch_finds_news_first_and_then_only_after_a_commit(core, watch):
    assert [watch.has_news() for _ in range(3)] == [True, False, False]

    emit(core)

    assert [watch.has_news() for _ in range(3)] == [True, False, False]


def test_commit_of_another_process_is_news(core, watch):
    watch.has_news()
    program = (
        "import sys, apsw; apsw.Connection(sys.argv[1]).execute("
        "\"INSERT INTO facts (name, value) VALUES ('from another process', '1')\")"
    )

    subprocess.run([sys.executable, "-c", program, str(core.database.path)], check=True)

    assert watch.has_news()


def test_time_alone_is_news_after_ten_seconds(watch, monotonic):
    watch.has_news()
    monotonic.now += AGAIN_SECONDS - 0.1
    assert not watch.has_news()

    monotonic.now += 0.1

    assert [watch.has_news(), watch.has_news()] == [True, False]


def test_missing_file_is_news_once_and_its_return_is_news(core, watch, tmp_path):
    watch.has_news()
    core.close()
    core.database.path.rename(tmp_path / "away")

    found = [watch.has_news() for _ in range(6)]
    assert found[0]
    assert found.count(True) <= 2  # one for the removal, one for the failed open
    assert not any(found[2:])

    (tmp_path / "away").rename(core.database.path)
    assert [watch.has_news(), watch.has_news()] == [True, False]


def test_replaced_file_is_news_and_its_commits_are_seen(core, watch, tmp_path):
    watch.has_news()
    other = VirtualCore(tmp_path / "other.db", VirtualClock())
    other.close()
    core.close()
    for name in ("agent.db-wal", "agent.db-shm"):
        (tmp_path / name).unlink(missing_ok=True)

    os.replace(other.database.path, core.database.path)

    assert any([watch.has_news(), watch.has_news()])
    assert not watch.has_news()
    emit(core)
    assert watch.has_news()


def test_file_that_is_no_database_is_news_once(core, watch):
    watch.has_news()
    core.close()
    core.database.path.unlink()
    core.database.path.write_bytes(b"something else\n" * 1000)

    found = [watch.has_news() for _ in range(6)]

    assert found[0]
    assert not any(found[2:])


def test_watch_opens_nothing_before_the_first_read_and_closes_everything(core, watch):
    core.close()
    assert open_files(os.getpid(), core.database.path) == []
    watch.has_news()
    assert open_files(os.getpid(), core.database.path)

    watch.close()

    assert open_files(os.getpid(), core.database.path) == []
    assert watch.has_news()
