"""What runs inside one commit: the pieces of a batch, each ride of them under a savepoint of its own.

Whoever is at fault pays alone: a piece that raises is undone and hears why, the others stand.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, cast

import apsw

from craftcore.errors import StorageFull
from craftcore.serialization.untrusted import is_a, let_go
from craftcore.storage.database import Database
from craftcore.storage.error_mapping import translate
from craftcore.storage.transaction import Transaction

BATCH_LIMIT = 1000
"""Pieces per commit, so that no caller waits for an endless one."""


class Piece:
    """One caller's work, and later its answer."""

    __slots__ = ("apart", "args", "done", "each", "error", "result", "waiter", "work")

    def __init__(
        self, work: Callable[..., Any], args: tuple[Any, ...], waiter: Any, *, each: bool = False, apart: bool = False
    ) -> None:
        self.work = work
        self.args = args
        self.waiter = waiter
        self.each = each
        """It rides with others of the same work."""
        self.apart = apart
        """It shares its commit with nobody."""
        self.result: Any = None
        self.error: BaseException | None = None
        self.done = False


After = Callable[[], object]
Before = dict[Callable[[Any], object], Any]

Ride = list[Piece]
"""Pieces that run together: a lone one, or several of the same `commit_each` work."""


def take_batch(waiting: deque[Piece]) -> list[Piece]:
    """Take what the next commit is of: all that wait, at most a batch, up to the first that goes apart; or that one."""
    batch: list[Piece] = []
    while waiting and len(batch) < BATCH_LIMIT:
        if waiting[0].apart:
            return batch or [waiting.popleft()]
        batch.append(waiting.popleft())
    return batch


def grouped(batch: list[Piece]) -> list[Ride]:
    """Group pieces of the same `commit_each` work, each group where its first piece stood."""
    rides: list[Ride] = []
    alike: dict[Any, Ride] = {}
    for piece in batch:
        ride = alike.get(piece.work) if piece.each else None
        if ride is not None:
            ride.append(piece)
            continue
        rides.append([piece])
        if piece.each:
            alike[piece.work] = rides[-1]
    return rides


def run_rides(
    connection: apsw.Connection, database: Database, rides: list[Ride], before: Before, after: list[After]
) -> list[Ride]:
    """Run every ride. What is returned must run once more: SQLite ended the transaction under one of them.

    Raises StorageFull when that was for want of space, which the others would not find either.
    """
    stand: list[Ride] = []
    queue = deque(rides)
    while queue:
        ride = queue.popleft()
        error = _run_ride(connection, database, ride, before, after)
        if error is None:
            stand.append(ride)
        elif len(ride) > 1:  # one of them is at fault, and the others must not pay: each on its own
            queue.extendleft([piece] for piece in reversed(ride))
        else:
            ride[0].error = error
        if not connection.in_transaction:
            if error is not None and is_a(error, StorageFull):
                raise error
            return [*stand, *queue]
    return []


def _run_ride(
    connection: apsw.Connection, database: Database, ride: Ride, before: Before, after: list[After]
) -> BaseException | None:
    """Run the pieces of one ride under a savepoint and keep their answers. An error: all of it was undone."""
    tx = Transaction(connection, database.clock.now())
    work, args = ride[0].work, ride[0].args
    connection.execute("SAVEPOINT ride")
    try:
        if ride[0].each:
            results = work(tx, [piece.args[0] for piece in ride])
            assert len(results) == len(ride), (work, len(results), len(ride))
        else:
            results = [work(tx, *args)]
    except BaseException as error:  # SystemExit, too: it is its caller who wants to end, not the writer
        let_go(error)  # a statement left half-way there would keep the others from committing
        if connection.in_transaction:
            connection.execute("ROLLBACK TO ride")
            connection.execute("RELEASE ride")
        return translate(cast(apsw.Error, error), database.path, connection) if is_a(error, apsw.Error) else error
    connection.execute("RELEASE ride")
    for piece, result in zip(ride, results, strict=True):
        refused = piece.each and isinstance(result, Exception)
        piece.error = result if refused else None
        piece.result = None if refused else result
    before.update(tx.before)
    after.extend(tx.after)
    return None
