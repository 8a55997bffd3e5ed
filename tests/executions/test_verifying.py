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

NOT_SEALED_YET = "an open record has no hash but its envelope's; the commit that closes it seals the rest"
FROM_BEFORE = "it was closed before there was a chain, and has no hash but its envelope's"
NO_MORE = "once retention took the texts, the hash of the events cannot be computed again; the chain still holds it"
SAME = "'' and NULL both say that there is none any more"
NUMBER = "a number of SQLite's, which nothing refers to"
PERMISSION = "it only says what may be removed; what is removed is counted by `removed`"
AGAINST_A_HEAD = "nothing in the file says otherwise; a head that was written elsewhere does"
SCAN = "it only says where retention looks next; a record that it skips stays"
WHEN = "no hash can cover it: it is written after the record was sealed"

OPEN_COLUMNS = ("id", "task_id", "turn", "attempt", "epoch", "workflow", "created_at", "routing_json")
ENDED_COLUMNS = ("ended_at", "status", "replayable", "replayable_reason", "response_json", "error_code", "latency_ms")
NO_HASH = {"open": NOT_SEALED_YET, "before": FROM_BEFORE}
EVENT_COLUMNS = ("type", "at", "payload_json", "task_seq", "turn", "memo", "activity_seq")

UNSEEN: dict[tuple[str, str], dict[str, str]] = {
    **{("executions", name): NO_HASH for name in OPEN_COLUMNS},
    **{("executions", name): {"before": FROM_BEFORE} for name in ENDED_COLUMNS},
    ("executions", "response_json"): {"before": FROM_BEFORE, "stripped": SAME},
    ("executions", "stripped_at"): {"stripped": WHEN},
    **{
        ("event_rows", name): {"open": NOT_SEALED_YET, "before": FROM_BEFORE, "stripped": NO_MORE}
        for name in EVENT_COLUMNS
    },
    ("blobs", "seq"): {"closed": NUMBER, "open": NUMBER},
    ("record_chain", "id"): {"": NUMBER},
    ("record_chain", "anchor_record"): {"": PERMISSION},
    ("record_chain", "unchained_to"): {"": AGAINST_A_HEAD},
    ("record_chain", "passed_seq"): {"": SCAN},
}
"""(table, column) -> standing of the record -> why a change of it is not seen."""

UNSEEN_TEXTS = {
    ("executions", "first_events"): NO_HASH | {"stripped": NO_MORE},
    ("executions", "last_events"): {"before": FROM_BEFORE, "stripped": NO_MORE},
}
"""The same of an event in a text: a text that is damaged is always seen."""

STANDING = """
CASE WHEN stripped_at IS NOT NULL THEN 'stripped'
     WHEN chain_seq IS NOT NULL THEN 'closed'
     WHEN ended_at IS NOT NULL THEN 'before'
     ELSE 'open' END
"""
OF_RECORD = f"(SELECT {STANDING} FROM executions WHERE seq = execution_seq)"
STANDINGS = {"executions": STANDING, "event_rows": OF_RECORD, "blobs": OF_RECORD}
RECORD = {"executions": "seq", "event_rows": "execution_seq", "blobs": "execution_seq"}
KEYS = {"event_rows": "execution_seq = :execution_seq AND seq = :seq", "record_chain": "TRUE"}

OTHER = {
    "TEXT": "CASE WHEN {0} IS NULL THEN 'x' WHEN {0} = '' THEN 'y' ELSE substr({0}, 1, length({0}) - 1) || "
    "char(unicode(substr({0}, -1)) + 1) END",
    "INTEGER": "coalesce({0}, 0) + 1000",
    "REAL": "coalesce({0}, 0.0) + 1.0",
}

ALSO = {
    ("executions", "status"): ["CASE status WHEN 'error' THEN 'success' ELSE 'error' END"],
    ("executions", "replayable"): ["1 - replayable"],
}
"""Values that the schema would take."""


@pytest.fixture(scope="module")
def copy(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Unguarded:
    return Unguarded(sound, tmp_path_factory.mktemp("copy"))


@pytest.fixture(scope="module")
def texts(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> Unguarded:
    """The same with the events as they are written."""
    return Unguarded(sound, tmp_path_factory.mktemp("texts"), in_rows=False)


def columns(copy: Unguarded, table: str) -> dict[str, str]:
    found = copy.reader.fetch_all("SELECT name, type FROM pragma_table_info(:t)", t=table)
    return {row["name"]: row["type"] for row in found}


def rows(copy: Unguarded, table: str) -> list[dict[str, Any]]:
    standing = STANDINGS.get(table, "''")
    return copy.reader.fetch_all(f"SELECT *, {standing} AS standing FROM {table}")


def where(table: str, row: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """What finds this row and no other."""
    text = KEYS.get(table, "seq = :seq")
    return text, {name: row[name] for name in ("execution_seq", "seq") if f":{name}" in text}


def record_of(copy: Unguarded, table: str, row: dict[str, Any]) -> dict[str, Any] | None:
    if table not in RECORD:
        return None
    return copy.reader.fetch_one("SELECT id, chain_seq FROM executions WHERE seq = :seq", seq=row[RECORD[table]])


def is_named(first: Fault, table: str, row: dict[str, Any], record: dict[str, Any] | None) -> bool:
    """Whether the first fault is about that record, or that row of the operators' log."""
    if table == "audit_log":
        return first.area is Area.AUDIT and first.place is not None and first.place >= row["seq"]
    if record is None:
        return True
    if row["standing"] == "closed":
        return bool(first.place == record["chain_seq"])
    return first.id is None or first.id.startswith(record["id"][:-1])


def changes(copy: Unguarded, table: str, column: str) -> Iterator[tuple[str, str, dict[str, Any], list[Fault]]]:
    """(standing, the other value, row, what is found) for each row, and each other value of that column.

    Of events only one of each shape is changed: of a type, in a record of a standing, with values in the same columns.
    """
    kind = columns(copy, table)[column]
    changed = rows(copy, table)
    if table == "event_rows":
        shapes = {(row["standing"], row["type"], *(value is None for value in row.values())): row for row in changed}
        changed = list(shapes.values())
    for row in changed:
        condition, params = where(table, row)
        values = [OTHER[kind].format(column), *ALSO.get((table, column), ())]
        if row[column] is not None and _may_be_null(copy, table, column):
            values.append("NULL")
        for value in values:
            found = copy.faults(f"UPDATE {table} SET {column} = {value} WHERE {condition}", **params)
            yield row["standing"], value, row, found


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
    standings = {row["standing"] for row in rows(copy, "executions")}

    verification = Verification(copy.reader, NEW_YEAR)

    assert list(verification.faults()) == []
    assert standings == {"closed", "stripped", "open", "before"}
    counts = verification.counts
    assert (counts.open, counts.before, counts.removed, counts.audit) == (3, 1, 1, 3)
    assert counts.chained == len(rows(copy, "executions")) - 4
    assert {row["part"] for row in rows(copy, "blobs")} == {"envelope", "response"}
    assert {"STEP_COMPLETED", "ACTIVITY_DONE", "EMITTED"} <= {row["type"] for row in rows(copy, "event_rows")}


def test_verify_tests_change_every_column_of_record_tables(copy):
    there = {(table, column) for table in TABLES for column in columns(copy, table)}

    assert there == set(CELLS)
    assert set(UNSEEN) <= there


@pytest.mark.parametrize(("table", "column"), CELLS)
def test_verify_finds_a_changed_value_in_any_column_and_names_its_record_first(copy, table, column):
    unseen: set[str] = set()

    for standing, value, row, found in changes(copy, table, column):
        if not found:
            unseen.add(standing)
            continue
        assert is_named(found[0], table, row, record_of(copy, table, row)), (standing, value, row, found)

    assert unseen == set(UNSEEN.get((table, column), {}))


# Rows that go, come, or change places


def delete(copy: Unguarded, table: str, row: dict[str, Any]) -> list[Fault]:
    condition, params = where(table, row)
    return copy.faults(f"DELETE FROM {table} WHERE {condition}", **params)


GONE_UNSEEN = {
    ("event_rows", "open"): "the last event of a record that has no end may not be written yet",
    ("event_rows", "before"): FROM_BEFORE,
    ("event_rows", "stripped"): NO_MORE,
    ("audit_log", ""): "the last row of the log is the end of it; a head that was written elsewhere says more",
}
"""(table, standing) -> why the last row of a record, or of the table, can go unseen. All others are missed."""


@pytest.mark.parametrize("table", ["executions", "event_rows", "blobs", "record_chain", "audit_log"])
def test_verify_finds_a_deleted_row_and_names_its_record_first(copy, table):
    unseen = []

    for row in rows(copy, table):
        if found := delete(copy, table, row):
            if table != "executions" or row["standing"] in ("closed", "stripped"):
                assert is_named(found[0], table, row, record_of(copy, table, row)), (row, found)
        else:
            unseen.append(row)

    assert {(table, row["standing"]) for row in unseen} == {key for key in GONE_UNSEEN if key[0] == table}
    if table == "event_rows":
        last = copy.reader.fetch_all("SELECT execution_seq, max(seq) AS seq FROM events GROUP BY execution_seq")
        assert all({"execution_seq": row["execution_seq"], "seq": row["seq"]} in last for row in unseen)


WITH_ALL_OF_IT = [
    "DELETE FROM executions WHERE seq = :seq",
    "DELETE FROM event_rows WHERE execution_seq = :seq",
]


def test_verify_finds_a_deleted_record_unless_the_newest(copy):
    unseen = []

    for row in rows(copy, "executions"):
        bodies = [body for body in rows(copy, "blobs") if body["execution_seq"] == row["seq"]]
        statements = [*WITH_ALL_OF_IT, *["DELETE FROM blobs WHERE execution_seq = :seq"] * bool(bodies)]
        found = copy.faults(*statements, seq=row["seq"])
        if not found:
            unseen.append(row)
            continue
        assert found[0].area is Area.MISSING
        assert found[0].place == row["chain_seq"]

    newest = max(rows(copy, "executions"), key=lambda row: row["seq"])
    assert unseen == [newest]
    assert newest["standing"] == "open"


def closed(copy: Unguarded) -> list[dict[str, Any]]:
    """The closed records in the order of the chain."""
    found = [row for row in rows(copy, "executions") if row["standing"] == "closed"]
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
    one, other = (next(row for row in closed(copy) if row["trigger_id"] == f"closed-{n}") for n in (0, 1))

    found = copy.faults(SWAP.format(names=names), a=one["seq"], b=other["seq"])

    assert found[0].place == one["chain_seq"]


def test_verify_finds_records_swapped_with_everything_but_their_numbers(copy):
    """Two whole records, each with the other's rowid: what they say is as it was, and stands under another number."""
    one, other = (row["seq"] for row in closed(copy)[-2:])
    move = [
        f"UPDATE {table} SET {name} = CASE {name} WHEN :a THEN -1 WHEN :b THEN -2 END WHERE {name} IN (:a, :b)"
        for table, name in (("executions", "seq"), ("event_rows", "execution_seq"))
    ]
    back = [
        f"UPDATE {table} SET {name} = CASE {name} WHEN -1 THEN :b WHEN -2 THEN :a END WHERE {name} < 0"
        for table, name in (("executions", "seq"), ("event_rows", "execution_seq"))
    ]

    found = copy.faults(*move, *back, a=one, b=other)

    assert found[0].place == closed(copy)[-2]["chain_seq"]


def test_events_that_changed_places_are_found(copy):
    swap = """
    UPDATE event_rows
       SET (type, at, payload_json) = (SELECT type, at, payload_json FROM event_rows AS other
                                        WHERE other.execution_seq = :seq AND other.seq = 3 - event_rows.seq)
     WHERE execution_seq = :seq
       AND seq IN (1, 2)
    """
    for row in closed(copy):
        found = copy.faults(swap, seq=row["seq"])

        assert [found[0].id, found[0].place] == [row["id"], row["chain_seq"]]


TEXTS = {
    "gone": "NULL",
    "emptied": "''",
    "cut off": "substr({0}, 1, length({0}) - 1)",
    "not as it is written": "replace({0}, ',', ', ')",
    "another moment": "replace({0}, '.', '1.')",
    "without its first event": "substr({0}, instr({0}, '],[') + 2)",
    "one more event": "{0} || ',[99,\"NOTE\",1.0,{{}},null,null,null,null]'",
    "the other text": "iif({0} IS first_events, last_events, first_events)",
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("column", ["first_events", "last_events"])
def test_verify_finds_a_changed_text_of_events_and_names_its_record(texts, column, text):
    for row in closed(texts):
        found = texts.faults(f"UPDATE executions SET {column} = {text.format(column)} WHERE seq = :seq", seq=row["seq"])

        assert [found[0].id, found[0].place] == [row["id"], row["chain_seq"]], row


@pytest.mark.parametrize("standing", ["open", "stripped", "before"])
def test_verify_finds_a_damaged_text_of_events_in_any_record(texts, standing):
    for row in rows(texts, "executions"):
        if row["standing"] == standing:
            found = texts.faults(
                "UPDATE executions SET first_events = first_events || 'x' WHERE seq = :s", s=row["seq"]
            )

            assert found[0].id == row["id"]
            assert "its events are numbered 0" in found[0].wrong


def test_verify_finds_an_event_row_in_place_of_a_text(texts):
    """Each of them alone has the events that the hash covers; both have each twice."""
    add = "INSERT INTO event_rows (execution_seq, seq, type, at, payload_json) SELECT :seq, 1, type, at, payload_json "
    for row in closed(texts):
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
    for row in closed(copy):
        assert copy.faults(add, seq=row["seq"])[0].place == row["chain_seq"]


def test_verify_finds_an_extra_record_at_any_place(copy):
    names = ", ".join(name for name in columns(copy, "executions") if name not in ("seq", "id", "chain_seq"))
    add = (
        f"INSERT INTO executions (seq, id, chain_seq, {names}) "
        f"SELECT (SELECT max(seq) + 1 FROM executions), 'exec-another.1', :place, {names} "
        "FROM executions WHERE seq = :seq"
    )
    last = closed(copy)[-1]

    for place in (None, 1, last["chain_seq"], last["chain_seq"] + 1):
        found = copy.faults(add, place=place, seq=last["seq"])

        assert "exec-another.1" in {fault.id for fault in found}, place


# Truncation

CUT = [
    "DELETE FROM event_rows WHERE execution_seq IN (SELECT seq FROM executions WHERE chain_seq > :left)",
    "DELETE FROM executions WHERE chain_seq > :left",
]
HEAD_TOO = (
    "UPDATE record_chain SET (head_seq, head_hash) = (SELECT chain_seq, record_hash FROM executions "
    "WHERE chain_seq = :left)"
)
OTHERS_TOO = [
    "DELETE FROM event_rows WHERE execution_seq > (SELECT max(seq) FROM executions WHERE chain_seq IS NOT NULL)",
    "DELETE FROM executions WHERE seq > (SELECT max(seq) FROM executions WHERE chain_seq IS NOT NULL)",
    "DELETE FROM blobs WHERE execution_seq NOT IN (SELECT seq FROM executions)",
    "UPDATE record_chain SET unchained_to = 0",
]


def test_verify_finds_a_cut_off_tail_that_the_head_knows(copy):
    left = closed(copy)[-3]["chain_seq"]

    found = copy.faults(*CUT, left=left)

    assert (found[0].area, found[0].place) == (Area.MISSING, left + 1)
    assert f"places {left + 1} to {left + 2}" in found[0].wrong


def test_verify_finds_a_cut_off_tail_and_head_while_younger_records_exist(copy):
    left = closed(copy)[-3]["chain_seq"]

    [fault] = copy.faults(*CUT, HEAD_TOO, left=left)

    assert fault.area is Area.MISSING
    assert fault.wrong.startswith("2 records are missing")


def test_verify_against_an_earlier_head_finds_a_completely_removed_tail(copy):
    """All that is younger is gone as well, and the ends of the chain agree: the file alone says nothing."""
    left = closed(copy)[-3]["chain_seq"]
    everything = [*CUT, HEAD_TOO, *OTHERS_TOO]
    before = copy.head()

    assert copy.faults(*everything, left=left) == []
    found = copy.faults(*everything, left=left, before=before)

    assert found[0].wrong.startswith(
        f"the chain ends at place {left}, and the head from before was at place {left + 2}"
    )


def test_verify_finds_recomputed_hashes_only_against_an_earlier_head(copy):
    """A plain hash is integrity, not proof: the last record is changed and sealed again, as anybody can."""
    from craftcore.executions.chain.seal import record_hash
    from craftcore.executions.record import header_of
    from craftcore.executions.record_store import RecordStore

    last = closed(copy)[-1]
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
