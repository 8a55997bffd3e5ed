"""The only SQL of `epochs` and `workflows` at a start and an end of the engine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass

from craftcore.storage.damaged_rows import readable_row
from craftcore.storage.facts import number
from craftcore.storage.transaction import BulkStatement, Reader, Row, Transaction

DECLARE = BulkStatement("INSERT INTO workflows (name, epoch) VALUES {rows}", width=2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """The process that boots. `machine_boot_id` is the kernel's, None where it has none."""

    boot_id: str
    machine_boot_id: str | None
    pid: int
    host: str
    version: str


def newest_epoch(tx: Reader) -> int | None:
    """Return the number of the newest epoch; None before the first."""
    newest: int | None = tx.fetch_value("SELECT max(epoch) FROM epochs")
    return newest


def last_epoch(tx: Reader) -> Row | None:
    """Return number, boot id of the machine, and end of the newest epoch; None before the first."""
    last = "SELECT epoch, CAST(machine_boot_id AS BLOB) AS machine_boot_id, ended_at FROM epochs"
    row = tx.fetch_one(f"{last} ORDER BY epoch DESC LIMIT 1")
    return None if row is None else readable_row(row)


def end_epoch(tx: Transaction, epoch: int, at: float | None) -> None:
    """Write that an epoch ended in order."""
    tx.run("UPDATE epochs SET ended_at = :at WHERE epoch = :epoch", at=at, epoch=epoch)


def replace_workflows(tx: Transaction, names: Iterable[str], epoch: int) -> None:
    """Write which workflows this start declared, instead of those of the start before."""
    tx.run("DELETE FROM workflows")
    tx.execute_many(DECLARE, [(name, epoch) for name in names])


def begin_epoch(tx: Transaction, epoch: int, process: Process) -> None:
    tx.run(
        """
        INSERT INTO epochs (epoch, boot_id, machine_boot_id, pid, host, version, started_at)
        VALUES (:epoch, :boot_id, :machine_boot_id, :pid, :host, :version, :now)
        """,
        epoch=epoch,
        **asdict(process),
    )


def count_unclean_starts(tx: Transaction, since: float) -> int:
    """Return how many starts after `since` found that the one before had died, counted from the last release."""
    starts: int = tx.fetch_value(
        """
        SELECT count(*)
          FROM (SELECT epoch, started_at, lag(epoch) OVER by_epoch AS earlier, lag(ended_at) OVER by_epoch AS ended
                  FROM (SELECT * FROM epochs ORDER BY epoch DESC LIMIT 100)
                WINDOW by_epoch AS (ORDER BY epoch))
         WHERE earlier IS NOT NULL
           AND ended IS NULL
           AND epoch > :released
           AND started_at > :since
           AND started_at <= :now
        """,
        released=int(number(tx, "released_epoch") or 0),
        since=since,
        now=tx.now,  # what is later was seen by another clock
    )
    return starts
