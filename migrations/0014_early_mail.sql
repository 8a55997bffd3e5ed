-- Signals to a task that has not begun: they are in its mailbox once its first turn has. Those of a trigger that never
-- begins a task stay here until retention takes its payload.
CREATE TABLE early_mail (
    seq          INTEGER PRIMARY KEY,
    trigger_id   TEXT NOT NULL REFERENCES triggers (id) ON DELETE CASCADE,
    event        TEXT NOT NULL,
    payload_json TEXT NOT NULL,
    sent_by      TEXT,
    created_at   REAL NOT NULL
) STRICT;

CREATE INDEX early_mail_trigger ON early_mail (trigger_id, seq);
