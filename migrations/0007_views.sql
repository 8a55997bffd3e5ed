-- What people ask of this file most, as views. They are public like the tables: docs/schema.md promises their columns.
--
-- Each moment stands twice: `due_at` in UTC epoch seconds, `due_at_iso` as text, 2026-01-02T03:04:05.678Z, to the
-- nearest millisecond. Any SQLite from 3.37 on reads the views; the engine does not.
--
-- A later migration that makes one of these tables anew drops its views first and makes them again after it: SQLite
-- refuses to rename a table while a view names one that is not there.

-- What is due and has not been started. Some of a second are usual; `overdue_seconds > 120` is late.
CREATE VIEW v_overdue AS
SELECT triggers.id,                          -- of the trigger
       triggers.source,                      -- where it came from: MESSAGE, SCHEDULED, …
       triggers.workflow,                    -- NULL: its router or its task decides
       coalesce(tasks.id, triggers.task_id) AS task_id,  -- of the task that it goes on with; NULL: none yet
       triggers.session_id,                  -- NULL: of no session
       triggers.schedule_id,                 -- that fired it
       triggers.lane,                        -- it waits while another trigger of this lane runs
       triggers.priority,                    -- 0 to 99, the lowest first
       triggers.description,                 -- for people; NULL: none
       triggers.status,                      -- PENDING; or CLAIMED: next in line, or left by a daemon that died
       triggers.attempts,                    -- that were made so far and count
       triggers.error_code,                  -- of the attempt before, if there was one
       triggers.due_at,                      -- when it was to start
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.due_at, 'unixepoch') AS due_at_iso,  -- as text
       (julianday('now') - 2440587.5) * 86400.0 - triggers.due_at AS overdue_seconds,  -- by this machine's clock
       triggers.created_at,                  -- when it was accepted
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.created_at, 'unixepoch') AS created_at_iso  -- as text
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.status = 'PENDING'
   AND triggers.due_at <= (julianday('now') - 2440587.5) * 86400.0
 UNION ALL
SELECT triggers.id,
       triggers.source,
       triggers.workflow,
       coalesce(tasks.id, triggers.task_id),
       triggers.session_id,
       triggers.schedule_id,
       triggers.lane,
       triggers.priority,
       triggers.description,
       triggers.status,
       triggers.attempts,
       triggers.error_code,
       triggers.due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.due_at, 'unixepoch'),
       (julianday('now') - 2440587.5) * 86400.0 - triggers.due_at,
       triggers.created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.created_at, 'unixepoch')
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.status = 'CLAIMED'
   AND triggers.started_at IS NULL
   AND triggers.due_at <= (julianday('now') - 2440587.5) * 86400.0;

-- The attempts in progress. While no daemon runs, what the last one left.
CREATE VIEW v_running AS
SELECT triggers.id,                          -- of the trigger
       'exec-' || triggers.id || '.' || triggers.starts AS execution_id,  -- the record of this attempt
       triggers.source,                      -- where it came from: MESSAGE, SCHEDULED, …
       triggers.workflow,                    -- NULL: none is known yet
       coalesce(tasks.id, triggers.task_id) AS task_id,  -- NULL: its workflow takes no ctx
       tasks.turn,                           -- of the task
       triggers.session_id,                  -- NULL: of no session
       triggers.schedule_id,                 -- of the schedule that fired it; NULL: none did
       triggers.lane,                        -- that it holds
       triggers.description,                 -- for people; NULL: none
       triggers.attempts,                    -- this one included
       triggers.crash_count,                 -- how many of them ended with the process
       triggers.claimed_epoch AS epoch,      -- the start of the daemon that runs it
       triggers.started_at,                  -- when the attempt began
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.started_at, 'unixepoch') AS started_at_iso,  -- as text
       (julianday('now') - 2440587.5) * 86400.0 - triggers.started_at AS running_seconds,  -- by this machine's clock
       triggers.lease_until,                 -- put off while its daemon lives: long past, that one is gone
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.lease_until, 'unixepoch') AS lease_until_iso,  -- as text
       triggers.cancel_requested_at,         -- NULL: nobody asked for its end
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.cancel_requested_at, 'unixepoch') AS cancel_requested_at_iso  -- as text
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.status = 'CLAIMED'
   AND triggers.started_at IS NOT NULL;

-- The dead letters: given up, and waiting for `craftcore dead requeue` or `discard`.
CREATE VIEW v_dead AS
SELECT triggers.id,                          -- of the trigger
       triggers.source,                      -- where it came from: MESSAGE, SCHEDULED, …
       triggers.workflow,                    -- NULL: none is known yet
       coalesce(tasks.id, triggers.task_id) AS task_id,  -- of its task; NULL: it has none
       triggers.session_id,                  -- NULL: of no session
       triggers.schedule_id,                 -- of the schedule that fired it; NULL: none did
       triggers.description,                 -- for people; NULL: none
       triggers.reason,                      -- why it was given up
       triggers.error_code,                  -- of its last attempt
       triggers.error_message,               -- the same in words
       triggers.attempts,                    -- that were spent
       triggers.crash_count,                 -- how many of them ended with the process
       triggers.payload_json,                -- what it was to work on
       triggers.due_at,                      -- when it was to start
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.due_at, 'unixepoch') AS due_at_iso,  -- as text
       triggers.created_at,                  -- when it was accepted
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.created_at, 'unixepoch') AS created_at_iso,  -- as text
       triggers.settled_at,                  -- when it was given up
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.settled_at, 'unixepoch') AS settled_at_iso  -- as text
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.status = 'DEAD';

-- The irreversible actions of which nobody knows whether they happened, and nobody has decided it yet. Empty is well.
CREATE VIEW v_unknown AS
SELECT activity_log.idem_key AS key,         -- of the activity, for `craftcore activity show` and `resolve`
       activity_log.action,                  -- its name
       activity_log.task_id,                 -- of the task that called it
       tasks.workflow,                       -- of the task
       tasks.session_id,                     -- of the task; NULL: of none
       tasks.status AS task_status,          -- RUNNING, WAITING, DONE, FAILED, CANCELLED
       activity_log.turn,                    -- of the task
       activity_log.reason,                  -- why nobody knows
       activity_log.policy,                  -- what its action declared: ask, resend, reconcile, assume_done
       activity_log.calls,                   -- how often it was called
       activity_log.error_code,              -- of its last call; NULL: none is known
       activity_log.error_message,           -- the same in words
       activity_log.request_json,            -- the arguments; NULL: too large to be kept, or stripped
       activity_log.provider_ref,            -- the provider's reference, if it is known
       questions.id AS question_id,          -- the open question about it, for `craftcore inbox answer`; NULL: none
       activity_log.first_call_at,           -- a provider's window counts from here
       strftime('%Y-%m-%dT%H:%M:%fZ', activity_log.first_call_at, 'unixepoch') AS first_call_at_iso,  -- as text
       activity_log.last_call_at,            -- of the call that nobody knows the end of
       strftime('%Y-%m-%dT%H:%M:%fZ', activity_log.last_call_at, 'unixepoch') AS last_call_at_iso  -- as text
  FROM activity_log
  LEFT JOIN tasks ON tasks.seq = activity_log.task_seq
  LEFT JOIN questions ON questions.activity_seq = activity_log.seq
                     AND questions.status = 'OPEN'
 WHERE activity_log.status = 'UNKNOWN'
   AND activity_log.decision IS NULL;

-- What people are asked, and nobody has answered yet. Empty is well.
CREATE VIEW v_inbox AS
SELECT questions.id,                         -- for `craftcore inbox answer`
       questions.kind,                       -- ask: by a task. stale, budget, stalled, activity, conflict: about one
       questions.question,                   -- for people, as many lines as it has
       questions.options_json,               -- an array of texts; NULL: any text answers it
       questions.default_json,               -- what holds when nobody answers in time
       questions.by_message,                 -- 1: a message to the task answers it, too
       tasks.id AS task_id,                  -- of the task that asks, or that it is about
       tasks.workflow,                       -- of the task
       tasks.session_id,                     -- of the task; NULL: of none
       activity_log.idem_key AS activity_key,  -- the activity it is about
       questions.created_at,                 -- when it was asked
       strftime('%Y-%m-%dT%H:%M:%fZ', questions.created_at, 'unixepoch') AS created_at_iso,  -- as text
       questions.expires_at,                 -- NULL: it stays open until it is answered
       strftime('%Y-%m-%dT%H:%M:%fZ', questions.expires_at, 'unixepoch') AS expires_at_iso  -- as text
  FROM questions
  LEFT JOIN tasks ON tasks.seq = questions.task_seq
  LEFT JOIN activity_log ON activity_log.seq = questions.activity_seq
 WHERE questions.status = 'OPEN';

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
    -- ids would cost every attempt something. CROSS JOIN: in this order, so that nothing has to be sorted.
 WHERE executions.id >= 'exec-' || executions.trigger_id || '.'
   AND executions.id < 'exec-' || executions.trigger_id || '/'
 ORDER BY executions.seq, events.seq;
