"""Single flipped bits in a copy of the database: found by `db check` or `verify`, harmless, or outside of all hashes.

The values that no hash covers are listed here and in docs/explanation/records-and-integrity.md. Only checksums of whole
pages would find these flips.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import apsw
import pytest

from tests.crash.flips import Flip, Seen, cells_of, differences, flips_of, look_at, pages_of
from tests.executions.test_verifying import STANDINGS, UNSEEN, UNSEEN_TEXTS
from tests.support.recorded_executions import Unguarded, record_everything

RECORDS = ("executions", "event_rows", "blobs", "record_chain", "audit_log")

NO_HASH = {
    *("triggers", "tasks", "waits", "questions", "mailbox", "activity_log", "activity_decisions"),
    *("schedules", "schedule_occurrences", "clock_events", "epochs", "workflows", "facts", "schema_migrations"),
}
"""Tables that the engine changes as it goes: their rows are in no hash."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records of every standing, all tables with rows, and pages that are free."""
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
    """(table, key of a row) -> standing of its record."""
    copy = Unguarded(sound, tmp_path_factory.mktemp("copy"))
    keys = {"executions": "CAST(seq AS BLOB)", "blobs": "CAST(seq AS BLOB)"}
    keys["event_rows"] = "CAST(execution_seq AS BLOB), CAST(seq AS BLOB)"
    found: dict[tuple[str, object], str] = {}
    for table, key in keys.items():
        for row in copy.connection.execute(f"SELECT {STANDINGS[table]}, {key} FROM {table}"):
            found[table, row[1:]] = str(row[0])
    copy.connection.close()
    return found


def needs_page_checksums(seen: Seen, standings: dict[tuple[str, object], str]) -> bool:
    """Whether all that reads otherwise lies in values that no hash covers."""
    return all(
        table in NO_HASH or standings.get((table, key), "") in (UNSEEN | UNSEEN_TEXTS).get((table, column), {})
        for table, column, key in seen.differs
    )


def judge(seen: Seen, standings: dict[tuple[str, object], str]) -> str:
    if seen.found_by:
        return f"found by {seen.found_by[0]}"
    if not seen.differs:
        return "harmless"
    return "needs page checksums" if needs_page_checksums(seen, standings) else "MISSED"


def flip_all(
    sound: Path, folder: Path, standings: dict[tuple[str, object], str], flips: list[Flip]
) -> Counter[tuple[str, str]]:
    """What became of them, by (verdict, kind of page)."""
    told: Counter[tuple[str, str]] = Counter()
    for flip in flips:
        seen = look_at(flip, sound, folder)
        verdict = judge(seen, standings)
        assert verdict != "MISSED", seen
        told[verdict, f"{'records' if flip.place[0] in RECORDS else 'others'}, {flip.place[1]}"] += 1
    for (verdict, where), count in sorted(told.items()):
        print(f"{count:6} {verdict:22} {where}")
    return told


def verdicts(told: Counter[tuple[str, str]]) -> set[str]:
    return {verdict for verdict, _ in told}


def test_file_has_sound_pages_of_every_kind(sound, tmp_path):
    kinds = {kind for _, kind in pages_of(sound)}

    assert kinds == {"leaf", "internal", "overflow", "free", "pointer map"}
    names = {name for name, _ in pages_of(sound)}
    assert set(RECORDS) <= names
    tables = {table for table, _, _ in cells_of(sound)} - {"sqlite_schema"}
    assert tables >= set(RECORDS)
    assert differences(sound, sound) == set()
    bit = Flip(("", "free"), pages_of(sound)["", "free"][-1] * 4096 + 2000, 1)
    assert look_at(bit, sound, tmp_path) == Seen(bit, [], set())


@pytest.mark.parametrize(
    ("of_records", "otherwise", "count"), [(3, 1, 85), pytest.param(12, 3, 251, marks=pytest.mark.campaign)]
)
def test_flipped_bit_is_found_or_harmless_or_outside_the_hashes(
    sound, standings, tmp_path, of_records, otherwise, count
):
    rng = random.Random(6)
    flips = list(flips_of(sound, rng, dict.fromkeys(RECORDS, of_records), otherwise=otherwise))

    told = flip_all(sound, tmp_path, standings, flips)

    assert sum(told.values()) >= count
    assert verdicts(told) >= {"found by db check", "found by verify", "harmless"}


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(10))
def test_thousands_of_flipped_bits(sound, standings, tmp_path, seed):
    rng = random.Random(seed)

    flip_all(sound, tmp_path, standings, list(flips_of(sound, rng, dict.fromkeys(RECORDS, 200), otherwise=20)))


@pytest.mark.campaign
@pytest.mark.parametrize("name", RECORDS)
def test_written_leaf_byte_of_each_record_table_is_protected(sound, standings, tmp_path, name):
    text, rng = sound.read_bytes(), random.Random(0)
    start = pages_of(sound)[name, "leaf"][0] * 4096
    flips = [Flip((name, "leaf"), start + n, rng.randrange(8)) for n in range(4096) if text[start + n]]

    told = flip_all(sound, tmp_path, standings, flips)

    assert "found by verify" in verdicts(told) or name == "record_chain"
