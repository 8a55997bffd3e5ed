-- A task may wait for the first of several: each is a wait, and the first that is resolved ends the others.

ALTER TABLE waits ADD COLUMN any_of TEXT;    -- what the turn knows them by together; NULL: it is waited for alone

-- A task waits for one thing at a time, or for the first of several with other names.
DROP INDEX waits_open;
CREATE UNIQUE INDEX waits_open ON waits (task_seq, iif(any_of IS NULL, '', name)) WHERE status = 'WAITING';
