"""The glossary and the table of states: their names and commands exist, and the states match the engine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from enum import StrEnum
from importlib import import_module
from pathlib import Path

import apsw
import pytest

from craftcore.activities.model import ActivityStatus
from craftcore.executions.model import Status
from craftcore.schedules.model import Outcome, ScheduleStatus
from craftcore.storage.migrations import LEDGER, list_migrations
from craftcore.tasks.model import QuestionStatus, TaskStatus
from craftcore.triggers.model import TriggerStatus
from tests.support.code_blocks import PAGES
from tests.support.command_calls import call_command
from tests.support.populated_database import a_world
from tests.support.processes import PATIENCE
from tests.support.transition_recorder import STATES

ROOT = Path(__file__).parents[1]
GLOSSARY = PAGES["docs/reference/glossary.md"]
PAGE = PAGES["docs/explanation/lifecycle.md"]
WORDS = dict(re.findall(r"^\*\*(.+?)\.\*\* (.*?)(?=\n\n)", GLOSSARY, re.MULTILINE | re.DOTALL))
ROWS = {
    "trigger": "triggers",
    "task": "tasks",
    "wait": "waits",
    "question": "questions",
    "mail": "mailbox",
    "activity": "activity_log",
    "record": "executions",
    "schedule": "schedules",
    "occurrence": "schedule_occurrences",
}
TRANSITIONS = {
    (ROWS[row], before, after)
    for row, before, after in re.findall(r"^\| (\w+) \| (\w*) ?\| (\w+) \| \S.* \|$", PAGE, re.MULTILINE)
    if row in ROWS
}
QUARANTINE_STATES = {
    "triggers": "DEAD",
    "tasks": "FAILED",
    "waits": "RESOLVED",
    "questions": "WITHDRAWN",
    "mailbox": "LEFT",
    "activity_log": "UNKNOWN",
    "schedules": "DISABLED",
}


@pytest.fixture(scope="module")
def schema() -> dict[str, str]:
    """Return the SQL of each table and view, by its name."""
    connection = apsw.Connection(":memory:")
    for sql in (LEDGER, *(migration.sql for migration in list_migrations())):
        connection.execute(sql)
    found = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type IN ('table', 'view')").fetchall()
    connection.close()
    return {str(name): str(sql) for name, sql in found if sql is not None}


@pytest.mark.parametrize("word", WORDS)
def test_stored_state_is_shown_by_a_command(schema, word):
    entry = " ".join(WORDS[word].split())
    [on_disk, look] = re.findall(r"\*On disk:\* (.*?) \*Look:\* (.*)$", entry)[0]
    texts = " ".join(schema.values())

    assert re.findall(r"`craftcore [^`]+`", look), word
    named = re.findall(r"`(\w+)`", on_disk)
    assert named or on_disk == "nothing.", word
    assert [name for name in named if not re.search(rf"\b{name}\b", texts)] == []


def test_required_term_is_explained():
    terms = {part for word in WORDS for part in re.split(r", | and ", word.lower())}
    must = (
        "trigger workflow attempt task turn step action activity ledger schedule occurrence record session lane lease"
    )
    assert {*must.split(), "epoch", "unknown", "dead", "failed", "inbox", "wait", "message", "signal"} <= terms


def test_glossary_defines_each_term_once():
    terms = [part.lower() for word in WORDS for part in re.split(r", | and ", word)]
    terms += re.findall(r"^\| (\w[\w -]*) \| \S", GLOSSARY.partition("## Other terms")[2], re.MULTILINE)
    assert len(terms) > 40
    assert sorted(terms) == sorted(set(terms))


def test_table_belongs_to_a_term(schema):
    internal_tables = {"facts", "schema_migrations", "clock_events", "notices", "notice_kinds", "restored_work"}
    tables = {name for name, sql in schema.items() if sql.startswith("CREATE TABLE")}
    explained = {name for word in WORDS.values() for name in re.findall(r"`(\w+)`", word)}
    assert tables - explained == internal_tables


def test_command_shows_the_described_output(tmp_path):
    (tmp_path / "app.py").write_text("from craftcore import App\napp = App('a')\n\n@app.workflow('w')\ndef w(): ...\n")
    world = a_world(tmp_path / "agent.db")
    ids = {
        "craftcore trigger": world.dead,
        "craftcore schedule": "nightly",
        "craftcore task": world.asks,
        "craftcore activity": world.in_doubt,
        "craftcore inspect": world.died,
    }
    commands = {command for word in WORDS.values() for command in re.findall(r"`(craftcore [^`]+)`", word)}

    assert len(commands) > 15
    for command in sorted(commands):
        noun = " ".join(command.split()[:2])
        line = re.sub(r"\b(ID|KEY)\b", ids.get(noun, ""), command.replace("MODULE:APP", "app:app"))
        shown = call_command(tmp_path, *line.split()[1:])
        may_find_faults = noun in ("craftcore doctor", "craftcore check")
        assert shown.code in ({0, 1} if may_find_faults else {0}), (command, shown.err)
        assert shown.out.strip(), command


def test_states_match_the_code_and_the_schema(schema):
    enums = {
        "triggers": TriggerStatus,
        "tasks": TaskStatus,
        "questions": QuestionStatus,
        "activity_log": ActivityStatus,
        "executions": Status,
        "schedules": ScheduleStatus,
        "schedule_occurrences": Outcome,
    }
    assert len(TRANSITIONS) == len(re.findall(rf"^\| ({'|'.join(ROWS)}) \| ", PAGE, re.MULTILINE)) > 50
    for table, column in STATES.items():
        states = {state for row, *ends in TRANSITIONS if row == table for state in ends if state}
        [allowed] = re.findall(rf"\b{column} IN \(([^)]+)\)\)", schema[table])[:1]
        assert states == set(re.findall(r"'(\w+)'", allowed)), table
        assert states == set(enums.get(table, states)), table


def test_quarantine_follows_the_page():
    _, _, quarantine = PAGE.partition("\n## Quarantine\n")
    assert dict(re.findall(r"^\| `(\w+)` \| ([A-Z]+)", quarantine, re.MULTILINE)) == QUARANTINE_STATES


EVERY_TRANSITION = {
    "tests/activities/test_restored_database.py": ["test_failure_after_the_restore_is_called_again_with_any_clock"],
    "tests/engine/test_emit_claims.py": ["test_trigger_emitted_to_an_idle_engine_is_claimed_in_the_emit_commit"],
    "tests/executions/test_recorder.py": [
        "test_attempts_have_separate_records_and_the_same_envelope",
        "test_released_attempt_ends_without_a_response",
    ],
    "tests/schedules/test_service.py": [
        "test_disabled_or_removed_schedule_declared_with_a_past_time_is_finished",
        "test_once_schedule_due_during_a_pause_fires_at_resume",
        "test_once_schedule_removed_and_added_again_fires_once_more",
        "test_past_time_is_skipped_for_a_declaration_and_refused_for_an_operator",
        "test_paused_schedule_can_be_removed",
        "test_raised_max_runs_reactivates_a_finished_schedule_from_now",
        "test_reanchored_schedule_drops_triggers_and_lines_from_a_wrong_clock",
        "test_remove_cancels_only_unstarted_triggers_of_the_schedule",
        "test_resume_after_the_end_accounts_only_for_slots_before_the_end",
        "test_schedule_no_longer_declared_is_disabled_and_later_enabled_from_now",
    ],
    "tests/schedules/test_ticks.py": ["test_buffered_occurrence_fires_without_a_new_decision"],
    "tests/tasks/test_activities.py": [
        "test_question_survives_a_task_retry_and_is_not_asked_twice",
        "test_repeated_conflict_is_asked_about_again",
    ],
    "tests/tasks/test_cancel.py": ["test_cancel_may_be_requested_again_during_the_unwind"],
    "tests/tasks/test_deadlines.py": ["test_wait_cut_off_by_the_deadline_begins_again_at_a_retry"],
    "tests/tasks/test_mailbox.py": ["test_task_end_leaves_signals_unread_and_emits_messages_again_in_order"],
    "tests/tasks/test_retry.py": [
        "test_retried_task_reads_earlier_signals_in_order",
        "test_task_can_be_retried_after_its_dead_letter_was_discarded",
        "test_task_is_not_retried_while_another_live_task_has_its_dedup_key",
    ],
}
"""Tests that make every documented transition together, on a virtual clock, within a second."""

STATE_TESTS = (
    "tests/triggers/test_attempts.py",
    "tests/triggers/test_operator_commands.py",
    "tests/tasks/test_activities.py",
    "tests/tasks/test_cancel.py",
    "tests/tasks/test_deadlines.py",
    "tests/tasks/test_mailbox.py",
    "tests/tasks/test_retry.py",
    "tests/tasks/test_turns.py",
    "tests/activities/test_restored_database.py",
    "tests/schedules/test_service.py",
    "tests/schedules/test_ticks.py",
    "tests/executions/test_recorder.py",
    "tests/engine/test_emit_claims.py",
)
"""The files of these tests, and other files about states: 500 tests, which must make no other transition."""


def record_transitions(folder: Path, *tests: str) -> set[tuple[str, str, str]]:
    """Run tests, and return each change of a state by a statement of craftcore."""
    seen = folder / "seen"
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "tests.support.transition_recorder",
        "-p",
        "no:cacheprovider",
        *tests,
    ]
    env = {**os.environ, "STATES_SEEN": str(seen)}
    child = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=30 * PATIENCE)
    assert child.returncode == 0, child.stdout[-2000:]
    found = set()
    for line in seen.read_text(encoding="utf-8").splitlines():
        table, before, after, _ = line.split("|", 3)
        found.add((table, before, after))
    return found


def is_quarantine(transition: tuple[str, str, str]) -> bool:
    table, before, after = transition
    return before != "" and QUARANTINE_STATES.get(table) == after


@pytest.mark.parametrize(
    "tests",
    [
        pytest.param([f"{file}::{name}" for file, names in EVERY_TRANSITION.items() for name in names], id="some"),
        pytest.param(STATE_TESTS, id="files", marks=pytest.mark.acceptance),
    ],
)
def test_states_follow_exactly_the_transitions_of_the_table(tmp_path, tests):
    seen = record_transitions(tmp_path, *tests)

    assert TRANSITIONS - seen == set()
    assert {transition for transition in seen - TRANSITIONS if not is_quarantine(transition)} == set()


@pytest.mark.campaign
def test_engine_tests_make_only_documented_transitions(tmp_path):
    folders = ("triggers", "tasks", "schedules", "activities", "executions", "engine", "simulation", "retention")
    corrupt = ("rows", "tasks", "activities", "records")
    tests = [f"tests/{name}" for name in folders] + [f"tests/crash/test_corrupt_{name}.py" for name in corrupt]

    seen = record_transitions(tmp_path, *tests)

    assert TRANSITIONS - seen == set()
    assert {transition for transition in seen - TRANSITIONS if not is_quarantine(transition)} == set()


ENUMERATIONS = [
    member
    for module in ("activities", "executions", "schedules", "tasks", "triggers")
    for member in vars(import_module(f"craftcore.{module}.model")).values()
    if isinstance(member, type) and issubclass(member, StrEnum) and member is not StrEnum
]


@pytest.mark.parametrize("enumeration", sorted(set(ENUMERATIONS), key=str), ids=lambda one: one.__name__)
def test_value_of_an_enumeration_is_documented(enumeration):
    pages = "\n".join(text for name, text in PAGES.items() if name.startswith(("docs/reference/", "docs/explanation/")))
    assert [value for value in enumeration if not re.search(rf"(?<![\w-]){re.escape(value)}(?![\w-])", pages)] == []
