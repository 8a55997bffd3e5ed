"""Writes of one turn to its streams that are not on disk yet."""

from __future__ import annotations

from typing import Any

from craftcore.tasks.stream_chunks import ROW_MAX, Cut, StreamWrites, Written
from craftcore.triggers.model import Claim


class StreamBuffer:
    """The writes of a turn, in order. The journal takes it from here; at most one commit of it is under way.

    error      why nothing more can be written; None: it can
    is_on_way  a commit of what was taken is under way
    """

    __slots__ = ("_room", "claim", "error", "is_on_way", "writes")

    def __init__(self, claim: Claim) -> None:
        self.claim = claim
        self.writes: list[Written | Cut] = []
        self.error: Exception | None = None
        self.is_on_way = False
        self._room = 0

    @property
    def is_saved(self) -> bool:
        """All that was written is on disk, or cannot be written any more."""
        return not self.writes and not self.is_on_way

    def append(self, stream_seq: int, number: int, part: str, text: str) -> None:
        """Add a chunk, to the group before it where it continues that."""
        last: Any = self.writes[-1] if self.writes else None
        if (
            type(last) is Written
            and last.stream_seq == stream_seq
            and last.part == part
            and last.first + len(last.texts) == number
            and self._room > 0
        ):
            last.texts.append(text)
        else:
            self.writes.append(Written(stream_seq, number, part, [text]))
            self._room = ROW_MAX
        self._room -= len(text)

    def cut(self, stream_seq: int, number: int, part: str, after: int) -> None:
        """Add the withdrawal of the chunks of a part that have a number after `after`."""
        self.writes.append(Cut(stream_seq, number, part, after))

    def take(self) -> StreamWrites:
        """Return all that was added, to be committed."""
        taken, self.writes = self.writes, []
        self.is_on_way = True
        return StreamWrites(self.claim, taken)

    def end(self, error: Exception | None) -> None:
        """Note the end of the commit of what was taken. After an error nothing more is written."""
        self.is_on_way = False
        if error is not None:
            self.error = error
            self.writes.clear()
