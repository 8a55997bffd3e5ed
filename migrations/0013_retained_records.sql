-- Retention by turn: a record that the current turn of a live task still reads stays when the anchor of the chain passes
-- it, and the records after it go at their age.

-- A record at or before the anchor that retention kept, with the hash it had then. Retention deletes the row first, then
-- the record. No REFERENCES: each deletion of a record would look it up here.
CREATE TABLE retained_records (
    chain_seq     INTEGER PRIMARY KEY,       -- the place of the record in the chain
    execution_seq INTEGER NOT NULL,          -- the record
    record_hash   TEXT NOT NULL              -- of the record, when the anchor passed it
) STRICT;

-- Every closed record up to this `seq` was removed or kept: retention looks for the next ones behind it.
ALTER TABLE record_chain ADD COLUMN passed_seq INTEGER NOT NULL DEFAULT 0;

DROP TRIGGER executions_are_kept;
CREATE TRIGGER executions_are_kept
BEFORE DELETE ON executions
WHEN (SELECT CASE WHEN OLD.chain_seq IS NULL THEN OLD.seq > anchor_record ELSE OLD.chain_seq > anchor_seq END
        FROM record_chain)
  OR EXISTS (SELECT 1 FROM retained_records WHERE chain_seq = OLD.chain_seq)
BEGIN
    SELECT RAISE(ABORT, 'a record is removed by retention only, which moves the anchor of the chain first');
END;

DROP TRIGGER events_are_kept;
CREATE TRIGGER events_are_kept
BEFORE DELETE ON events
WHEN (SELECT CASE WHEN chain_seq IS NULL THEN executions.seq > anchor_record ELSE chain_seq > anchor_seq END
             OR EXISTS (SELECT 1 FROM retained_records WHERE retained_records.chain_seq = executions.chain_seq)
        FROM executions
        JOIN record_chain
       WHERE executions.seq = OLD.execution_seq)
BEGIN
    SELECT RAISE(ABORT, 'an event goes with its record, which retention removes');
END;

DROP TRIGGER blobs_are_kept;
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
