"""Verification of records: it finds each change by plain SQL, except those in the list of known limits."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from craftcore.executions.chain.verify import Verification
from craftcore.executions.chain.verify_rules import Area, Fault
from tests.support.fakes import NEW_YEAR
from tests.support.recorded_executions import Unguarded

TABLES = ("executions", "event_rows", "blobs", "record_chain", "audit_log")

NOT_SEALED_YET = "only the envelope of an open record has a hash; the commit that closes the record seals the rest"
BEFORE_THE_CHAIN = "it was closed before there was a chain, and only its envelope has a hash"
STRIPPED_TEXT = (
    "retention removed the texts, so the hash of the events cannot be computed; the chain still has the hash"
)
SAME = "'' and NULL both mean that the text was removed"
NUMBER = "a number of SQLite that nothing refers to"
PERMISSION = "it permits removals; `removed` counts the removed records"
AGAINST_A_HEAD = "the file alone is consistent; only a head that is stored elsewhere shows the change"
SCAN = "it is the place where retention continues; a skipped record is kept"
AFTER_SEALING = "no hash can cover it, because it is written after the record was sealed"

OPEN_COLUMNS = ("id", "task_id", "turn", "attempt", "epoch", "workflow", "created_at", "routing_json")
ENDED_COLUMNS = ("ended_at", "status", "replayable", "replayable_reason", "response_json", "error_code", "latency_ms")
NO_HASH = {"open": NOT_SEALED_YET, "before": BEFORE_THE_CHAIN}
EVENT_COLUMNS = ("type", "at", "payload_json", "task_seq", "turn", "memo", "activity_seq")

UNDETECTED: dict[tuple[str, str], dict[str, str]] = {
    **{("executions", name): NO_HASH for name in OPEN_COLUMNS},
    **{("executions", name): {"before": BEFORE_THE_CHAIN} for name in ENDED_COLUMNS},
    ("executions", "response_json"): {"before": BEFORE_THE_CHAIN, "stripped": SAME},
    ("executions", "stripped_at"): {"stripped": AFTER_SEALING},
    **{
        ("event_rows", name): {"open": NOT_SEALED_YET, "before": BEFORE_THE_CHAIN, "stripped": STRIPPED_TEXT}
        for name in EVENT_COLUMNS
    },
    ("blobs", "seq"): {"closed": NUMBER, "open": NUMBER},
    ("record_chain", "id"): {"": NUMBER},
    ("record_chain", "anchor_record"): {"": PERMISSION},
    ("record_chain", "unchained_to"): {"": AGAINST_A_HEAD},
    ("record_chain", "passed_seq"): {"": SCAN},
}
"""(table, column) -> state of the record -> the reason why a change is not detected."""

UNDETECTED_TEXTS = {
    ("executions", "first_events"): NO_HASH | {"stripped": STRIPPED_TEXT},
    ("executions", "last_events"): {"before": BEFORE_THE_CHAIN, "stripped": STRIPPED_TEXT},
}
"""The same for an event in a text. A damaged text is always detected."""

STATE = """
CASE WHEN stripped_at IS NOT NULL THEN 'stripped'
     WHEN chain_seq IS NOT NULL THEN 'closed'
     WHEN ended_at IS NOT NULL THEN 'before'
     ELSE 'open' END
"""
STATE_OF_RECORD = f"(SELECT {STATE} FROM executions WHERE seq = execution_seq)"
STATES = {"executions": STATE, "event_rows": STATE_OF_RECORD, "blobs": STATE_OF_RECORD}
RECORD = {"executions": "seq", "event_rows": "execution_seq", "blobs": "execution_seq"}
KEYS = {"event_rows": "execution_seq = :execution_seq AND seq = :seq", "record_chain": "TRUE"}

OTHER_VALUE = {
    "TEXT": "CASE WHEN {0} IS NULL THEN 'x' WHEN {0} = '' THEN 'y' ELSE substr({0}, 1, length({0}) - 1) || "
    "char(unicode(substr({0}, -1)) + 1) END",
    "INTEGER": "coalesce({0}, 0) + 1000",
    "REAL": "coalesce({0}, 0.0) + 1.0",
}

MORE_VALUES = {
    ("executions", "status"): ["CASE status WHEN 'error' THEN 'success' ELSE 'error' END"],
    ("executions", "replayable"): ["1 - replayable"],
}
"""Other values that the schema permits."""


@pytest.fixture(scope="module")
def copy(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Unguarded:
    return Unguarded(sound, tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module")
def texts(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Unguarded:
    """Return a copy with events as texts, the current format."""
    return Unguarded(sound, tmp_path_factory.mktemp("texts"), in_rows=False)


def columns(copy: Unguarded, table: str) -> dict[str, str]:
    found = copy.reader.fetch_all("SELECT name, type FROM pragma_table_info(:t)", t=table)
    return {row["name"]: row["type"] for row in found}


def rows(copy: Unguarded, table: str) -> list[dict[str, Any]]:
    state = STATES.get(table, "''")
    return copy.reader.fetch_all(f"SELECT *, {state} AS state FROM {table}")


def row_condition(table: str, row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return a condition that only this row fulfils, and its parameters."""
    text = KEYS.get(table, "seq = :seq")
    return text, {name: row[name] for name in ("execution_seq", "seq") if f":{name}" in text}


def record_of(copy: Unguarded, table: str, row: dict[str, Any]) -> dict[str, Any] | None:
    if table not in RECORD:
        return None
    return copy.reader.fetch_one("SELECT id, chain_seq FROM executions WHERE seq = :seq", seq=row[RECORD[table]])


def is_named(first: Fault, table: str, row: dict[str, Any], record: dict[str, Any] | None) -> bool:
    """Return whether the first fault names this record, or this row of the audit log."""
    if table == "audit_log":
        return first.area is Area.AUDIT and first.place is not None and first.place >= row["seq"]
    if record is None:
        return True
    if row["state"] == "closed":
        return bool(first.place == record["chain_seq"])
    return first.id is None or first.id.startswith(record["id"][:-1])


def changes(copy: Unguarded, table: str, column: str) -> Iterator[tuple[str, str, dict[str, Any], list[Fault]]]:
    """Yield (state, other value, row, faults) for each row, and for each other value of a column.

    One event of each shape is changed. A shape is a type, a state of the record, and the columns with a value.
    """
    kind = columns(copy, table)[column]
    changed = rows(copy, table)
    if table == "event_rows":
        shapes = {(row["state"], row["type"], *(value is None for value in row.values())): row for row in changed}
        changed = list(shapes.values())
    for row in changed:
        condition, params = row_condition(table, row)
        values = [OTHER_VALUE[kind].format(column), *MORE_VALUES.get((table, column), ())]
        if row[column] is not None and _may_be_null(copy, table, column):
            values.append("NULL")
        for value in values:
            found = copy.faults(f"UPDATE {table} SET {column} = {value} WHERE {condition}", **params)
            yield row["state"], value, row, found


def _may_be_null(copy: Unguarded, table: str, column: str) -> bool:
    [(notnull, key)] = copy.connection.execute(
        'SELECT "notnull", pk FROM pragma_table_info(?) WHERE name = ?', (table, column)
    )
    return not notnull and not key


CELLS = [
    (table, column)
    for table, names in {
        "executions": (
            *("seq", "id", "trigger_id", "task_id", "attempt", "epoch", "workflow", "created_at", "ended_at"),
            *("status", "replayable", "replayable_reason", "envelope_json", "envelope_hash", "routing_json"),
            *("response_json", "error_code", "latency_ms", "turn", "chain_seq", "events_hash", "response_hash"),
            *("prev_hash", "record_hash", "stripped_at", "first_events", "last_events"),
        ),
        "event_rows": (
            "execution_seq",
            "seq",
            "type",
            "at",
            "payload_json",
            "task_seq",
            "turn",
            "memo",
            "activity_seq",
        ),
        "blobs": ("seq", "execution_seq", "part", "body"),
        "record_chain": (
            *("id", "head_seq", "head_hash", "unchained_to", "anchor_seq", "anchor_hash", "anchor_record", "removed"),
            *("passed_seq", "audit_anchor_seq", "audit_anchor_hash"),
        ),
        "audit_log": (
            *("seq", "at", "uid", "name", "action", "subject", "reason", "details_json", "prev_hash", "hash"),
        ),
    }.items()
    for column in names
]


def test_verify_fixture_has_records_of_every_state_and_all_are_sound(copy):
    states = {row["state"] for row in rows(copy, "executions")}

    verification = Verification(copy.reader, NEW_YEAR)

    assert list(verification.faults()) == []
    assert states == {"closed", "stripped", "open", "before"}
    counts = verification.counts
    assert (counts.open, counts.before, counts.removed, counts.audit) == (3, 1, 1, 3)
    assert counts.chained == len(rows(copy, "executions")) - 4
    assert {row["part"] for row in rows(copy, "blobs")} == {"envelope", "response"}
    assert {"STEP_COMPLETED", "ACTIVITY_DONE", "EMITTED"} <= {row["type"] for row in rows(copy, "event_rows")}


def test_verify_tests_change_every_column_of_record_tables(copy):
    all_columns = {(table, column) for table in TABLES for column in columns(copy, table)}

    assert all_columns == set(CELLS)
    assert set(UNDETECTED) <= all_columns


@pytest.mark.parametrize(("table", "column"), CELLS)
def test_verify_finds_a_changed_value_in_any_column_and_names_its_record_first(copy, table, column):
    undetected: set[str] = set()

    for state, value, row, found in changes(copy, table, column):
        if not found:
            undetected.add(state)
            continue
        assert is_named(found[0], table, row, record_of(copy, table, row)), (state, value, row, found)

    assert undetected == set(UNDETECTED.get((table, column), {}))


# Deleted, added and swapped rows


def delete(copy: Unguarded, table: str, row: dict[str, Any]) -> list[Fault]:
    condition, params = row_condition(table, row)
    return copy.faults(f"DELETE FROM {table} WHERE {condition}", **params)


UNDETECTED_DELETIONS = {
    ("event_rows", "open"): "the last event of an open record may not be written yet",
    ("event_rows", "before"): BEFORE_THE_CHAIN,
    ("event_rows", "stripped"): STRIPPED_TEXT,
    ("audit_log", ""): "the log then ends one row earlier; only a head that is stored elsewhere shows the change",
}
"""(table, state) -> the reason why the deletion of a last row is not detected. All other deletions are detected."""


@pytest.mark.parametrize("table", ["executions", "event_rows", "blobs", "record_chain", "audit_log"])
def test_verify_finds_a_deleted_row_and_names_its_record_first(copy, table):
    undetected = []

    for row in rows(copy, table):
        if found := delete(copy, table, row):
            if table != "executions" or row["state"] in ("closed", "stripped"):
                assert is_named(found[0], table, row, record_of(copy, table, row)), (row, found)
        else:
            undetected.append(row)

    assert {(table, row["state"]) for row in undetected} == {key for key in UNDETECTED_DELETIONS if key[0] == table}
    if table == "event_rows":
        last = copy.reader.fetch_all("SELECT execution_seq, max(seq) AS seq FROM events GROUP BY execution_seq")
        assert all({"execution_seq": row["execution_seq"], "seq": row["seq"]} in last for row in undetected)


DELETE_RECORD = [
    "DELETE FROM executions WHERE seq = :seq",
    "DELETE FROM event_rows WHERE execution_seq = :seq",
]


def test_verify_finds_a_deleted_record_unless_the_newest(copy):
    undetected = []

    for row in rows(copy, "executions"):
        bodies = [body for body in rows(copy, "blobs") if body["execution_seq"] == row["seq"]]
        statements = [*DELETE_RECORD, *["DELETE FROM blobs WHERE execution_seq = :seq"] * bool(bodies)]
        found = copy.faults(*statements, seq=row["seq"])
        if not found:
            undetected.append(row)
            continue
        assert found[0].area is Area.MISSING
        assert found[0].place == row["chain_seq"]

    newest = max(rows(copy, "executions"), key=lambda row: row["seq"])
    assert undetected == [newest]
    assert newest["state"] == "open"


def closed_records(copy: Unguarded) -> list[dict[str, Any]]:
    """Return the closed records in the order of the chain."""
    found = [row for row in rows(copy, "executions") if row["state"] == "closed"]
    return sorted(found, key=lambda row: int(row["chain_seq"]))


SWAP = """
UPDATE executions
   SET ({names}) = (SELECT {names} FROM executions AS other WHERE other.seq = :a + :b - executions.seq)
 WHERE seq IN (:a, :b)
"""


@pytest.mark.parametrize(
    "names",
    [
        "chain_seq",
        "envelope_json",
        "envelope_json, envelope_hash",
        "events_hash",
        "response_json",
        "response_json, response_hash",
        "prev_hash",
        "record_hash",
        "prev_hash, record_hash",
        "chain_seq, prev_hash",
        "chain_seq, prev_hash, record_hash",
        "created_at, ended_at, chain_seq, events_hash, prev_hash, record_hash",
        "trigger_id, workflow, attempt, status, envelope_json, envelope_hash, response_json, response_hash",
    ],
)
def test_verify_finds_swapped_records_or_parts_and_names_the_first(copy, names):
    one, other = (next(row for row in closed_records(copy) if row["trigger_id"] == f"closed-{n}") for n in (0, 1))

    found = copy.faults(SWAP.format(names=names), a=one["seq"], b=other["seq"])

    assert found[0].place == one["chain_seq"]


def test_verify_finds_records_swapped_with_everything_but_their_numbers(copy):
    """Two whole records exchange their rowids, and all other columns keep their values."""
    one, other = (row["seq"] for row in closed_records(copy)[-2:])
    move = [
        f"UPDATE {table} SET {name} = CASE {name} WHEN :a THEN -1 WHEN :b THEN -2 END WHERE {name} IN (:a, :b)"
        for table, name in (("executions", "seq"), ("event_rows", "execution_seq"))
    ]
    back = [
        f"UPDATE {table} SET {name} = CASE {name} WHEN -1 THEN :b WHEN -2 THEN :a END WHERE {name} < 0"
        for table, name in (("executions", "seq"), ("event_rows", "execution_seq"))
    ]

    found = copy.faults(*move, *back, a=one, b=other)

    assert found[0].place == closed_records(copy)[-2]["chain_seq"]


def test_verify_finds_swapped_events(copy):
    swap = """
    UPDATE event_rows
       SET (type, at, payload_json) = (SELECT type, at, payload_json FROM event_rows AS other
                                        WHERE other.execution_seq = :seq AND other.seq = 3 - event_rows.seq)
     WHERE execution_seq = :seq
       AND seq IN (1, 2)
    """
    for row in closed_records(copy):
        found = copy.faults(swap, seq=row["seq"])

        assert [found[0].id, found[0].place] == [row["id"], row["chain_seq"]]


TEXT_CHANGES = {
    "NULL": "NULL",
    "empty": "''",
    "truncated": "substr({0}, 1, length({0}) - 1)",
    "not canonical": "replace({0}, ',', ', ')",
    "another time": "replace({0}, '.', '1.')",
    "without its first event": "substr({0}, instr({0}, '],[') + 2)",
    "one more event": "{0} || ',[99,\"NOTE\",1.0,{{}},null,null,null,null]'",
    "the other text": "iif({0} IS first_events, last_events, first_events)",
}


@pytest.mark.parametrize("text", TEXT_CHANGES.values(), ids=TEXT_CHANGES)
@pytest.mark.parametrize("column", ["first_events", "last_events"])
def test_verify_finds_a_changed_text_of_events_and_names_its_record(texts, column, text):
    for row in closed_records(texts):
        found = texts.faults(f"UPDATE executions SET {column} = {text.format(column)} WHERE seq = :seq", seq=row["seq"])

        assert [found[0].id, found[0].place] == [row["id"], row["chain_seq"]], row


@pytest.mark.parametrize("state", ["open", "stripped", "before"])
def test_verify_finds_a_damaged_text_of_events_in_any_record(texts, state):
    for row in rows(texts, "executions"):
        if row["state"] == state:
            found = texts.faults(
                "UPDATE executions SET first_events = first_events || 'x' WHERE seq = :s", s=row["seq"]
            )

            assert found[0].id == row["id"]
            assert "its events are numbered 0" in found[0].wrong


def test_verify_finds_an_event_row_in_place_of_a_text(texts):
    """The text or the rows alone have the events that the hash covers. Together they have each event twice."""
    add = "INSERT INTO event_rows (execution_seq, seq, type, at, payload_json) SELECT :seq, 1, type, at, payload_json "
    for row in closed_records(texts):
        found = texts.faults(add + "FROM events WHERE execution_seq = :seq AND seq = 1", seq=row["seq"])

        assert found[0].place == row["chain_seq"]


def test_records_with_rows_and_records_with_texts_have_the_same_events(copy, texts):
    statement = "SELECT * FROM events ORDER BY execution_seq, seq"

    assert texts.reader.fetch_all(statement) == copy.reader.fetch_all(statement)
    assert copy.reader.fetch_value("SELECT count(*) FROM executions WHERE first_events IS NOT NULL") == 0
    assert texts.reader.fetch_value("SELECT count(*) FROM executions WHERE first_events IS NULL") == 0
    assert list(Verification(texts.reader, NEW_YEAR).faults()) == []


def test_verify_finds_an_extra_event(copy):
    add = """
    INSERT INTO event_rows (execution_seq, seq, type, at, payload_json)
    SELECT execution_seq, max(seq) + 1, 'NOTE', max(at), '{}' FROM events WHERE execution_seq = :seq
    """
    for row in closed_records(copy):
        assert copy.faults(add, seq=row["seq"])[0].place == row["chain_seq"]


def test_verify_finds_an_extra_record_at_any_place(copy):
    names = ", ".join(name for name in columns(copy, "executions") if name not in ("seq", "id", "chain_seq"))
    add = (
        f"INSERT INTO executions (seq, id, chain_seq, {names}) "
        f"SELECT (SELECT max(seq) + 1 FROM executions), 'exec-another.1', :place, {names} "
        "FROM executions WHERE seq = :seq"
    )
    last = closed_records(copy)[-1]

    for place in (None, 1, last["chain_seq"], last["chain_seq"] + 1):
        found = copy.faults(add, place=place, seq=last["seq"])

        assert "exec-another.1" in {fault.id for fault in found}, place


# Truncation

CUT = [
    "DELETE FROM event_rows WHERE execution_seq IN (SELECT seq FROM executions WHERE chain_seq > :left)",
    "DELETE FROM executions WHERE chain_seq > :left",
]
CUT_HEAD = (
    "UPDATE record_chain SET (head_seq, head_hash) = (SELECT chain_seq, record_hash FROM executions "
    "WHERE chain_seq = :left)"
)
CUT_OTHERS = [
    "DELETE FROM event_rows WHERE execution_seq > (SELECT max(seq) FROM executions WHERE chain_seq IS NOT NULL)",
    "DELETE FROM executions WHERE seq > (SELECT max(seq) FROM executions WHERE chain_seq IS NOT NULL)",
    "DELETE FROM blobs WHERE execution_seq NOT IN (SELECT seq FROM executions)",
    "UPDATE record_chain SET unchained_to = 0",
]


def test_verify_finds_a_cut_off_tail_that_the_head_knows(copy):
    left = closed_records(copy)[-3]["chain_seq"]

    found = copy.faults(*CUT, left=left)

    assert (found[0].area, found[0].place) == (Area.MISSING, left + 1)
    assert f"places {left + 1} to {left + 2}" in found[0].wrong


def test_verify_finds_a_cut_off_tail_and_head_while_younger_records_exist(copy):
    left = closed_records(copy)[-3]["chain_seq"]

    [fault] = copy.faults(*CUT, CUT_HEAD, left=left)

    assert fault.area is Area.MISSING
    assert fault.wrong.startswith("2 records are missing")


def test_verify_against_an_earlier_head_finds_a_completely_removed_tail(copy):
    """All later rows are removed too, and the chain is consistent, so the file alone does not show the removal."""
    left = closed_records(copy)[-3]["chain_seq"]
    everything = [*CUT, CUT_HEAD, *CUT_OTHERS]
    before = copy.head()

    assert copy.faults(*everything, left=left) == []
    found = copy.faults(*everything, left=left, before=before)

    assert found[0].wrong.startswith(
        f"the chain ends at place {left}, and the head from before was at place {left + 2}"
    )


def test_verify_finds_recomputed_hashes_only_against_an_earlier_head(copy):
    """The last record is changed and sealed again. A hash without a key cannot prevent that."""
    from craftcore.executions.chain.seal import record_hash
    from craftcore.executions.record import header_of
    from craftcore.executions.record_store import RecordStore

    last = closed_records(copy)[-1]
    record = RecordStore().get_by_seq(copy.reader, last["seq"])
    assert record is not None
    forged = record_hash(header_of(record)._replace(workflow="forged"))
    statements = [
        "UPDATE executions SET workflow = 'forged', record_hash = :forged WHERE seq = :seq",
        "UPDATE record_chain SET head_hash = :forged",
    ]

    assert copy.faults(*statements, forged=forged, seq=last["seq"]) == []
    [fault] = copy.faults(*statements, forged=forged, seq=last["seq"], before=copy.head())

    assert fault.wrong == f"record of the chain {last['chain_seq']} is not the one that the head from before knew"
