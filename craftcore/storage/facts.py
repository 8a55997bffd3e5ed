"""Single facts about a database, by name.

database_id       made with the file
held              why the engine claims nothing until a person releases it
restored_at       when it was found the last time that this file is older than what ran on it: what was there by then
                  may have been done already
live_state        what the running engine knows of itself and no row shows, as JSON: failing checkpoints, a slow disk
engine            what the last start decided and no row shows, as JSON: whether it is paused, the limits of workflows
restored_epoch    the epoch that was taken then: what was called in earlier ones may have gone further
restored_until    the moment up to which the file went that was restored: nothing that it lacks was called before
call_mark         how many commits have begun irreversible calls; the lock file has the same number before any of those
                  calls is made, so a file whose number is smaller is older than what ran on it
hold:KIND:NAME    why nothing of this workflow, source or schedule starts until a person releases it
safe_mode         why scheduled and resumed work waits, after crashes
released_epoch    the epoch at which a person released it the last time
reload            the result of the last SIGHUP: what a daemon read from its settings, as JSON
retention_failed  the last failure of a function of the app that retention calls, as JSON, until a pass without one
restart           what became of running tasks at the last start that found any: its notice, with `at` and `epoch`
clock_seen_at     the latest wall time that was seen here, epoch seconds
clock_held        the wall time at which schedules go on by themselves, while they wait for a clock that is behind it
clock_trusted_at  the wall time at which a person said the last time that the clock is right
"""

from __future__ import annotations

from typing import NamedTuple

from craftcore.clock import YEAR_10000
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.damaged_rows import readable_text
from craftcore.storage.transaction import Reader, Transaction

CALL_MARK = "call_mark"

SOME = """
SELECT name, CAST(value AS BLOB) FROM facts WHERE name IN (SELECT value FROM json_each(?1))
 UNION ALL
SELECT name, CAST(value AS BLOB) FROM facts WHERE name >= ?2 AND name < ?3
"""


class LastSeen(NamedTuple):
    """The progress of a database, as its lock file stores it. `call_mark` is 0 when it remembers none; `ended_at`:
    when that epoch ended in order, if the disk was too full for the database to say so."""

    database_id: str
    epoch: int
    call_mark: int = 0
    ended_at: float | None = None


def get_fact(tx: Reader, name: str) -> str | None:
    """Return the value of a fact, bad bytes as escapes: what holds the engine still holds it. None: there is none."""
    return readable_text(tx.fetch_value("SELECT CAST(value AS BLOB) FROM facts WHERE name = :name", name=name))


def number(tx: Reader, name: str) -> float | None:
    """Return the wall time or the epoch of a fact. None when there is none, and for a damaged value: one damaged fact
    must not keep the daemon from starting."""
    try:
        number = float(get_fact(tx, name) or "")
    except ValueError:
        return None
    return number if 0 <= number < YEAR_10000 else None


def give_id(tx: Transaction, new_id: str) -> None:
    """Name a database that has no id yet. So its lock file knows it from the first trigger on."""
    tx.run("INSERT OR IGNORE INTO facts (name, value) VALUES ('database_id', :id)", id=new_id)


def call_mark(tx: Reader) -> int:
    """Return how many commits have begun irreversible calls in this database; 0 when there were none."""
    mark: int = tx.fetch_value(
        "SELECT coalesce(max(CAST(value AS INTEGER)), 0) FROM facts WHERE name = :name", name=CALL_MARK
    )
    return mark


def increment_call_mark(tx: Transaction) -> int:
    """Count one more commit that begins irreversible calls; how many there are with it."""
    mark: int = tx.fetch_value(
        """
        INSERT INTO facts (name, value)
        VALUES (:name, '1')
        ON CONFLICT (name) DO UPDATE SET value = CAST(value AS INTEGER) + 1
        RETURNING CAST(value AS INTEGER)
        """,
        name=CALL_MARK,
    )
    return mark


def get_facts(tx: Reader, *names: str, prefix: str) -> dict[str, str]:
    """Return those of these facts that are there, and those whose names begin with `prefix`, with one statement."""
    rows = tx.fetch_tuples(SOME, (canonicalize(names), prefix, f"{prefix}\U0010ffff"))
    return {name: readable_text(value) or "" for name, value in rows}


def set_fact(tx: Transaction, name: str, value: str) -> None:
    """Let it stand, over what stood there."""
    tx.run("INSERT OR REPLACE INTO facts (name, value) VALUES (:name, :value)", name=name, value=value)


def delete_fact(tx: Transaction, name: str) -> str | None:
    """Take it away; what stood there, None when nothing did."""
    value = get_fact(tx, name)
    tx.run("DELETE FROM facts WHERE name = :name", name=name)
    return value
