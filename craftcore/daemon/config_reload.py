"""The reload of settings in a running daemon: the differences, those that apply at once, and the answer.

The answer is a fact of the database, `reload`: the settings are the daemon's, read as its user sees them, so only it
can say what became of them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace

from craftcore.config import Config
from craftcore.storage.facts import get_fact, set_fact
from craftcore.storage.transaction import Reader, Transaction
from craftcore.triggers.backoff import RetryPolicy

AT_ONCE = ("log.level", "schedule", "retry.max_attempts", "retry.base_seconds", "retry.cap_seconds")
"""Settings that are read whenever they are needed. The daemon has passed every other setting to its parts at the
start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reloaded:
    """The result of a reload. `refused`: a line for each mistake, and then nothing was changed; `applied` counts now,
    `at_next_start` does not before. `number`: the how many-th of its epoch. `began`: when it began to read them, in
    seconds since the machine started; who asked later than that is not answered by it."""

    epoch: int
    number: int
    at: float
    began: float
    applied: list[str]
    at_next_start: list[str]
    refused: list[str]


def list_changed_keys(old: Config, new: Config) -> list[str]:
    """Return the settings that differ, as `table.key`, and `schedule` or `notify` when any of those does."""
    before, after = asdict(old), asdict(new)
    changed = [name for name in ("schedule", "notify") if before.pop(name) != after.pop(name)]
    tables = [(table, key) for table in before for key in before[table]]
    return changed + [f"{table}.{key}" for table, key in tables if before[table][key] != after[table][key]]


def apply_reload(old: Config, new: Config) -> Config:
    """Return the old settings with what of the new ones counts at once."""
    level = replace(old.log, level=new.log.level)
    return replace(old, log=level, retry=new.retry, schedule=new.schedule)


def default_retry(config: Config) -> RetryPolicy:
    """Return the policy of a workflow that declares none."""
    retry = config.retry
    return RetryPolicy(max_attempts=retry.max_attempts, base=retry.base_seconds, cap=retry.cap_seconds)


def answer(
    tx: Transaction, epoch: int, *, began: float, applied: list[str], at_next_start: list[str], refused: list[str]
) -> None:
    """Leave word of what a reload came to."""
    before = last_reload(tx)
    number = before.number + 1 if before is not None and before.epoch == epoch else 1
    reloaded = Reloaded(
        epoch=epoch,
        number=number,
        at=tx.now,
        began=began,
        applied=applied,
        at_next_start=at_next_start,
        refused=refused,
    )
    set_fact(tx, "reload", json.dumps(asdict(reloaded)))


def last_reload(tx: Reader) -> Reloaded | None:
    """Return the last answer that was left; None when there is none that can be read."""
    text = get_fact(tx, "reload")
    try:
        found = json.loads(text) if text is not None else None
        return Reloaded(**{field.name: found[field.name] for field in fields(Reloaded)}) if found else None
    except (ValueError, TypeError, KeyError):
        return None
