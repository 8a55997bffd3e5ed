-- What was said in a session, message by message. Turns append here as they end, in the commit that ends them.

CREATE TABLE session_messages (
    seq          INTEGER PRIMARY KEY,
    session_id   TEXT NOT NULL,              -- the session; of a task without one, the id of the task
    number       INTEGER NOT NULL CHECK (number > 0),  -- of the message in its session, from 1
    begins       INTEGER NOT NULL CHECK (begins IN (0, 1)),  -- 1: what is read or kept may begin here
    group_key    TEXT,                       -- messages of a session with the same one stay together
    task_id      TEXT NOT NULL,              -- whose turn appended it
    turn         INTEGER NOT NULL,
    message_json TEXT NOT NULL,              -- '': it was damaged, and set aside
    created_at   REAL NOT NULL
) STRICT;

CREATE UNIQUE INDEX session_messages_number ON session_messages (session_id, number);

CREATE INDEX session_messages_group ON session_messages (session_id, group_key) WHERE group_key IS NOT NULL;
