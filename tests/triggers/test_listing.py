"""Lists of triggers and of dead letters by error, each at a bounded cost."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from craftcore.storage import row_spans
from craftcore.storage.damaged_rows import Damaged
from craftcore.triggers import page_store
from craftcore.triggers.damaged_store import DamagedTriggerStore
from craftcore.triggers.model import Trigger
from craftcore.triggers.page_store import TriggerFilter, TriggerPageStore
from tests.executions.test_listing_plans import plans_of
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.filled_cores import filled_core
from tests.support.trigger_steps import emit, look
from tests.triggers.test_claim_plans import steps_of, undone

STORE = TriggerPageStore()
MANY, FEW = 5_000, 50

COPY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many)
INSERT INTO triggers ({columns})
SELECT {values} FROM triggers, numbers WHERE triggers.seq = 1
"""
CHANGES = {
    "seq": "seq + n",
    "id": "id || '-' || n",
    "created_at": "created_at + n",
    "status": "'DEAD'",
    "error_code": "iif(n % 10, 'AGENT_ERROR', 'AGENT_TIMEOUT')",
    "reason": "'attempts spent'",
    "settled_at": "created_at + n / 3",
    "session_id": "iif(n = 3, 'lobby', NULL)",
}


def build(path: Path, many: int) -> VirtualCore:
    """Build a database with dead letters, three at each moment, and one in ten with another error."""
    core = VirtualCore(path, VirtualClock())
    emit(core)
    with core.transaction() as tx:
        columns = [row[1] for row in tx.fetch_tuples("PRAGMA table_info(triggers)")]
        values = ", ".join(CHANGES.get(name, name) for name in columns)
        tx.run(COPY.format(columns=", ".join(columns), values=values), many=many)
    return core


large, small = filled_core(build, MANY), filled_core(build, FEW)


def seqs(rows: list[Trigger | Damaged]) -> list[int]:
    return [row.seq for row in rows if isinstance(row, Trigger)]


def test_pages_without_a_filter_walk_back_over_all_rows(small):
    found: list[int] = []
    with small.reading() as reader:
        before = None
        while rows := seqs(STORE.list_page(reader, TriggerFilter(), 20, before).rows):
            found += rows
            before = rows[-1]

    assert found == list(range(FEW + 1, 0, -1))


@pytest.mark.parametrize("rows", [10, FEW])
def test_filter_reads_a_span_and_returns_its_bounds(small, monkeypatch, rows):
    monkeypatch.setattr(row_spans, "ROWS", rows)
    filter_ = TriggerFilter(session_id="lobby")
    found: list[int] = []
    spans: list[row_spans.RowSpan] = []
    with small.reading() as reader:
        before: int | None = None
        while not spans or before is not None:
            page = STORE.list_page(reader, filter_, 20, before)
            assert page.span is not None
            found += seqs(page.rows)
            spans.append(page.span)
            before = page.span.next_before

    assert found == [4]
    assert [span.after for span in spans] == list(range(FEW + 1 - rows, -1, -rows)) + ([0] if (FEW + 1) % rows else [])
    assert spans[0].oldest_at == NEW_YEAR + spans[0].after


def test_search_continues_beyond_a_gap_that_retention_left(small, monkeypatch):
    monkeypatch.setattr(row_spans, "ROWS", 5)
    with undone(small) as tx:
        tx.run("DELETE FROM triggers WHERE seq BETWEEN 8 AND 40")
        page = STORE.list_page(tx, TriggerFilter(session_id="lobby"), 20, 42)
        before = page.span and page.span.next_before
        then = STORE.list_page(tx, TriggerFilter(session_id="lobby"), 20, before)

    assert (seqs(page.rows), before) == ([], 8)
    assert seqs(then.rows) == [4]


def test_search_of_an_empty_table_finds_nothing(core):
    with core.reading() as reader:
        page = STORE.list_page(reader, TriggerFilter(status="DEAD"), 20)

    assert page.rows == []
    assert page.span == row_spans.RowSpan(0, row_spans.NO_BOUND, None, None)


@pytest.mark.parametrize(
    ("filter_", "count"),
    [
        (TriggerFilter(status="PENDING"), 1),
        (TriggerFilter(status="DEAD"), FEW),
        (TriggerFilter(source="IMMEDIATE"), FEW + 1),
        (TriggerFilter(source="MESSAGE"), 0),
        (TriggerFilter(workflow="greet", session_id="lobby"), 1),
        (TriggerFilter(schedule_id="nightly"), 0),
    ],
)
def test_filter_finds_matching_triggers(small, filter_, count):
    with small.reading() as reader:
        assert len(STORE.list_page(reader, filter_, 100).rows) == count


def test_page_of_triggers_reads_a_range_of_numbers(large):
    plan = plans_of(large, lambda tx: STORE.list_page(tx, TriggerFilter(session_id="none"), 50, 4_000))

    rows = "SEARCH triggers USING INTEGER PRIMARY KEY (rowid<?)"
    assert plan == [rows, rows, *["SEARCH triggers USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"] * 2]


def test_first_page_costs_the_same_in_a_large_table(small, large):
    def steps(core: VirtualCore) -> int:
        with undone(core) as tx:
            return steps_of(tx, partial(STORE.list_page, tx, TriggerFilter(), 10))

    assert steps(large) <= steps(small) + 10


def test_dead_letters_are_grouped_by_error(small):
    with small.reading() as reader:
        frequent, rare = STORE.group_dead(reader)

    assert (frequent.error, frequent.letters) == ("AGENT_ERROR", FEW * 9 // 10)
    assert (rare.error, rare.letters) == ("AGENT_TIMEOUT", FEW // 10)
    assert (rare.oldest_at, rare.newest_at) == (NEW_YEAR + 10 // 3, NEW_YEAR + FEW // 3)


def test_groups_count_the_newest_dead_letters_alone(small):
    with small.reading() as reader:
        groups = STORE.group_dead(reader, 10)

    assert {group.error: group.letters for group in groups} == {"AGENT_ERROR": 9, "AGENT_TIMEOUT": 1}


def test_damaged_dead_letter_is_grouped_by_its_reason(small):
    with undone(small) as tx:
        tx.run("UPDATE triggers SET error_code = NULL, reason = 'corrupt row' WHERE seq = 7")
        tx.run("UPDATE triggers SET description = CAST(X'ff' AS TEXT) WHERE seq = 7")
        groups = {group.error: group.letters for group in STORE.group_dead(tx)}
        [damaged] = STORE.list_dead(tx, 10, error="corrupt row")

    assert groups["corrupt row"] == 1
    assert isinstance(damaged, Damaged)
    assert damaged.id is not None
    assert damaged.id.endswith("-6")


@pytest.mark.parametrize("error", [None, "AGENT_TIMEOUT"])
def test_dead_letters_are_paged_without_gaps_or_repeats(small, error):
    found: list[Trigger] = []
    with small.reading() as reader:
        before = None
        while rows := [
            row for row in STORE.list_dead(reader, 4, error=error, before=before) if isinstance(row, Trigger)
        ]:
            found += rows
            assert rows[-1].settled_at is not None
            before = (rows[-1].settled_at, rows[-1].seq)

    expected = [seq for seq in range(FEW + 1, 1, -1) if error is None or (seq - 1) % 10 == 0]
    assert [row.seq for row in found] == expected


def test_dead_letters_are_read_by_their_index(large):
    groups = plans_of(large, STORE.group_dead)
    letters = plans_of(large, lambda tx: STORE.list_dead(tx, 50, error="AGENT_TIMEOUT", before=(NEW_YEAR + 900, 5)))

    assert [line for line in groups if "triggers" in line] == ["SCAN triggers USING INDEX triggers_dead"]
    assert [line for line in letters if "triggers" in line] == [
        "SEARCH triggers USING INDEX triggers_dead (settled_at<?)"
    ]
    assert not [line for line in letters if "TEMP B-TREE" in line]


def test_damaged_dead_letter_is_found_by_an_index(large):
    with undone(large) as tx:
        tx.run("UPDATE triggers SET description = CAST(X'ff' AS TEXT) WHERE seq = 7")
        [row] = tx.fetch_all("SELECT id FROM triggers WHERE seq = 7")
    by_id = plans_of(large, lambda tx: DamagedTriggerStore().find(tx, row["id"]))
    by_escapes = plans_of(large, lambda tx: DamagedTriggerStore().find(tx, "\\xff"))

    assert [line for line in by_id if "triggers" in line] == [
        "SEARCH triggers USING INDEX triggers_id (id=?)",
        "SEARCH triggers USING INTEGER PRIMARY KEY (rowid=?)",
    ]
    assert "SCAN triggers USING INDEX triggers_dead" in by_escapes
    assert not [line for line in by_escapes if "TEMP B-TREE" in line]


def test_search_for_an_error_ends_after_the_newest_dead_letters(large, monkeypatch):
    monkeypatch.setattr(page_store, "DEAD_READ", 100)
    with undone(large) as tx:
        tx.run("UPDATE triggers SET error_code = 'RARE' WHERE seq = 2")
        bounded = steps_of(tx, partial(STORE.list_dead, tx, 50, error="RARE"))
        found = STORE.list_dead(tx, 50, error="RARE")

    assert found == []
    assert bounded < 100 * 120


def test_emitted_trigger_is_the_first_of_the_first_page(core):
    emit(core)
    newest = emit(core)

    with core.reading() as reader:
        page = STORE.list_page(reader, TriggerFilter(workflow="greet"), 1)

    assert page.rows == [look(core, newest.id)]
