-- Triggers that are put off because their key is at a limit of its workflow (`limit_by`). A trigger is in here exactly
-- as long as it is PENDING and its `not_before` is 9999-12-31T00:00:00Z; it is put back when its key has a place again.
CREATE TABLE limit_waits (
    trigger_seq INTEGER PRIMARY KEY,
    workflow    TEXT NOT NULL,
    limit_by    TEXT NOT NULL,               -- the parameter that has the key, or session_id
    key         TEXT NOT NULL,               -- its value as canonical JSON; the sha256 of a long one
    rank        REAL NOT NULL,               -- the order of the queue: the trigger was due, plus its weighted priority
    priority    INTEGER NOT NULL,
    not_before  REAL                         -- of the trigger, before it was put off
) STRICT;

CREATE INDEX limit_waits_next ON limit_waits (workflow, key, rank, priority, trigger_seq);

-- Whatever moves such a trigger: the engine, a boot, or a command of another process.
CREATE TRIGGER limit_waits_end
AFTER UPDATE OF status, not_before ON triggers
WHEN OLD.not_before = 253402214400.0
 AND OLD.status = 'PENDING'
 AND (NEW.status <> 'PENDING' OR NEW.not_before IS NOT OLD.not_before)
BEGIN
    DELETE FROM limit_waits WHERE trigger_seq = OLD.seq;
END;
