-- How far the code of a task says that it has come: the newest value, and how many there were.
ALTER TABLE tasks ADD COLUMN progress_json TEXT;
ALTER TABLE tasks ADD COLUMN progress_count INTEGER NOT NULL DEFAULT 0;
