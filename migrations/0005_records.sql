-- Records that cannot be changed once they are closed, the chain that shows where one was, and the operators' log.

-- WHAT WAS SEEN, sealed. A record that ends is chained to the one that ended before it: `record_hash` is over the
-- header, `prev_hash`, and the hashes of the envelope, the events and the response (craftcore/executions/sealing.py
-- says how). A record that is still open, or that a crash left open, is in no chain.
ALTER TABLE executions ADD COLUMN chain_seq INTEGER;      -- its place in the chain, from 1
ALTER TABLE executions ADD COLUMN events_hash TEXT;
ALTER TABLE executions ADD COLUMN response_hash TEXT;     -- NULL: it has no response
ALTER TABLE executions ADD COLUMN prev_hash TEXT;         -- the record_hash of the one before; '' for the first
ALTER TABLE executions ADD COLUMN record_hash TEXT;
ALTER TABLE executions ADD COLUMN stripped_at REAL;       -- when retention took its bodies away; their hashes stay

-- People look for what failed, and for what has no end: each newest first.
CREATE INDEX executions_error ON executions (seq, error_code) WHERE status = 'error';
CREATE INDEX executions_incomplete ON executions (seq) WHERE status = 'incomplete';

-- Bodies that are large, kept out of the row: that one holds '' instead.
CREATE TABLE blobs (
    seq           INTEGER PRIMARY KEY,
    execution_seq INTEGER NOT NULL REFERENCES executions (seq),
    part          TEXT NOT NULL CHECK (part IN ('envelope', 'response')),
    body          TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX blobs_of ON blobs (execution_seq, part);

-- The ends of the chain, one row. Retention removes the oldest records: first it moves the anchor, then it deletes.
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
    audit_anchor_hash TEXT NOT NULL,
    CHECK (anchor_seq <= head_seq)
) STRICT;

INSERT INTO record_chain (
    id, head_seq, head_hash, unchained_to, anchor_seq, anchor_hash, anchor_record, removed, audit_anchor_seq,
    audit_anchor_hash
)
SELECT 1, 0, '', coalesce(max(seq), 0), 0, '', 0, 0, 0, '' FROM executions;

CREATE TRIGGER executions_are_closed
BEFORE UPDATE ON executions
WHEN OLD.ended_at IS NOT NULL
 AND NOT (
         NEW.stripped_at IS NOT NULL
     AND NEW.envelope_json IN ('', OLD.envelope_json)
     AND (NEW.response_json IS OLD.response_json OR NEW.response_json IS '')
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

CREATE TRIGGER executions_are_kept
BEFORE DELETE ON executions
WHEN (SELECT CASE WHEN OLD.chain_seq IS NULL THEN OLD.seq > anchor_record ELSE OLD.chain_seq > anchor_seq END
        FROM record_chain)
BEGIN
    SELECT RAISE(ABORT, 'a record is removed by retention only, which moves the anchor of the chain first');
END;

CREATE TRIGGER events_are_complete
BEFORE INSERT ON events
WHEN (SELECT ended_at FROM executions WHERE seq = NEW.execution_seq) IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'the record is closed: nothing is added to it');
END;

-- What a re-entry can no longer read may be forgotten, so that the task goes on; `verify` tells of it.
CREATE TRIGGER events_are_final
BEFORE UPDATE ON events
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

CREATE TRIGGER events_are_kept
BEFORE DELETE ON events
WHEN (SELECT CASE WHEN chain_seq IS NULL THEN executions.seq > anchor_record ELSE chain_seq > anchor_seq END
        FROM executions
        JOIN record_chain
       WHERE executions.seq = OLD.execution_seq)
BEGIN
    SELECT RAISE(ABORT, 'an event goes with its record, which retention removes');
END;

CREATE TRIGGER blobs_are_final
BEFORE UPDATE ON blobs
BEGIN
    SELECT RAISE(ABORT, 'the body of a record is never changed');
END;

CREATE TRIGGER blobs_are_kept
BEFORE DELETE ON blobs
WHEN (SELECT stripped_at IS NULL
         AND CASE WHEN chain_seq IS NULL THEN executions.seq > anchor_record ELSE chain_seq > anchor_seq END
        FROM executions
        JOIN record_chain
       WHERE executions.seq = OLD.execution_seq)
BEGIN
    SELECT RAISE(ABORT, 'the body of a record goes with it, or is stripped by retention');
END;

-- Which workflows a task's turn is tried with, and in which order; NULL: those that its own workflow declares. And which
-- of them a FALLBACK has brought it to; NULL: the first.
ALTER TABLE tasks ADD COLUMN agents_json TEXT;
ALTER TABLE tasks ADD COLUMN agent TEXT;

-- WHO DID WHAT. One row is one thing a person did to what is in this file, in the commit that did it. Chained like the
-- records are, from `prev_hash` '' on. An execution is invalidated by its row here: its record stays as it was.
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

CREATE INDEX audit_log_subject ON audit_log (subject, seq) WHERE subject IS NOT NULL;

CREATE TRIGGER audit_log_is_final
BEFORE UPDATE ON audit_log
BEGIN
    SELECT RAISE(ABORT, 'the log of what people did is never changed');
END;

CREATE TRIGGER audit_log_is_kept
BEFORE DELETE ON audit_log
WHEN OLD.seq > (SELECT audit_anchor_seq FROM record_chain)
BEGIN
    SELECT RAISE(ABORT, 'the log of what people did is removed by retention only, which moves its anchor first');
END;
