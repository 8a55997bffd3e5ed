"""The checker of schedules: it accepts a sound database and finds each planted fault and broken engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from craftcore.schedules.occurrence_store import AccountStore
from tests.crash.child import QUIET, Journal, Life
from tests.crash.schedule_checker import check
from tests.crash.schedule_child import LAST, live
from tests.crash.spoiling import Spoil, copy_files, sql

ROOT = Path(__file__).parents[2]


def run_life(folder: Path, number: int, ends: str) -> None:
    live(Life(folder=folder, number=number, backend="asyncio", concurrency=16, ends=ends, seed=number))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the files of a few quiet lives, without a fault."""
    folder = tmp_path_factory.mktemp("sound")
    for number in range(1, 4):
        run_life(folder, number, QUIET)
    run_life(folder, 4, LAST)
    return folder


def line(journal: str, *words: str) -> Spoil:
    return lambda folder: Journal(folder / journal).line(*words)


A_FIRED_LINE = (
    "seq = (SELECT max(o.seq) FROM schedule_occurrences AS o JOIN triggers AS t ON t.id = o.trigger_id "
    "JOIN schedules AS s ON s.id = o.schedule_id "
    "WHERE s.kind = 'every' AND o.cause = 'time' AND o.reason IS NULL AND s.generation = o.generation)"
)
A_SKIPPED_LINE = (
    "seq = (SELECT max(seq) FROM schedule_occurrences WHERE outcome = 'skipped' AND schedule_id = 'minute')"
)
A_ONE_TIME_LINE = (
    "seq = (SELECT max(o.seq) FROM schedule_occurrences AS o JOIN schedules AS s ON s.id = o.schedule_id "
    "WHERE s.kind = 'once' AND o.outcome = 'fired' AND o.cause = 'time' AND s.generation = o.generation)"
)
A_TRIGGER = f"id = (SELECT trigger_id FROM schedule_occurrences WHERE {A_FIRED_LINE})"
COLUMNS = "schedule_id, generation, cause, nominal_at, last_at, count, outcome, reason, trigger_id, decided_at"


def copy_line(which: str, **changed: str) -> str:
    """Return an INSERT that copies a line of the account, with some columns changed."""
    values = ", ".join(changed.get(name, name) for name in COLUMNS.split(", "))
    return f"INSERT INTO schedule_occurrences ({COLUMNS}) SELECT {values} FROM schedule_occurrences WHERE {which}"


def test_checker_accepts_a_sound_history(sound, tmp_path):
    verdict = check(copy_files(sound, tmp_path))

    assert verdict.wrong == []
    assert verdict.triggers > 50
    assert verdict.one_time > 2


@pytest.mark.parametrize(
    ("spoil", "found"),
    [
        (sql(f"DELETE FROM schedule_occurrences WHERE {A_FIRED_LINE}"), "are in no line"),
        (sql(f"DELETE FROM schedule_occurrences WHERE {A_SKIPPED_LINE}"), "are in no line"),
        (sql(copy_line(A_SKIPPED_LINE)), "is accounted for twice"),
        (
            sql("DROP INDEX occurrences_once", copy_line(A_FIRED_LINE, trigger_id="'another'")),
            "has the triggers",
        ),
        (sql(f"UPDATE schedule_occurrences SET count = count + 1 WHERE {A_SKIPPED_LINE}"), "is not on the grid"),
        (
            sql(f"UPDATE schedule_occurrences SET nominal_at = nominal_at + 1 WHERE {A_SKIPPED_LINE}"),
            "is not on the grid",
        ),
        (
            sql(
                "UPDATE schedules SET high_water_at = high_water_at + 600, next_at = next_at + 600 WHERE id = 'minute'"
            ),
            "are in no line",
        ),
        (sql("UPDATE schedules SET high_water_at = high_water_at - 600 WHERE id = 'minute'"), "and more is accounted"),
        (sql("UPDATE schedules SET high_water_at = high_water_at - 90000 WHERE id = 'minute'"), "and later up to"),
        (sql("UPDATE schedules SET next_at = next_at + 60 WHERE next_at IS NOT NULL"), "is next"),
        (sql("UPDATE schedules SET anchor_at = anchor_at + 1 WHERE id = 'minute'"), "was anchored at"),
        (
            sql("UPDATE schedules SET status = 'FINISHED', reason = 'x', next_at = NULL WHERE id = 'minute'"),
            "is to come",
        ),
        (sql(f"DELETE FROM triggers WHERE {A_TRIGGER}"), "which is not there"),
        (
            sql(
                f"CREATE TABLE copied AS SELECT * FROM triggers WHERE {A_TRIGGER}",
                "UPDATE copied SET seq = 1000000, id = 'copy', dedup_key = NULL, dedup_scope = NULL",
                "INSERT INTO triggers SELECT * FROM copied",
            ),
            "trigger copy is in no line",
        ),
        (
            sql(
                "UPDATE schedule_occurrences SET trigger_id = "
                f"(SELECT trigger_id FROM schedule_occurrences WHERE {A_FIRED_LINE}) WHERE {A_ONE_TIME_LINE}"
            ),
            "have one trigger",
        ),
        (sql(f"UPDATE triggers SET nominal_at = nominal_at + 60 WHERE {A_TRIGGER}"), "its line for"),
        (sql(f"UPDATE triggers SET fire_at = fire_at - 999, due_at = due_at - 999 WHERE {A_TRIGGER}"), "to start at"),
        (sql(f"UPDATE schedule_occurrences SET decided_at = nominal_at - 1 WHERE {A_FIRED_LINE}"), "before it"),
        (
            sql(f"UPDATE schedule_occurrences SET outcome = 'buffered', trigger_id = NULL WHERE {A_FIRED_LINE}"),
            "waits forever",
        ),
        (
            sql(f"UPDATE triggers SET status = 'PENDING', settled_at = NULL, started_at = NULL WHERE {A_TRIGGER}"),
            "is PENDING",
        ),
        (sql("UPDATE schedules SET runs = runs + 1000 WHERE id = 'seven'"), "runs, and"),
        (sql("UPDATE schedules SET runs = runs - 1 WHERE id = 'seven'"), "runs, and"),
        (sql("UPDATE schedules SET max_runs = 1 WHERE id = 'seven'"), "1 times at most"),
        (
            sql(
                "DELETE FROM schedule_occurrences "
                "WHERE seq = (SELECT max(seq) FROM schedule_occurrences WHERE cause = 'startup')"
            ),
            "and the starts were at",
        ),
        (sql(f"DELETE FROM schedule_occurrences WHERE {A_ONE_TIME_LINE}"), "and its lines are []"),
        (
            sql("DROP INDEX occurrences_once", copy_line(A_ONE_TIME_LINE, trigger_id="'another'")),
            "has 2 lines",
        ),
        (line("ran", "+", "unknown", "minute", "1767225660.0", "1"), "which no line names"),
    ],
)
def test_checker_finds_each_fault(sound, tmp_path, spoil, found):
    folder = copy_files(sound, tmp_path)

    spoil(folder)

    wrong = check(folder).wrong
    assert any(found in one for one in wrong), wrong


def test_checker_finds_a_job_that_ran_as_two_triggers(sound, tmp_path):
    folder = copy_files(sound, tmp_path)
    ran = [text.split() for text in (folder / "ran").read_text().splitlines()]
    once = next(words for words in ran if words[2].startswith("once-"))

    line("ran", "+", "another", *once[2:])(folder)

    assert any(f"{once[2]} of" in wrong and "ran as" in wrong for wrong in check(folder).wrong)


def test_checker_finds_a_trigger_that_never_ran(sound, tmp_path):
    folder = copy_files(sound, tmp_path)
    ran = (folder / "ran").read_text().splitlines()
    id = ran[-1].split()[1]

    (folder / "ran").write_text("\n".join(text for text in ran if id not in text))

    assert f"trigger {id} is DONE, and no handler ever ran it" in check(folder).wrong


# A broken engine


def test_checker_finds_a_run_without_the_account_of_fired_occurrences(tmp_path, monkeypatch):
    run_life(tmp_path, 1, QUIET)
    with monkeypatch.context() as patch:
        patch.setattr(AccountStore, "insert", lambda *_: True)
        run_life(tmp_path, 2, QUIET)
    run_life(tmp_path, 3, LAST)

    verdict = check(tmp_path)

    assert verdict.lost > 0
    assert any("are in no line" in wrong for wrong in verdict.wrong), verdict.wrong


A_TICK_OF_TWO_COMMITS = """
import sys, threading
from craftcore.schedules.store import ScheduleStore
from tests.crash.schedule_campaign import campaign

def advance(self, tx, before, after, *, original=ScheduleStore.advance):
    if threading.current_thread().name == "craftcore-writer":
        for step in ("COMMIT", "BEGIN IMMEDIATE", "SAVEPOINT work_group"):
            tx._connection.execute(step)
    return original(self, tx, before, after)

ScheduleStore.advance = advance
print("\\n".join(campaign(30, 1, 2).wrong))
"""


@pytest.mark.acceptance
def test_checker_finds_a_scheduler_tick_split_over_two_commits(tmp_path):
    """A kill between the commit of account and triggers and the commit of the mark repeats the tick."""
    command = [sys.executable, "-c", A_TICK_OF_TWO_COMMITS]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}

    child = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=600, check=True
    )

    assert "is accounted for twice" in child.stdout, child.stdout + child.stderr
