"""The stream that `ctx.stream` returns."""

from __future__ import annotations

import time

from craftcore.engine.turn.part import get_running_part
from craftcore.engine.turn.turn import Turn
from craftcore.engine.turn.unawaited_calls import CallsMade, track_await
from craftcore.errors import InvalidInput
from craftcore.serialization.arguments import show_value
from craftcore.triggers.validation import require_name


class Stream:
    """Text that a turn writes piece by piece, and that readers follow with `handle.stream(name)` while it runs.

    name  the name of the stream, one of those of the turn
    """

    def __init__(self, turn: Turn, name: str) -> None:
        require_name("stream name", name)
        self.name = name
        self._turn = turn

    @property
    def _calls_made(self) -> CallsMade:
        return self._turn.calls_made

    @property
    def cut(self) -> bool:
        """True when an earlier run of the code that asks was cut off, and the chunks it wrote do not count any more.

        In a step: that of an earlier run of this step. In the turn's own code: it has written other chunks than those
        on record. Readers find the numbers in `StreamChunk.cut`.
        """
        return self._turn.has_streams and self._turn.streams.was_cut_off(self.name, get_running_part())

    @track_await("stream.write")
    async def write(self, chunk: str) -> None:
        """Append a chunk of text. It is on disk after 100 ms at the latest, and before its step or its turn is on
        record; an empty one is left out.

        A step that is on record writes nothing again. A step that runs again begins with nothing: its earlier chunks
        are cut. The turn's own code runs again at a re-entry. A chunk that equals the one on record in its place is not
        written twice; at the first other one the rest on record is cut.

        Raises InvalidInput for what is not text, for the 101st stream of a turn, and on a cluster. Raises
        PayloadTooLarge when the stream would have more than `tasks.stream_max_bytes`: nothing of the chunk is written.
        Raises LeaseLost.
        """
        size = self._measure(chunk)
        if size:
            await self._turn.streams.write(self.name, chunk, size, get_running_part())

    def write_blocking(self, chunk: str) -> None:
        """Append a chunk, as `write` does, in a plain function that a step runs in a thread. Raises InvalidInput on the
        event loop, and what `write` raises."""
        if self._turn.services.loop.is_current():
            raise InvalidInput("stream.write_blocking is for a plain function in a thread: await stream.write(chunk)")
        part = get_running_part()

        async def write() -> None:
            if size := self._measure(chunk):
                await self._turn.streams.write(self.name, chunk, size, part)

        self._turn.services.streams.call(write)

    def _measure(self, chunk: str) -> int:
        """Return the bytes of a chunk that can be written now. Raises InvalidInput, and StateRefused after the turn."""
        self._turn.refuse_when_over()
        self._turn.progress_at = time.monotonic()
        if type(chunk) is not str:
            raise InvalidInput(
                f"a chunk of stream {self.name} must be text, and {show_value(chunk)} is not: decode bytes, or write "
                "them as base64"
            )
        try:
            return len(chunk.encode())
        except UnicodeEncodeError as error:
            raise InvalidInput(f"a chunk of stream {self.name} is not valid text: {error}") from error
