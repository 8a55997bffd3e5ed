"""The output of a program as it is kept: the beginning and the end, with a mark in place of the middle."""

from __future__ import annotations

import codecs

import anyio
from anyio.abc import ByteReceiveStream


class Capture:
    """Reads one stream to its end, whatever happens around it, and keeps at most `max_bytes` of it.

    It reads on while the program is being stopped, so that a program that says goodbye is neither blocked nor unheard;
    `close` is what ends it before the stream does.
    """

    def __init__(self, max_bytes: int) -> None:
        self.total_bytes = 0
        self.ended = anyio.Event()
        self._scope = anyio.CancelScope(shield=True)
        self._head_max = max_bytes - max_bytes // 2
        self._tail_max = max_bytes // 2
        self._head = bytearray()
        self._tail = bytearray()

    async def read(self, stream: ByteReceiveStream) -> None:
        try:
            with self._scope:
                async for chunk in stream:
                    self.add(chunk)
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            pass  # its end, told another way
        finally:
            self.ended.set()

    def close(self) -> None:
        self._scope.cancel()

    def add(self, chunk: bytes) -> None:
        self.total_bytes += len(chunk)
        room = self._head_max - len(self._head)
        self._head += chunk[:room]
        self._tail += chunk[room:]
        if len(self._tail) > 2 * self._tail_max + 65536:  # trimmed now and then, not at every chunk
            self._trim()

    def text(self) -> str:
        """Return what was kept, as text; bytes that are not UTF-8 become U+FFFD."""
        self._trim()
        if self.total_bytes == len(self._head) + len(self._tail):
            return (self._head + self._tail).decode(errors="replace")
        # A character that the cut went through belongs to what was cut.
        head = codecs.getincrementaldecoder("utf-8")("replace").decode(self._head, final=False)
        start = next((index for index, byte in enumerate(self._tail[:4]) if byte & 0xC0 != 0x80), 0)
        cut = self.total_bytes - len(self._head) - len(self._tail)
        return f"{head}\n[... {cut} bytes cut ...]\n{self._tail[start:].decode(errors='replace')}"

    def _trim(self) -> None:
        del self._tail[: max(0, len(self._tail) - self._tail_max)]
