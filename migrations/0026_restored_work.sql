-- What work makes anew after a restore may have been made before, too, and is not in the file: it is marked, and its
-- irreversible actions are in doubt until a person says that the restored file was complete.
CREATE TABLE restored_work (
    kind    TEXT NOT NULL CHECK (kind IN ('trigger', 'schedule')),
    id      TEXT NOT NULL,                   -- of the trigger, and of the task that it creates; or of the schedule
    same_id INTEGER NOT NULL CHECK (same_id IN (0, 1)),  -- the lost file knew it by this id, if at all
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- The trigger that creates a task stays as long as that can act.
CREATE TRIGGER restored_work_ends
AFTER DELETE ON triggers
BEGIN
    DELETE FROM restored_work WHERE kind = 'trigger' AND id = OLD.id;
END;

CREATE TRIGGER restored_schedules_end
AFTER DELETE ON schedules
BEGIN
    DELETE FROM restored_work WHERE kind = 'schedule' AND id = OLD.id;
END;
