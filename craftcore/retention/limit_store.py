"""The only SQL of the size limit: what the database holds, and the bodies that may go, by age."""

from __future__ import annotations

from craftcore.retention.event_text_store import FREED_BYTES

USED_BYTES = """
SELECT ((SELECT page_count FROM pragma_page_count()) - (SELECT freelist_count FROM pragma_freelist_count()))
     * (SELECT page_size FROM pragma_page_size())
"""

RECORD_BODIES = f"""
SELECT seq,
       chain_seq,
       trigger_id,
       task_id,
       turn,
       coalesce(ended_at, created_at) AS at,
       octet_length(concat(envelope_json, response_json)) + {FREED_BYTES}
     + coalesce((SELECT sum(octet_length(payload_json)) FROM event_rows WHERE execution_seq = executions.seq), 0)
     + coalesce((SELECT sum(octet_length(body)) FROM blobs WHERE execution_seq = executions.seq), 0) AS bytes
  FROM executions
 WHERE stripped_at IS NULL
   AND (ended_at IS NOT NULL OR status = 'incomplete')
 ORDER BY seq
"""  # noqa: S608 - static parts

ACTIVITY_BODIES = """
SELECT seq,
       idem_key,
       task_id,
       turn,
       coalesce(settled_at, updated_at) AS at,
       octet_length(concat(request_json, result_json, error_message)) AS bytes
  FROM activity_log
 WHERE status IN ('DONE', 'FAILED')
   AND (request_json IS NOT NULL OR result_json IS NOT NULL OR error_message IS NOT NULL)
 ORDER BY seq
"""

STREAM_BODIES = """
SELECT turn_streams.seq,
       tasks.id AS task_id,
       turn_streams.turn,
       EXISTS (SELECT 1
                 FROM turn_streams AS newer
                WHERE newer.task_seq = turn_streams.task_seq
                  AND newer.name = turn_streams.name
                  AND newer.turn > turn_streams.turn) AS has_newer,
       coalesce(tasks.ended_at,
                (SELECT at FROM stream_chunks WHERE stream_seq = turn_streams.seq ORDER BY last DESC LIMIT 1),
                turn_streams.created_at) AS at,
       coalesce((SELECT sum(octet_length(texts_json)) FROM stream_chunks WHERE stream_seq = turn_streams.seq), 0)
           AS bytes
  FROM turn_streams
  JOIN tasks ON tasks.seq = turn_streams.task_seq
 ORDER BY turn_streams.seq
"""

TRIGGER_BODIES = """
SELECT id,
       coalesce(task_id, id) AS task_id,
       settled_at AS at,
       octet_length(concat(description, payload_json, error_message)) AS bytes
  FROM triggers
 WHERE status IN ('DONE', 'FAILED')
   AND stripped_at IS NULL
 ORDER BY seq
"""

CLOSED_RECORDS = """
SELECT seq,
       chain_seq,
       trigger_id,
       task_id,
       turn,
       coalesce(ended_at, created_at) AS at
  FROM executions
 WHERE ended_at IS NOT NULL
 ORDER BY seq
"""

AVERAGE_BODY = f"SELECT coalesce(avg(bytes), 0.0) FROM ({RECORD_BODIES} DESC LIMIT 200)"  # noqa: S608 - static
"""The average body of the newest records, in bytes."""

RECORD_COUNT = "SELECT (SELECT coalesce(max(seq), 0) FROM executions) - removed FROM record_chain"
FIRST_RECORD = "SELECT seq, created_at FROM executions WHERE seq > :after ORDER BY seq LIMIT 1"
NEWEST_RECORD = "SELECT max(seq) FROM executions"
PASSED_RECORD = "SELECT passed_seq FROM record_chain"
