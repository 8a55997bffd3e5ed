-- Which moments a user gave as such. All others are a delay from the moment of their row: when a clock that was ahead is
-- set right, those follow it, and a given moment stays.
ALTER TABLE triggers ADD COLUMN at_given INTEGER NOT NULL DEFAULT 0 CHECK (at_given IN (0, 1));
ALTER TABLE waits ADD COLUMN at_given INTEGER NOT NULL DEFAULT 0 CHECK (at_given IN (0, 1));
