"""Schema constraints on the table of triggers."""

from __future__ import annotations

import pytest

from craftcore.errors import StorageError
from craftcore.storage import migrate
from tests.support.fakes import NEW_YEAR
from tests.support.trigger_steps import emit, run_one

VALID = {
    "id": "a",
    "source": "IMMEDIATE",
    "workflow": "greet",
    "fire_at": NEW_YEAR,
    "due_at": NEW_YEAR,
    "priority": 10,
    "payload_json": "{}",
    "created_at": NEW_YEAR,
    "updated_at": NEW_YEAR,
}
CLAIMED = {"status": "CLAIMED", "lease_token": "1-1", "claimed_epoch": 1, "lease_until": NEW_YEAR + 60}
DONE = {"status": "DONE", "reason": "succeeded", "settled_at": NEW_YEAR}


def insert(core, table="triggers", **row):
    """Insert a row directly, without the checks of craftcore."""
    columns = ", ".join(row)
    values = ", ".join(f":{column}" for column in row)
    with core.transaction() as tx:
        tx.run(f"INSERT INTO {table} ({columns}) VALUES ({values})", **row)


def insert_trigger(core, **changes):
    insert(core, **{**VALID, **changes})


@pytest.mark.parametrize("changes", [{}, CLAIMED, DONE, {**CLAIMED, "started_at": NEW_YEAR}], ids=str)
def test_sound_row_passes_the_schema_checks(core, changes):
    insert_trigger(core, **changes)

    assert len(core.rows("SELECT id FROM triggers")) == 1


REFUSED = {
    "an unknown status": {"status": "RUNNING"},
    "an unknown source": {"source": "CRON"},
    "an unknown scope": {"dedup_key": "k", "dedup_scope": "today"},
    "a key without a scope": {"dedup_key": "k"},
    "a scope without a key": {"dedup_scope": "ever"},
    "a priority below 0": {"priority": -1},
    "a priority above 99": {"priority": 100},
    "a priority that is text": {"priority": "high"},
    "no attempts at all": {"max_attempts": 0},
    "a time that is text": {"fire_at": "now"},
    "no time": {"fire_at": None},
    "due before its fire time": {"due_at": NEW_YEAR - 1},
    "due before its backoff ends": {"not_before": NEW_YEAR + 1},
    "no payload": {"payload_json": None},
    "claimed without a token": {**CLAIMED, "lease_token": None},
    "claimed without an epoch": {**CLAIMED, "claimed_epoch": None},
    "pending with a token": {"lease_token": "1-1"},
    "pending with an epoch": {"claimed_epoch": 1},
    "pending and started": {"started_at": NEW_YEAR},
    "pending and settled": {"settled_at": NEW_YEAR},
    "done but not settled": {**DONE, "settled_at": None},
    "settled without a reason": {**DONE, "reason": None},
    "done with a token": {**DONE, "lease_token": "1-1"},
    "failed but not settled": {"status": "FAILED", "reason": "x"},
    "dead but not settled": {"status": "DEAD", "reason": "x"},
    "started_alone is not a boolean": {"started_alone": 2},
}


@pytest.mark.parametrize("changes", REFUSED.values(), ids=REFUSED)
def test_contradictory_row_is_refused_by_the_schema(core, changes):
    with pytest.raises(StorageError, match=r"constraint failed|cannot store"):
        insert_trigger(core, **changes)

    assert core.rows("SELECT id FROM triggers") == []


def test_trigger_id_is_unique_in_the_schema(core):
    insert_trigger(core, id="a")

    with pytest.raises(StorageError, match="UNIQUE"):
        insert_trigger(core, id="a")


@pytest.mark.parametrize("second", [{}, CLAIMED, DONE], ids=["pending", "claimed", "done"])
@pytest.mark.parametrize("first", [{}, CLAIMED, DONE], ids=["pending", "claimed", "done"])
def test_second_key_for_ever_is_refused_by_the_schema(core, first, second):
    key = {"dedup_key": "k", "dedup_scope": "ever"}
    insert_trigger(core, id="a", **key, **first)

    with pytest.raises(StorageError, match="UNIQUE"):
        insert_trigger(core, id="b", **key, **second)


@pytest.mark.parametrize("live", [{}, CLAIMED], ids=["pending", "claimed"])
def test_second_active_key_is_refused_only_while_the_first_is_live(core, live):
    key = {"dedup_key": "k", "dedup_scope": "active"}
    insert_trigger(core, id="old", **key, **DONE)
    insert_trigger(core, id="a", **key, **live)

    with pytest.raises(StorageError, match="UNIQUE"):
        insert_trigger(core, id="b", **key)
    insert_trigger(core, id="c", **key, **DONE)


def test_active_key_is_refused_beside_a_key_for_ever(core):
    insert_trigger(core, id="a", dedup_key="k", dedup_scope="ever", **DONE)

    with pytest.raises(StorageError, match="UNIQUE"):
        insert_trigger(core, id="b", dedup_key="k", dedup_scope="active")


def test_any_number_of_rows_without_a_key_is_permitted(core):
    for name in "abc":
        insert_trigger(core, id=name)

    assert len(core.rows("SELECT id FROM triggers")) == 3


RECORD = {
    "id": "exec-a.1",
    "trigger_id": "a",
    "attempt": 1,
    "epoch": 1,
    "created_at": NEW_YEAR,
    "envelope_json": "{}",
    "envelope_hash": "sha256:",
}
EVENT = {"execution_seq": 1, "seq": 1, "type": "INTENT_RECEIVED", "at": NEW_YEAR, "payload_json": "{}"}


@pytest.mark.parametrize("changes", [{"status": "running"}, {"replayable": 2}, {"envelope_json": None}], ids=str)
def test_record_in_an_unknown_state_is_refused_by_the_schema(core, changes):
    with pytest.raises(StorageError, match="constraint failed"):
        insert(core, "executions", **{**RECORD, **changes})


def test_event_without_a_record_or_with_a_used_number_is_refused(core):
    with pytest.raises(StorageError, match="FOREIGN KEY"):
        insert(core, "event_rows", **EVENT)
    insert(core, "executions", **RECORD)
    insert(core, "event_rows", **EVENT)

    with pytest.raises(StorageError, match="UNIQUE"):
        insert(core, "event_rows", **EVENT)


def test_opening_the_file_again_keeps_tables_and_rows_and_applies_nothing_twice(core):
    emit(core)
    run_one(core)
    before = core.rows("SELECT * FROM triggers")

    core.prepare()
    applied = migrate.migrate(core.database, core.clock)

    assert applied == []
    assert core.rows("SELECT * FROM triggers") == before


SPECIFIED_COLUMNS = {
    *("id", "source", "dedup_key", "session_id", "fire_at", "priority", "payload_json", "description", "status"),
    *("attempts", "lease_until", "not_before", "created_at", "updated_at"),
}


def test_table_has_every_column_of_the_specification(core):
    columns = {row["name"] for row in core.rows("PRAGMA table_info(triggers)")}

    contract = "workflow task_id schedule_id nominal_at lane dedup_scope due_at lease_token claimed_epoch started_at "
    contract += "cancel_requested_at max_attempts crash_count reason error_code error_message superseded_by settled_at"
    assert columns >= SPECIFIED_COLUMNS | set(contract.split())
