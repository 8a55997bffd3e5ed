-- The events that begin and end an attempt are two texts of its record. A row costs more than the event it holds.

-- Each text has events as the hash of the record covers them, separated by commas:
-- [seq, type, at, payload, task_seq, turn, memo, activity_seq]. Retention replaces each payload by "".
-- Records from before have all their events in rows, and neither text.
ALTER TABLE executions ADD COLUMN first_events TEXT;  -- what was written when the attempt began; NULL: they are rows
ALTER TABLE executions ADD COLUMN last_events TEXT    -- what was written when it ended; NULL: it is open, or they are rows
    CHECK (last_events IS NULL OR ended_at IS NOT NULL);

DROP VIEW v_timeline;

-- The events in between: of steps, activities and decisions.
ALTER TABLE events RENAME TO event_rows;

-- The events of all records: texts and rows. Ask for one execution_seq, or join `executions`: both are found by their
-- keys. A text that is not valid JSON has no events.
CREATE VIEW events AS
SELECT executions.seq AS execution_seq,      -- the record
       CASE event.type WHEN 'array' THEN json_extract(event.value, '$[0]') ELSE event_rows.seq END AS seq,  -- from 1
       CASE event.type WHEN 'array' THEN json_extract(event.value, '$[1]') ELSE event_rows.type END AS type,
       CASE event.type WHEN 'array' THEN json_extract(event.value, '$[2]') ELSE event_rows.at END AS at,
       CASE event.type WHEN 'array' THEN json_extract(event.value, '$[3]') ELSE event_rows.payload_json END
           AS payload_json,                  -- '': stripped by retention
       event_rows.task_seq,                  -- of the task that it is about; NULL: of the attempt itself
       event_rows.turn,                      -- of the task
       event_rows.memo,                      -- by which the turn finds it again
       event_rows.activity_seq               -- the activity that it is about
  FROM executions
  JOIN json_each(
           '[' || substr(
               coalesce(CASE WHEN json_valid('[' || first_events || ']') THEN ',' || nullif(first_events, '') END, '')
               || coalesce((SELECT ',' || group_concat(inner_rows.seq)
                              FROM event_rows AS inner_rows
                             WHERE inner_rows.execution_seq = executions.seq), '')
               || coalesce(CASE WHEN json_valid('[' || last_events || ']') THEN ',' || nullif(last_events, '') END, ''),
               2
           ) || ']'
       ) AS event
  LEFT JOIN event_rows ON event_rows.execution_seq = executions.seq
                      AND event_rows.seq = event.value
                      AND event.type = 'integer';

-- What was seen, event by event, in the order in which it was written. Ask for one task_id, trigger_id or execution_id:
-- each is found by an index. A task's is over all its turns and attempts.
CREATE VIEW v_timeline AS
SELECT executions.task_id,                   -- NULL: its workflow takes no ctx
       executions.trigger_id,                -- of the trigger that was tried
       executions.id AS execution_id,        -- the record the event stands in
       executions.workflow,                  -- that the attempt ran
       executions.turn,                      -- of the task
       executions.attempt,                   -- of the trigger
       events.seq,                           -- of the event in its record, from 1
       events.type,                          -- as in docs/reference.md
       activity_log.idem_key AS activity_key,  -- the irreversible action it tells of
       events.payload_json,                  -- what the event says; '': stripped by retention
       events.at,                            -- when it was written
       strftime('%Y-%m-%dT%H:%M:%fZ', events.at, 'unixepoch') AS at_iso  -- as text
  FROM executions
  CROSS JOIN events ON events.execution_seq = executions.seq
  LEFT JOIN activity_log ON activity_log.seq = events.activity_seq
    -- True of every record; it leads from a trigger to its records by the index of their ids. An index of the triggers'
    -- ids would cost every attempt something. CROSS JOIN: in this order, so that only the events of a record are sorted.
 WHERE executions.id >= 'exec-' || executions.trigger_id || '.'
   AND executions.id < 'exec-' || executions.trigger_id || '/'
 ORDER BY executions.seq, events.seq;

-- A closed record changes in one way: retention takes the bodies, and each payload of the two texts becomes "". A text
-- that is not valid JSON becomes ''.
DROP TRIGGER executions_are_closed;
CREATE TRIGGER executions_are_closed
BEFORE UPDATE ON executions
WHEN OLD.ended_at IS NOT NULL
 AND NOT (
         NEW.stripped_at IS NOT NULL
     AND NEW.envelope_json IN ('', OLD.envelope_json)
     AND (NEW.response_json IS OLD.response_json OR NEW.response_json IS '')
     AND (   NEW.first_events IS OLD.first_events
          OR NEW.first_events IS CASE
                 WHEN json_valid('[' || OLD.first_events || ']')
                 THEN (SELECT group_concat(json_replace(value, '$[3]', ''))
                         FROM json_each('[' || OLD.first_events || ']')
                        WHERE type = 'array')
                 ELSE ''
             END)
     AND (   NEW.last_events IS OLD.last_events
          OR NEW.last_events IS CASE
                 WHEN json_valid('[' || OLD.last_events || ']')
                 THEN (SELECT group_concat(json_replace(value, '$[3]', ''))
                         FROM json_each('[' || OLD.last_events || ']')
                        WHERE type = 'array')
                 ELSE ''
             END)
     AND (NEW.seq, NEW.id, NEW.trigger_id, NEW.task_id, NEW.turn, NEW.attempt, NEW.epoch, NEW.workflow, NEW.created_at,
          NEW.ended_at, NEW.status, NEW.replayable, NEW.replayable_reason, NEW.envelope_hash, NEW.routing_json,
          NEW.error_code, NEW.latency_ms, NEW.chain_seq, NEW.events_hash, NEW.response_hash, NEW.prev_hash,
          NEW.record_hash)
      IS (OLD.seq, OLD.id, OLD.trigger_id, OLD.task_id, OLD.turn, OLD.attempt, OLD.epoch, OLD.workflow, OLD.created_at,
          OLD.ended_at, OLD.status, OLD.replayable, OLD.replayable_reason, OLD.envelope_hash, OLD.routing_json,
          OLD.error_code, OLD.latency_ms, OLD.chain_seq, OLD.events_hash, OLD.response_hash, OLD.prev_hash,
          OLD.record_hash)
     )
BEGIN
    SELECT RAISE(ABORT, 'the record is closed: it is never changed');
END;

-- An open record that a crash left is stripped in the same way.
CREATE TRIGGER first_events_are_final
BEFORE UPDATE OF first_events ON executions
WHEN OLD.ended_at IS NULL
 AND NEW.first_events IS NOT OLD.first_events
 AND (   NEW.stripped_at IS NULL
      OR NEW.first_events IS NOT CASE
             WHEN json_valid('[' || OLD.first_events || ']')
             THEN (SELECT group_concat(json_replace(value, '$[3]', ''))
                     FROM json_each('[' || OLD.first_events || ']')
                    WHERE type = 'array')
             ELSE ''
         END)
BEGIN
    SELECT RAISE(ABORT, 'an event is never changed');
END;
