"""Work that may have been done before the database was restored.

A restored file is older than the world. In doubt is all work that was there at the restore, and each occurrence of a
schedule that was due by then. So is the work that such work makes or signals after the restore, because the lost file
may have made it, too. It ends when a person says that the restored file was complete.

restored_at     in `facts`: the restore
restored_until  the moment up to which the file went: nothing that the file does not have was called before
restored_work   marks of work that was made or signalled after the restore
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Literal, TypeAlias

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.facts import delete_fact, get_fact, number, set_fact
from craftcore.storage.transaction import Reader, Transaction

MadeKind: TypeAlias = Literal["trigger", "schedule"]
"""The kinds of marked work. A task has the id of its trigger."""

DOUBTFUL = """
SELECT work.value,
       tasks.created_at <= ?2
    OR triggers.created_at <= ?2
    OR triggers.nominal_at <= ?2
    OR coalesce((SELECT same_id FROM restored_work WHERE kind = 'trigger' AND id = work.value), 0)
  FROM json_each(?1) AS work
  LEFT JOIN tasks ON tasks.id = work.value
  LEFT JOIN triggers ON triggers.id = work.value
 WHERE tasks.created_at <= ?2
    OR triggers.created_at <= ?2
    OR triggers.nominal_at <= ?2
    OR EXISTS (SELECT 1 FROM restored_work WHERE kind = 'trigger' AND id = work.value)
    OR EXISTS (SELECT 1
                 FROM restored_work
                WHERE kind = 'schedule'
                  AND id = coalesce(triggers.schedule_id, tasks.schedule_id))
"""

LATEST = """
SELECT max(at)
  FROM (SELECT max(updated_at) AS at FROM triggers
         UNION ALL
        SELECT max(at) FROM events
         UNION ALL
        SELECT max(started_at) FROM epochs)
"""


class RestoredWork:
    """Tells doubtful work, and marks what it makes. Each method is a rule over a transaction it is given.

    An engine calls `look` at its start, under its lock: where nothing is in doubt, nothing costs a statement from then
    on. In other processes each call reads one fact.
    """

    def __init__(self) -> None:
        self._is_open: bool | None = None

    def look(self, tx: Reader) -> None:
        """Remember whether anything can be in doubt. No restore can come about while an engine runs."""
        self._is_open = get_fact(tx, "restored_at") is not None

    @property
    def is_out_of_question(self) -> bool:
        """True when an engine knows that nothing can be in doubt."""
        return self._is_open is False

    def find_doubtful(self, tx: Reader, work_ids: Collection[str]) -> Mapping[str, bool]:
        """Return those of these ids, of tasks or of triggers, whose work may have been done before the restore; and
        whether it had the same id then."""
        restored_at = self.find_moment(tx) if work_ids else None
        if restored_at is None:
            return {}
        rows = tx.fetch_tuples(DOUBTFUL, (canonicalize(sorted(work_ids)), restored_at))
        return {work_id: bool(has_same_id) for work_id, has_same_id in rows}

    def find_moment(self, tx: Reader) -> float | None:
        """Return the moment of the restore. None when nothing is in doubt; a damaged moment puts all work in doubt."""
        if self._is_open is False or get_fact(tx, "restored_at") is None:
            return None
        moment = number(tx, "restored_at")
        return math.inf if moment is None else moment

    def is_possible(self, tx: Reader) -> bool:
        """Return whether anything can be in doubt."""
        return self.find_moment(tx) is not None

    def mark(
        self, tx: Transaction, maker_id: str, made_id: str, *, kind: MadeKind = "trigger", same_id: bool = False
    ) -> None:
        """Mark what work has made, if that work is in doubt and what it made is not. `same_id`: the lost file knew it
        by this id, if at all."""
        doubtful = self.find_doubtful(tx, {maker_id, made_id} if kind == "trigger" else {maker_id})
        if maker_id not in doubtful or made_id in doubtful:
            return
        tx.run(
            "INSERT OR IGNORE INTO restored_work (kind, id, same_id) VALUES (:kind, :id, :same_id)",
            kind=kind,
            id=made_id,
            same_id=same_id and doubtful[maker_id],
        )


def begin_doubt(tx: Transaction, epoch: int, until: float | None) -> None:
    """Put in doubt what may have been done before a restore, which is now and took this epoch. `until`: the moment up
    to which the file goes; None: not known. The clock may be behind that: then all of the file is in doubt, too."""
    before = number(tx, "restored_until") if get_fact(tx, "restored_at") is not None else None
    since = until or 0.0
    set_fact(tx, "restored_at", repr(max(tx.now, since)))
    set_fact(tx, "restored_epoch", str(epoch))
    set_fact(tx, "restored_until", repr(since if before is None else min(since, before)))


def end_doubt(tx: Transaction) -> bool:
    """Let nothing be in doubt because of a restore; False when nothing was. Open questions stay open."""
    was_open = delete_fact(tx, "restored_at") is not None
    delete_fact(tx, "restored_epoch")
    delete_fact(tx, "restored_until")
    tx.run("DELETE FROM restored_work")
    return was_open


def find_latest(tx: Reader) -> float | None:
    """Return the latest moment in a file. None when it has none."""
    latest: float | None = tx.fetch_value(LATEST)
    return latest
