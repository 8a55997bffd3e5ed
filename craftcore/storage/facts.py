"""Single facts about a database, by name: what no table of its own is worth.

database_id       made with the first epoch
held              why the engine claims nothing until a person releases it
restored_at       when it was found the last time that this file is older than what ran on it: what was there by then
                  may have been done already
live_state        what the running engine knows of itself and no row shows, as JSON: failing checkpoints, a slow disk
engine            what the last start decided and no row shows, as JSON: whether it is paused, the limits of workflows
safe_mode         why scheduled and resumed work waits until a person releases it
released_epoch    the epoch at which a person released it the last time
reload            what became of the last time that a daemon was told to read its settings again, as JSON
restart           what became of running tasks at the last start that found any: its notice, with `at` and `epoch`
clock_seen_at     the latest wall time that was seen here, epoch seconds
clock_held        the wall time at which schedules go on by themselves, while they wait for a clock that is behind it
clock_trusted_at  the wall time at which a person said the last time that the clock is right
"""

from __future__ import annotations

from craftcore.storage.transaction import Reader, Transaction


def fact(tx: Reader, name: str) -> str | None:
    """What stands under that name; None when nothing does."""
    value: str | None = tx.value("SELECT value FROM facts WHERE name = :name", name=name)
    return value


def remember(tx: Transaction, name: str, value: str) -> None:
    """Let it stand, over what stood there."""
    tx.run("INSERT OR REPLACE INTO facts (name, value) VALUES (:name, :value)", name=name, value=value)


def forget(tx: Transaction, name: str) -> str | None:
    """Take it away; what stood there, None when nothing did."""
    value = fact(tx, name)
    tx.run("DELETE FROM facts WHERE name = :name", name=name)
    return value
