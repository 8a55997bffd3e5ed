"""A batch of work items in one transaction, each group under its own savepoint.

An item that raises is undone and gets its error; the others stay. A batch of a single group needs no savepoint: with it
the whole transaction is undone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast

import apsw

from craftcore.errors import StorageError, StorageFull
from craftcore.serialization.untrusted import release_frames, safe_isinstance
from craftcore.storage.database import Database
from craftcore.storage.sqlite_errors import translate
from craftcore.storage.transaction import Transaction

BATCH_LIMIT = 1000
"""Pieces per commit, so that no caller waits for an endless one."""


@dataclass(slots=True, eq=False, repr=False)
class WorkItem:
    """One caller's work, and later its answer. `each`: it groups with others of the same work. `apart`: it has a commit
    of its own."""

    work: Callable[..., Any]
    args: tuple[Any, ...]
    waiter: Any
    each: bool = False
    apart: bool = False
    result: Any = None
    error: BaseException | None = None
    done: bool = False


After = Callable[[], object]
Before = dict[Callable[[Any], object], Any]

WorkGroup = list[WorkItem]
"""Pieces that run together: a lone one, or several of the same `commit_each` work."""


def take_batch(waiting: deque[WorkItem]) -> list[WorkItem]:
    """Take what the next commit is of: all that wait, at most a batch, up to the first that goes apart; or that one."""
    batch: list[WorkItem] = []
    while waiting and len(batch) < BATCH_LIMIT:
        if waiting[0].apart:
            return batch or [waiting.popleft()]
        batch.append(waiting.popleft())
    return batch


def group_items(batch: list[WorkItem]) -> list[WorkGroup]:
    """Group pieces of the same `commit_each` work, each group where its first piece stood."""
    groups: list[WorkGroup] = []
    alike: dict[Any, WorkGroup] = {}
    for piece in batch:
        group = alike.get(piece.work) if piece.each else None
        if group is not None:
            group.append(piece)
            continue
        groups.append([piece])
        if piece.each:
            alike[piece.work] = groups[-1]
    return groups


def run_groups(
    connection: apsw.Connection, database: Database, groups: list[WorkGroup], before: Before, after: list[After]
) -> list[WorkGroup]:
    """Run every group. The returned groups must run again: the transaction was ended by SQLite during one of them, or
    here because the single group failed.

    Raises StorageFull when SQLite ended it for want of space, which the others would not find either.
    """
    stand: list[WorkGroup] = []
    queue = deque(groups)
    is_alone = len(groups) == 1
    while queue:
        group = queue.popleft()
        error = _run_group(connection, database, group, before, after, is_alone)
        if error is None:
            stand.append(group)
        elif len(group) > 1:  # one of them is at fault, and the others must not pay: each on its own
            queue.extendleft([piece] for piece in reversed(group))
        else:
            group[0].error = error
        if not connection.in_transaction:
            if error is not None and safe_isinstance(error, StorageFull):
                raise error
            return [*stand, *queue]
        if error is not None and is_alone:
            connection.execute("ROLLBACK")
            return [*queue]
    return []


def _run_group(
    connection: apsw.Connection,
    database: Database,
    group: WorkGroup,
    before: Before,
    after: list[After],
    is_alone: bool,
) -> BaseException | None:
    """Run the pieces of one group and keep their answers. An error: all of it was undone, or is to be undone with the
    transaction when the group `is_alone`."""
    tx = Transaction(connection, database.clock.now())
    piece = group[0]
    work, each = piece.work, piece.each
    if not is_alone:
        connection.execute("SAVEPOINT work_group")
    try:
        if each:
            results = work(tx, [piece.args[0] for piece in group])
            assert len(results) == len(group), (work, len(results), len(group))
        else:
            results = (work(tx, *piece.args),)
    except BaseException as error:  # SystemExit, too: it is its caller who wants to end, not the writer
        release_frames(error)  # a statement left half-way there would keep the others from committing
        if connection.in_transaction and not is_alone:
            connection.execute("ROLLBACK TO work_group")
            connection.execute("RELEASE work_group")
        return (
            translate(cast(apsw.Error, error), database.path, connection)
            if safe_isinstance(error, apsw.Error)
            else error
        )
    if not is_alone:
        connection.execute("RELEASE work_group")
    elif not connection.in_transaction:  # the work hid that; it would run again and again
        raise StorageError(f"{database.path}: a statement ended the transaction, and its work went on")
    for piece, result in zip(group, results, strict=True):
        if each and isinstance(result, Exception):
            piece.error, piece.result = result, None
        else:
            piece.error, piece.result = None, result
    before.update(tx.before)
    after.extend(tx.after)
    return None
