"""Rows of `clock_events`: what the clocks of the machine did."""

from __future__ import annotations

from craftcore.storage.transaction import Reader, Row, Transaction

EVENTS_MAX = 1000


def record(tx: Transaction, epoch: int | None, kind: str, seconds: float) -> None:
    """Write an event, and delete the oldest ones beyond `EVENTS_MAX`."""
    tx.run(
        "INSERT INTO clock_events (at, kind, seconds, epoch) VALUES (:now, :kind, :seconds, :epoch)",
        kind=kind,
        seconds=seconds,
        epoch=epoch,
    )
    tx.run(
        "DELETE FROM clock_events WHERE seq <= (SELECT max(seq) FROM clock_events) - :most",
        most=EVENTS_MAX,
    )


def last_clock_event(tx: Reader) -> Row | None:
    """Return the newest event. Return None before the first."""
    return tx.fetch_one("SELECT at, kind, seconds FROM clock_events ORDER BY seq DESC LIMIT 1")
