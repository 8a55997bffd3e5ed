-- A person may stop the turn of a task and keep the task: it waits for what begins its next turn.

ALTER TABLE tasks ADD COLUMN stopped_turn INTEGER;    -- the turn; NULL: none was stopped since the last retry
