-- What lets old rows go: which trigger was stripped, and how to find what belongs to a row that is deleted.

-- When retention took its payload, description and message away. Such a row is kept for its dedup key, and never requeued.
ALTER TABLE triggers ADD COLUMN stripped_at REAL;

-- SQLite asks these at each deletion of what they refer to. None is on the way of a trigger that is emitted, claimed or
-- settled; a question, a message to a task and an act each pay for one entry at the end of an index.
CREATE INDEX activity_log_task ON activity_log (task_seq);
CREATE INDEX questions_task ON questions (task_seq);
CREATE INDEX questions_wait ON questions (wait_seq) WHERE wait_seq IS NOT NULL;
CREATE INDEX questions_of ON questions (activity_seq) WHERE activity_seq IS NOT NULL;
CREATE INDEX mailbox_task ON mailbox (task_seq);
CREATE INDEX mailbox_wait ON mailbox (wait_seq) WHERE wait_seq IS NOT NULL;

-- A message that its task has not read yet may have to be emitted anew when the task ends: its trigger stays.
CREATE INDEX mailbox_trigger ON mailbox (trigger_id) WHERE trigger_id IS NOT NULL AND status = 'UNREAD';

-- Of two indexes that cost the same SQLite takes the younger: those that hold only what is open are made anew, so that
-- the questions of the engine go on being answered by them.
DROP INDEX activity_log_in_doubt;
CREATE INDEX activity_log_in_doubt ON activity_log (task_seq) WHERE status = 'UNKNOWN' AND decision IS NULL;
DROP INDEX questions_open;
CREATE INDEX questions_open ON questions (task_seq) WHERE status = 'OPEN';
DROP INDEX questions_activity;
CREATE UNIQUE INDEX questions_activity ON questions (activity_seq) WHERE activity_seq IS NOT NULL AND status = 'OPEN';
DROP INDEX mailbox_unread;
CREATE INDEX mailbox_unread ON mailbox (task_seq, event, seq) WHERE status = 'UNREAD';
