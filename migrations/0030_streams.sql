-- Text that a turn writes piece by piece while it runs, for readers.

-- One stream of one turn.
CREATE TABLE turn_streams (
    seq        INTEGER PRIMARY KEY,
    task_seq   INTEGER NOT NULL REFERENCES tasks (seq),
    turn       INTEGER NOT NULL,
    name       TEXT NOT NULL,
    after      INTEGER NOT NULL,             -- the last number that the earlier turns of the task used under this name
    created_at REAL NOT NULL,
    UNIQUE (task_seq, turn, name)
) STRICT;

-- Chunks that were committed together, or a cut: the place at which earlier chunks were withdrawn, and deleted.
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
