-- The ledger of irreversible actions, what was decided of those in doubt, and the questions that ask for it.

-- DID IT HAPPEN. One row is one activity: an irreversible action that a task does once, known by its key.
--
--   (nothing) -> INTENT    on disk before the provider is called
--   INTENT    -> DONE      it answered
--             -> FAILED    nothing happened, that is certain
--             -> UNKNOWN   a crash, a timeout, a cancellation, any other error: nobody knows
--   FAILED    -> INTENT    called again
--   UNKNOWN   -> INTENT    called again: the provider drops a second one, or it is decided that it did not happen
--             -> DONE      it is decided that it happened
CREATE TABLE activity_log (
    seq            INTEGER PRIMARY KEY,
    idem_key       TEXT NOT NULL,            -- activity:{task}:{turn}.{number}, or activity:{task}:{key given}
    task_id        TEXT NOT NULL,
    task_seq       INTEGER NOT NULL REFERENCES tasks (seq),
    turn           INTEGER NOT NULL,
    action         TEXT NOT NULL,
    status         TEXT NOT NULL CHECK (status IN ('INTENT', 'DONE', 'FAILED', 'UNKNOWN')),
    reason         TEXT NOT NULL,
    policy         TEXT NOT NULL CHECK (policy IN ('ask', 'resend', 'reconcile', 'assume_done')),
    args_hash      TEXT NOT NULL,            -- sha256 of the canonical arguments: a key is for these and no others
    request_json   TEXT,                     -- the arguments, for people; NULL: too large, or stripped
    result_json    TEXT,                     -- what the action returned, for who asks again; NULL: nothing, or unstored
    result_unstored TEXT,                    -- why a result could not be kept: it is DONE all the same
    provider_ref   TEXT,
    error_code     TEXT,
    error_message  TEXT,
    may_retry      INTEGER NOT NULL DEFAULT 0 CHECK (may_retry IN (0, 1)),  -- another call may help
    calls          INTEGER NOT NULL DEFAULT 1 CHECK (calls > 0),
    in_doubt       INTEGER NOT NULL DEFAULT 0 CHECK (in_doubt IN (0, 1)),   -- an earlier call may have had its effect
    decision       TEXT CHECK (decision IN ('happened', 'resend', 'give up')),  -- of the doubt as it is now
    execution_seq  INTEGER NOT NULL,         -- the record of the last call
    epoch          INTEGER NOT NULL,         -- of the last call
    first_call_at  REAL NOT NULL,            -- a provider's window counts from here
    last_call_at   REAL NOT NULL,
    created_at     REAL NOT NULL,
    updated_at     REAL NOT NULL,
    settled_at     REAL,                     -- DONE, FAILED for good, or given up
    CHECK (status <> 'DONE' OR settled_at IS NOT NULL),
    CHECK (status <> 'INTENT' OR settled_at IS NULL),
    CHECK (status <> 'UNKNOWN' OR in_doubt = 1),
    CHECK (status <> 'FAILED' OR in_doubt = 0),
    CHECK (status <> 'INTENT' OR decision IS NULL)
) STRICT;

CREATE UNIQUE INDEX activity_log_key ON activity_log (idem_key);

-- What a boot reads, and what people look for first.
CREATE INDEX activity_log_open ON activity_log (status, seq) WHERE status IN ('INTENT', 'UNKNOWN');

-- What the end of a task asks: is any of it in doubt?
CREATE INDEX activity_log_in_doubt ON activity_log (task_seq) WHERE status = 'UNKNOWN' AND decision IS NULL;

-- Who decided what of an activity in doubt: a person, or the policy of its action. Never changed.
CREATE TABLE activity_decisions (
    seq          INTEGER PRIMARY KEY,
    activity_seq INTEGER NOT NULL REFERENCES activity_log (seq),
    decision     TEXT NOT NULL CHECK (decision IN ('happened', 'resend', 'give up')),
    reference    TEXT,                       -- the provider's, where somebody knows it
    note         TEXT,
    decided_by   TEXT NOT NULL,
    decided_at   REAL NOT NULL
) STRICT;

CREATE INDEX activity_decisions_of ON activity_decisions (activity_seq, seq);

-- An event of an activity says of which, so that its history is a view of the stream.
ALTER TABLE events ADD COLUMN activity_seq INTEGER;

-- Two kinds of question more, and which activity one is about. A CHECK cannot be changed in place.
CREATE TABLE questions_4 (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL,
    task_seq     INTEGER NOT NULL REFERENCES tasks (seq),
    wait_seq     INTEGER REFERENCES waits (seq),  -- what an answer resolves
    activity_seq INTEGER REFERENCES activity_log (seq),
    kind         TEXT NOT NULL CHECK (kind IN ('ask', 'stale', 'budget', 'stalled', 'activity', 'conflict')),
    question     TEXT NOT NULL,
    options_json TEXT,                       -- NULL: any text answers it
    default_json TEXT NOT NULL DEFAULT 'null',  -- what holds when nobody answers in time
    by_message   INTEGER NOT NULL DEFAULT 0 CHECK (by_message IN (0, 1)),  -- a message to the task may answer it
    status       TEXT NOT NULL DEFAULT 'OPEN' CHECK (status IN ('OPEN', 'ANSWERED', 'EXPIRED', 'WITHDRAWN')),
    answer       TEXT,
    note         TEXT,
    answered_by  TEXT,
    created_at   REAL NOT NULL,
    expires_at   REAL,
    closed_at    REAL,
    CHECK ((status = 'OPEN') = (closed_at IS NULL)),
    CHECK ((status = 'ANSWERED') = (answer IS NOT NULL)),
    CHECK ((status = 'ANSWERED') = (answered_by IS NOT NULL)),
    CHECK ((kind = 'activity') = (activity_seq IS NOT NULL))
) STRICT;

INSERT INTO questions_4 (
    seq, id, task_seq, wait_seq, kind, question, options_json, default_json, by_message, status, answer, note,
    answered_by, created_at, expires_at, closed_at
)
SELECT seq, id, task_seq, wait_seq, kind, question, options_json, default_json, by_message, status, answer, note,
       answered_by, created_at, expires_at, closed_at
  FROM questions;

DROP TABLE questions;

ALTER TABLE questions_4 RENAME TO questions;

CREATE UNIQUE INDEX questions_id ON questions (id);

CREATE INDEX questions_open ON questions (task_seq) WHERE status = 'OPEN';

-- An activity is asked about once at a time.
CREATE UNIQUE INDEX questions_activity ON questions (activity_seq) WHERE activity_seq IS NOT NULL AND status = 'OPEN';
