-- craftcore's first tables. The schema is public: read it with any SQLite tool, write it through craftcore only.
--
-- `seq` is assigned by SQLite and only grows: rows written together lie together, which is what keeps inserts,
-- claims and settles fast after millions of rows. `id` is the public name (a UUIDv7, it grows too).
-- Moments are UTC epoch seconds. Partial indexes hold only what is live, so history costs the engine nothing.

-- WHEN. One row is one accepted trigger; it is never deleted by the engine, only settled.
--
--   PENDING -> CLAIMED -> DONE     it succeeded; or it was cancelled, superseded or stale: the reason says which
--                      -> FAILED   trying again cannot help
--                      -> DEAD     attempts spent, poison, or a corrupt row: a dead letter
--                      -> PENDING  after a backoff, a release or a crash
CREATE TABLE triggers (
    seq                 INTEGER PRIMARY KEY,
    id                  TEXT NOT NULL,
    source              TEXT NOT NULL CHECK (source IN (
                            'MESSAGE', 'CONTINUATION', 'RESUME', 'IMMEDIATE', 'SCHEDULED', 'LIVING_UI', 'PROACTIVE',
                            'MEMORY', 'SKILL_WORKFLOW', 'ONBOARDING', 'SYSTEM')),
    dedup_key           TEXT,
    dedup_scope         TEXT CHECK (dedup_scope IN ('ever', 'active')),
    session_id          TEXT,
    task_id             TEXT,
    schedule_id         TEXT,
    nominal_at          REAL,
    workflow            TEXT,
    lane                TEXT,                -- one trigger of a lane runs at a time: the session, else the task
    fire_at             REAL NOT NULL,
    not_before          REAL,                -- the end of a backoff
    due_at              REAL NOT NULL,       -- when both have passed; not generated: that doubles the cost of a settle
    expires_at          REAL,
    priority            INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 99),
    description         TEXT,
    payload_json        TEXT NOT NULL,       -- canonical JSON, always an object
    status              TEXT NOT NULL DEFAULT 'PENDING'
                            CHECK (status IN ('PENDING', 'CLAIMED', 'DONE', 'FAILED', 'DEAD')),
    attempts            INTEGER NOT NULL DEFAULT 0,  -- attempts that count; a release or snooze gives one back
    starts              INTEGER NOT NULL DEFAULT 0,  -- attempts ever begun; numbers the execution records
    crash_count         INTEGER NOT NULL DEFAULT 0,  -- of them, how many ended with the process
    max_attempts        INTEGER CHECK (max_attempts > 0),
    claimed_epoch       INTEGER,
    lease_token         TEXT,
    lease_until         REAL,
    started_at          REAL,                -- of the attempt in progress, or of the last one once settled
    started_alone       INTEGER NOT NULL DEFAULT 0 CHECK (started_alone IN (0, 1)),
    cancel_requested_at REAL,
    reason              TEXT,
    error_code          TEXT,
    error_message       TEXT,
    superseded_by       TEXT,
    created_at          REAL NOT NULL,
    updated_at          REAL NOT NULL,
    settled_at          REAL,
    CHECK (due_at = max(fire_at, coalesce(not_before, fire_at))),
    CHECK ((status = 'CLAIMED') = (lease_token IS NOT NULL)),
    CHECK ((status = 'CLAIMED') = (claimed_epoch IS NOT NULL)),
    CHECK ((status IN ('DONE', 'FAILED', 'DEAD')) = (settled_at IS NOT NULL)),
    CHECK (settled_at IS NULL OR reason IS NOT NULL),
    CHECK (status <> 'PENDING' OR started_at IS NULL),
    CHECK ((dedup_key IS NULL) = (dedup_scope IS NULL))
) STRICT;

CREATE UNIQUE INDEX triggers_id ON triggers (id);

-- `ever` blocks a second trigger for as long as the row is kept, `active` only while the first is live.
CREATE UNIQUE INDEX triggers_dedup ON triggers (dedup_key)
    WHERE dedup_key IS NOT NULL AND (dedup_scope = 'ever' OR status IN ('PENDING', 'CLAIMED'));

-- The claim reads this one only: per priority, what is due, oldest first, and the lane without touching the row.
CREATE INDEX triggers_pending ON triggers (priority, due_at, seq, lane) WHERE status = 'PENDING';

CREATE INDEX triggers_claimed ON triggers (claimed_epoch) WHERE status = 'CLAIMED';

CREATE INDEX triggers_session ON triggers (session_id, source)
    WHERE session_id IS NOT NULL AND status IN ('PENDING', 'CLAIMED');

CREATE INDEX triggers_dead ON triggers (settled_at) WHERE status = 'DEAD';

-- WHAT WAS SEEN. One record per attempt, opened by the commit that starts it, closed by the one that settles it.
-- A record that stays `incomplete` belongs to an attempt whose process died, or that is running now.
CREATE TABLE executions (
    seq               INTEGER PRIMARY KEY,
    id                TEXT NOT NULL,         -- exec-<trigger id>.<start number>
    trigger_id        TEXT NOT NULL,
    task_id           TEXT,
    attempt           INTEGER NOT NULL,
    epoch             INTEGER NOT NULL,
    workflow          TEXT,
    created_at        REAL NOT NULL,
    ended_at          REAL,
    status            TEXT NOT NULL DEFAULT 'incomplete'
                          CHECK (status IN ('success', 'error', 'incomplete', 'suspended')),
    replayable        INTEGER NOT NULL DEFAULT 0 CHECK (replayable IN (0, 1)),
    replayable_reason TEXT DEFAULT 'execution_incomplete',
    envelope_json     TEXT NOT NULL,
    envelope_hash     TEXT NOT NULL,         -- sha256 of the canonical envelope
    routing_json      TEXT,
    response_json     TEXT,
    error_code        TEXT,
    latency_ms        REAL
) STRICT;

CREATE UNIQUE INDEX executions_id ON executions (id);

-- Numbered from 1 within a record and ordered by that number, never by the clock.
CREATE TABLE events (
    execution_seq INTEGER NOT NULL REFERENCES executions (seq),
    seq           INTEGER NOT NULL,
    type          TEXT NOT NULL,
    at            REAL NOT NULL,
    payload_json  TEXT NOT NULL,
    PRIMARY KEY (execution_seq, seq)
) STRICT, WITHOUT ROWID;

-- Every start of a daemon on this database. The row of a daemon that was killed never gets its `ended_at`.
CREATE TABLE epochs (
    epoch           INTEGER PRIMARY KEY,
    boot_id         TEXT NOT NULL,           -- of this start
    machine_boot_id TEXT,                    -- of the kernel: tells a crash of ours from a reboot
    pid             INTEGER NOT NULL,
    host            TEXT NOT NULL,
    version         TEXT NOT NULL,
    started_at      REAL NOT NULL,
    ended_at        REAL
) STRICT;

-- The workflows the last daemon declared, so that a producer can be told about a name nobody handles.
CREATE TABLE workflows (
    name  TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL
) STRICT;

-- `database_id`, and `held`: why the engine claims nothing until a person releases it.
CREATE TABLE facts (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
