-- Children that are cancelled when the task that started them ends.
ALTER TABLE tasks ADD COLUMN ends_with_parent INTEGER NOT NULL DEFAULT 0 CHECK (ends_with_parent IN (0, 1));

CREATE INDEX tasks_ending ON tasks (parent_id) WHERE ends_with_parent = 1 AND status IN ('RUNNING', 'WAITING');
