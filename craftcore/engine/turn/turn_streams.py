"""The streams of one entry of a turn: which chunks are on record, and which are written.

A turn is entered again after a crash or a wait, from its top, so its own code writes the same chunks again. They are
compared with those on record, and the same ones are not written twice. At the first difference the chunks on record no
longer count, from there on: they are cut. A recorded step is not run again, and its chunks stay. A step that runs again
has its earlier chunks cut at its first write, or at its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import anyio

from craftcore.engine.turn.journal import StreamJournal
from craftcore.engine.turn.part import Part
from craftcore.engine.turn.stream_buffer import StreamBuffer
from craftcore.errors import InvalidInput, PayloadTooLarge
from craftcore.tasks.model import Task
from craftcore.tasks.stream_chunks import OpenStream
from craftcore.triggers.model import Claim

STREAMS_MAX = 100
"""Streams of one turn."""


class KnownStream:
    """One stream, as this entry knows it.

    own    the chunks of the turn's own code that are on record and that this entry has not come to; a damaged text is
           None
    sizes  bytes of the chunks that count, by part
    size   bytes of all of them
    """

    __slots__ = ("next_number", "own", "seq", "size", "sizes")

    def __init__(self, found: OpenStream, own_part: str) -> None:
        self.seq = found.seq
        self.next_number = found.next_number
        self.sizes: dict[str, int] = {}
        self.own: deque[tuple[int, str | None]] = deque()
        for kept in found.kept:
            texts: list[str] | list[None] = kept.texts or [None] * (kept.last - kept.first + 1)
            self.sizes[kept.part] = self.sizes.get(kept.part, 0) + sum(map(_size, texts))
            if kept.part == own_part:
                self.own.extend(enumerate(texts, kept.first))
        self.size = sum(self.sizes.values())

    def take_number(self) -> int:
        """Return the next number, which is used now."""
        self.next_number += 1
        return self.next_number - 1


class TurnStreams:
    """The streams of a turn. `own_part`: of the turn's own code. `on_record`: the parts with chunks, by stream."""

    def __init__(
        self,
        claim: Claim,
        task: Task,
        journal: StreamJournal,
        on_record: Mapping[str, frozenset[str]],
        *,
        own_part: str,
        max_bytes: int,
    ) -> None:
        self._claim = claim
        self._task = task
        self._journal = journal
        self._own_part = own_part
        self._max_bytes = max_bytes
        self._buffer = StreamBuffer(claim)
        self._known: dict[str, KnownStream] = {}
        self._parts = {name: set(parts) for name, parts in on_record.items()}
        self._own_cut: set[str] = set()
        self._opening = anyio.Lock()

    @property
    def parts(self) -> dict[str, frozenset[str]]:
        """The parts with chunks, by stream."""
        return {name: frozenset(parts) for name, parts in self._parts.items()}

    def was_cut_off(self, name: str, part: Part | None) -> bool:
        """Return whether an earlier run of this part wrote chunks that do not count any more."""
        if part is None:
            return name in self._own_cut
        return name in part.cut or (name not in part.begun and part.identity in self._parts.get(name, ()))

    async def write(self, name: str, text: str, size: int, part: Part | None) -> None:
        """Add a chunk of `size` bytes. It is on disk soon. Raises LeaseLost, InvalidInput for too many streams,
        PayloadTooLarge for a stream that is full."""
        if self._buffer.error is not None:
            raise self._buffer.error
        stream = self._known.get(name) or await self._open(name)
        if part is None:
            if stream.own and stream.own[0][1] == text:
                stream.own.popleft()
                return
            if stream.own:
                self._cut_own(name, stream)
                self._own_cut.add(name)
        elif name not in part.begun:
            self._begin(name, stream, part)
        identity = self._own_part if part is None else part.identity
        if stream.size + size > self._max_bytes:
            raise self._refuse_size(name, stream.size, size)
        if identity not in stream.sizes:
            stream.sizes[identity] = 0
            self._parts[name].add(identity)
        stream.sizes[identity] += size
        stream.size += size
        if not self._buffer.writes:
            self._journal.schedule(self._buffer)
        self._buffer.append(stream.seq, stream.take_number(), identity, text)

    async def end_part(self, part: Part) -> None:
        """Cut what an earlier run of this part wrote to streams to which this one wrote nothing. Return once all is on
        disk: a part that is on record is not run again. Raises LeaseLost."""
        for name, parts in list(self._parts.items()):
            if part.identity in parts and name not in part.begun:
                self._begin(name, await self._open(name), part)
        await self.save()

    async def close(self) -> None:
        """Cut what this turn has not written again, and return once all is on disk. Raises LeaseLost."""
        for name, parts in list(self._parts.items()):
            if name in self._known or self._own_part in parts or any(map(self._is_foreign, parts)):
                stream = await self._open(name)
                if stream.own:
                    self._cut_own(name, stream)
        await self.save()

    async def save(self) -> None:
        """Return once all that was written is on disk. Raises LeaseLost."""
        await self._journal.save(self._buffer)
        if self._buffer.error is not None:
            raise self._buffer.error

    async def _open(self, name: str) -> KnownStream:
        async with self._opening:
            if (known := self._known.get(name)) is not None:
                return known
            if name not in self._parts and len(self._parts) >= STREAMS_MAX:
                raise InvalidInput(
                    f"stream {name} would be number {STREAMS_MAX + 1} of this turn; the limit is {STREAMS_MAX}: write "
                    "to fewer streams"
                )
            found = await self._journal.open(self._claim, self._task, name)
            self._parts.setdefault(name, set())
            stream = self._known[name] = KnownStream(found, self._own_part)
            for part in list(stream.sizes):
                if self._is_foreign(part):
                    self._cut(name, stream, part, after=0)
            return stream

    def _is_foreign(self, part: str) -> bool:
        """Return whether a part is of another agent of the turn, which failed."""
        return part.partition("|")[2] != self._own_part.partition("|")[2]

    def _begin(self, name: str, stream: KnownStream, part: Part) -> None:
        part.begun.add(name)
        if part.identity in stream.sizes:
            part.cut.add(name)
            self._cut(name, stream, part.identity, after=0)

    def _cut_own(self, name: str, stream: KnownStream) -> None:
        """Cut what the turn's own code wrote and has not written again."""
        left = sum(_size(text) for _, text in stream.own)
        first = stream.own[0][0]
        kept = stream.sizes[self._own_part] - left
        stream.own.clear()
        self._cut(name, stream, self._own_part, after=first - 1)
        stream.sizes[self._own_part] = kept
        stream.size += kept

    def _cut(self, name: str, stream: KnownStream, part: str, *, after: int) -> None:
        stream.size -= stream.sizes.pop(part, 0)
        self._parts[name].discard(part)
        self._buffer.cut(stream.seq, stream.take_number(), part, after)
        self._journal.schedule(self._buffer)

    def _refuse_size(self, name: str, there: int, size: int) -> PayloadTooLarge:
        return PayloadTooLarge(
            f"stream {name} has {there:,} bytes and this chunk {size:,}; the limit is {self._max_bytes:,}: write "
            "the rest to a file, or raise tasks.stream_max_bytes"
        )


def _size(text: str | None) -> int:
    return 0 if text is None else len(text.encode())
