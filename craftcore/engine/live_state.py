"""The state that only the running engine knows, stored in the fact `live_state` for other processes.

It is written when it changes, so a healthy engine writes nothing. A problem that stops all writes, such as a full
disk, cannot be reported in this way.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from craftcore.clock import YEAR_10000
from craftcore.errors import StorageFull
from craftcore.storage.epochs import newest_epoch
from craftcore.storage.facts import get_fact, set_fact
from craftcore.storage.files.open_files import unreachable_reason
from craftcore.storage.transaction import Reader, Transaction

if TYPE_CHECKING:  # a command that only reads the state must not pay for the engine
    from craftcore.engine.exclusive_run import ExclusiveRun
    from craftcore.storage.writer import Writer

NAME = "live_state"

LOOK_SECONDS = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveState:
    """The state of the engine of one epoch.

    `checkpoint_failed`: why the database file cannot be written, None when it can. `flush_seconds`: how long a flush
    takes, None when the disk is quick enough. `unreachable`: why the database cannot be looked up by its name, None
    when it can. `shortage`: the resource that the machine is short of, None when it is of none. `alone`: the trigger
    that runs alone, because it was in crashes. `alone_since` and `alone_until`: the wall times at which
    that began, and at which others start at the latest.
    """

    epoch: int
    checkpoint_failed: str | None = None
    flush_seconds: float | None = None
    unreachable: str | None = None
    shortage: str | None = None
    alone: str | None = None
    alone_since: float | None = None
    alone_until: float | None = None


def live_state(reader: Reader) -> LiveState:
    """Read what the engine of the last epoch left. Without trouble when it left nothing, or nothing sound."""
    last = newest_epoch(reader) or 0
    try:
        document = json.loads(get_fact(reader, NAME) or "{}")
        state = _validate(document) if isinstance(document, dict) else None
    except (ValueError, RecursionError):
        state = None
    return state if state is not None and state.epoch == last else LiveState(epoch=last)


def _validate(document: dict[str, Any]) -> LiveState | None:
    epoch: Any = document.get("epoch")
    failed: Any = document.get("checkpoint_failed")
    seconds: Any = document.get("flush_seconds")
    unreachable: Any = document.get("unreachable")
    shortage: Any = document.get("shortage")
    alone: Any = document.get("alone")
    since: Any = document.get("alone_since")
    until: Any = document.get("alone_until")
    sound = (
        type(epoch) is int
        and type(failed) in (str, type(None))
        and _is_number(seconds)
        and type(unreachable) in (str, type(None))
        and type(shortage) in (str, type(None))
        and (type(alone), type(since), type(until)) in ((str, float, float), (type(None),) * 3)
        and all(moment is None or 0.0 <= moment < YEAR_10000 for moment in (since, until))
    )
    if not sound:
        return None
    return LiveState(
        epoch=epoch,
        checkpoint_failed=failed,
        flush_seconds=seconds,
        unreachable=unreachable,
        shortage=shortage,
        alone=alone,
        alone_since=since,
        alone_until=until,
    )


def _is_number(seconds: Any) -> bool:
    return seconds is None or (type(seconds) in (int, float) and 0 <= seconds < YEAR_10000)


async def keep_live_state(writer: Writer, read_state: Callable[[], LiveState]) -> None:
    """Read the state every LOOK_SECONDS and write what has changed; until cancelled."""
    import anyio  # as above

    written = LiveState(epoch=read_state().epoch)
    while True:
        await anyio.sleep(LOOK_SECONDS)
        now = read_state()
        if now == written:
            continue
        try:
            await writer.commit(_write, now)
            written = now
        except StorageFull:
            continue


def state_of(writer: Writer, exclusive: ExclusiveRun, shortage: str | None, epoch: int) -> LiveState:
    """Look at the engine. The flush time is rounded to one digit, so that it does not change at each look."""
    slow = writer.group_commit.flushes.longest if writer.group_commit.flushes.is_slow else None
    return LiveState(
        epoch=epoch,
        checkpoint_failed=writer.checkpoints.failed,
        flush_seconds=None if slow is None else float(f"{slow:.1g}"),
        unreachable=unreachable_reason(writer.group_commit.files.path),
        shortage=shortage,
        alone=exclusive.suspect,
        alone_since=None if exclusive.suspect is None else exclusive.since,
        alone_until=None if exclusive.suspect is None else exclusive.until,
    )


def _write(tx: Transaction, state: LiveState) -> None:
    set_fact(tx, NAME, json.dumps(asdict(state), sort_keys=True))
