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


def filled(path: Path, many: int) -> VirtualCore:
    """So many dead letters, three at each moment, one in ten of another error."""
    core = VirtualCore(path, VirtualClock())
    emit(core)
    with core.transaction() as tx:
        columns = [row[1] for row in tx.fetch_tuples("PRAGMA table_info(triggers)")]
        values = ", ".join(CHANGES.get(name, name) for name in columns)
        tx.run(COPY.format(columns=", ".join(columns), values=values), many=many)
    return core


crowd, handful = filled_core(filled, MANY), filled_core(filled, FEW)


def seqs(rows: list[Trigger | Damaged]) -> list[int]:
    return [row.seq for row in rows if isinstance(row, Trigger)]


def test_pages_without_a_filter_walk_back_over_all_rows(handful):
    found: list[int] = []
    with handful.reading() as reader:
        before = None
        while rows := seqs(STORE.list_page(reader, TriggerFilter(), 20, before).rows):
            found += rows
            before = rows[-1]

    assert found == list(range(FEW + 1, 0, -1))


@pytest.mark.parametrize("rows", [10, FEW])
def test_filter_looks_at_a_span_and_says_how_far_back(handful, monkeypatch, rows):
    monkeypatch.setattr(row_spans, "ROWS", rows)
    those = TriggerFilter(session_id="lobby")
    found: list[int] = []
    spans: list[row_spans.RowSpan] = []
    with handful.reading() as reader:
        before: int | None = None
        while not spans or before is not None:
            page = STORE.list_page(reader, those, 20, before)
            assert page.span is not None
            found += seqs(page.rows)
            spans.append(page.span)
            before = page.span.next_before

    assert found == [4]
    assert [span.after for span in spans] == list(range(FEW + 1 - rows, -1, -rows)) + ([0] if (FEW + 1) % rows else [])
    assert spans[0].oldest_at == NEW_YEAR + spans[0].after


def test_search_goes_on_behind_a_gap_that_retention_left(handful, monkeypatch):
    monkeypatch.setattr(row_spans, "ROWS", 5)
    with undone(handful) as tx:
        tx.run("DELETE FROM triggers WHERE seq BETWEEN 8 AND 40")
        page = STORE.list_page(tx, TriggerFilter(session_id="lobby"), 20, 42)
        behind = page.span and page.span.next_before
        then = STORE.list_page(tx, TriggerFilter(session_id="lobby"), 20, behind)

    assert (seqs(page.rows), behind) == ([], 8)
    assert seqs(then.rows) == [4]


def test_search_of_an_empty_table_finds_nothing(core):
    with core.reading() as reader:
        page = STORE.list_page(reader, TriggerFilter(status="DEAD"), 20)

    assert page.rows == []
    assert page.span == row_spans.RowSpan(0, row_spans.NO_BOUND, None, None)


@pytest.mark.parametrize(
    ("those", "count"),
    [
        (TriggerFilter(status="PENDING"), 1),
        (TriggerFilter(status="DEAD"), FEW),
        (TriggerFilter(source="IMMEDIATE"), FEW + 1),
        (TriggerFilter(source="MESSAGE"), 0),
        (TriggerFilter(workflow="greet", session_id="lobby"), 1),
        (TriggerFilter(schedule_id="nightly"), 0),
    ],
)
def test_filter_finds_matching_triggers(handful, those, count):
    with handful.reading() as reader:
        assert len(STORE.list_page(reader, those, 100).rows) == count


def test_page_of_triggers_reads_a_range_of_numbers(crowd):
    plan = plans_of(crowd, lambda tx: STORE.list_page(tx, TriggerFilter(session_id="none"), 50, 4_000))

    rows = "SEARCH triggers USING INTEGER PRIMARY KEY (rowid<?)"
    assert plan == [rows, rows, *["SEARCH triggers USING INTEGER PRIMARY KEY (rowid>? AND rowid<?)"] * 2]


def test_first_page_costs_the_same_in_a_large_table(handful, crowd):
    def work(core: VirtualCore) -> int:
        with undone(core) as tx:
            return steps_of(tx, partial(STORE.list_page, tx, TriggerFilter(), 10))

    assert work(crowd) <= work(handful) + 10


def test_dead_letters_are_grouped_by_error(handful):
    with handful.reading() as reader:
        often, seldom = STORE.group_dead(reader)

    assert (often.error, often.letters) == ("AGENT_ERROR", FEW * 9 // 10)
    assert (seldom.error, seldom.letters) == ("AGENT_TIMEOUT", FEW // 10)
    assert (seldom.oldest_at, seldom.newest_at) == (NEW_YEAR + 10 // 3, NEW_YEAR + FEW // 3)


def test_groups_count_the_newest_dead_letters_alone(handful):
    with handful.reading() as reader:
        groups = STORE.group_dead(reader, 10)

    assert {group.error: group.letters for group in groups} == {"AGENT_ERROR": 9, "AGENT_TIMEOUT": 1}


def test_damaged_dead_letter_is_grouped_by_its_reason(handful):
    with undone(handful) as tx:
        tx.run("UPDATE triggers SET error_code = NULL, reason = 'corrupt row' WHERE seq = 7")
        tx.run("UPDATE triggers SET description = CAST(X'ff' AS TEXT) WHERE seq = 7")
        groups = {group.error: group.letters for group in STORE.group_dead(tx)}
        [damaged] = STORE.list_dead(tx, 10, error="corrupt row")

    assert groups["corrupt row"] == 1
    assert isinstance(damaged, Damaged)
    assert damaged.id is not None
    assert damaged.id.endswith("-6")


@pytest.mark.parametrize("error", [None, "AGENT_TIMEOUT"])
def test_dead_letters_are_paged_without_gaps_or_repeats(handful, error):
    found: list[Trigger] = []
    with handful.reading() as reader:
        before = None
        while rows := [
            row for row in STORE.list_dead(reader, 4, error=error, before=before) if isinstance(row, Trigger)
        ]:
            found += rows
            assert rows[-1].settled_at is not None
            before = (rows[-1].settled_at, rows[-1].seq)

    expected = [seq for seq in range(FEW + 1, 1, -1) if error is None or (seq - 1) % 10 == 0]
    assert [row.seq for row in found] == expected


def test_dead_letters_are_read_by_their_index(crowd):
    groups = plans_of(crowd, STORE.group_dead)
    letters = plans_of(crowd, lambda tx: STORE.list_dead(tx, 50, error="AGENT_TIMEOUT", before=(NEW_YEAR + 900, 5)))

    assert [line for line in groups if "triggers" in line] == ["SCAN triggers USING INDEX triggers_dead"]
    assert [line for line in letters if "triggers" in line] == [
        "SEARCH triggers USING INDEX triggers_dead (settled_at<?)"
    ]
    assert not [line for line in letters if "TEMP B-TREE" in line]


def test_damaged_dead_letter_is_found_by_an_index(crowd):
    with undone(crowd) as tx:
        tx.run("UPDATE triggers SET description = CAST(X'ff' AS TEXT) WHERE seq = 7")
        [row] = tx.fetch_all("SELECT id FROM triggers WHERE seq = 7")
    by_id = plans_of(crowd, lambda tx: DamagedTriggerStore().find(tx, row["id"]))
    by_escapes = plans_of(crowd, lambda tx: DamagedTriggerStore().find(tx, "\\xff"))

    assert [line for line in by_id if "triggers" in line] == [
        "SEARCH triggers USING INDEX triggers_id (id=?)",
        "SEARCH triggers USING INTEGER PRIMARY KEY (rowid=?)",
    ]
    assert "SCAN triggers USING INDEX triggers_dead" in by_escapes
    assert not [line for line in by_escapes if "TEMP B-TREE" in line]


def test_search_for_an_error_ends_after_the_newest_dead_letters(crowd, monkeypatch):
    monkeypatch.setattr(page_store, "DEAD_READ", 100)
    with undone(crowd) as tx:
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
