"""A file with a past: settled triggers with their records, as months of work leave them."""

from __future__ import annotations

import time
from pathlib import Path

from benchmarks import raw
from craftcore.clock import SystemClock

SETTLED = """
INSERT INTO triggers (id, source, workflow, fire_at, due_at, priority, payload_json, status, reason, attempts, starts,
                      started_at, settled_at, created_at, updated_at)
VALUES (?1, 'IMMEDIATE', 'noop', ?2, ?2, 10, '{"n":1}', 'DONE', 'succeeded', 1, 1, ?2, ?2, ?2, ?2)
"""
EVENT = '"AGENT_ATTEMPT_END",1767225600.5,{"agent":"noop","latency_ms":1.0,"status":"success"},null,null,null,null'
RECORDS = """
INSERT INTO executions (seq, id, trigger_id, attempt, epoch, workflow, created_at, ended_at, status, replayable,
                        replayable_reason, envelope_json, envelope_hash, response_json, latency_ms, first_events,
                        last_events)
SELECT seq, 'exec-' || id || '.1', id, 1, 1, workflow, created_at, settled_at, 'success', 1, NULL,
       '{"intent":{"name":"noop","version":"1.0"},"metadata":{"requestId":"' || id || '","source":"IMMEDIATE"},'
       || '"payload":{"n":1},"version":"1.0"}', 'sha256:' || hex(randomblob(32)),
       '{"metadata":{},"payload":null,"status":"success"}', 1.0,
       replace('[1,#],[2,#]', '#', ?1), replace('[3,#],[4,#],[5,#]', '#', ?1)
  FROM triggers
 WHERE status = 'DONE'
"""


def make(path: Path, *, settled: int, pending: int = 0) -> None:
    """Fill a new database with `settled` triggers and their records, and `pending` ones that are due tomorrow."""
    clock = SystemClock()
    connection = raw.fresh(path)
    connection.pragma("synchronous", "off")
    past = time.time() - 30 * 86_400
    connection.pragma("foreign_keys", False)
    connection.execute("BEGIN IMMEDIATE")
    connection.executemany(SETTLED, ((clock.new_id(), past + n * 0.001) for n in range(settled)))
    connection.execute(RECORDS, (EVENT,))
    tomorrow = time.time() + 86_400
    for _ in range(pending):
        identity, _, _, payload, created, updated = raw.row(1)
        connection.execute(raw.INSERT, (identity, tomorrow, tomorrow, payload, created, updated))
    connection.execute("COMMIT")
    connection.wal_checkpoint(mode=3)
    connection.close()
