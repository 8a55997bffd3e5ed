"""Whole records: the anchor of the chain moves over the oldest ones, and what no turn reads goes.

A record that the last turn of a busy task still reads stays behind the anchor, noted in `retained_records` with its
hash, and goes when nothing reads it any more. So it keeps no other record from going.
"""

from __future__ import annotations

from craftcore.errors import UnreadableRow
from craftcore.retention.cutoffs import Cutoffs
from craftcore.retention.in_use_store import InUse
from craftcore.retention.limit_store import NEWEST_RECORD
from craftcore.retention.model import BATCH, WINDOW, Found, Taken
from craftcore.storage.transaction import Reader, Row, Transaction

LOOKED_AT = 2_000
"""Records that are searched for the next ones of the chain. Records are numbered as they begin and chained as they end.
A record that is earlier in number and later in the chain ran at the same time, and at most a thousand run at once."""

ENDS = "SELECT anchor_seq, passed_seq FROM record_chain"

RECORDS = """
SELECT seq,
       chain_seq,
       record_hash,
       trigger_id,
       task_id,
       turn,
       ended_at
  FROM executions
"""

UNPASSED = f"""{RECORDS}
 WHERE seq > :after
   AND chain_seq > :anchor
 ORDER BY seq
 LIMIT :looked_at
"""

RUNNING = """
SELECT executions.seq
  FROM executions
 WHERE status = 'incomplete'
   AND seq > :passed
   AND EXISTS (SELECT 1 FROM triggers WHERE triggers.id = trigger_id AND triggers.status = 'CLAIMED')
 ORDER BY seq
 LIMIT 1
"""
"""The first record that may yet take its place in the chain."""

RETAINED = """
SELECT retained_records.chain_seq AS place,
       executions.seq,
       executions.chain_seq,
       trigger_id,
       task_id,
       turn
  FROM retained_records
  JOIN executions ON executions.seq = execution_seq
 WHERE retained_records.chain_seq > :after
   AND retained_records.chain_seq <= :last
   AND ended_at <= :history
   AND executions.seq < (SELECT max(seq) FROM executions)
 ORDER BY retained_records.chain_seq
 LIMIT :most
"""
LAST_RETAINED = """
SELECT max(chain_seq)
  FROM (SELECT chain_seq FROM retained_records WHERE chain_seq > :after ORDER BY chain_seq LIMIT :window)
"""

OUTSIDE_CHAIN = """
   AND chain_seq IS NULL
   AND seq > :after
   AND coalesce(ended_at, created_at) <= :history
   AND seq < (SELECT max(seq) FROM executions)
 ORDER BY seq
 LIMIT :most
"""
OPEN = RECORDS + " WHERE status = 'incomplete'" + OUTSIDE_CHAIN
BEFORE_CHAIN = " WHERE status <> 'incomplete' AND seq <= (SELECT unchained_to FROM record_chain)"
UNCHAINED = RECORDS + BEFORE_CHAIN + OUTSIDE_CHAIN


class OldRecords:
    """Old records of the chain, from its anchor on."""

    def find(self, tx: Reader, old: Cutoffs, after: int) -> Found:
        """Return the records after this number that may go. The search ends where every record is too young."""
        anchor, passed = _read_chain_state(tx)
        rows = tx.fetch_all(UNPASSED, after=max(after, passed), anchor=anchor, looked_at=BATCH)
        passing = _passable_records(tx, old, rows)
        due = sorted(row["seq"] for row, is_free in passing if is_free)
        return Found(due, rows[-1]["seq"] if passing else None)

    def take(self, tx: Transaction, old: Cutoffs, seqs: list[int]) -> Taken:
        """Move the anchor over the oldest records that are due now; of a record all its events go with it."""
        taken = Taken()
        anchor, passed = _read_chain_state(tx)
        rows = tx.fetch_all(UNPASSED, after=passed, anchor=anchor, looked_at=LOOKED_AT)
        passing = _passable_records(tx, old, rows)
        is_cut = len(passing) == LOOKED_AT  # what may go is behind these, even where none of them may
        passing = _records_without_gap(anchor, passing, to_the_end=is_cut)
        for row, is_free in passing:
            if taken.rows + taken.passed >= BATCH:
                taken.more = True
                break
            anchor += 1
            _move_anchor(tx, row, removed=int(is_free))
            if is_free:
                _remove(tx, row["seq"], taken)
            else:
                _retain(tx, row, taken)
        if passing:
            _note_passed(tx, [row["seq"] for row in rows if row["chain_seq"] > anchor], rows[-1]["seq"], passed)
            taken.more = taken.more or (len(rows) == LOOKED_AT and max(seqs) > rows[-1]["seq"])
        return taken


class OldRetainedRecords:
    """Behind the anchor: what a turn read that has ended since."""

    def find(self, tx: Reader, old: Cutoffs, after: int) -> Found:
        """Return the records that may go. `after`: a position in the chain."""
        last: int | None = tx.fetch_value(LAST_RETAINED, after=after, window=WINDOW)
        if last is None:
            return Found([], None)
        rows = tx.fetch_all(RETAINED, after=after, last=last, history=old.history, most=BATCH)
        rest = InUse(tx, old.dead)
        found = [row["seq"] for row in rows if rest.can_remove_record(row)]
        return Found(sorted(found), rows[-1]["place"] if len(rows) == BATCH else last)

    def take(self, tx: Transaction, old: Cutoffs, seqs: list[int]) -> Taken:
        """Remove those that are still due, at least one."""
        taken, rest = Taken(), InUse(tx, old.dead)
        for seq in seqs:
            if taken.rows >= BATCH:
                taken.more = True
                break
            place = tx.fetch_value("SELECT chain_seq FROM executions WHERE seq = :seq", seq=seq)
            if place is None:
                continue
            rows = tx.fetch_all(RETAINED, after=place - 1, last=place, history=old.history, most=1)
            if rows and rest.can_remove_record(rows[0]):
                tx.run("DELETE FROM retained_records WHERE chain_seq = :place", place=place)
                tx.run("UPDATE record_chain SET removed = removed + 1")
                _remove(tx, seq, taken)
        return taken


class OldLooseRecords:
    """Old records outside the chain: a crash left them open, or they were closed before there was a chain."""

    def find(self, tx: Reader, old: Cutoffs, after: int) -> Found:
        rest = InUse(tx, old.dead)
        rows = [
            row for sql in (OPEN, UNCHAINED) for row in tx.fetch_all(sql, after=after, history=old.history, most=BATCH)
        ]
        rows = sorted(rows, key=lambda row: row["seq"])[:BATCH]
        found = [row["seq"] for row in rows if rest.can_remove_record(row)]
        return Found(found, rows[-1]["seq"] if rows else None)

    def take(self, tx: Transaction, old: Cutoffs, seqs: list[int]) -> Taken:
        """Remove those that are still due, at least one."""
        taken = Taken()
        due = set(self.find(tx, old, seqs[0] - 1).seqs)
        for seq in (seq for seq in seqs if seq in due):
            if taken.rows >= BATCH:
                taken.more = True
                break
            tx.run("UPDATE record_chain SET anchor_record = max(anchor_record, :seq), removed = removed + 1", seq=seq)
            _remove(tx, seq, taken)
        return taken


def _read_chain_state(tx: Reader) -> tuple[int, int]:
    """Return the place of the anchor, and the number up to which all was passed. Raises UnreadableRow."""
    row = tx.fetch_one(ENDS)
    assert row is not None
    for name, value in row.items():
        if not isinstance(value, int):
            raise UnreadableRow(f"{name} of record_chain is not a whole number: {value!r:.200}")
    return row["anchor_seq"], row["passed_seq"]


def _passable_records(tx: Reader, old: Cutoffs, rows: list[Row]) -> list[tuple[Row, bool]]:
    """Return the records that the anchor may pass, in the order of the chain, and whether each may go."""
    newest, rest = tx.fetch_value(NEWEST_RECORD), InUse(tx, old.dead)
    passing: list[tuple[Row, bool]] = []
    for row in sorted(rows, key=lambda row: row["chain_seq"]):
        if _is_young(row, old):
            break
        passing.append((row, row["seq"] != newest and row["ended_at"] <= old.history and rest.can_remove_record(row)))
    return passing


def _records_without_gap(anchor: int, passing: list[tuple[Row, bool]], *, to_the_end: bool) -> list[tuple[Row, bool]]:
    """Return those that follow the anchor without a gap: all, or up to the last that may be removed."""
    following = [one for place, one in enumerate(passing, anchor + 1) if one[0]["chain_seq"] == place]
    while following and not to_the_end and not following[-1][1]:
        following.pop()
    return following


def _is_young(row: Row, old: Cutoffs) -> bool:
    """Return whether a record ends the search. A record later than now was stamped by a clock that was ahead. It stays
    until its time has come, and later records are removed at theirs."""
    ended_at: float = row["ended_at"]
    return old.history < ended_at <= old.now


def _move_anchor(tx: Transaction, row: Row, *, removed: int) -> None:
    tx.run(
        "UPDATE record_chain SET anchor_seq = :place, anchor_hash = :hash, removed = removed + :removed",
        place=row["chain_seq"],
        hash=row["record_hash"],
        removed=removed,
    )


def _retain(tx: Transaction, row: Row, taken: Taken) -> None:
    tx.run(
        "INSERT INTO retained_records (chain_seq, execution_seq, record_hash) VALUES (:place, :seq, :hash)",
        place=row["chain_seq"],
        seq=row["seq"],
        hash=row["record_hash"],
    )
    taken.passed += 1


def _note_passed(tx: Transaction, left: list[int], looked_to: int, passed: int) -> None:
    """Let later searches begin after the records that were passed. `left`: the closed ones that were not passed."""
    running: int | None = tx.fetch_value(RUNNING, passed=passed)
    ahead = [*left, *(() if running is None else (running,))]
    tx.run("UPDATE record_chain SET passed_seq = :seq", seq=max(passed, min(ahead) - 1 if ahead else looked_to))


def _remove(tx: Transaction, seq: int, taken: Taken) -> None:
    taken.removed["event_rows"] += tx.run("DELETE FROM event_rows WHERE execution_seq = :seq", seq=seq)
    taken.removed["blobs"] += tx.run("DELETE FROM blobs WHERE execution_seq = :seq", seq=seq)
    taken.removed["executions"] += tx.run("DELETE FROM executions WHERE seq = :seq", seq=seq)
