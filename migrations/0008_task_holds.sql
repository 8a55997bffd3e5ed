-- The live tasks that the code of the last start does not fit: their turns are not entered until it fits again, or until
-- a person decides. Judged anew at each start. No row of a healthy task or trigger changes for it.
CREATE TABLE task_holds (
    task_id        TEXT NOT NULL PRIMARY KEY,
    reason         TEXT NOT NULL,            -- what does not fit, for people
    trigger_id     TEXT,                     -- of its turn, once that was put off; NULL: it has not been due since
    trigger_reason TEXT,                     -- the reason in that trigger's row before it was put off
    held_at        REAL NOT NULL
) STRICT, WITHOUT ROWID;
