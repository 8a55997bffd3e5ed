"""Single steps of a record, each in its own transaction, and later changes of records."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import INVALIDATE, RecordStore
from craftcore.executions.recorder import AttemptInfo, Recorder, Routed
from craftcore.retention.body_store import STRIP
from craftcore.triggers.settlement import Failed, Outcome, Succeeded
from tests.support.event_rows import move_events_to_rows, needs_rows
from tests.support.fakes import VirtualCore
from tests.support.trigger_steps import ack, emit, start_one

GREET = Routed("greet", "explicit workflow")
HELLO = Succeeded(result_json='{"hello":"Ada"}')
TIMEOUT = Failed(
    code="AGENT_TIMEOUT", message="it took too long", retryable=False, details={"timeout_ms": 30_000}, retry_after=2.5
)
ADA = Actor(1000, "ada")


def record_attempt(
    core: VirtualCore, outcome: Outcome | None = HELLO, *, recorder: Recorder | None = None, **spec: Any
) -> str:
    """Record one attempt with this outcome, and return the id of the record. None leaves the record open."""
    recorder = recorder or Recorder()
    emit(core, **spec)
    claim = start_one(core)
    [record] = core.do(recorder.open_all, 1, [AttemptInfo(claim, GREET)])
    if outcome is not None:
        core.do(recorder.close_all, [(record, outcome)])
        ack(core, claim, outcome)
    return record.id


def look(core: VirtualCore, execution_id: str) -> ExecutionRecord:
    with core.reading() as reader:
        record = RecordStore().get(reader, execution_id)
    assert record is not None, execution_id
    return record


def invalidate(core: VirtualCore, execution_id: str, reason: str | None = "it names another customer") -> None:
    core.do(audit, ADA, INVALIDATE, execution_id, reason=reason)


def strip(core: VirtualCore, execution_id: str) -> None:
    """Remove the bodies of the record, as retention does."""
    with core.transaction() as tx:
        tx.run(STRIP, now=tx.now, seq=tx.fetch_value("SELECT seq FROM executions WHERE id = :id", id=execution_id))
        tx.run("DELETE FROM blobs WHERE execution_seq = (SELECT seq FROM executions WHERE id = :id)", id=execution_id)


def spoil(core: VirtualCore, sql: str, **params: Any) -> None:
    """Change the database past the guards of the schema."""
    with core.transaction() as tx:
        names = [row["name"] for row in tx.fetch_all("SELECT name FROM sqlite_schema WHERE type = 'trigger'")]
        for name in names:
            tx.run(f"DROP TRIGGER {name}")
        if needs_rows(sql):
            move_events_to_rows(tx.run)
        tx.run(sql, **params)


def fingerprint(core: VirtualCore) -> tuple[str, str]:
    """Return a hash of all rows of all tables, and a hash of the file's bytes."""
    rows = hashlib.sha256()
    with core.reading() as reader:
        for table in reader.fetch_all("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name"):
            for row in reader.fetch_tuples(f"SELECT * FROM {table['name']}"):
                rows.update(repr((table["name"], row)).encode())
    return rows.hexdigest(), hashlib.sha256(Path(core.database.path).read_bytes()).hexdigest()


def checkpoint(core: VirtualCore) -> None:
    """Checkpoint the WAL into the file."""
    core.close()
    connection = core.database.connect()
    connection.pragma("wal_checkpoint(truncate)")
    connection.close()
