"""The SQL of the demo: what its triggers came to."""

from __future__ import annotations

SETTLED_TWICE = """
SELECT count(*) FROM (
    SELECT trigger_id FROM executions WHERE status IN ('success', 'error') GROUP BY trigger_id HAVING count(*) > 1
)
"""
SUCCEEDED = (
    "SELECT id, json_extract(payload_json, '$.number') FROM triggers WHERE status = 'DONE' AND reason = 'succeeded'"
)

UNSETTLED = "SELECT count(*) FROM triggers WHERE status IN ('PENDING', 'CLAIMED')"
LEFT_CLAIMED = "SELECT count(*) FROM triggers WHERE status = 'CLAIMED'"
DEAD = "SELECT count(*) FROM triggers WHERE status = 'DEAD'"
