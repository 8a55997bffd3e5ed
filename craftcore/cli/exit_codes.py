"""The table of the exit codes of `craftcore`. Which of them an error is, craftcore/errors.py says."""

from __future__ import annotations

PROBLEM, WORK_FAILED, NO_SUCH, NOT_REPLAYABLE, BAD_FILTER = 1, 4, 10, 11, 12
USAGE, DATABASE, BUG, CANNOT_CREATE, IO, TRY_LATER, NOT_PERMITTED, SETTINGS = 64, 65, 70, 73, 74, 75, 77, 78
INTERRUPTED, PIPE_CLOSED = 130, 141

OF_A_LIST: dict[int, str | None] = {
    NO_SUCH: None,
    DATABASE: "a row is damaged: it is named in its place, and all others are shown",
}
"""The exit codes of a list, beside those of its filter."""

MEANINGS = {
    0: "ok",
    PROBLEM: "it found a problem, or what it is about is in no state for it",
    WORK_FAILED: "the awaited work failed",
    NO_SUCH: "no such id, or no such database",
    NOT_REPLAYABLE: "not replayable, or the record of another envelope",
    BAD_FILTER: "no such status, source, code or moment to filter by",
    USAGE: "usage, or refused input: nothing was done",
    DATABASE: "the database is damaged, not ours, or of a newer craftcore",
    BUG: "a bug in craftcore",
    CANNOT_CREATE: "a file cannot be created, or exists already",
    IO: "the disk is full, or refused to read or write",
    TRY_LATER: "locked by a daemon or another program, or not yet: try later",
    NOT_PERMITTED: "permission, or read only",
    SETTINGS: "the settings or the app are wrong",
    INTERRUPTED: "ended by Ctrl-C",
    PIPE_CLOSED: "the reader of the output has left",
}
