"""Single flipped bits in a copy of the database: found by `db check` or `verify`, harmless, or outside of all hashes.

This module and docs/explanation/records-and-integrity.md list the values that no hash covers. Only checksums of whole
pages would find flips in these values.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import apsw
import pytest

from tests.crash.flips import Flip, FlipResult, check_flip, choose_flips, differences, read_cells, read_pages
from tests.executions.test_verifying import STATES, UNDETECTED, UNDETECTED_TEXTS
from tests.support.recorded_executions import Unguarded, record_everything

RECORDS = ("executions", "event_rows", "blobs", "record_chain", "audit_log")

NO_HASH = {
    *("triggers", "tasks", "waits", "questions", "mailbox", "activity_log", "activity_decisions"),
    *("schedules", "schedule_occurrences", "clock_events", "epochs", "workflows", "facts", "schema_migrations"),
}
"""Tables whose rows the engine updates: no hash covers them."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with records of every standing, rows in all tables, and free pages."""
    folder = tmp_path_factory.mktemp("sound")
    path = record_everything(folder)
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE mine (text)")
    connection.execute("INSERT INTO mine SELECT randomblob(3000) FROM dbstat LIMIT 20")
    connection.execute("DROP TABLE mine")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    assert not [left for left in folder.glob("*-wal") if left.stat().st_size]
    return path


@pytest.fixture(scope="module")
def standings(sound: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, object], str]:
    """Return the standing of the record of each row, by (table, key of the row)."""
    copy = Unguarded(sound, tmp_path_factory.mktemp("copy"))
    keys = {"executions": "CAST(seq AS BLOB)", "blobs": "CAST(seq AS BLOB)"}
    keys["event_rows"] = "CAST(execution_seq AS BLOB), CAST(seq AS BLOB)"
    found: dict[tuple[str, object], str] = {}
    for table, key in keys.items():
        for row in copy.connection.execute(f"SELECT {STATES[table]}, {key} FROM {table}"):
            found[table, row[1:]] = str(row[0])
    copy.connection.close()
    return found


def needs_page_checksums(result: FlipResult, standings: dict[tuple[str, object], str]) -> bool:
    """Return whether no hash covers any of the changed values."""
    return all(
        table in NO_HASH or standings.get((table, key), "") in (UNDETECTED | UNDETECTED_TEXTS).get((table, column), {})
        for table, column, key in result.differs
    )


def judge(result: FlipResult, standings: dict[tuple[str, object], str]) -> str:
    if result.found_by:
        return f"found by {result.found_by[0]}"
    if not result.differs:
        return "harmless"
    return "needs page checksums" if needs_page_checksums(result, standings) else "MISSED"


def flip_all(
    sound: Path, folder: Path, standings: dict[tuple[str, object], str], flips: list[Flip]
) -> Counter[tuple[str, str]]:
    """Return the number of flips by (verdict, kind of page)."""
    counts: Counter[tuple[str, str]] = Counter()
    for flip in flips:
        result = check_flip(flip, sound, folder)
        verdict = judge(result, standings)
        assert verdict != "MISSED", result
        counts[verdict, f"{'records' if flip.place[0] in RECORDS else 'others'}, {flip.place[1]}"] += 1
    for (verdict, where), count in sorted(counts.items()):
        print(f"{count:6} {verdict:22} {where}")
    return counts


def verdicts(counts: Counter[tuple[str, str]]) -> set[str]:
    return {verdict for verdict, _ in counts}


def test_file_has_sound_pages_of_every_kind(sound, tmp_path):
    kinds = {kind for _, kind in read_pages(sound)}

    assert kinds == {"leaf", "internal", "overflow", "free", "pointer map"}
    names = {name for name, _ in read_pages(sound)}
    assert set(RECORDS) <= names
    tables = {table for table, _, _ in read_cells(sound)} - {"sqlite_schema"}
    assert tables >= set(RECORDS)
    assert differences(sound, sound) == set()
    bit = Flip(("", "free"), read_pages(sound)["", "free"][-1] * 4096 + 2000, 1)
    assert check_flip(bit, sound, tmp_path) == FlipResult(bit, [], set())


@pytest.mark.parametrize(
    ("record_count", "default_count", "count"), [(3, 1, 85), pytest.param(12, 3, 251, marks=pytest.mark.campaign)]
)
def test_flipped_bit_is_found_or_harmless_or_outside_the_hashes(
    sound, standings, tmp_path, record_count, default_count, count
):
    rng = random.Random(6)
    flips = list(choose_flips(sound, rng, dict.fromkeys(RECORDS, record_count), default_count=default_count))

    counts = flip_all(sound, tmp_path, standings, flips)

    assert sum(counts.values()) >= count
    assert verdicts(counts) >= {"found by db check", "found by verify", "harmless"}


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_thousands_of_flipped_bits(sound, standings, tmp_path, seed):
    rng = random.Random(seed)

    flip_all(sound, tmp_path, standings, list(choose_flips(sound, rng, dict.fromkeys(RECORDS, 200), default_count=20)))


@pytest.mark.campaign
@pytest.mark.parametrize("name", RECORDS)
def test_written_leaf_byte_of_each_record_table_is_protected(sound, standings, tmp_path, name):
    text, rng = sound.read_bytes(), random.Random(0)
    start = read_pages(sound)[name, "leaf"][0] * 4096
    flips = [Flip((name, "leaf"), start + n, rng.randrange(8)) for n in range(4096) if text[start + n]]

    counts = flip_all(sound, tmp_path, standings, flips)

    assert "found by verify" in verdicts(counts) or name == "record_chain"
