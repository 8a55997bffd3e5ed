-- The invariants: promises between the rows of a database that no constraint of the schema enforces.
--
-- Each begins with a comment: its name, and its promise in one sentence. Its query returns a row (id, text) for each
-- violation, and none on a healthy database, also on one that a killed process left. Clocks that jump break none.
--
-- Retention removes and strips old rows. A query that would miss them looks only at rows that are newer than the last
-- record that was removed, and newer than the last moment from which a clock went back.

-- Triggers

-- settled-trigger-has-record: A settled trigger that was started has the record of its last start.
SELECT triggers.id, 'it is ' || status || ', was started ' || starts || ' times, and its last record is missing' AS text
  FROM triggers
 WHERE status IN ('DONE', 'FAILED', 'DEAD')
   AND starts > 0
   AND created_at > (
           SELECT CASE
                      WHEN removed = 0 THEN -1.0
                      ELSE max(
                          coalesce(
                              (SELECT first.created_at
                                 FROM executions AS first
                                WHERE NOT EXISTS (SELECT 1 FROM executions AS before WHERE before.seq = first.seq - 1)
                                ORDER BY first.seq DESC
                                LIMIT 1),
                              9e15
                          ) + 60,
                          coalesce(
                              (SELECT max(at + abs(seconds)) FROM clock_events WHERE kind IN ('backward', 'held')), 0
                          )
                      )
                  END
             FROM record_chain)
   AND NOT EXISTS (SELECT 1 FROM executions WHERE executions.id = 'exec-' || triggers.id || '.' || triggers.starts);

-- running-trigger-has-open-record: A trigger that runs has an open record of its last start, in the epoch of its claim.
SELECT triggers.id, 'it runs in epoch ' || claimed_epoch || ', and start ' || starts || ' has no open record there'
           AS text
  FROM triggers
 WHERE status = 'CLAIMED'
   AND started_at IS NOT NULL
   AND NOT EXISTS (SELECT 1
                     FROM executions
                    WHERE executions.id = 'exec-' || triggers.id || '.' || triggers.starts
                      AND ended_at IS NULL
                      AND epoch = claimed_epoch);

-- record-is-of-a-start: A record has the number of a start that its trigger has counted.
SELECT executions.id, 'its trigger was started ' || starts || ' times' AS text
  FROM executions
  JOIN triggers ON triggers.id = trigger_id
 WHERE CAST(substr(executions.id, length(trigger_id) + 7) AS INTEGER) NOT BETWEEN 1 AND starts;

-- trigger-succeeds-once: A trigger has at most one record of success.
SELECT triggers.id, 'it has ' || (
           SELECT count(*)
             FROM executions
            WHERE executions.id > 'exec-' || triggers.id || '.'
              AND executions.id < 'exec-' || triggers.id || '/'
              AND executions.status = 'success') || ' records of success' AS text
  FROM triggers
 WHERE starts > 1
   AND (SELECT count(*)
          FROM executions
         WHERE executions.id > 'exec-' || triggers.id || '.'
           AND executions.id < 'exec-' || triggers.id || '/'
           AND executions.status = 'success') > 1;

-- attempts-are-starts: The attempts and crashes that a trigger counts are among its starts.
SELECT id, 'it counts ' || attempts || ' attempts, ' || crash_count || ' crashes and ' || starts || ' starts' AS text
  FROM triggers
 WHERE attempts NOT BETWEEN 0 AND starts
    OR crash_count NOT BETWEEN 0 AND starts;

-- attempts-have-a-limit: A trigger has no more attempts than its limit, without those that ended with the process.
SELECT id, 'it has ' || attempts || ' attempts, ' || crash_count || ' crashes, and a limit of ' || max_attempts AS text
  FROM triggers
 WHERE attempts - crash_count > max_attempts;

-- superseded-trigger-is-done: A trigger with a successor is settled as superseded.
SELECT id, 'it was superseded by ' || superseded_by || ', and is ' || status || ' ('
           || ifnull(reason, 'no reason') || ')' AS text
  FROM triggers
 WHERE superseded_by IS NOT NULL
   AND (status <> 'DONE' OR reason IS NOT 'superseded');

-- stripped-trigger-is-settled: Retention takes the payload of settled triggers only.
SELECT id, 'it is ' || status || ', and its payload was removed' AS text
  FROM triggers
 WHERE stripped_at IS NOT NULL
   AND status IN ('PENDING', 'CLAIMED');

-- lane-runs-one: Of the triggers of a lane at most one runs.
SELECT min(id) AS id, 'lane ' || lane || ' runs ' || count(*) || ' triggers at once' AS text
  FROM triggers
 WHERE status = 'CLAIMED'
   AND started_at IS NOT NULL
   AND lane IS NOT NULL
 GROUP BY lane
HAVING count(*) > 1;

-- claim-is-of-the-last-epoch: A claim belongs to the newest epoch, and that has not ended.
SELECT id, 'it is claimed in epoch ' || claimed_epoch || ', and the newest one is '
           || ifnull((SELECT max(epoch) FROM epochs), 'missing') AS text
  FROM triggers
 WHERE status = 'CLAIMED'
   AND NOT EXISTS (SELECT 1
                     FROM epochs
                    WHERE epoch = claimed_epoch
                      AND ended_at IS NULL
                      AND epoch = (SELECT max(epoch) FROM epochs));

-- limit-wait-is-put-off: A trigger that waits for a place of its key is PENDING and put off.
SELECT ifnull(triggers.id, 'trigger ' || trigger_seq) AS id, 'it is on the list of key ' || key || ', and is '
           || ifnull(triggers.status || ', due at ' || triggers.due_at, 'missing') AS text
  FROM limit_waits
  LEFT JOIN triggers ON triggers.seq = trigger_seq
 WHERE triggers.status IS NOT 'PENDING'
    OR triggers.not_before IS NOT 253402214400.0;

-- put-off-trigger-waits: A trigger that is put off without an end is on the list of its key.
SELECT id, 'it is put off until a place is free, and is on no list' AS text
  FROM triggers
 WHERE status = 'PENDING'
   AND not_before = 253402214400.0
   AND NOT EXISTS (SELECT 1 FROM limit_waits WHERE trigger_seq = triggers.seq)
   AND NOT EXISTS (SELECT 1 FROM task_holds WHERE trigger_id = triggers.id);

-- Dedup keys

-- active-key-has-one-task: One live task holds an active dedup key.
SELECT min(id) AS id, 'key ' || dedup_key || ' is held by ' || count(*) || ' live tasks' AS text
  FROM tasks
 WHERE dedup_key IS NOT NULL
   AND status IN ('RUNNING', 'WAITING')
 GROUP BY dedup_key
HAVING count(*) > 1;

-- active-key-has-one-work: A live trigger and the live task of another do not hold the same active dedup key.
SELECT triggers.id, 'key ' || tasks.dedup_key || ' is held by task ' || tasks.id || ' as well' AS text
  FROM tasks
  JOIN triggers ON triggers.dedup_key = tasks.dedup_key
               AND triggers.dedup_scope = 'active'
               AND triggers.status IN ('PENDING', 'CLAIMED')
 WHERE tasks.dedup_key IS NOT NULL
   AND tasks.status IN ('RUNNING', 'WAITING')
   AND triggers.id <> tasks.id
   AND triggers.task_id IS NOT tasks.id;

-- Tasks

-- running-task-has-trigger: A RUNNING task has a live trigger, and that is its own.
SELECT tasks.id, 'it is RUNNING, and trigger ' || ifnull(tasks.trigger_id, 'none') || ' is '
           || CASE WHEN triggers.id IS NULL THEN 'missing'
                   WHEN triggers.status NOT IN ('PENDING', 'CLAIMED') THEN triggers.status
                   ELSE 'of task ' || ifnull(triggers.task_id, triggers.id) END AS text
  FROM tasks
  LEFT JOIN triggers ON triggers.id = tasks.trigger_id
 WHERE tasks.status = 'RUNNING'
   AND (   triggers.id IS NULL
        OR triggers.status NOT IN ('PENDING', 'CLAIMED')
        OR tasks.id NOT IN (triggers.id, ifnull(triggers.task_id, triggers.id)));

-- ended-task-has-no-trigger: The trigger of an ended task is settled.
SELECT tasks.id, 'it is ' || tasks.status || ', and its trigger ' || triggers.id || ' is ' || triggers.status AS text
  FROM triggers
  JOIN tasks ON tasks.trigger_id = triggers.id
            AND tasks.id = ifnull(triggers.task_id, triggers.id)
            AND tasks.ended_at IS NOT NULL
 WHERE triggers.status IN ('PENDING', 'CLAIMED');

-- turn-trigger-is-the-last: A live trigger that goes on with a task is the one that its live task names.
SELECT triggers.id, 'it goes on with task ' || triggers.task_id || ', which '
           || CASE WHEN tasks.id IS NULL THEN 'is missing'
                   WHEN tasks.ended_at IS NOT NULL THEN 'is ' || tasks.status
                   ELSE 'names trigger ' || ifnull(tasks.trigger_id, 'none') END AS text
  FROM triggers
  LEFT JOIN tasks ON tasks.id = triggers.task_id
 WHERE triggers.status IN ('PENDING', 'CLAIMED')
   AND triggers.source IN ('CONTINUATION', 'RESUME')
   AND triggers.task_id IS NOT NULL
   AND (tasks.id IS NULL OR tasks.ended_at IS NOT NULL OR tasks.trigger_id IS NOT triggers.id);

-- task-runs-once: A task has at most one open record of a running turn in an epoch.
SELECT one.task_id AS id, 'records ' || one.id || ' and ' || other.id || ' are both open' AS text
  FROM executions AS one
  JOIN executions AS other ON other.task_id = one.task_id
                          AND other.epoch = one.epoch
                          AND other.seq > one.seq
                          AND other.status = 'incomplete'
                          AND other.ended_at IS NULL
 WHERE one.status = 'incomplete'
   AND one.ended_at IS NULL
   AND one.task_id IS NOT NULL
   AND one.turn IS NOT NULL
   AND other.turn IS NOT NULL;

-- turn-settles-once: A turn of a task has at most one settlement that begins the next turn.
SELECT task_id AS id, 'turn ' || executions.turn || ' was settled ' || count(*) || ' times' AS text
  FROM executions
  JOIN events ON execution_seq = executions.seq
 WHERE task_id IS NOT NULL
   AND executions.turn IS NOT NULL
   AND (   type = 'TURN_CONTINUED'
        OR type = 'TURN_SUSPENDED'
       AND iif(json_valid(payload_json), payload_json ->> 'wait', NULL) = 'continued')
 GROUP BY task_id, executions.turn
HAVING count(*) > 1;

-- settled-turns-are-over: A task is beyond every turn that it has settled.
SELECT tasks.id, 'it is at turn ' || tasks.turn || ', and turn ' || max(executions.turn) || ' was settled for the next'
           AS text
  FROM tasks
  JOIN executions ON task_id = tasks.id AND executions.turn >= tasks.turn
  JOIN events ON execution_seq = executions.seq
 WHERE type = 'TURN_CONTINUED'
    OR type = 'TURN_SUSPENDED'
   AND iif(json_valid(payload_json), payload_json ->> 'wait', NULL) = 'continued'
 GROUP BY tasks.seq;

-- child-ends-with-parent: A child that ends with its parent is cancelled when the parent has ended.
SELECT child.id, 'it is ' || child.status || ', and its parent ' || parent.id || ' is ' || parent.status AS text
  FROM tasks AS child
  JOIN tasks AS parent ON parent.id = child.parent_id
 WHERE child.ends_with_parent = 1
   AND child.status IN ('RUNNING', 'WAITING')
   AND parent.ended_at IS NOT NULL
   AND NOT EXISTS (SELECT 1
                     FROM triggers
                    WHERE triggers.id = child.trigger_id
                      AND cancel_requested_at IS NOT NULL);

-- Waits

-- waiting-task-waits: A WAITING task has an open wait of its turn.
SELECT id, 'it is WAITING at turn ' || turn || ', and waits for nothing' AS text
  FROM tasks
 WHERE status = 'WAITING'
   AND NOT EXISTS (SELECT 1
                     FROM waits
                    WHERE task_seq = tasks.seq
                      AND waits.turn = tasks.turn
                      AND waits.status = 'WAITING');

-- open-wait-has-waiting-task: The task of an open wait is at its turn, and WAITING, or RUNNING if others were beside it.
SELECT tasks.id, 'wait ' || waits.name || ' of turn ' || waits.turn || ' is open, and the task is ' || tasks.status
           || ' at turn ' || tasks.turn AS text
  FROM waits
  JOIN tasks ON tasks.seq = task_seq
 WHERE waits.status = 'WAITING'
   AND (   tasks.turn <> waits.turn
        OR tasks.status <> 'WAITING' AND (tasks.status <> 'RUNNING' OR waits.any_of IS NULL));

-- timed-wait-has-trigger: A WAITING task whose wait ends by itself has a live trigger that is due by then.
SELECT tasks.id, 'wait ' || waits.name || ' ends by itself, and no live trigger is there for it' AS text
  FROM waits
  JOIN tasks ON tasks.seq = waits.task_seq
 WHERE waits.status = 'WAITING'
   AND waits.due_at IS NOT NULL
   AND tasks.status = 'WAITING'
   AND NOT EXISTS (SELECT 1
                     FROM triggers
                    WHERE triggers.id = tasks.trigger_id
                      AND triggers.fire_at <= waits.due_at
                      AND triggers.status IN ('PENDING', 'CLAIMED'));

-- child-wait-has-live-child: A task does not wait for a child that has ended.
SELECT tasks.id, 'it waits for task ' || child.id || ', which is ' || child.status AS text
  FROM waits
  JOIN tasks ON tasks.seq = task_seq
  JOIN tasks AS child ON child.id = waits.event
 WHERE waits.kind = 'child'
   AND waits.status = 'WAITING'
   AND child.ended_at IS NOT NULL;

-- Questions

-- open-question-has-open-wait: An open question whose answer ends a wait belongs to an open wait.
SELECT questions.id, 'it is open, and its wait ' || waits.name || ' is ' || waits.status AS text
  FROM questions
  JOIN waits ON waits.seq = wait_seq
 WHERE questions.status = 'OPEN'
   AND waits.status <> 'WAITING';

-- question-wait-has-question: An open wait for an answer has one open question.
SELECT tasks.id, 'wait ' || waits.name || ' is for an answer, and has no open question' AS text
  FROM waits
  JOIN tasks ON tasks.seq = task_seq
 WHERE waits.kind = 'question'
   AND waits.status = 'WAITING'
   AND 1 <> (SELECT count(*) FROM questions WHERE wait_seq = waits.seq AND questions.status = 'OPEN');

-- answer-ends-its-wait: An answered question has ended its wait, with its answer or with its task.
SELECT questions.id, 'it was answered, and its wait ' || waits.name || ' ended by '
           || ifnull(resolved_by, 'nothing') AS text
  FROM questions
  JOIN waits ON waits.seq = wait_seq
 WHERE questions.status = 'ANSWERED'
   AND (   waits.status <> 'RESOLVED'
        OR (resolved_by <> 'answer' AND (questions.kind = 'ask' OR resolved_by <> 'end'))
        OR resolved_by = 'answer'
       AND iif(json_valid(value_json), coalesce(value_json ->> '$.decision', value_json ->> '$'), answer) <> answer);

-- ended-task-asks-nothing: An ended task has no open questions except about its actions.
SELECT questions.id, 'it is open, and its task ' || tasks.id || ' is ' || tasks.status AS text
  FROM questions
  JOIN tasks ON tasks.seq = task_seq
 WHERE questions.status = 'OPEN'
   AND questions.kind NOT IN ('activity', 'conflict')
   AND tasks.ended_at IS NOT NULL;

-- Messages and signals

-- read-mail-ended-its-wait: A read message or signal has ended the wait that took it.
SELECT 'mail ' || mailbox.seq AS id, 'it was read by wait ' || waits.name || ', which is ' || waits.status AS text
  FROM mailbox
  JOIN waits ON waits.seq = wait_seq
 WHERE waits.status <> 'RESOLVED';

-- mail-of-ended-task-is-handled: A message or signal to an ended task is not unread.
SELECT 'mail ' || mailbox.seq AS id, 'it is unread, and task ' || tasks.id || ' is ' || tasks.status AS text
  FROM mailbox
  JOIN tasks ON tasks.seq = task_seq
 WHERE mailbox.status = 'UNREAD'
   AND tasks.ended_at IS NOT NULL;

-- awaited-mail-is-read: A task does not wait for an event that is unread in its mailbox.
SELECT 'mail ' || mailbox.seq AS id, 'it is unread, and wait ' || waits.name || ' is for ' || mailbox.event AS text
  FROM mailbox
  JOIN waits ON waits.task_seq = mailbox.task_seq AND waits.event = mailbox.event
 WHERE mailbox.status = 'UNREAD'
   AND waits.kind = 'event'
   AND waits.status = 'WAITING';

-- delivered-message-is-settled: The trigger of a message in a mailbox is settled.
SELECT triggers.id, 'it is ' || triggers.status || ', and mail ' || mailbox.seq || ' has its message' AS text
  FROM mailbox
  JOIN triggers ON triggers.id = mailbox.trigger_id
 WHERE triggers.status IN ('PENDING', 'CLAIMED');

-- early-signal-is-delivered: A signal that came before the first turn is in the mailbox once the task is there.
SELECT tasks.id, 'signal ' || early_mail.seq || ' came before its first turn, and is not in its mailbox' AS text
  FROM early_mail
  JOIN tasks ON tasks.id = early_mail.trigger_id;

-- Irreversible actions

-- intent-is-of-a-running-attempt: An intent without an end belongs to an open record, or to one that a crash left open.
SELECT idem_key AS id, 'it is an intent without an end, and record ' || executions.id || ' is closed' AS text
  FROM activity_log
  JOIN executions ON executions.seq = execution_seq
 WHERE activity_log.status IN ('INTENT', 'UNKNOWN')
   AND activity_log.status = 'INTENT'
   AND executions.ended_at IS NOT NULL;

-- intent-is-of-a-live-task: An intent without an end belongs to a live task.
SELECT idem_key AS id, 'it is an intent without an end, and task ' || tasks.id || ' is ' || tasks.status AS text
  FROM activity_log
  JOIN tasks ON tasks.seq = task_seq
 WHERE activity_log.status IN ('INTENT', 'UNKNOWN')
   AND activity_log.status = 'INTENT'
   AND tasks.ended_at IS NOT NULL;

-- doubt-is-asked-about: An undecided action of an ended task has an open question.
SELECT idem_key AS id, 'its outcome is unknown, task ' || tasks.id || ' is ' || tasks.status || ', and nobody is asked'
           AS text
  FROM activity_log
  JOIN tasks ON tasks.seq = activity_log.task_seq
 WHERE activity_log.status = 'UNKNOWN'
   AND activity_log.decision IS NULL
   AND tasks.ended_at IS NOT NULL
   AND NOT EXISTS (SELECT 1 FROM questions WHERE activity_seq = activity_log.seq AND questions.status = 'OPEN');

-- asked-action-is-in-doubt: An open question about an action belongs to an undecided action.
SELECT questions.id, 'it is open, and its action ' || idem_key || ' is ' || activity_log.status
           || ifnull(', decided: ' || decision, '') AS text
  FROM questions
  JOIN activity_log ON activity_log.seq = activity_seq
 WHERE questions.status = 'OPEN'
   AND (activity_log.status <> 'UNKNOWN' OR activity_log.decision IS NOT NULL);

-- intent-comes-before-the-call: The record of a called action has its intent before any outcome.
SELECT idem_key AS id, 'record ' || executions.id || ' has no intent of it before its outcome' AS text
  FROM activity_log
  JOIN executions ON executions.seq = execution_seq
 WHERE NOT EXISTS (SELECT 1
                     FROM event_rows AS intent
                    WHERE intent.execution_seq = activity_log.execution_seq
                      AND intent.activity_seq = activity_log.seq
                      AND intent.type = 'ACTIVITY_INTENT'
                      AND NOT EXISTS (SELECT 1
                                        FROM event_rows AS outcome
                                       WHERE outcome.execution_seq = intent.execution_seq
                                         AND outcome.activity_seq = intent.activity_seq
                                         AND outcome.type IN ('ACTIVITY_DONE', 'ACTIVITY_FAILED', 'ACTIVITY_UNKNOWN')
                                         AND outcome.seq < intent.seq
                                         AND NOT EXISTS (SELECT 1
                                                           FROM event_rows AS earlier
                                                          WHERE earlier.execution_seq = intent.execution_seq
                                                            AND earlier.activity_seq = intent.activity_seq
                                                            AND earlier.type = 'ACTIVITY_INTENT'
                                                            AND earlier.seq < outcome.seq)));

-- done-action-has-one-outcome: A DONE action has exactly one outcome: an answer in its record, or a decision.
SELECT idem_key AS id, 'it is DONE, and ' || CASE WHEN decision IS NULL THEN 'its record has not one answer'
                                                 ELSE 'it has not one decision that it happened' END AS text
  FROM activity_log
 WHERE status = 'DONE'
   AND CASE
           WHEN decision IS NOT NULL
           THEN (SELECT count(*)
                   FROM activity_decisions
                  WHERE activity_seq = activity_log.seq
                    AND activity_decisions.decision = 'happened') <> 1
           ELSE EXISTS (SELECT 1 FROM executions WHERE executions.seq = execution_seq)
            AND (SELECT count(*)
                   FROM event_rows
                  WHERE event_rows.execution_seq = activity_log.execution_seq
                    AND event_rows.activity_seq = activity_log.seq
                    AND type = 'ACTIVITY_DONE') <> 1
       END;

-- decision-is-on-record: The decision of an action is the newest of its recorded decisions.
SELECT idem_key AS id, 'it was decided: ' || decision || ', and no decision on record says so' AS text
  FROM activity_log
 WHERE decision IS NOT NULL
   AND decision IS NOT (SELECT activity_decisions.decision
                          FROM activity_decisions
                         WHERE activity_seq = activity_log.seq
                         ORDER BY activity_decisions.seq DESC
                         LIMIT 1);

-- action-key-is-of-its-task: The key of an action begins with the id of its task.
SELECT idem_key AS id, 'it is an action of task ' || tasks.id AS text
  FROM activity_log
  JOIN tasks ON tasks.seq = task_seq
 WHERE tasks.id <> task_id
    OR substr(idem_key, 1, length(task_id) + 10) <> 'activity:' || task_id || ':';

-- Schedules

-- next-occurrence-is-ahead: The next occurrence of a schedule is after everything that is accounted for.
SELECT id, 'its next occurrence is at ' || next_at || ', and it is accounted for up to ' || max(
           high_water_at,
           ifnull((SELECT max(last_at)
                     FROM schedule_occurrences
                    WHERE schedule_id = schedules.id
                      AND generation = schedules.generation
                      AND cause = 'time'), high_water_at)) AS text
  FROM schedules
 WHERE next_at IS NOT NULL
   AND (   next_at <= high_water_at
        OR EXISTS (SELECT 1
                     FROM schedule_occurrences
                    WHERE schedule_id = schedules.id
                      AND generation = schedules.generation
                      AND cause = 'time'
                      AND last_at >= next_at));

-- active-schedule-has-next: An ACTIVE schedule awaits an occurrence, unless it fires at each start.
SELECT id, 'it is ACTIVE, and awaits nothing' AS text
  FROM schedules
 WHERE status = 'ACTIVE'
   AND kind <> 'startup'
   AND next_at IS NULL;

-- occurrence-is-accounted-once: Each occurrence of a schedule is in one line of the account.
SELECT schedule_id AS id, 'the occurrence at ' || nominal_at || ' of generation ' || generation || ' is in two lines'
           AS text
  FROM (SELECT schedule_id,
               generation,
               nominal_at,
               max(last_at) OVER (PARTITION BY schedule_id, generation
                                  ORDER BY nominal_at, seq
                                  ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS accounted_to
          FROM schedule_occurrences
         WHERE cause = 'time')
 WHERE nominal_at <= accounted_to;

-- occurrence-has-its-own-trigger: No trigger belongs to two occurrences.
SELECT trigger_id AS id, count(*) || ' occurrences of schedule ' || min(schedule_id) || ' name it' AS text
  FROM schedule_occurrences
 WHERE trigger_id IS NOT NULL
 GROUP BY trigger_id
HAVING count(*) > 1;

-- fired-occurrence-fits-its-trigger: The trigger of an occurrence has its schedule and its moment.
SELECT triggers.id, 'it is the trigger of ' || occurrence.schedule_id || ' at ' || occurrence.nominal_at
           || ', and names ' || ifnull(triggers.schedule_id, 'no schedule') || ' at '
           || ifnull(triggers.nominal_at, 'no moment') AS text
  FROM schedule_occurrences AS occurrence
  JOIN triggers ON triggers.id = occurrence.trigger_id
 WHERE triggers.schedule_id IS NOT occurrence.schedule_id
    OR triggers.nominal_at IS NOT occurrence.nominal_at;

-- scheduled-trigger-is-accounted: A live trigger of a schedule is in the account as fired.
SELECT triggers.id, 'it is live, and no occurrence of ' || triggers.schedule_id || ' names it' AS text
  FROM triggers
 WHERE triggers.schedule_id IS NOT NULL
   AND triggers.status IN ('PENDING', 'CLAIMED')
   AND triggers.source = 'SCHEDULED'
   AND NOT EXISTS (SELECT 1
                     FROM schedule_occurrences AS occurrence
                    WHERE occurrence.schedule_id = triggers.schedule_id
                      AND occurrence.nominal_at = triggers.nominal_at
                      AND occurrence.outcome <> 'skipped'
                      AND occurrence.trigger_id = triggers.id);

-- stopped-schedule-has-nothing-buffered: A schedule that is paused, disabled or removed has no occurrence that waits.
SELECT schedule_id AS id, 'it is ' || schedules.status || ', and its occurrence at ' || nominal_at || ' waits' AS text
  FROM schedule_occurrences
  JOIN schedules ON schedules.id = schedule_id
 WHERE outcome = 'buffered'
   AND cause = 'time'
   AND schedules.status IN ('PAUSED', 'DISABLED', 'REMOVED');

-- Conversations

-- messages-are-in-order: A later message of a session has a higher number.
SELECT seq AS id, 'message ' || number || ' of session ' || session_id || ' is older than the one before it' AS text
  FROM (SELECT seq, session_id, number, lag(seq) OVER (PARTITION BY session_id ORDER BY number) AS before
          FROM session_messages)
 WHERE seq < before;

-- message-is-of-a-begun-turn: No message is of a turn that its task has not begun.
SELECT session_messages.seq AS id, 'it is of turn ' || session_messages.turn || ' of task ' || task_id AS text
  FROM session_messages
  JOIN tasks ON tasks.id = task_id
 WHERE session_messages.turn > tasks.turn;

-- message-is-json: A message of a session is JSON, or was set aside.
SELECT seq AS id, 'message ' || number || ' of session ' || session_id || ' is not JSON' AS text
  FROM session_messages
 WHERE message_json <> ''
   AND NOT json_valid(message_json);

-- Records

-- record-is-there-or-removed: Every record that was made is there, or was removed by retention.
SELECT 'executions' AS id, made || ' were made, ' || there || ' are there, and retention removed ' || removed AS text
  FROM (SELECT ifnull(max(seq), 0) AS made, count(*) AS there FROM executions)
  JOIN record_chain
 WHERE made - there <> removed;

-- chain-is-complete: Every place of the chain after its anchor has a record, up to the head.
SELECT 'record_chain' AS id, 'it goes from ' || anchor_seq || ' to ' || head_seq || ', and has ' || there
           || ' records up to ' || last AS text
  FROM record_chain
  JOIN (SELECT count(*) AS there, max(chain_seq) AS last
          FROM executions
         WHERE chain_seq > (SELECT anchor_seq FROM record_chain))
 WHERE head_seq - anchor_seq <> there
    OR ifnull(last, head_seq) <> head_seq;

-- closed-record-is-chained: A record is in the chain exactly when it is closed.
SELECT id, 'it is ' || status || iif(ended_at IS NULL, ', open', ', closed')
           || ifnull(', and at place ' || chain_seq || ' of the chain', ', and in no chain') AS text
  FROM executions
 WHERE (ended_at IS NULL AND (chain_seq IS NOT NULL OR status <> 'incomplete'))
    OR (ended_at IS NOT NULL AND chain_seq IS NULL AND seq > (SELECT unchained_to FROM record_chain));

-- open-record-is-of-a-running-trigger: A record of the newest epoch is open only while its trigger runs.
SELECT executions.id, 'it is open, and its trigger ' || trigger_id || ' is ' || ifnull(triggers.status, 'missing')
           AS text
  FROM executions
  LEFT JOIN triggers ON triggers.id = trigger_id
 WHERE executions.status = 'incomplete'
   AND executions.ended_at IS NULL
   AND executions.epoch = (SELECT max(epoch) FROM epochs WHERE ended_at IS NULL)
   AND executions.epoch = (SELECT max(epoch) FROM epochs)
   AND (   triggers.claimed_epoch IS NOT executions.epoch
        OR triggers.started_at IS NULL
        OR executions.id <> 'exec-' || triggers.id || '.' || triggers.starts);

-- events-are-numbered: The events of a record are numbered from 1 without a gap.
SELECT 'record ' || execution_seq AS id, 'it has ' || count(*) || ' events, numbered from ' || min(seq) || ' to '
           || max(seq) AS text
  FROM events
 GROUP BY execution_seq
HAVING min(seq) <> 1
    OR max(seq) <> count(*);

-- record-has-events: A record has its first event.
SELECT id, 'it has no event' AS text
  FROM executions
 WHERE NOT EXISTS (SELECT 1 FROM events WHERE execution_seq = executions.seq AND events.seq = 1);

-- body-is-kept: A body that is not in its record is in `blobs`, or was removed by retention.
SELECT id, 'its body is neither in the record nor in blobs' AS text
  FROM executions
 WHERE stripped_at IS NULL
   AND (   envelope_json = ''
       AND NOT EXISTS (SELECT 1 FROM blobs WHERE execution_seq = executions.seq AND part = 'envelope')
        OR response_json = ''
       AND NOT EXISTS (SELECT 1 FROM blobs WHERE execution_seq = executions.seq AND part = 'response'));

-- retained-record-is-there: A record that retention kept behind the anchor is there, with its place and hash.
SELECT 'record ' || execution_seq AS id, 'it was kept at place ' || kept.chain_seq || ' of the chain, and is '
           || iif(executions.seq IS NULL, 'missing', 'another') AS text
  FROM retained_records AS kept
  LEFT JOIN executions ON executions.seq = execution_seq
 WHERE executions.chain_seq IS NOT kept.chain_seq
    OR executions.record_hash IS NOT kept.record_hash
    OR kept.chain_seq > (SELECT anchor_seq FROM record_chain);

-- Epochs

-- record-is-of-a-begun-epoch: No record is of an epoch that has not begun.
SELECT id, 'it is of epoch ' || epoch AS text
  FROM executions
 WHERE epoch > (SELECT max(epoch) FROM epochs);

-- action-is-of-a-begun-epoch: No action was called in an epoch that has not begun.
SELECT idem_key AS id, 'it was called in epoch ' || epoch AS text
  FROM activity_log
 WHERE epoch > (SELECT max(epoch) FROM epochs);

-- seen-notices-were-written: The last notice that was handled is not after the last that was written.
SELECT 'notices_seen' AS id, 'notice ' || value || ' was handled, and the last one is '
           || ifnull((SELECT max(seq) FROM notices), 'missing') AS text
  FROM facts
 WHERE name = 'notices_seen'
   AND CAST(value AS INTEGER) > ifnull((SELECT max(seq) FROM notices), 0);
