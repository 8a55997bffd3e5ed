"""Checks of `craftcore doctor` on the file: schema, pages, the end of the chain, and its identity in the lock file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from craftcore.daemon.lock_note import LockInfo
from craftcore.diagnostics.conditions import RELEASE
from craftcore.diagnostics.finding import Finding, fail, make_passed, warn
from craftcore.errors import DatabaseInvalid
from craftcore.storage import migrate
from craftcore.storage.epochs import newest_epoch
from craftcore.storage.facts import call_mark, get_fact
from craftcore.storage.integrity import FileCheck, check_file, quick_check, schema_faults
from craftcore.storage.migrations import list_migrations
from craftcore.storage.transaction import Reader

CHAIN_ENDS = "SELECT head_seq, head_hash, anchor_seq FROM record_chain"
NEAR_THE_HEAD = """
SELECT chain_seq, record_hash
  FROM (SELECT chain_seq, record_hash FROM executions ORDER BY seq DESC LIMIT 10000)
 WHERE chain_seq >= :place
 ORDER BY chain_seq DESC
 LIMIT 2
"""
"""Records are mostly closed in the order in which they were opened: only for an old one all have to be looked at."""
AT_THE_HEAD = "SELECT chain_seq, record_hash FROM executions WHERE chain_seq >= :place ORDER BY chain_seq DESC LIMIT 2"

Beat = Callable[[], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """`missing`: migrations it lacks; `refused`: why its history is not this program's, None: it is. `sqlite`: the
    library that reads it."""

    missing: list[str]
    refused: str | None
    faults: list[str]
    sqlite: str
    apsw: str
    journal: str

    @property
    def is_current(self) -> bool:
        return not self.missing and self.refused is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainState:
    """The head of the chain, None when there is not exactly one; up to which place retention removed; and the newest
    records at or beyond the head."""

    head: tuple[int, str] | None
    removed_to: int
    newest: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Which database it is, by its own word and by that of its lock file. The lock file was read before it."""

    database_id: str | None
    epoch: int | None
    call_mark: int
    note: LockInfo | None


def schema_of(reader: Reader, path: Path) -> Schema:
    refused: str | None = None
    missing: list[str] = []
    try:
        missing = [one.name for one in migrate.list_pending(reader, list_migrations(), path)]
    except DatabaseInvalid as error:
        refused = error.message
    return Schema(
        missing=missing,
        refused=refused,
        faults=[] if missing or refused else schema_faults(reader),
        sqlite=str(reader.fetch_value("SELECT sqlite_version()")),
        apsw=version("apsw"),
        journal=str(reader.fetch_value("PRAGMA journal_mode")),
    )


def chain_state_of(reader: Reader) -> ChainState:
    """Return the head of the chain, and what is there of it."""
    rows = list(reader.fetch_tuples(CHAIN_ENDS))
    head = (rows[0][0], rows[0][1]) if len(rows) == 1 else None
    place = 0 if head is None else head[0]
    found = reader.fetch_all(NEAR_THE_HEAD, place=place) or (
        reader.fetch_all(AT_THE_HEAD, place=place) if place else []
    )
    removed_to = 0 if head is None else rows[0][2]
    return ChainState(
        head=head, removed_to=removed_to, newest=[(row["chain_seq"], row["record_hash"]) for row in found]
    )


def identity_of(reader: Reader, note: LockInfo | None) -> Identity:
    """Read the identity from the database and from its lock file."""
    epoch = newest_epoch(reader)
    return Identity(database_id=get_fact(reader, "database_id"), epoch=epoch, call_mark=call_mark(reader), note=note)


def integrity_of(reader: Reader, beat: Beat, *, full: bool) -> FileCheck:
    """Read the file: its pages one by one, or in full also what its indexes and keys say."""
    with reader.with_progress(beat):
        return check_file(reader) if full else FileCheck(pages=quick_check(reader), keys=[], schema=[])


def schema_findings(schema: Schema) -> Iterator[Finding]:
    """Check that the schema is exactly what the migrations made, and that SQLite is one that does not lose data."""
    yield make_passed("SQLite", f"{schema.sqlite} by apsw {schema.apsw}")
    if schema.journal != "wal":
        yield warn("journal", f"its journal is {schema.journal}, not the WAL; the next that writes changes it back")
    if schema.refused is not None:
        yield fail("schema", schema.refused)
    elif schema.missing:
        names = ", ".join(schema.missing)
        yield fail("schema", f"lacks {names}: stop the daemon of the older program, then", "craftcore", "db", "migrate")
    for fault in schema.faults:
        yield fail("schema", fault)
    if schema.is_current and not schema.faults:
        yield make_passed("schema", "current, and as the migrations made it")


def integrity_findings(found: FileCheck, *, full: bool) -> Iterator[Finding]:
    """Check that its pages are whole."""
    for text in (*found.pages, *found.keys):
        yield fail("integrity", f"{text}. Stop the daemon, keep the file as it is, and restore a backup")
    if not found.is_damaged:
        how = "every page, index and foreign key" if full else "every page; what indexes say is compared with --full"
        yield make_passed("integrity", how)


def chain(ends: ChainState) -> Finding:
    """Check that the head is the record that was closed last."""
    if ends.head is None:
        return fail("records", "the chain has no one head any more. See what is left of it", "craftcore", "verify")
    place, digest = ends.head
    if place == 0 and not ends.newest:
        return make_passed("records", "none is closed yet")
    if not ends.newest and ends.removed_to == place:
        return make_passed("records", f"retention removed them all, up to place {place}")
    if not ends.newest or ends.newest[0] != (place, digest) or len(ends.newest) > 1:
        text = f"the chain ends at place {place}, and the record that was closed last is another"
        return fail("records", f"{text}: one was cut off or changed", "craftcore", "verify")
    text = f"the chain ends at place {place}, with the record that was closed last. To check them all"
    return Finding(code="records", text=text, remedies=(("craftcore", "verify"),))


def identity(known: Identity) -> Finding:
    """Check that the file is the one that the last daemon ran on, and not an older copy."""
    note = known.note
    if note is None or note.database_id is None or note.epoch is None:
        return make_passed("lock file", "knows of no daemon yet" if known.epoch is None else "remembers no database")
    if note.database_id != known.database_id:
        return warn("lock file", "it remembers another database: this one was put in its place")
    if note.epoch > (known.epoch or 0):
        text = f"it remembers epoch {note.epoch}, and this file knows {known.epoch}: it is an older copy"
        return warn("lock file", f"{text}. The next start holds everything until", *RELEASE)
    if (note.call_mark or 0) > known.call_mark:
        text = f"it remembers irreversible calls up to mark {note.call_mark}, and this file up to {known.call_mark}"
        return warn("lock file", f"{text}: it is an older copy. The next start holds everything until", *RELEASE)
    return make_passed("lock file", f"remembers this database, at epoch {note.epoch}")
