"""One rule for all commands: do the claims in the table belong to a daemon that works on them?

They do not while no daemon runs, and not while one boots: then they belong to the daemon before it.
"""

from __future__ import annotations

from pathlib import Path

from craftcore.daemon.lock import read_note
from craftcore.daemon.lock_note import LockInfo
from craftcore.storage.transaction import Reader
from craftcore.triggers.model import Trigger, TriggerStatus

BOOTED_AT = "SELECT started_at FROM epochs ORDER BY epoch DESC LIMIT 1"


def are_claims_live(reader: Reader, database: Path) -> bool:
    """Return whether a daemon runs on the database, and has taken back the claims of the one before it."""
    note, held = read_note(database)
    return held and not is_booting(reader, note, held=held)


def is_booting(reader: Reader, note: LockInfo | None, *, held: bool) -> bool:
    """Return whether a daemon holds the lock and has not taken back the claims of the one before it."""
    return has_not_booted(reader.fetch_value(BOOTED_AT), note, held=held)


def has_not_booted(booted_at: float | None, note: LockInfo | None, *, held: bool) -> bool:
    """Return the same for a known `booted_at`: when the last epoch in the database began. None: no daemon has left a
    claim."""
    return held and note is not None and booted_at is not None and booted_at < note.started_at


def is_cut_off(row: Trigger, *, claims_live: bool) -> bool:
    """Return whether it was running when the daemon ended."""
    return row.is_started and not claims_live


def explain_claim(row: Trigger, *, claims_live: bool) -> str | None:
    """Return what CLAIMED means of a trigger that no daemon works on; None for every other."""
    if claims_live or row.status is not TriggerStatus.CLAIMED:
        return None
    left = "cut off when its daemon ended" if row.is_started else "claimed by a daemon that ended"
    if row.cancel_requested_at is not None:
        return f"{left}; cancelled when one starts"
    return f"{left}; due when one starts"
