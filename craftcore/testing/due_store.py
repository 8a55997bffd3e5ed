"""The queries of a lab: when something is due, and which calls of a scenario are on disk; a copy of the database."""

from __future__ import annotations

import shutil
from pathlib import Path

import apsw

from craftcore.storage.transaction import Reader

NEXT_DUE = """
SELECT min(at)
  FROM (SELECT min(due_at) AS at FROM triggers WHERE status = 'PENDING' AND due_at > :now
         UNION ALL
        SELECT min(next_at) FROM schedules WHERE next_at > :now)
"""

SIGNALLED = """
SELECT 1 FROM mailbox WHERE sent_by = :sender
 UNION ALL
SELECT 1 FROM early_mail WHERE sent_by = :sender
"""

ANSWERED = "SELECT 1 FROM questions WHERE note = :note AND status = 'ANSWERED'"

WAITS = """
SELECT 1
  FROM tasks
  JOIN waits ON waits.task_seq = tasks.seq
 WHERE tasks.id = :id
   AND tasks.status = 'WAITING'
   AND waits.status = 'WAITING'
   AND waits.kind IN ('event', 'question')
"""


def next_due(reader: Reader, now: float) -> float | None:
    """Return the first moment after `now` at which a trigger is due or a schedule fires; None: there is none."""
    moment: float | None = reader.fetch_value(NEXT_DUE, now=now)
    return moment


def waits_for_others(reader: Reader, id: str) -> bool:
    """Return whether a task waits for an event, a message or an answer. Time and children end other waits."""
    return reader.fetch_value(WAITS, id=id) is not None


def was_signalled(reader: Reader, sender: str) -> bool:
    """Return whether a signal of this sender is on disk."""
    return reader.fetch_value(SIGNALLED, sender=sender) is not None


def was_answered(reader: Reader, note: str) -> bool:
    """Return whether a question was answered with this note."""
    return reader.fetch_value(ANSWERED, note=note) is not None


def copy_committed(database: Path, folder: Path) -> Path:
    """Copy what is committed of a database, and its lock file, into another folder. Return the copy.

    The lock file comes first: its marks of calls are never newer than the intents in the copy.
    """
    folder.mkdir(mode=0o700)
    lock = database.with_name(f"{database.name}.lock")
    if lock.exists():
        shutil.copy(lock, folder / lock.name)
    source = apsw.Connection(str(database), flags=apsw.SQLITE_OPEN_READONLY)
    target = apsw.Connection(str(folder / database.name))
    try:
        with target.backup("main", source, "main") as backup:
            backup.step()
    finally:
        target.close()
        source.close()
    (folder / database.name).chmod(0o600)
    return folder / database.name
