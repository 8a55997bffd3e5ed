-- index activity_decisions_of
CREATE INDEX activity_decisions_of ON activity_decisions (activity_seq, seq);

-- index activity_log_in_doubt
CREATE INDEX activity_log_in_doubt ON activity_log (task_seq) WHERE status = 'UNKNOWN' AND decision IS NULL;

-- index activity_log_key
CREATE UNIQUE INDEX activity_log_key ON activity_log (idem_key);

-- index activity_log_open
CREATE INDEX activity_log_open ON activity_log (status, seq) WHERE status IN ('INTENT', 'UNKNOWN');

-- index activity_log_task
CREATE INDEX activity_log_task ON activity_log (task_seq);

-- index audit_log_subject
CREATE INDEX audit_log_subject ON audit_log (subject, seq) WHERE subject IS NOT NULL;

-- index blobs_of
CREATE UNIQUE INDEX blobs_of ON blobs (execution_seq, part);

-- index early_mail_trigger
CREATE INDEX early_mail_trigger ON early_mail (trigger_id, seq);

-- index events_memo
CREATE UNIQUE INDEX events_memo ON "event_rows" (task_seq, turn, memo) WHERE memo IS NOT NULL;

-- index executions_error
CREATE INDEX executions_error ON executions (seq, error_code) WHERE status = 'error';

-- index executions_id
CREATE UNIQUE INDEX executions_id ON executions (id);

-- index executions_incomplete
CREATE INDEX executions_incomplete ON executions (seq) WHERE status = 'incomplete';

-- index executions_task
CREATE INDEX executions_task ON executions (task_id, seq) WHERE task_id IS NOT NULL;

-- index limit_waits_next
CREATE INDEX limit_waits_next ON limit_waits (workflow, key, rank, priority, trigger_seq);

-- index mailbox_task
CREATE INDEX mailbox_task ON mailbox (task_seq);

-- index mailbox_trigger
CREATE INDEX mailbox_trigger ON mailbox (trigger_id) WHERE trigger_id IS NOT NULL;

-- index mailbox_unread
CREATE INDEX mailbox_unread ON mailbox (task_seq, event, seq) WHERE status = 'UNREAD';

-- index mailbox_wait
CREATE INDEX mailbox_wait ON mailbox (wait_seq) WHERE wait_seq IS NOT NULL;

-- index occurrences_buffered
CREATE INDEX occurrences_buffered ON schedule_occurrences (schedule_id, nominal_at) WHERE outcome = 'buffered';

-- index occurrences_history
CREATE INDEX occurrences_history ON schedule_occurrences (schedule_id, seq);

-- index occurrences_once
CREATE UNIQUE INDEX occurrences_once ON schedule_occurrences (schedule_id, nominal_at, cause, generation)
    WHERE outcome <> 'skipped';

-- index questions_activity
CREATE UNIQUE INDEX questions_activity ON questions (activity_seq) WHERE activity_seq IS NOT NULL AND status = 'OPEN';

-- index questions_id
CREATE UNIQUE INDEX questions_id ON questions (id);

-- index questions_of
CREATE INDEX questions_of ON questions (activity_seq) WHERE activity_seq IS NOT NULL;

-- index questions_open
CREATE INDEX questions_open ON questions (task_seq) WHERE status = 'OPEN';

-- index questions_task
CREATE INDEX questions_task ON questions (task_seq);

-- index questions_wait
CREATE INDEX questions_wait ON questions (wait_seq) WHERE wait_seq IS NOT NULL;

-- index schedules_next
CREATE INDEX schedules_next ON schedules (next_at) WHERE next_at IS NOT NULL;

-- index session_messages_group
CREATE INDEX session_messages_group ON session_messages (session_id, group_key) WHERE group_key IS NOT NULL;

-- index session_messages_number
CREATE UNIQUE INDEX session_messages_number ON session_messages (session_id, number);

-- index tasks_dedup
CREATE INDEX tasks_dedup ON tasks (dedup_key) WHERE dedup_key IS NOT NULL AND status IN ('RUNNING', 'WAITING');

-- index tasks_ending
CREATE INDEX tasks_ending ON tasks (parent_id) WHERE ends_with_parent = 1 AND status IN ('RUNNING', 'WAITING');

-- index tasks_id
CREATE UNIQUE INDEX tasks_id ON tasks (id);

-- index tasks_running
CREATE INDEX tasks_running ON tasks (seq) WHERE status = 'RUNNING';

-- index tasks_schedule
CREATE INDEX tasks_schedule ON tasks (schedule_id) WHERE schedule_id IS NOT NULL AND status IN ('RUNNING', 'WAITING');

-- index tasks_session
CREATE INDEX tasks_session ON tasks (session_id) WHERE session_id IS NOT NULL AND status IN ('RUNNING', 'WAITING');

-- index triggers_claimed
CREATE INDEX triggers_claimed ON triggers (claimed_epoch) WHERE status = 'CLAIMED';

-- index triggers_dead
CREATE INDEX triggers_dead ON triggers (settled_at) WHERE status = 'DEAD';

-- index triggers_dedup
CREATE UNIQUE INDEX triggers_dedup ON triggers (dedup_key)
    WHERE dedup_key IS NOT NULL AND (dedup_scope = 'ever' OR status IN ('PENDING', 'CLAIMED'));

-- index triggers_failed
CREATE INDEX triggers_failed ON triggers (settled_at) WHERE status = 'FAILED';

-- index triggers_id
CREATE UNIQUE INDEX triggers_id ON triggers (id);

-- index triggers_pending
CREATE INDEX triggers_pending ON triggers (priority, due_at, seq, lane, workflow, source) WHERE status = 'PENDING';

-- index triggers_schedule
CREATE INDEX triggers_schedule ON triggers (schedule_id)
    WHERE schedule_id IS NOT NULL AND status IN ('PENDING', 'CLAIMED');

-- index triggers_session
CREATE INDEX triggers_session ON triggers (session_id, source)
    WHERE session_id IS NOT NULL AND status IN ('PENDING', 'CLAIMED');

-- index waits_child
CREATE INDEX waits_child ON waits (event) WHERE kind = 'child' AND status = 'WAITING';

-- index waits_once
CREATE UNIQUE INDEX waits_once ON waits (task_seq, turn, name);

-- index waits_open
CREATE UNIQUE INDEX waits_open ON waits (task_seq, iif(any_of IS NULL, '', name)) WHERE status = 'WAITING';

-- table activity_decisions
CREATE TABLE activity_decisions (
    seq          INTEGER PRIMARY KEY,
    activity_seq INTEGER NOT NULL REFERENCES activity_log (seq),
    decision     TEXT NOT NULL CHECK (decision IN ('happened', 'resend', 'give up')),
    reference    TEXT,                       -- the provider's, where somebody knows it
    note         TEXT,
    decided_by   TEXT NOT NULL,
    decided_at   REAL NOT NULL
) STRICT;

-- table activity_log
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
    settled_at     REAL, result_shape TEXT,                     -- DONE, FAILED for good, or given up
    CHECK (status <> 'DONE' OR settled_at IS NOT NULL),
    CHECK (status <> 'INTENT' OR settled_at IS NULL),
    CHECK (status <> 'UNKNOWN' OR in_doubt = 1),
    CHECK (status <> 'FAILED' OR in_doubt = 0),
    CHECK (status <> 'INTENT' OR decision IS NULL)
) STRICT;

-- table audit_log
CREATE TABLE audit_log (
    seq          INTEGER PRIMARY KEY,
    at           REAL NOT NULL,
    uid          INTEGER NOT NULL,           -- as the operating system knows them
    name         TEXT NOT NULL,
    action       TEXT NOT NULL,              -- the command: `task cancel`
    subject      TEXT,                       -- the id it was done to; NULL: it was done to no one thing
    reason       TEXT,
    details_json TEXT NOT NULL,
    prev_hash    TEXT NOT NULL,
    hash         TEXT NOT NULL
) STRICT;

-- table blobs
CREATE TABLE blobs (
    seq           INTEGER PRIMARY KEY,
    execution_seq INTEGER NOT NULL REFERENCES executions (seq),
    part          TEXT NOT NULL CHECK (part IN ('envelope', 'response')),
    body          TEXT NOT NULL
) STRICT;

-- table clock_events
CREATE TABLE clock_events (
    seq     INTEGER PRIMARY KEY,
    at      REAL NOT NULL,                   -- wall time when it was seen
    kind    TEXT NOT NULL CHECK (kind IN ('forward', 'backward', 'suspend', 'held', 'caught up', 'trusted')),
    seconds REAL NOT NULL,                   -- by how much
    epoch   INTEGER
) STRICT;

-- table early_mail
CREATE TABLE early_mail (
    seq          INTEGER PRIMARY KEY,
    trigger_id   TEXT NOT NULL REFERENCES triggers (id) ON DELETE CASCADE,
    event        TEXT NOT NULL,
    payload_json TEXT NOT NULL,
    sent_by      TEXT,
    created_at   REAL NOT NULL
) STRICT;

-- table epochs
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

-- table event_rows
CREATE TABLE "event_rows" (
    execution_seq INTEGER NOT NULL REFERENCES executions (seq),
    seq           INTEGER NOT NULL,
    type          TEXT NOT NULL,
    at            REAL NOT NULL,
    payload_json  TEXT NOT NULL, task_seq INTEGER, turn INTEGER, memo TEXT, activity_seq INTEGER,
    PRIMARY KEY (execution_seq, seq)
) STRICT, WITHOUT ROWID;

-- table executions
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
, turn INTEGER, chain_seq INTEGER, events_hash TEXT, response_hash TEXT, prev_hash TEXT, record_hash TEXT, stripped_at REAL, first_events TEXT, last_events TEXT    -- what was written when it ended; NULL: it is open, or they are rows
    CHECK (last_events IS NULL OR ended_at IS NOT NULL)) STRICT;

-- table facts
CREATE TABLE facts (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;

-- table limit_waits
CREATE TABLE limit_waits (
    trigger_seq INTEGER PRIMARY KEY,
    workflow    TEXT NOT NULL,
    limit_by    TEXT NOT NULL,               -- the parameter that has the key, or session_id
    key         TEXT NOT NULL,               -- its value as canonical JSON; the sha256 of a long one
    rank        REAL NOT NULL,               -- the order of the queue: the trigger was due, plus its weighted priority
    priority    INTEGER NOT NULL,
    not_before  REAL                         -- of the trigger, before it was put off
) STRICT;

-- table mailbox
CREATE TABLE mailbox (
    seq          INTEGER PRIMARY KEY,
    task_seq     INTEGER NOT NULL REFERENCES tasks (seq),
    event        TEXT NOT NULL,
    payload_json TEXT NOT NULL,
    trigger_id   TEXT,                       -- of the message; NULL for a signal
    sent_by      TEXT,
    status       TEXT NOT NULL DEFAULT 'UNREAD' CHECK (status IN ('UNREAD', 'READ', 'EMITTED', 'LEFT')),
    wait_seq     INTEGER REFERENCES waits (seq),  -- that it resolved
    created_at   REAL NOT NULL, reply_json TEXT, unanswered TEXT, emitted_as TEXT,
    CHECK ((status = 'READ') = (wait_seq IS NOT NULL))
) STRICT;

-- table notice_kinds
CREATE TABLE notice_kinds (
    kind TEXT NOT NULL PRIMARY KEY
         CHECK (kind IN ('question', 'in_doubt', 'dead', 'failed', 'schedule_missed', 'succeeded', 'unhealthy'))
) STRICT, WITHOUT ROWID;

-- table notices
CREATE TABLE notices (
    seq     INTEGER PRIMARY KEY,
    kind    TEXT NOT NULL,
    subject TEXT NOT NULL,                   -- id of the question or trigger, seq of the occurrence, or the text itself
    at      REAL NOT NULL
) STRICT;

-- table questions
CREATE TABLE "questions" (
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
    closed_at    REAL, form_json TEXT, addressee TEXT,
    CHECK ((status = 'OPEN') = (closed_at IS NULL)),
    CHECK ((status = 'ANSWERED') = (answer IS NOT NULL)),
    CHECK ((status = 'ANSWERED') = (answered_by IS NOT NULL)),
    CHECK ((kind = 'activity') = (activity_seq IS NOT NULL))
) STRICT;

-- table record_chain
CREATE TABLE record_chain (
    id            INTEGER PRIMARY KEY CHECK (id = 1),
    head_seq      INTEGER NOT NULL,          -- of the record that was closed last; 0: none was
    head_hash     TEXT NOT NULL,             -- its record_hash; '' when there is none
    unchained_to  INTEGER NOT NULL,          -- records up to this `seq` may have been closed before there was a chain
    anchor_seq    INTEGER NOT NULL,          -- of the last record that retention removed; 0: it removed none
    anchor_hash   TEXT NOT NULL,             -- its record_hash
    anchor_record INTEGER NOT NULL,          -- records that have no end, up to this `seq`, may be removed
    removed       INTEGER NOT NULL,          -- how many records retention removed in all
    audit_anchor_seq  INTEGER NOT NULL,      -- the same of audit_log
    audit_anchor_hash TEXT NOT NULL, passed_seq INTEGER NOT NULL DEFAULT 0,
    CHECK (anchor_seq <= head_seq)
) STRICT;

-- table restored_work
CREATE TABLE restored_work (
    kind    TEXT NOT NULL CHECK (kind IN ('trigger', 'schedule')),
    id      TEXT NOT NULL,                   -- of the trigger, and of the task that it creates; or of the schedule
    same_id INTEGER NOT NULL CHECK (same_id IN (0, 1)),  -- the lost file knew it by this id, if at all
    PRIMARY KEY (kind, id)
) STRICT, WITHOUT ROWID;

-- table retained_records
CREATE TABLE retained_records (
    chain_seq     INTEGER PRIMARY KEY,       -- the place of the record in the chain
    execution_seq INTEGER NOT NULL,          -- the record
    record_hash   TEXT NOT NULL              -- of the record, when the anchor passed it
) STRICT;

-- table schedule_occurrences
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

-- table schedules
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

-- table schema_migrations
CREATE TABLE schema_migrations (
    name       TEXT NOT NULL PRIMARY KEY,
    sha256     TEXT NOT NULL,
    applied_at REAL NOT NULL
) STRICT
;

-- table session_messages
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

-- table stream_chunks
CREATE TABLE stream_chunks (
    seq        INTEGER PRIMARY KEY,
    stream_seq INTEGER NOT NULL REFERENCES turn_streams (seq),
    last       INTEGER NOT NULL,             -- the number of the last of them
    first      INTEGER NOT NULL,
    part       TEXT NOT NULL,                -- the step or act that wrote them; '' or the agent: the turn's own code
    texts_json TEXT NOT NULL,                -- an array of texts; [] of a cut
    cut_json   TEXT,                         -- the withdrawn numbers as [[first, last], ...]; NULL: it is no cut
    at         REAL NOT NULL,
    UNIQUE (stream_seq, last)
) STRICT;

-- table task_holds
CREATE TABLE task_holds (
    task_id        TEXT NOT NULL PRIMARY KEY,
    reason         TEXT NOT NULL,            -- what does not fit, for people
    trigger_id     TEXT,                     -- of its turn, once that was put off; NULL: it has not been due since
    trigger_reason TEXT,                     -- the reason in that trigger's row before it was put off
    held_at        REAL NOT NULL
) STRICT, WITHOUT ROWID;

-- table tasks
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
    ended_at      REAL, agents_json TEXT, agent TEXT, dedup_key TEXT, progress_json TEXT, progress_count INTEGER NOT NULL DEFAULT 0, ends_with_parent INTEGER NOT NULL DEFAULT 0 CHECK (ends_with_parent IN (0, 1)), stopped_turn INTEGER, reply_json TEXT,
    CHECK ((status IN ('DONE', 'FAILED', 'CANCELLED')) = (ended_at IS NOT NULL)),
    CHECK (status <> 'RUNNING' OR trigger_id IS NOT NULL),
    CHECK (status <> 'FAILED' OR error_code IS NOT NULL)
) STRICT;

-- table triggers
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
    settled_at          REAL, stripped_at REAL, id_given INTEGER NOT NULL DEFAULT 0 CHECK (id_given IN (0, 1)), at_given INTEGER NOT NULL DEFAULT 0 CHECK (at_given IN (0, 1)), machine_restarts INTEGER NOT NULL DEFAULT 0 CHECK (machine_restarts >= 0),
    CHECK (due_at = max(fire_at, coalesce(not_before, fire_at))),
    CHECK ((status = 'CLAIMED') = (lease_token IS NOT NULL)),
    CHECK ((status = 'CLAIMED') = (claimed_epoch IS NOT NULL)),
    CHECK ((status IN ('DONE', 'FAILED', 'DEAD')) = (settled_at IS NOT NULL)),
    CHECK (settled_at IS NULL OR reason IS NOT NULL),
    CHECK (status <> 'PENDING' OR started_at IS NULL),
    CHECK ((dedup_key IS NULL) = (dedup_scope IS NULL))
) STRICT;

-- table turn_streams
CREATE TABLE turn_streams (
    seq        INTEGER PRIMARY KEY,
    task_seq   INTEGER NOT NULL REFERENCES tasks (seq),
    turn       INTEGER NOT NULL,
    name       TEXT NOT NULL,
    after      INTEGER NOT NULL,             -- the last number that the earlier turns of the task used under this name
    created_at REAL NOT NULL,
    UNIQUE (task_seq, turn, name)
) STRICT;

-- table waits
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
    resolved_at REAL, at_given INTEGER NOT NULL DEFAULT 0 CHECK (at_given IN (0, 1)), any_of TEXT,
    CHECK ((status = 'RESOLVED') = (resolved_at IS NOT NULL)),
    CHECK ((status = 'RESOLVED') = (resolved_by IS NOT NULL)),
    CHECK ((kind IN ('event', 'child')) = (event IS NOT NULL))
) STRICT;

-- table workflows
CREATE TABLE workflows (
    name  TEXT NOT NULL PRIMARY KEY,
    epoch INTEGER NOT NULL
) STRICT;

-- trigger audit_log_is_final
CREATE TRIGGER audit_log_is_final
BEFORE UPDATE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'the log of what people did is never changed');
END;

-- trigger audit_log_is_kept
CREATE TRIGGER audit_log_is_kept
BEFORE DELETE ON audit_log
WHEN OLD.seq > (SELECT audit_anchor_seq FROM record_chain)
BEGIN
    SELECT RAISE(ABORT, 'the log of what people did is removed by retention only, which moves its anchor first');
END;

-- trigger blobs_are_final
CREATE TRIGGER blobs_are_final
BEFORE UPDATE ON blobs
BEGIN
    SELECT RAISE(ABORT, 'the body of a record is never changed');
END;

-- trigger blobs_are_kept
CREATE TRIGGER blobs_are_kept
BEFORE DELETE ON blobs
WHEN (SELECT stripped_at IS NULL
         AND (   CASE WHEN chain_seq IS NULL THEN executions.seq > anchor_record ELSE chain_seq > anchor_seq END
              OR EXISTS (SELECT 1 FROM retained_records WHERE retained_records.chain_seq = executions.chain_seq))
        FROM executions
        JOIN record_chain
       WHERE executions.seq = OLD.execution_seq)
BEGIN
    SELECT RAISE(ABORT, 'the body of a record goes with it, or is stripped by retention');
END;

-- trigger events_are_complete
CREATE TRIGGER events_are_complete
BEFORE INSERT ON "event_rows"
WHEN (SELECT ended_at FROM executions WHERE seq = NEW.execution_seq) IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'the record is closed: nothing is added to it');
END;

-- trigger events_are_final
CREATE TRIGGER events_are_final
BEFORE UPDATE ON "event_rows"
WHEN NOT (
         (NEW.execution_seq, NEW.seq, NEW.type, NEW.at, NEW.task_seq, NEW.turn, NEW.activity_seq)
      IS (OLD.execution_seq, OLD.seq, OLD.type, OLD.at, OLD.task_seq, OLD.turn, OLD.activity_seq)
     AND (
             (NEW.memo IS NULL AND OLD.memo IS NOT NULL)
          OR (
                 NEW.payload_json = ''
             AND NEW.memo IS OLD.memo
             AND (SELECT stripped_at FROM executions WHERE seq = OLD.execution_seq) IS NOT NULL
             )
         )
     )
BEGIN
    SELECT RAISE(ABORT, 'an event is never changed');
END;

-- trigger events_are_kept
CREATE TRIGGER events_are_kept
BEFORE DELETE ON "event_rows"
WHEN (SELECT CASE WHEN chain_seq IS NULL THEN executions.seq > anchor_record ELSE chain_seq > anchor_seq END
             OR EXISTS (SELECT 1 FROM retained_records WHERE retained_records.chain_seq = executions.chain_seq)
        FROM executions
        JOIN record_chain
       WHERE executions.seq = OLD.execution_seq)
BEGIN
    SELECT RAISE(ABORT, 'an event goes with its record, which retention removes');
END;

-- trigger executions_are_closed
CREATE TRIGGER executions_are_closed
BEFORE UPDATE ON executions
WHEN OLD.ended_at IS NOT NULL
 AND NOT (
         NEW.stripped_at IS NOT NULL
     AND NEW.envelope_json IN ('', OLD.envelope_json)
     AND (NEW.response_json IS OLD.response_json OR NEW.response_json IS '')
     AND (   NEW.first_events IS OLD.first_events
          OR NEW.first_events IS CASE
                 WHEN json_valid('[' || OLD.first_events || ']')
                 THEN (SELECT group_concat(json_replace(value, '$[3]', ''))
                         FROM json_each('[' || OLD.first_events || ']')
                        WHERE type = 'array')
                 ELSE ''
             END)
     AND (   NEW.last_events IS OLD.last_events
          OR NEW.last_events IS CASE
                 WHEN json_valid('[' || OLD.last_events || ']')
                 THEN (SELECT group_concat(json_replace(value, '$[3]', ''))
                         FROM json_each('[' || OLD.last_events || ']')
                        WHERE type = 'array')
                 ELSE ''
             END)
     AND (NEW.seq, NEW.id, NEW.trigger_id, NEW.task_id, NEW.turn, NEW.attempt, NEW.epoch, NEW.workflow, NEW.created_at,
          NEW.ended_at, NEW.status, NEW.replayable, NEW.replayable_reason, NEW.envelope_hash, NEW.routing_json,
          NEW.error_code, NEW.latency_ms, NEW.chain_seq, NEW.events_hash, NEW.response_hash, NEW.prev_hash,
          NEW.record_hash)
      IS (OLD.seq, OLD.id, OLD.trigger_id, OLD.task_id, OLD.turn, OLD.attempt, OLD.epoch, OLD.workflow, OLD.created_at,
          OLD.ended_at, OLD.status, OLD.replayable, OLD.replayable_reason, OLD.envelope_hash, OLD.routing_json,
          OLD.error_code, OLD.latency_ms, OLD.chain_seq, OLD.events_hash, OLD.response_hash, OLD.prev_hash,
          OLD.record_hash)
     )
BEGIN
    SELECT RAISE(ABORT, 'the record is closed: it is never changed');
END;

-- trigger executions_are_kept
CREATE TRIGGER executions_are_kept
BEFORE DELETE ON executions
WHEN (SELECT CASE WHEN OLD.chain_seq IS NULL THEN OLD.seq > anchor_record ELSE OLD.chain_seq > anchor_seq END
        FROM record_chain)
  OR EXISTS (SELECT 1 FROM retained_records WHERE chain_seq = OLD.chain_seq)
BEGIN
    SELECT RAISE(ABORT, 'a record is removed by retention only, which moves the anchor of the chain first');
END;

-- trigger failures_are_noticed
CREATE TRIGGER failures_are_noticed
AFTER UPDATE OF status ON triggers
WHEN NEW.status IN ('DEAD', 'FAILED')
 AND OLD.status NOT IN ('DEAD', 'FAILED')
 AND EXISTS (SELECT 1 FROM notice_kinds WHERE kind = lower(NEW.status))
BEGIN
    INSERT INTO notices (kind, subject, at) VALUES (lower(NEW.status), NEW.id, NEW.updated_at);
END;

-- trigger first_events_are_final
CREATE TRIGGER first_events_are_final
BEFORE UPDATE OF first_events ON executions
WHEN OLD.ended_at IS NULL
 AND NEW.first_events IS NOT OLD.first_events
 AND (   NEW.stripped_at IS NULL
      OR NEW.first_events IS NOT CASE
             WHEN json_valid('[' || OLD.first_events || ']')
             THEN (SELECT group_concat(json_replace(value, '$[3]', ''))
                     FROM json_each('[' || OLD.first_events || ']')
                    WHERE type = 'array')
             ELSE ''
         END)
BEGIN
    SELECT RAISE(ABORT, 'an event is never changed');
END;

-- trigger limit_waits_end
CREATE TRIGGER limit_waits_end
AFTER UPDATE OF status, not_before ON triggers
WHEN OLD.not_before = 253402214400.0
 AND OLD.status = 'PENDING'
 AND (NEW.status <> 'PENDING' OR NEW.not_before IS NOT OLD.not_before)
BEGIN
    DELETE FROM limit_waits WHERE trigger_seq = OLD.seq;
END;

-- trigger misses_are_noticed
CREATE TRIGGER misses_are_noticed
AFTER INSERT ON schedule_occurrences
WHEN NEW.outcome = 'skipped'
 AND NEW.reason GLOB 'missed:*'
 AND EXISTS (SELECT 1 FROM notice_kinds WHERE kind = 'schedule_missed')
BEGIN
    INSERT INTO notices (kind, subject, at) VALUES ('schedule_missed', CAST(NEW.seq AS TEXT), NEW.decided_at);
END;

-- trigger questions_are_noticed
CREATE TRIGGER questions_are_noticed
AFTER INSERT ON questions
WHEN EXISTS (SELECT 1 FROM notice_kinds WHERE kind = iif(NEW.kind = 'activity', 'in_doubt', 'question'))
BEGIN
    INSERT INTO notices (kind, subject, at)
    VALUES (iif(NEW.kind = 'activity', 'in_doubt', 'question'), NEW.id, NEW.created_at);
END;

-- trigger restored_schedules_end
CREATE TRIGGER restored_schedules_end
AFTER DELETE ON schedules
BEGIN
    DELETE FROM restored_work WHERE kind = 'schedule' AND id = OLD.id;
END;

-- trigger restored_work_ends
CREATE TRIGGER restored_work_ends
AFTER DELETE ON triggers
BEGIN
    DELETE FROM restored_work WHERE kind = 'trigger' AND id = OLD.id;
END;

-- trigger successes_are_noticed
CREATE TRIGGER successes_are_noticed
AFTER UPDATE OF status ON triggers
WHEN NEW.status = 'DONE'
 AND NEW.schedule_id IS NOT NULL
 AND NEW.reason = 'succeeded'
 AND EXISTS (SELECT 1 FROM notice_kinds WHERE kind = 'succeeded')
 AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = NEW.id)
BEGIN
    INSERT INTO notices (kind, subject, at) VALUES ('succeeded', NEW.id, NEW.updated_at);
END;

-- trigger task_successes_are_noticed
CREATE TRIGGER task_successes_are_noticed
AFTER UPDATE OF status ON tasks
WHEN NEW.status = 'DONE'
 AND OLD.status <> 'DONE'
 AND NEW.schedule_id IS NOT NULL
 AND EXISTS (SELECT 1 FROM notice_kinds WHERE kind = 'succeeded')
BEGIN
    INSERT INTO notices (kind, subject, at) VALUES ('succeeded', NEW.id, NEW.updated_at);
END;

-- view events
CREATE VIEW events AS
SELECT executions.seq AS execution_seq,      -- the record
       CASE event.type WHEN 'array' THEN json_extract(event.value, '$[0]') ELSE event_rows.seq END AS seq,  -- from 1
       CASE event.type WHEN 'array' THEN json_extract(event.value, '$[1]') ELSE event_rows.type END AS type,
       CASE event.type WHEN 'array' THEN json_extract(event.value, '$[2]') ELSE event_rows.at END AS at,
       CASE event.type WHEN 'array' THEN json_extract(event.value, '$[3]') ELSE event_rows.payload_json END
           AS payload_json,                  -- '': stripped by retention
       event_rows.task_seq,                  -- of the task that it is about; NULL: of the attempt itself
       event_rows.turn,                      -- of the task
       event_rows.memo,                      -- by which the turn finds it again
       event_rows.activity_seq               -- the activity that it is about
  FROM executions
  JOIN json_each(
           '[' || substr(
               coalesce(CASE WHEN json_valid('[' || first_events || ']') THEN ',' || nullif(first_events, '') END, '')
               || coalesce((SELECT ',' || group_concat(inner_rows.seq)
                              FROM event_rows AS inner_rows
                             WHERE inner_rows.execution_seq = executions.seq), '')
               || coalesce(CASE WHEN json_valid('[' || last_events || ']') THEN ',' || nullif(last_events, '') END, ''),
               2
           ) || ']'
       ) AS event
  LEFT JOIN event_rows ON event_rows.execution_seq = executions.seq
                      AND event_rows.seq = event.value
                      AND event.type = 'integer';

-- view v_dead
CREATE VIEW v_dead AS
SELECT triggers.id,                          -- of the trigger
       triggers.source,                      -- where it came from: MESSAGE, SCHEDULED, …
       triggers.workflow,                    -- NULL: none is known yet
       coalesce(tasks.id, triggers.task_id) AS task_id,  -- of its task; NULL: it has none
       triggers.session_id,                  -- NULL: of no session
       triggers.schedule_id,                 -- of the schedule that fired it; NULL: none did
       triggers.description,                 -- for people; NULL: none
       triggers.reason,                      -- why it was given up
       triggers.error_code,                  -- of its last attempt
       triggers.error_message,               -- the same in words
       triggers.attempts,                    -- that were spent
       triggers.crash_count,                 -- how many of them ended with the process
       triggers.payload_json,                -- what it was to work on
       triggers.due_at,                      -- when it was to start
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.due_at, 'unixepoch') AS due_at_iso,  -- as text
       triggers.created_at,                  -- when it was accepted
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.created_at, 'unixepoch') AS created_at_iso,  -- as text
       triggers.settled_at,                  -- when it was given up
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.settled_at, 'unixepoch') AS settled_at_iso  -- as text
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.status = 'DEAD';

-- view v_inbox
CREATE VIEW v_inbox AS
SELECT questions.id,                         -- for `craftcore inbox answer`
       questions.kind,                       -- ask: by a task. stale, budget, stalled, activity, conflict: about one
       questions.question,                   -- for people, as many lines as it has
       questions.options_json,               -- an array of texts; NULL: any text answers it
       questions.default_json,               -- what holds when nobody answers in time
       questions.by_message,                 -- 1: a message to the task answers it, too
       tasks.id AS task_id,                  -- of the task that asks, or that it is about
       tasks.workflow,                       -- of the task
       tasks.session_id,                     -- of the task; NULL: of none
       activity_log.idem_key AS activity_key,  -- the activity it is about
       questions.created_at,                 -- when it was asked
       strftime('%Y-%m-%dT%H:%M:%fZ', questions.created_at, 'unixepoch') AS created_at_iso,  -- as text
       questions.expires_at,                 -- NULL: it stays open until it is answered
       strftime('%Y-%m-%dT%H:%M:%fZ', questions.expires_at, 'unixepoch') AS expires_at_iso  -- as text
  FROM questions
  LEFT JOIN tasks ON tasks.seq = questions.task_seq
  LEFT JOIN activity_log ON activity_log.seq = questions.activity_seq
 WHERE questions.status = 'OPEN';

-- view v_overdue
CREATE VIEW v_overdue AS
SELECT triggers.id,                          -- of the trigger
       triggers.source,                      -- where it came from: MESSAGE, SCHEDULED, …
       triggers.workflow,                    -- NULL: its router or its task decides
       coalesce(tasks.id, triggers.task_id) AS task_id,  -- of the task that it goes on with; NULL: none yet
       triggers.session_id,                  -- NULL: of no session
       triggers.schedule_id,                 -- that fired it
       triggers.lane,                        -- it waits while another trigger of this lane runs
       triggers.priority,                    -- 0 to 99, the lowest first
       triggers.description,                 -- for people; NULL: none
       triggers.status,                      -- PENDING; or CLAIMED: next in line, or left by a daemon that died
       triggers.attempts,                    -- that were made so far and count
       triggers.error_code,                  -- of the attempt before, if there was one
       triggers.due_at,                      -- when it was to start
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.due_at, 'unixepoch') AS due_at_iso,  -- as text
       (julianday('now') - 2440587.5) * 86400.0 - triggers.due_at AS overdue_seconds,  -- by this machine's clock
       triggers.created_at,                  -- when it was accepted
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.created_at, 'unixepoch') AS created_at_iso  -- as text
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.status = 'PENDING'
   AND triggers.due_at <= (julianday('now') - 2440587.5) * 86400.0
 UNION ALL
SELECT triggers.id,
       triggers.source,
       triggers.workflow,
       coalesce(tasks.id, triggers.task_id),
       triggers.session_id,
       triggers.schedule_id,
       triggers.lane,
       triggers.priority,
       triggers.description,
       triggers.status,
       triggers.attempts,
       triggers.error_code,
       triggers.due_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.due_at, 'unixepoch'),
       (julianday('now') - 2440587.5) * 86400.0 - triggers.due_at,
       triggers.created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.created_at, 'unixepoch')
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.status = 'CLAIMED'
   AND triggers.started_at IS NULL
   AND triggers.due_at <= (julianday('now') - 2440587.5) * 86400.0;

-- view v_running
CREATE VIEW v_running AS
SELECT triggers.id,                          -- of the trigger
       'exec-' || triggers.id || '.' || triggers.starts AS execution_id,  -- the record of this attempt
       triggers.source,                      -- where it came from: MESSAGE, SCHEDULED, …
       triggers.workflow,                    -- NULL: none is known yet
       coalesce(tasks.id, triggers.task_id) AS task_id,  -- NULL: its workflow takes no ctx
       tasks.turn,                           -- of the task
       triggers.session_id,                  -- NULL: of no session
       triggers.schedule_id,                 -- of the schedule that fired it; NULL: none did
       triggers.lane,                        -- that it holds
       triggers.description,                 -- for people; NULL: none
       triggers.attempts,                    -- this one included
       triggers.crash_count,                 -- how many of them ended with the process
       triggers.claimed_epoch AS epoch,      -- the start of the daemon that runs it
       triggers.started_at,                  -- when the attempt began
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.started_at, 'unixepoch') AS started_at_iso,  -- as text
       (julianday('now') - 2440587.5) * 86400.0 - triggers.started_at AS running_seconds,  -- by this machine's clock
       triggers.lease_until,                 -- put off while its daemon lives: long past, that one is gone
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.lease_until, 'unixepoch') AS lease_until_iso,  -- as text
       triggers.cancel_requested_at,         -- NULL: nobody asked for its end
       strftime('%Y-%m-%dT%H:%M:%fZ', triggers.cancel_requested_at, 'unixepoch') AS cancel_requested_at_iso  -- as text
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.status = 'CLAIMED'
   AND triggers.started_at IS NOT NULL;

-- view v_timeline
CREATE VIEW v_timeline AS
SELECT executions.task_id,                   -- NULL: its workflow takes no ctx
       executions.trigger_id,                -- of the trigger that was tried
       executions.id AS execution_id,        -- the record the event stands in
       executions.workflow,                  -- that the attempt ran
       executions.turn,                      -- of the task
       executions.attempt,                   -- of the trigger
       events.seq,                           -- of the event in its record, from 1
       events.type,                          -- as in docs/reference.md
       activity_log.idem_key AS activity_key,  -- the irreversible action it tells of
       events.payload_json,                  -- what the event says; '': stripped by retention
       events.at,                            -- when it was written
       strftime('%Y-%m-%dT%H:%M:%fZ', events.at, 'unixepoch') AS at_iso  -- as text
  FROM executions
  CROSS JOIN events ON events.execution_seq = executions.seq
  LEFT JOIN activity_log ON activity_log.seq = events.activity_seq
    -- True of every record; it leads from a trigger to its records by the index of their ids. An index of the triggers'
    -- ids would cost every attempt something. CROSS JOIN: in this order, so that only the events of a record are sorted.
 WHERE executions.id >= 'exec-' || executions.trigger_id || '.'
   AND executions.id < 'exec-' || executions.trigger_id || '/'
 ORDER BY executions.seq, events.seq;

-- view v_unknown
CREATE VIEW v_unknown AS
SELECT activity_log.idem_key AS key,         -- of the activity, for `craftcore activity show` and `resolve`
       activity_log.action,                  -- its name
       activity_log.task_id,                 -- of the task that called it
       tasks.workflow,                       -- of the task
       tasks.session_id,                     -- of the task; NULL: of none
       tasks.status AS task_status,          -- RUNNING, WAITING, DONE, FAILED, CANCELLED
       activity_log.turn,                    -- of the task
       activity_log.reason,                  -- why nobody knows
       activity_log.policy,                  -- what its action declared: ask, resend, reconcile, assume_done
       activity_log.calls,                   -- how often it was called
       activity_log.error_code,              -- of its last call; NULL: none is known
       activity_log.error_message,           -- the same in words
       activity_log.request_json,            -- the arguments; NULL: too large to be kept, or stripped
       activity_log.provider_ref,            -- the provider's reference, if it is known
       questions.id AS question_id,          -- the open question about it, for `craftcore inbox answer`; NULL: none
       activity_log.first_call_at,           -- a provider's window counts from here
       strftime('%Y-%m-%dT%H:%M:%fZ', activity_log.first_call_at, 'unixepoch') AS first_call_at_iso,  -- as text
       activity_log.last_call_at,            -- of the call that nobody knows the end of
       strftime('%Y-%m-%dT%H:%M:%fZ', activity_log.last_call_at, 'unixepoch') AS last_call_at_iso  -- as text
  FROM activity_log
  LEFT JOIN tasks ON tasks.seq = activity_log.task_seq
  LEFT JOIN questions ON questions.activity_seq = activity_log.seq
                     AND questions.status = 'OPEN'
 WHERE activity_log.status = 'UNKNOWN'
   AND activity_log.decision IS NULL;
