-- An id that a producer gave holds like a dedup key of scope `ever`: it is not accepted again once retention took the
-- payload. Ids that were minted here need no row for that: records and tasks of the same id remember them.
ALTER TABLE triggers ADD COLUMN id_given INTEGER NOT NULL DEFAULT 0 CHECK (id_given IN (0, 1));
