-- A schedule says the source of its triggers, and may be a message to a session instead of a task of a workflow.

-- `deliver` 'session': its triggers name no workflow, and go to the live task of the session.
-- The table is built anew as in 0016: SQLite cannot take a NOT NULL away.
PRAGMA defer_foreign_keys = ON;

CREATE TABLE schedules_before AS SELECT * FROM schedules;
DROP TABLE schedules;

CREATE TABLE schedules (
    id                TEXT NOT NULL PRIMARY KEY,
    origin            TEXT NOT NULL CHECK (origin IN ('code', 'file', 'operator', 'api')),
    declared_hash     TEXT NOT NULL,         -- sha256 of the declaration: the same again changes nothing
    generation        INTEGER NOT NULL,      -- grows when the timing changes or the id is used again
    status            TEXT NOT NULL CHECK (status IN ('ACTIVE', 'PAUSED', 'DISABLED', 'FINISHED', 'REMOVED')),
    reason            TEXT,
    expression        TEXT NOT NULL,         -- as it was written
    timezone          TEXT NOT NULL,         -- IANA name; fixed when it was declared
    timezone_given    INTEGER NOT NULL CHECK (timezone_given IN (0, 1)),
    kind              TEXT NOT NULL CHECK (kind IN ('once', 'every', 'cron', 'startup')),
    at                REAL,                  -- of `once`
    anchor_at         INTEGER,               -- of `every`: its occurrences are anchor_at + n * step_seconds
    step_seconds      INTEGER,
    cron              TEXT,                  -- of `cron`: five fields
    workflow          TEXT CHECK (workflow IS NOT NULL OR deliver IS NOT NULL),  -- NULL: whoever takes a message
    payload_json      TEXT NOT NULL,
    session_id        TEXT,
    priority          INTEGER,
    description       TEXT,
    max_attempts      INTEGER,
    catch_up          TEXT NOT NULL CHECK (catch_up IN ('latest', 'all', 'none')),
    catch_up_window   REAL NOT NULL,         -- seconds
    catch_up_max      INTEGER NOT NULL,
    catch_up_spacing  REAL NOT NULL,         -- seconds
    overlap           TEXT NOT NULL CHECK (overlap IN ('buffer_one', 'skip', 'allow')),
    jitter            REAL NOT NULL,         -- seconds
    expires_after     REAL,                  -- seconds after which a trigger of it is of no use any more
    start_at          REAL,
    until_at          REAL,
    max_runs          INTEGER,
    high_water_at     REAL NOT NULL,         -- every occurrence up to here has been accounted for
    skip_to_at        REAL,                  -- those up to here are skipped on purpose
    next_at           REAL,                  -- the next occurrence; NULL when none is awaited
    runs              INTEGER NOT NULL DEFAULT 0,
    last_nominal_at   REAL,                  -- of the newest that fired
    created_at        REAL NOT NULL,
    updated_at        REAL NOT NULL,
    source            TEXT NOT NULL DEFAULT 'SCHEDULED' CHECK (source IN (  -- of its triggers
                          'MESSAGE', 'IMMEDIATE', 'SCHEDULED', 'LIVING_UI', 'PROACTIVE', 'MEMORY', 'SKILL_WORKFLOW',
                          'ONBOARDING', 'SYSTEM')),
    deliver           TEXT CHECK (deliver IS NULL OR (deliver = 'session' AND session_id IS NOT NULL)),
    CHECK (next_at IS NULL OR status = 'ACTIVE'),
    CHECK ((kind = 'once') = (at IS NOT NULL)),
    CHECK ((kind = 'every') = (anchor_at IS NOT NULL)),
    CHECK ((kind = 'every') = (step_seconds IS NOT NULL)),
    CHECK ((kind = 'cron') = (cron IS NOT NULL)),
    CHECK (status IN ('ACTIVE', 'PAUSED') OR reason IS NOT NULL)
) STRICT;

-- A damaged row is kept as it is: the start sets it aside.
PRAGMA ignore_check_constraints = ON;
INSERT INTO schedules SELECT *, 'SCHEDULED', NULL FROM schedules_before;
PRAGMA ignore_check_constraints = OFF;
DROP TABLE schedules_before;

-- What a tick reads: however many schedules there are, those not due are not visited.
CREATE INDEX schedules_next ON schedules (next_at) WHERE next_at IS NOT NULL;
