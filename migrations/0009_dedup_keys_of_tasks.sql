-- An `active` dedup key is held until the work of its trigger has ended, also while the task of that trigger waits.

-- The dedup key of the trigger that created the task, when its scope is `active`; else NULL.
ALTER TABLE tasks ADD COLUMN dedup_key TEXT;

-- Read by an emit that gives a key. It has an entry for each live task with such a key, and none for the others.
CREATE INDEX tasks_dedup ON tasks (dedup_key) WHERE dedup_key IS NOT NULL AND status IN ('RUNNING', 'WAITING');
