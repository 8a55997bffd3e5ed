-- Tasks: what each has done so far, what it waits for, what it asks, and what was sent to it.

-- WHAT. One row is one instance of a workflow that takes `ctx`, with the id of the trigger that created it.
--
--   RUNNING -> RUNNING     its turn is over, the next one begins
--           -> WAITING     for a moment, an event, a person or a child; nothing of it is in memory
--           -> DONE | FAILED | CANCELLED
--   WAITING -> RUNNING     what it waited for has come
--           -> FAILED | CANCELLED
--   FAILED  -> RUNNING     a person let it try its last turn again
CREATE TABLE tasks (
    seq           INTEGER PRIMARY KEY,
    id            TEXT NOT NULL,
    workflow      TEXT NOT NULL,
    session_id    TEXT,
    schedule_id   TEXT,                      -- of the schedule that fired it
    parent_id     TEXT,                      -- the task that started it as its child
    status        TEXT NOT NULL CHECK (status IN ('RUNNING', 'WAITING', 'DONE', 'FAILED', 'CANCELLED')),
    reason        TEXT,
    turn          INTEGER NOT NULL DEFAULT 1 CHECK (turn > 0),
    state_json    TEXT NOT NULL DEFAULT 'null',  -- as the last turn left it
    result_json   TEXT,
    error_code    TEXT,
    error_message TEXT,
    trigger_id    TEXT,                      -- RUNNING: the trigger of its turn; WAITING: its timer, if it has one
    max_attempts  INTEGER,                   -- of each of its turns; NULL: the workflow's
    turns_alone   INTEGER NOT NULL DEFAULT 0,    -- turns, and steps of those, since something last came from outside
    steps_alone   INTEGER NOT NULL DEFAULT 0,
    deadline_at   REAL,
    created_at    REAL NOT NULL,
    updated_at    REAL NOT NULL,
    ended_at      REAL,
    CHECK ((status IN ('DONE', 'FAILED', 'CANCELLED')) = (ended_at IS NOT NULL)),
    CHECK (status <> 'RUNNING' OR trigger_id IS NOT NULL),
    CHECK (status <> 'FAILED' OR error_code IS NOT NULL)
) STRICT;

CREATE UNIQUE INDEX tasks_id ON tasks (id);

-- What a boot reads: tasks that wait, and those that ended, are not visited.
CREATE INDEX tasks_running ON tasks (seq) WHERE status = 'RUNNING';

CREATE INDEX tasks_session ON tasks (session_id) WHERE session_id IS NOT NULL AND status IN ('RUNNING', 'WAITING');

CREATE INDEX tasks_schedule ON tasks (schedule_id) WHERE schedule_id IS NOT NULL AND status IN ('RUNNING', 'WAITING');

-- What a turn waits or waited for, each once: resolved by whatever comes first, and never again.
CREATE TABLE waits (
    seq         INTEGER PRIMARY KEY,
    id          TEXT NOT NULL,
    task_seq    INTEGER NOT NULL REFERENCES tasks (seq),
    turn        INTEGER NOT NULL,
    name        TEXT NOT NULL,               -- what the turn knows it by
    kind        TEXT NOT NULL CHECK (kind IN ('timer', 'event', 'question', 'child')),
    event       TEXT,                        -- its name; of a child, the child's id
    due_at      REAL,                        -- when it ends by itself
    status      TEXT NOT NULL DEFAULT 'WAITING' CHECK (status IN ('WAITING', 'RESOLVED')),
    resolved_by TEXT CHECK (resolved_by IN ('timer', 'signal', 'message', 'answer', 'child', 'end')),
    value_json  TEXT,                        -- what it brought
    created_at  REAL NOT NULL,
    resolved_at REAL,
    CHECK ((status = 'RESOLVED') = (resolved_at IS NOT NULL)),
    CHECK ((status = 'RESOLVED') = (resolved_by IS NOT NULL)),
    CHECK ((kind IN ('event', 'child')) = (event IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX waits_once ON waits (task_seq, turn, name);

-- A task waits for one thing at a time.
CREATE UNIQUE INDEX waits_open ON waits (task_seq) WHERE status = 'WAITING';

CREATE INDEX waits_child ON waits (event) WHERE kind = 'child' AND status = 'WAITING';

-- What a person is asked: by a task, or about one.
CREATE TABLE questions (
    seq          INTEGER PRIMARY KEY,
    id           TEXT NOT NULL,
    task_seq     INTEGER NOT NULL REFERENCES tasks (seq),
    wait_seq     INTEGER REFERENCES waits (seq),  -- what an answer resolves
    kind         TEXT NOT NULL CHECK (kind IN ('ask', 'stale', 'budget', 'stalled')),
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
    CHECK ((status = 'ANSWERED') = (answered_by IS NOT NULL))
) STRICT;

CREATE UNIQUE INDEX questions_id ON questions (id);

CREATE INDEX questions_open ON questions (task_seq) WHERE status = 'OPEN';

-- What was sent to a task and not read when it came, in order.
CREATE TABLE mailbox (
    seq          INTEGER PRIMARY KEY,
    task_seq     INTEGER NOT NULL REFERENCES tasks (seq),
    event        TEXT NOT NULL,
    payload_json TEXT NOT NULL,
    trigger_id   TEXT,                       -- of the message; NULL for a signal
    sent_by      TEXT,
    status       TEXT NOT NULL DEFAULT 'UNREAD' CHECK (status IN ('UNREAD', 'READ', 'EMITTED', 'LEFT')),
    wait_seq     INTEGER REFERENCES waits (seq),  -- that it resolved
    created_at   REAL NOT NULL,
    CHECK ((status = 'READ') = (wait_seq IS NOT NULL))
) STRICT;

CREATE INDEX mailbox_unread ON mailbox (task_seq, event, seq) WHERE status = 'UNREAD';

-- What a turn completed is an event of its record, known to the turn by its memo: written once, found at a re-entry.
ALTER TABLE events ADD COLUMN task_seq INTEGER;
ALTER TABLE events ADD COLUMN turn INTEGER;
ALTER TABLE events ADD COLUMN memo TEXT;

CREATE UNIQUE INDEX events_memo ON events (task_seq, turn, memo) WHERE memo IS NOT NULL;

ALTER TABLE executions ADD COLUMN turn INTEGER;

CREATE INDEX executions_task ON executions (task_id, seq) WHERE task_id IS NOT NULL;

-- A claim tells by the index alone where a trigger goes: what a limit holds back is passed over without its row.
DROP INDEX triggers_pending;
CREATE INDEX triggers_pending ON triggers (priority, due_at, seq, lane, workflow, source) WHERE status = 'PENDING';
