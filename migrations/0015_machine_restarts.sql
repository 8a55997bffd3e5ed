-- A trigger that takes the machine down is found out, too, but later than one that only ends the process: every second
-- restart of the machine while it ran counts as a crash.
ALTER TABLE triggers ADD COLUMN machine_restarts INTEGER NOT NULL DEFAULT 0 CHECK (machine_restarts >= 0);
