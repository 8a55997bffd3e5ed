"""The checker of the kill campaign: it accepts a sound database and finds each planted fault."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.crash.checker import check
from tests.crash.child import QUIET, Journal, Life, live
from tests.crash.spoiling import Spoil, copy_files, sql


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of one quiet life, without a fault."""
    from craftcore import Producer

    folder = tmp_path_factory.mktemp("sound")
    accepted = Journal(folder / "accepted")
    with Producer(folder / "agent.db") as producer:
        for n in range(5):
            accepted.line(producer.emit("work", {"failures": n % 2}, session_id="one").id, 0)
    live(Life(folder=folder, number=1, backend="asyncio", concurrency=16, ends=QUIET, seed=1))
    return folder


def line(journal: str, *words: str) -> Spoil:
    """Return a function that appends a line to a journal. `{first}` in a word is the first accepted id."""

    def spoil(folder: Path) -> None:
        first = (folder / "accepted").read_text().split()[0]
        Journal(folder / journal).line(*[word.format(first=first) for word in words])

    return spoil


def test_process_starts_on_a_file_left_unfinished_by_a_kill(tmp_path):
    """A kill in the first transaction, before the switch to WAL, leaves a journal that only a writer can roll back."""
    maker = apsw.Connection(str(tmp_path / "maker.db"))
    maker.execute("PRAGMA cache_size = 1; BEGIN; CREATE TABLE half (x)")
    maker.executemany("INSERT INTO half VALUES (randomblob(?))", [(100,)] * 20_000)
    for end in ("", "-journal"):
        (tmp_path / f"agent.db{end}").write_bytes((tmp_path / f"maker.db{end}").read_bytes())
    maker.close()

    live(Life(folder=tmp_path, number=2, backend="asyncio", concurrency=1, ends=QUIET, seed=1))

    assert check(tmp_path, {}).wrong == []


def test_checker_accepts_a_sound_history(sound, tmp_path):
    verdict = check(copy_files(sound, tmp_path), {})

    assert verdict.wrong == []
    assert verdict.accepted == 5


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (sql("DELETE FROM triggers WHERE seq = 1"), "is gone"),
        (line("accepted", "never-written", "1"), "is gone"),
        (
            sql(
                "UPDATE triggers SET status = 'CLAIMED', lease_token = 'x', claimed_epoch = 1, settled_at = NULL "
                "WHERE seq = 1"
            ),
            "is CLAIMED",
        ),
        (sql("UPDATE triggers SET status = 'PENDING', settled_at = NULL, started_at = NULL WHERE seq = 1"), "PENDING"),
        (sql("UPDATE triggers SET status = 'DEAD', reason = 'poison' WHERE seq = 1"), "is DEAD"),
        (
            sql(
                "INSERT INTO event_rows (execution_seq, seq, type, at, payload_json) "
                "SELECT execution_seq, seq + 1, type, at, payload_json FROM events "
                "WHERE type = 'FINAL_RESPONSE' LIMIT 1"
            ),
            "2 successful records",
        ),
        (sql("UPDATE event_rows SET seq = 9 WHERE seq = 2 AND execution_seq = 1"), "its events are"),
        (sql("DELETE FROM event_rows WHERE seq = 1 AND execution_seq = 1"), "its events are"),
        (sql("UPDATE executions SET ended_at = NULL, last_events = NULL WHERE seq = 1"), "never ended, yet"),
        (sql("DELETE FROM executions WHERE seq = 2"), "record-is-there-or-removed"),
        (
            sql(
                "INSERT INTO event_rows (execution_seq, seq, type, at, payload_json) VALUES (99, 1, 'NOTE', 1.0, '{}')"
            ),
            "foreign_key_check",
        ),
        (sql("UPDATE triggers SET starts = starts + 1 WHERE seq = 1"), "was started 2 times"),
        (line("ran", "+", "{first}", "1", "1"), "ran {first} start 1"),
        (line("ran", "+", "{first}", "2", "1"), "start 2 in life 1; it was started 1 times"),
        (line("ran", "+", "unknown", "1", "1"), "which is not in the table"),
        (line("observed", "{first}", "1"), "settled on disk before it began"),
    ],
)
def test_checker_finds_each_fault(sound, tmp_path, spoil, found):
    folder = copy_files(sound, tmp_path)

    spoil(folder)
    verdict = check(folder, {})

    first = (folder / "accepted").read_text().split()[0]
    assert any(found.format(first=first) in wrong for wrong in verdict.wrong), verdict.wrong


def test_checker_finds_two_concurrent_runs_of_a_lane(sound, tmp_path):
    folder = copy_files(sound, tmp_path)
    lines = (folder / "ran").read_text().splitlines()

    (folder / "ran").write_text("\n".join(line for line in lines if not line.startswith("-")) + "\n")
    verdict = check(folder, {})

    assert any("in the same lane one" in wrong for wrong in verdict.wrong), verdict.wrong
