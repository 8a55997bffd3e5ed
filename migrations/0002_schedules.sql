-- Schedules, the account of their occurrences, and what the wall clock was seen to do.

-- WHEN, AGAIN. One row is one schedule. Its expression is read once, when it is declared or changed: `at`, the anchor
-- or the cron text with its zone are what the daemon goes by, so no restart can move a moment.
--
--   ACTIVE -> PAUSED     by a person, and back
--          -> DISABLED   no longer declared in code or file, or it cannot be evaluated: the reason says which
--          -> FINISHED   nothing comes any more: fired once, past its end, or all its runs are spent
--   any    -> REMOVED    kept so that its id, used again, starts a new generation
CREATE TABLE schedules (
    id                TEXT NOT NULL PRIMARY KEY,
    origin            TEXT NOT NULL CHECK (origin IN ('code', 'file', 'operator')),
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
    workflow          TEXT NOT NULL,
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
    CHECK (next_at IS NULL OR status = 'ACTIVE'),
    CHECK ((kind = 'once') = (at IS NOT NULL)),
    CHECK ((kind = 'every') = (anchor_at IS NOT NULL)),
    CHECK ((kind = 'every') = (step_seconds IS NOT NULL)),
    CHECK ((kind = 'cron') = (cron IS NOT NULL)),
    CHECK (status IN ('ACTIVE', 'PAUSED') OR reason IS NOT NULL)
) STRICT;

-- What a tick reads: however many schedules there are, those not due are not visited.
CREATE INDEX schedules_next ON schedules (next_at) WHERE next_at IS NOT NULL;

-- The account: a row for each occurrence that fired or waits for an earlier one, a row for each run of skipped ones.
CREATE TABLE schedule_occurrences (
    seq         INTEGER PRIMARY KEY,
    schedule_id TEXT NOT NULL REFERENCES schedules (id),
    generation  INTEGER NOT NULL,
    cause       TEXT NOT NULL CHECK (cause IN ('time', 'startup', 'run-now', 'backfill')),
    nominal_at  REAL NOT NULL,               -- when it was to be; of a run of skipped ones, the first
    last_at     REAL NOT NULL,               -- the same, or the last of the run
    count       INTEGER NOT NULL CHECK (count > 0),
    outcome     TEXT NOT NULL CHECK (outcome IN ('fired', 'buffered', 'skipped')),
    reason      TEXT,
    trigger_id  TEXT,
    decided_at  REAL NOT NULL,
    CHECK ((outcome = 'fired') = (trigger_id IS NOT NULL)),
    CHECK (outcome <> 'skipped' OR reason IS NOT NULL),
    CHECK (outcome = 'skipped' OR (count = 1 AND last_at = nominal_at))
) STRICT;

CREATE UNIQUE INDEX occurrences_once ON schedule_occurrences (schedule_id, nominal_at, cause, generation)
    WHERE outcome <> 'skipped';

CREATE INDEX occurrences_buffered ON schedule_occurrences (schedule_id, nominal_at) WHERE outcome = 'buffered';

CREATE INDEX occurrences_history ON schedule_occurrences (schedule_id, seq);

-- Whether an earlier occurrence is still at work.
CREATE INDEX triggers_schedule ON triggers (schedule_id)
    WHERE schedule_id IS NOT NULL AND status IN ('PENDING', 'CLAIMED');

-- What the wall clock was seen to do that no clock should, the newest thousand.
CREATE TABLE clock_events (
    seq     INTEGER PRIMARY KEY,
    at      REAL NOT NULL,                   -- wall time when it was seen
    kind    TEXT NOT NULL CHECK (kind IN ('forward', 'backward', 'suspend', 'held', 'caught up', 'trusted')),
    seconds REAL NOT NULL,                   -- by how much
    epoch   INTEGER
) STRICT;
