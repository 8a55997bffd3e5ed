"""The commits of streams: those of many turns are one, and each is guarded by the lease of its turn."""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.errors import LeaseLost
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.model import Task
from craftcore.tasks.stream_chunks import Cut, OpenStream, StreamView, StreamWrites, Written
from craftcore.tasks.stream_store import StreamStore
from craftcore.tasks.turn_event_store import MemoStore
from craftcore.tasks.work_store import WorkStore
from craftcore.triggers.model import Claim


class StreamRecorder:
    """Record what turns write to streams. Each method is a rule over a transaction it is given."""

    def __init__(self) -> None:
        self._streams = StreamStore()
        self._leases = MemoStore()
        self._work = WorkStore()

    def open(self, tx: Transaction, claim: Claim, task: Task, name: str) -> OpenStream:
        """Return a stream of a running turn, which is made when there is none. Raises LeaseLost for a turn that does
        not hold its trigger any more."""
        if not self._leases.held_leases(tx, [(claim.seq, claim.lease_token)]):
            raise _lease_lost(claim)
        return self._streams.open(tx, task.seq, task.turn, name)

    def write_all(self, tx: Transaction, turns: Sequence[StreamWrites]) -> list[LeaseLost | None]:
        """Commit what turns have written, in order. An answer each: LeaseLost, and nothing of it written, for a turn
        that does not hold its trigger any more."""
        held = self._leases.held_leases(tx, [(turn.claim.seq, turn.claim.lease_token) for turn in turns])
        kept = [turn for turn in turns if (turn.claim.seq, turn.claim.lease_token) in held]
        written: list[Written] = []
        for turn in kept:
            for one in turn.writes:
                if isinstance(one, Cut):
                    self._streams.add_all(tx, written)
                    written = []
                    self._streams.cut(tx, one)
                else:
                    written.append(one)
        self._streams.add_all(tx, written)
        return [None if (turn.claim.seq, turn.claim.lease_token) in held else _lease_lost(turn.claim) for turn in turns]

    def look(self, tx: Reader, id: str, name: str, after: int) -> StreamView:
        """Return the next chunks of a stream of emitted work after a number: of a message, those of the turn that
        received it. Raises NotFound when no row of the work is left, DatabaseInvalid for damaged chunks."""
        task_id, turn = self._work.find_writer(tx, id)
        work = self._work.update_of(tx, id)
        chunks, has_more = self._streams.list_after(tx, task_id, name, after, turn)
        return StreamView(chunks, work.is_over and not has_more)

    def look_at_task(self, tx: Reader, task: Task, name: str, after: int) -> StreamView:
        """Return the next chunks of a stream of a task after a number, over all its turns. Raises DatabaseInvalid for
        damaged chunks."""
        chunks, has_more = self._streams.list_after(tx, task.id, name, after)
        return StreamView(chunks, not task.status.is_live and not has_more)


def _lease_lost(claim: Claim) -> LeaseLost:
    return LeaseLost(f"the turn of trigger {claim.id} is over; nothing was written")
