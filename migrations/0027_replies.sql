-- What emitted a message awaits its reply: the value that the turn which received it gave, or why there will be none.

ALTER TABLE tasks ADD COLUMN reply_json TEXT;    -- to the trigger that created it; NULL: none yet

ALTER TABLE mailbox ADD COLUMN reply_json TEXT;  -- NULL: none
ALTER TABLE mailbox ADD COLUMN unanswered TEXT;  -- why none comes: withdrawn, or its turn was stopped; NULL: one may
ALTER TABLE mailbox ADD COLUMN emitted_as TEXT;  -- the trigger by which it was emitted again

DROP INDEX mailbox_trigger;
CREATE INDEX mailbox_trigger ON mailbox (trigger_id) WHERE trigger_id IS NOT NULL;
